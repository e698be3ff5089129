"""Profiles that say something else than what is asked of them: times that are no microseconds, another GPU, a
rank twice, a layer in the place of a step.

The traces are made by hand after Kineto's source (libkineto/src/output_json.cpp).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railwright.catalog.names import is_another_gpu
from railwright.errors import PlanError, SpecError
from railwright.traces.comparison import compare
from railwright.traces.kineto import read
from railwright.traces.measured import step_of
from training_cases import DENSE, job, machine

FIXTURE = Path(__file__).parent.parent / "data" / "traces" / "gpu_rank0.json"
US = 1e-6
EPOCH = 1_767_189_312_000_000  # of New Year's Eve 2025 [us]


def _changed(tmp_path: Path, scale: float = 1.0, since: float = 0.0, **head: object) -> Path:
    """The fixture with its times moved and scaled, and another head."""
    whole = json.loads(FIXTURE.read_text()) | head
    for event in whole["traceEvents"]:
        if event["ph"] == "X":
            event["ts"], event["dur"] = (event["ts"] + since) * scale, event["dur"] * scale
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(whole))
    return file


def _words(file: Path, whole: bool = False) -> str:
    return " ".join(compare([step_of(read(file), whole)], job(gpus=16), DENSE, machine(2))[0].words)


def test_what_a_viewer_shows_does_not_change_the_unit_of_times(tmp_path: Path) -> None:
    """Trace Event Format: displayTimeUnit is for viewers; ts and dur are microseconds."""
    assert step_of(read(_changed(tmp_path, displayTimeUnit="ns"))).seconds == pytest.approx(1000 * US)


def test_nanoseconds_since_1970_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"after the year 2262.*divide every ts and dur by 1,000"):
        read(_changed(tmp_path, 1000, EPOCH))


def test_nanoseconds_since_anything_else_are_told(tmp_path: Path) -> None:
    """Kernels of 20 to 300 us become ones of 20 to 300 ms."""
    assert "divide every ts and dur by 1,000" in _words(_changed(tmp_path, 1000))
    assert "divide" not in _words(FIXTURE)


def test_microseconds_since_1970_lose_none(tmp_path: Path) -> None:
    """They have four digits behind them in seconds: kernels of 1 us were of 0.95 or 1.19."""
    file = tmp_path / "profile.json"
    kernels = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": EPOCH + 2 * i, "dur": 1, "pid": 0, "tid": 7}
        for i, name in enumerate(["nvjet_tst", "flash_fwd_kernel"] * 500)
    ]
    file.write_text(json.dumps({"traceEvents": kernels}))
    step = step_of(read(file), whole=True)
    assert step.exposed == pytest.approx({"gemm": 500 * US, "attention": 500 * US, "idle": 999 * US})


@pytest.mark.parametrize(
    ("device", "gpu", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm", False),
        ("NVIDIA H100 PCIe", "h100-sxm", True),
        ("NVIDIA H100 NVL", "h100-nvl", False),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80", False),
        ("NVIDIA A100-SXM4-80GB", "h100-sxm", True),
        ("NVIDIA A800-SXM4-80GB", "a100-sxm-80", True),
        ("NVIDIA GB200", "b200-sxm", True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", False),
        ("NVIDIA GeForce RTX 4090", "rtx-5090", True),
        ("AMD Instinct MI300X", "mi300x", False),
        # RCCL's and ROCm's name where the table of names is missing: it says nothing
        ("AMD Radeon Graphics", "mi300x", False),
        ("", "h100-sxm", False),
    ],
)
def test_a_drivers_name_says_whether_it_is_another_gpu(device: str, gpu: str, other: bool) -> None:
    assert is_another_gpu(device, gpu) is other


def test_a_profile_of_another_gpu_is_told(tmp_path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}, {"id": 1, "name": "NVIDIA H100 80GB HBM3"}]
    words = _words(_changed(tmp_path, deviceProperties=devices))
    assert "of a GPU 'NVIDIA A100-SXM4-80GB', and the study's are h100-sxm" in words
    assert "of a GPU" not in _words(_changed(tmp_path, deviceProperties=devices[1:]))


@pytest.mark.parametrize(("said", "rank"), [(3, 3), ("3", 3), ("", None), (None, None)])
def test_a_rank_may_be_a_text(tmp_path: Path, said: object, rank: int | None) -> None:
    assert read(_changed(tmp_path, distributedInfo={"rank": said, "world_size": "16"})).rank == rank


def test_one_rank_has_one_profile(tmp_path: Path) -> None:
    """A rank's profiles of two times of a job, or one file twice, were compared as two ranks."""
    one, other = step_of(read(FIXTURE)), step_of(read(_changed(tmp_path)))
    with pytest.raises(PlanError, match="are both of rank 0; name one profile of each rank"):
        compare([one, other], job(gpus=16), DENSE, machine(2))
    nameless = step_of(read(_changed(tmp_path, distributedInfo={})))
    with pytest.raises(PlanError, match="is named twice; name one profile of each rank"):
        compare([nameless, nameless], job(gpus=16), DENSE, machine(2))


