"""Profiles of real steps: the step found, every instant of it shared out, and beside ours.

tests/data/traces/gpu_rank0.json is made by hand: three steps of 1,000 us, in each
  0-300 a product, 300-400 attention, 400-450 element-wise, 400-650 an all-reduce of 4 MiB over 16 ranks,
  700-750 the optimizer, 750-770 a copy to the host.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.traces.comparison import compare
from railwright.traces.expected import OTHER
from railwright.traces.kernels import op_of, work_of
from railwright.traces.kineto import Span, read
from railwright.traces.measured import step_of
from training_cases import DENSE, MOE, job, machine

FIXTURE = Path(__file__).parent.parent / "data" / "traces" / "gpu_rank0.json"
US = 1e-6


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


@pytest.mark.parametrize("event", [
    {"cat": "kernel", "name": "sm90_xmma_gemm_bf16", "ts": 5, "dur": 0},
    {"cat": "kernel", "name": "sm90_xmma_gemm_bf16", "ts": 5},
    {"cat": "gpu_memset", "name": "Memset (Device)", "ts": 5, "dur": 0},
])  # fmt: skip
def test_an_event_of_no_length_has_no_instant(tmp_path: Path, event: dict[str, object]) -> None:
    whole = json.loads(FIXTURE.read_text())
    starts = [e["ts"] for e in whole["traceEvents"] if str(e.get("name")).startswith("ProfilerStep")]
    whole["traceEvents"] += [{"ph": "X", "pid": 0, "tid": 7, **event, "ts": ts + 5} for ts in starts]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(whole))
    assert step_of(read(file)).exposed == pytest.approx(step_of(read(FIXTURE)).exposed)


def _beside(tmp_path: Path, *more: dict[str, object]) -> Path:
    """The fixture with more events."""
    whole = json.loads(FIXTURE.read_text())
    whole["traceEvents"] += [{"ph": "X", "tid": 7, **event} for event in more]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(whole))
    return file


def test_an_event_that_ends_before_it_begins_is_left_out_and_told(tmp_path: Path) -> None:
    """Of operators of the CPU, which do not count beside a GPU, nothing is said."""
    cut = {"cat": "kernel", "pid": 0, "name": "nvjet_tst", "ts": 5_100, "dur": -3_000}
    file = _beside(tmp_path, cut, {**cut, "cat": "cpu_op"})
    step = step_of(read(file))
    assert step.exposed == pytest.approx(step_of(read(FIXTURE)).exposed)
    words = compare([step], job(gpus=16), DENSE, machine(2))[0].words
    assert words[1].startswith("1 event left out that ends before the start")


def test_of_several_gpus_in_one_profile_one_is_compared(tmp_path: Path) -> None:
    """Ranks' profiles in one file: another GPU's kernels in the first one's gaps were its work, and marks of
    both were one step."""
    mark = {"cat": "gpu_user_annotation", "pid": 1, "name": "ProfilerStep#5", "ts": 4_000, "dur": 2_500}
    idle = {"cat": "kernel", "pid": 1, "name": "nvjet_tst", "ts": 5_800, "dur": 200}
    step = step_of(read(_beside(tmp_path, mark, idle)))
    assert step.exposed == pytest.approx(step_of(read(FIXTURE)).exposed)
    words = compare([step], job(gpus=16), DENSE, machine(2))[0].words
    assert "Kernels of 2 GPUs are in this profile; those of GPU 0" in words[1]
    assert "those of 1 are left out" in words[1]


def test_a_profile_of_another_job_is_refused(tmp_path: Path) -> None:
    whole = json.loads(FIXTURE.read_text())
    compare([step_of(read(FIXTURE))], job(), DENSE, machine(2))
    with pytest.raises(PlanError, match=r"is of a job of 16 ranks .* this one has 8 GPUs"):
        compare([step_of(read(FIXTURE))], job(gpus=8, batch=8), DENSE, machine(2))
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({**whole, "distributedInfo": {"rank": 16, "world_size": 16}}))
    with pytest.raises(PlanError, match=r"is of rank 16 .* this job has ranks 0 to 15"):
        compare([step_of(read(file))], job(), DENSE, machine(2))


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


def test_marks_of_several_streams_are_one_step(tmp_path: Path) -> None:
    """Kineto marks a step once per stream: the all-reduce's stream begins its mark 400 us after the other."""
    whole = json.loads(FIXTURE.read_text())
    marks = [e for e in whole["traceEvents"] if e.get("cat") == "gpu_user_annotation"]
    whole["traceEvents"] += [{**e, "tid": 20, "ts": e["ts"] + 400, "dur": 250} for e in marks]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(whole))
    one, two = step_of(read(FIXTURE)), step_of(read(file))
    assert (two.found, two.steps) == ("ProfilerStep", 3)
    assert (two.seconds, two.exposed) == (one.seconds, one.exposed)


