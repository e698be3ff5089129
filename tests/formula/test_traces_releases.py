"""Profiles as older and newer releases write them: categories, kernels, functional collectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railwright.traces.kernels import op_of, served_by, work_of
from railwright.traces.kineto import Call, Span, read
from railwright.traces.measured import step_of

US = 1e-6


def written(file: Path, *events: tuple[str, str, float, float, dict[str, object]]) -> Path:
    """(category, name, start [us], length [us], its arguments), all of one process and thread."""
    keys = ("cat", "name", "ts", "dur", "args")
    listed = [{"ph": "X", "pid": 1, "tid": 7} | dict(zip(keys, event, strict=True)) for event in events]
    file.write_text(json.dumps({"traceEvents": listed}))
    return file


@pytest.mark.parametrize(
    ("name", "work"),
    [
        # Whatever CuTe DSL compiles begins with kernel_cutlass_.
        ("kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmemalign16", "memory"),
        ("kernel_cutlass__convert_kernel_tensorptrf16gmemalign16o1256111", "memory"),
        ("kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA", "gemm"),
        ("kernel_cutlass_kernel_TiledMMA_ThrLayoutVMNK11110000_PermutationMNK", "gemm"),
        ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100", "attention"),
        # FSDP2 copies a layer's shards into the buffer that it gathers by one kernel of many tensors.
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
            "at::native::(anonymous namespace)::CopyFunctor<c10::BFloat16, float, 2, 1, 1>>(x)",
            "memory",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, "
            "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>(x)",
            "optimizer",
        ),
    ],
)
def test_a_kernel_of_a_new_library_is_known_by_its_name(name: str, work: str) -> None:
    assert work_of(Span(name, "kernel", 0, 1, "stream 7")) == work


@pytest.mark.parametrize(
    ("name", "op", "serves"),
    [
        ("void uccl::internode::dispatch<false, 8>(int4*)", "all_to_all", "ep"),
        (
            "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)",
            "all_to_all",
            "",
        ),
        ("c10d::nvshmem_extension::exchangeSplitAndOffset_2d<true>(long*, long*)", "all_to_all", ""),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", None, ""),
        ("c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int)", None, ""),
    ],
)
def test_what_waits_for_other_ranks_is_communication(name: str, op: str | None, serves: str) -> None:
    """As an NCCL kernel's waiting is, a barrier's around copies of symmetric memory."""
    span = Span(name, "kernel", 0, 1, "stream 7")
    assert (work_of(span), op_of(span), served_by(span)) == ("communication", op, serves)


@pytest.mark.parametrize(
    ("called", "op"),
    [
        ("gather", None),
        ("scatter", None),
        ("send", "sendrecv"),
        ("all_to_allv", "all_to_all"),
        ("", "sendrecv"),
    ],
)
def test_what_runs_as_sends_is_what_was_called(called: str, op: str | None) -> None:
    """ProcessGroupNCCL's gather and scatter are groups of sends too, and no message between two ranks."""
    call = Call(called, 1e6, 1e6, 4, "0", "[0, 1, 2, 3]") if called else None
    assert op_of(Span("ncclDevKernel_SendRecv(x)", "kernel", 0, 1, "stream 7", call)) == op


def test_categories_of_2021(tmp_path: Path) -> None:
    """PyTorch 1.8 to 1.11: Kernel, Memcpy, Memset, Runtime, Operator; marks of steps were operators.

    Two steps of 1,000 us on the host, whose kernels begin 500 us later: 300 us of a product, 40 of setting
    memory, 60 of a copy.  The second step's work ends at 1,900, the first lasts until it begins.
    """
    events: list[tuple[str, str, float, float, dict[str, object]]] = []
    for step in range(2):
        at = 1000.0 * step
        events.append(("Operator", f"ProfilerStep#{step}", at, 1000.0, {}))
        for i, (cat, name, start, length) in enumerate(
            [
                ("Kernel", "volta_sgemm_128x64_nn", 500.0, 300.0),
                ("Memset", "Memset (Device)", 800.0, 40.0),
                ("Memcpy", "Memcpy HtoD (Pinned -> Device)", 840.0, 60.0),
            ]
        ):
            call = {"correlation": 10 * step + i}
            events.append(("Runtime", "cudaLaunchKernel", at + 10.0 * i, 5.0, call))
            events.append((cat, name, at + start, length, call | {"stream": 7}))
    profile = read(written(tmp_path / "old.json", *events))
    assert profile.on_gpu
    step = step_of(profile)
    assert (step.found, step.steps) == ("ProfilerStep", 2)
    assert step.seconds == pytest.approx(400 * US)
    assert step.exposed == {
        "gemm": pytest.approx(300 * US),
        "memory": pytest.approx(40 * US),
        "copy": pytest.approx(60 * US),
    }


def test_operators_of_2021_on_a_cpu(tmp_path: Path) -> None:
    profile = read(written(tmp_path / "old.json", ("Operator", "aten::mm", 0.0, 100.0, {})))
    assert step_of(profile, whole=True).exposed == {"gemm": pytest.approx(100 * US)}


def test_a_cpu_does_not_compute_while_it_calls_a_collective(tmp_path: Path) -> None:
    """A backward pass's operator of 1,000 us encloses a product of 100 us, the call of a functional
    collective from 300 to 700 with gloo's 200 us of it, and 20 us of waiting; the copy in front is its own.

    Left are 1,000 - 400 - 20 us of computing, 200 us of communication and 220 in which only a call runs.
    """
    profile = read(
        written(
            tmp_path / "cpu.json",
            ("cpu_op", "aten::copy_", 0.0, 50.0, {}),
            ("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 50.0, 1000.0, {}),
            ("cpu_op", "aten::mm", 100.0, 100.0, {}),
            ("cpu_op", "_c10d_functional::all_reduce", 300.0, 400.0, {}),
            ("cpu_op", "c10d::allreduce_", 310.0, 380.0, {}),
            ("user_annotation", "gloo:all_reduce", 400.0, 200.0, {}),
            ("cpu_op", "_c10d_functional::wait_tensor", 800.0, 20.0, {}),
        )
    )
    exposed = step_of(profile, whole=True).exposed
    assert exposed == {
        "gemm": pytest.approx(100 * US),
        "memory": pytest.approx((50 + 1000 - 100 - 400 - 20) * US),
        "communication": pytest.approx(200 * US),
        "idle": pytest.approx(220 * US),
    }