def test_the_whole_trace_is_one_step_though_it_has_marks(tmp_path: Path) -> None:
    assert "3 ProfilerStep# marks are in it" in _words(FIXTURE, whole=True)
    assert "marks are in it" not in _words(FIXTURE)


def _without_marks(tmp_path: Path, steps: int, microbatches: int, layers: int = 8) -> Path:
    """Steps of layers forward and backward, for every microbatch, and an optimizer of two kernels."""
    names: list[str] = []
    for _ in range(steps):
        names += (
            ["flash_fwd_kernel", "nvjet_tst"] * layers + ["flash_bwd", "nvjet_nt"] * layers
        ) * microbatches
        names += ["multi_tensor_apply_kernel<Norm>", "multi_tensor_apply_kernel<FusedAdam>"]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": 10 * i, "dur": 10, "pid": 0, "tid": 7}
        for i, name in enumerate(names)
    ]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"traceEvents": events}))
    return file


@pytest.mark.parametrize(("steps", "microbatches"), [(1, 1), (2, 8), (1, 8)])
def test_layers_and_microbatches_are_no_steps(tmp_path: Path, steps: int, microbatches: int) -> None:
    """Of one step's 8 forward passes of a layer 7 were steps of 20 us; of two steps' 16 microbatches 15."""
    with pytest.raises(SpecError, match="no pattern of kernels repeats"):
        step_of(read(_without_marks(tmp_path, steps, microbatches)))


@pytest.mark.parametrize("microbatches", [1, 4])
def test_four_steps_are_found_by_their_optimizer(tmp_path: Path, microbatches: int) -> None:
    step = step_of(read(_without_marks(tmp_path, 4, microbatches)))
    assert (step.found, step.steps) == ("repeated pattern", 3)
    assert step.seconds == pytest.approx((320 * microbatches + 20) * US)


@pytest.mark.parametrize(("ranks", "told"), [(4, True), (8, False), (16, False)])
def test_groups_that_the_layout_does_not_have_are_told(tmp_path: Path, ranks: int, told: bool) -> None:
    """Of 16 GPUs with tensor parallelism of 8; one group of all ranks is every layout's."""
    about = {"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "BFloat16", "Group size": ranks}
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": 100, "args": args}
        for name, at, args in (("nvjet_tst", 1, {}), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 101, about))
    ]
    (tmp_path / "profile.json").write_text(json.dumps({"traceEvents": events}))
    step = step_of(read(tmp_path / "profile.json"), whole=True)
    words = compare([step], job(gpus=16, tensor=8), DENSE, machine(2))[0].words
    said = [word for word in words if word.startswith(f"Collectives over {ranks} ranks run for 0.10 ms")]
    assert ["has groups of 2, 8, 16:" in word for word in said] == ([True] if told else [])


@pytest.mark.parametrize(("every", "told"), [(1, False), (4, True)])
def test_marks_of_microbatches_are_told(tmp_path: Path, every: int, told: bool) -> None:
    """Eight marks of 100 us, the optimizer in each, or in the last of four."""
    events: list[dict[str, object]] = []
    for i in range(8):
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 100 * i, "dur": 100, "pid": 9}
        events += [mark, {"cat": "kernel", "name": "nvjet_tst", "ts": 100 * i, "dur": 80, "pid": 0}]
        if (i + 1) % every == 0:
            adam = "multi_tensor_apply_kernel<FusedAdam>"
            events.append({"cat": "kernel", "name": adam, "ts": 100 * i + 80, "dur": 10, "pid": 0})
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"traceEvents": [{"ph": "X", "tid": 7, **event} for event in events]}))
    said = "Kernels of the optimizer are in 2 of 8 marked steps: where each is a microbatch"
    assert (said in _words(file)) is told
