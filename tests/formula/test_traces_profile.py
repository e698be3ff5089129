"""Profiles of real steps: kernels by name, the step found, every instant of it shared out, and beside ours.

tests/data/traces/gpu_rank0.json is made by hand: three steps of 1,000 us, in each
  0-300 a product, 300-400 attention, 400-450 element-wise, 400-650 an all-reduce of 4 MiB over 16 ranks,
  700-750 the optimizer, 750-770 a copy to the host.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from railwright.traces.comparison import compare
from railwright.traces.kernels import NcclKernel, nccl_kernel, op_of, work_of
from railwright.traces.kineto import Span, read
from railwright.traces.measured import step_of
from training_cases import DENSE, job, machine

FIXTURE = Path(__file__).parent.parent / "data" / "traces" / "gpu_rank0.json"
US = 1e-6


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            NcclKernel("all_reduce", "Sum", "bf16", "RING", "LL"),
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            NcclKernel("all_reduce", "Sum", "float", "RING", "LL"),
        ),
        ("ncclDevKernel_AllGather_RING_LL(x)", NcclKernel("all_gather", "", "", "RING", "LL")),
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
            NcclKernel("reduce_scatter", "Sum", "f32", "RING", "LL"),
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_NVLS_TREE_SIMPLE(x)",
            NcclKernel("all_reduce", "Sum", "f32", "NVLSTREE", "SIMPLE"),
        ),
        ("ncclDevKernel_SendRecv(x)", NcclKernel("sendrecv")),
        ("ncclDevKernel_Generic(x)", NcclKernel(None)),
        ("gloo:all_reduce", NcclKernel("all_reduce")),
        ("nvjet_tst_128x256_64x4", None),
    ],
)
def test_an_nccl_kernels_name_is_taken_apart(name: str, parts: NcclKernel | None) -> None:
    assert nccl_kernel(name) == parts


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>(x)", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32", "gemm"),
        (
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>(x)",
            "attention",
        ),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", "attention"),
        ("void at::native::vectorized_elementwise_kernel<4>(int)", "memory"),
        ("void at::native::multi_tensor_apply_kernel<x>(int)", "optimizer"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "communication"),
    ],
)
def test_a_kernel_is_known_by_its_name(name: str, work: str) -> None:
    assert work_of(Span(name, "kernel", 0.0, 1.0, "stream 7")) == work


def test_every_instant_of_the_step_belongs_to_one_share() -> None:
    step = step_of(read(FIXTURE))
    assert (step.found, step.steps, step.rank) == ("ProfilerStep", 3, 0)
    assert step.seconds == pytest.approx(1000 * US, rel=1e-6)
    expected = {
        "gemm": 300, "attention": 100, "memory": 50, "optimizer": 50, "communication": 200, "copy": 20,
        "idle": 280,
    }  # fmt: skip
    assert {kind: s / US for kind, s in step.exposed.items()} == pytest.approx(expected, abs=1e-3)
    # 50 us of the all-reduce run beside the element-wise kernel.
    assert step.busy["communication"] == pytest.approx(250 * US, rel=1e-5)
    assert sum(step.exposed.values()) == pytest.approx(step.seconds)


def test_what_a_collective_moved_is_read_where_it_was_recorded() -> None:
    (one,) = step_of(read(FIXTURE)).collectives
    assert one.op == "all_reduce"
    assert one.call is not None
    assert (one.call.bytes_in, one.call.ranks) == (4 * 2**20, 16)
    assert one.times == pytest.approx([250 * US], rel=1e-5)


def test_an_all_to_all_that_ran_as_sends_keeps_its_recorded_name() -> None:
    args = {"Collective name": "all_to_allv", "In msg nelems": 8, "dtype": "BFloat16", "Group size": 4}
    event = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(x)", "ts": 1, "dur": 2, "args": args}
    assert op_of(_read_one(event)) == "all_to_all"


def test_without_marks_the_step_is_the_pattern_that_repeats(tmp_path: Path) -> None:
    whole = json.loads(FIXTURE.read_text())
    whole["traceEvents"] = [e for e in whole["traceEvents"] if "annotation" not in e.get("cat", "")]
    # A fourth run of the step's first kernel closes the third step.
    last = next(e for e in whole["traceEvents"] if e["name"].startswith("nvjet"))
    whole["traceEvents"].append({**last, "ts": last["ts"] + 3000})
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(whole))
    step = step_of(read(file))
    assert step.found == "repeated pattern"
    assert step.seconds == pytest.approx(1000 * US, rel=1e-6)


def test_gzip_is_seen_by_its_first_bytes(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(gzip.compress(FIXTURE.read_bytes()))
    assert step_of(read(file)).exposed == step_of(read(FIXTURE)).exposed


def test_a_long_trace_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railwright.traces.kineto.CHUNK", 97)
    assert step_of(read(FIXTURE)).exposed == step_of(read(FIXTURE)).exposed
    assert len(read(FIXTURE).spans) == 24


def test_both_columns_add_up_and_the_words_name_the_largest_difference() -> None:
    step = step_of(read(FIXTURE))
    result, predicted = compare([step], job(gpus=16, batch=16), DENSE, machine(2))
    assert sum(row.measured for row in result.rows) == pytest.approx(step.seconds)
    assert sum(row.predicted for row in result.rows) == pytest.approx(predicted.step_time)
    largest = max(result.rows, key=lambda row: abs(row.measured - row.predicted))
    assert result.words[1].lower().startswith(largest.share.lower())
    # 16 ranks are this job's data-parallel group, so the all-reduce is known and priced.
    (one,) = result.collectives
    assert (one.kind, one.ranks, one.count) == ("dp", 16, 1)
    assert one.predicted is not None
    assert one.predicted > 0


def _read_one(event: dict[str, object]) -> Span:
    from railwright.traces.kineto import _span

    return _span(event)