def test_a_step_is_what_the_host_launched_in_it(tmp_path: Path) -> None:
    """The host is 100, 200 and 700 us ahead of three steps of 1,000 us of its device, whose marks end with
    the forward pass: neither its marks (a median of 900 us) nor the device's are the steps."""
    events: list[dict[str, object]] = []
    host, device = [0, 900, 1400, 2300], [100, 1100, 2100]
    for step, start in enumerate(device):
        name = f"ProfilerStep#{step}"
        begin, end = host[step : step + 2]
        events += [
            {"cat": "user_annotation", "pid": 9, "name": name, "ts": begin, "dur": end - begin - 1},
            {"cat": "gpu_user_annotation", "pid": 0, "name": name, "ts": start, "dur": 300},
        ]
        for kernel, (at, takes) in enumerate(((0, 300), (300, 650), (950, 50))):
            about = {"correlation": 10 * step + kernel}
            call = {"name": "cudaLaunchKernel", "ts": begin + 20 + kernel, "dur": 2, "args": about}
            on_gpu = {"name": "nvjet_tst", "ts": start + at, "dur": takes, "args": {"stream": 7, **about}}
            events += [
                {"cat": "cuda_runtime", "pid": 9, **call},
                {"cat": "kernel", "pid": 0, **on_gpu},
            ]
    file = tmp_path / "profile.json"
    for steps, found in ((3, 3), (1, 1)):
        chosen = [e for e in events if steps == 3 or float(str(e["ts"])) < (900 if e["pid"] else 1100)]
        file.write_text(json.dumps({"traceEvents": [{"ph": "X", **event} for event in chosen]}))
        step = step_of(read(file))
        assert (step.found, step.steps) == ("ProfilerStep", found)
        assert step.seconds / US == pytest.approx(1000, rel=1e-6)
        assert step.exposed["gemm"] / US == pytest.approx(1000, rel=1e-6)


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


def test_a_long_trace_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = read(FIXTURE)
    assert len(at_once.spans) == 24
    monkeypatch.setattr("railwright.traces.stream.CHUNK", 97)
    in_pieces = read(FIXTURE)
    assert in_pieces.spans == at_once.spans
    assert step_of(in_pieces).exposed == step_of(at_once).exposed


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


def test_kernels_of_deepep_stand_beside_the_predicted_expert_communication(tmp_path: Path) -> None:
    """1,000 us of a product, then 500 us of DeepEP's dispatch, with which no group is recorded."""
    kernels = [("nvjet_tst", 1, 1000), ("void deep_ep::internode::dispatch<false, 8>(int4*)", 1001, 500)]
    events = [{"ph": "X", "cat": "kernel", "name": n, "ts": at, "dur": dur} for n, at, dur in kernels]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    step = step_of(read(tmp_path / "profile.json"), whole=True)
    result, _ = compare([step], job(gpus=16, batch=16, expert=4), MOE, machine(2))
    (row,) = [row for row in result.rows if row.share == "ep communication"]
    assert row.measured == pytest.approx(500 * US)
    assert row.predicted > 0
    assert [(one.op, one.kind) for one in result.collectives] == [("all_to_all", "ep")]


def test_of_collectives_at_once_the_one_of_the_inner_lane_has_the_instant(tmp_path: Path) -> None:
    """As in a predicted step: a long exchange that began first has what an all-to-all inside it leaves, and
    one of which nothing is known has what nobody else does."""
    kernels = [
        ("nvjet_tst", 1, 100, 7),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 101, 600, 20),
        ("void deep_ep::internode::dispatch<false, 8>(int4*)", 201, 150, 21),
        ("ncclDevKernel_Broadcast_RING_LL", 650, 100, 22),
    ]
    events = [
        {"ph": "X", "cat": "kernel", "name": n, "ts": at, "dur": dur, "pid": 0, "tid": stream}
        for n, at, dur, stream in kernels
    ]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    step = step_of(read(tmp_path / "profile.json"), whole=True)
    assert sorted(len(at_once) for at_once in step.exposed_calls) == [1, 1, 2, 2]
    result, _ = compare([step], job(gpus=16, batch=16, expert=4), MOE, machine(2))
    rows = {row.share: row.measured / US for row in result.rows}
    assert rows["ep communication"] == pytest.approx(150)
    others = [rows.get(name, 0.0) for name in ("dp communication", OTHER)]
    assert sum(others) == pytest.approx(499)
    assert sum(row.measured for row in result.rows) == pytest.approx(step.seconds)


def _kind_of(
    tmp_path: Path, name: str, about: dict[str, object], wanted: TrainingJob, arch: Transformer
) -> str:
    """What a kernel of communication behind a product is called."""
    kernels = [("nvjet_tst", 1, 100, {}), (name, 101, 100, about)]
    events = [{"ph": "X", "cat": "kernel", "name": n, "ts": t, "dur": d, "args": a} for n, t, d, a in kernels]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    step = step_of(read(tmp_path / "profile.json"), whole=True)
    (one,) = compare([step], wanted, arch, machine(4))[0].collectives
    return one.kind


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("layout", "kind"), [({"gpus": 16}, "dp"), ({"gpus": 8, "tensor": 8}, "tp"), ({"tensor": 2}, "")], ids=str
)
def test_what_is_not_recorded_is_the_only_parallelism_of_the_layout(
    tmp_path: Path, layout: dict[str, object], kind: str
) -> None:
    """As with gloo and older PyTorch; groups of shards and of experts that are the data-parallel ones count
    as these."""
    assert _kind_of(tmp_path, ALL_REDUCE, {}, job(**layout), DENSE) == kind  # type: ignore[arg-type]


def test_a_size_that_two_parallelisms_have_names_neither(tmp_path: Path) -> None:
    """4 ranks are tensor-parallel or data-parallel here, and their numbers were not recorded."""
    about = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 4}
    about |= {"dtype": "BFloat16"}
    assert _kind_of(tmp_path, ALL_REDUCE, about, job(gpus=16, tensor=4), DENSE) == ""
    assert _kind_of(tmp_path, ALL_REDUCE, about, job(gpus=32, tensor=4), DENSE) == "tp"


def test_shards_of_experts_are_data_parallel(tmp_path: Path) -> None:
    """Of 32 GPUs shards of 8 hold experts of 4: ranks 0 and 4 share one expert's; it was a traceback."""
    about = {"Collective name": "_reduce_scatter_base", "In msg nelems": 1024, "Out msg nelems": 512}
    about |= {"Group size": 2, "dtype": "Float", "Process Group Ranks": "[0, 4]"}
    name = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    assert _kind_of(tmp_path, name, about, job(gpus=32, expert=4, shard=8, zero=3), MOE) == "dp"


def test_a_copy_to_another_gpu_is_communication() -> None:
    """Kineto's names of CUPTI's kinds (cupti_strings.cpp)."""
    for name, work in (
        ("Memcpy PtoP (Device -> Device)", "communication"),
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
    ):
        assert work_of(Span(name, "gpu_memcpy", 0.0, 1.0, "stream 7")) == work


def test_a_profile_without_a_gpu_says_so(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 50} for at in (1, 101)]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    step = step_of(read(tmp_path / "profile.json"), whole=True)
    words = compare([step], job(gpus=16, batch=16), DENSE, machine(2))[0].words
    assert words[1].startswith("No GPU is in this profile")
    assert "No GPU" not in " ".join(
        compare([step_of(read(FIXTURE))], job(gpus=16), DENSE, machine(2))[0].words
    )


def _read_one(event: dict[str, object]) -> Span:
    from railwright.traces.kineto import _span

    return _span(event)
