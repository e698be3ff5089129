"""Thirteen steps that NVIDIA publishes beside its tables, in no record and no fit.

NVIDIA/dgxc-benchmarking: tables and example outputs of deepseek_v3, qwen3 and llama4 at the tags named, whose
launch scripts and pinned commits say what ran (NeMo 7a8f1cc7 and 9244b1ec, Megatron-Bridge 7c0ae3fd and
15927667).  DeepSeek-V3's and Qwen3's were found on 22 November 2026 while looking for what NeMo's DeepSeek-V3
on GB200 lacks: before the fit knew of unfused kernels they were -17, -15, -14, +11 and -26 % off.  Llama 4
was scored after that fit (6.2 % off in the mean, 15 % on H100 in 16 bits); that its recipe hides all-to-alls
behind shared experts was modelled then.  No model of its kind (experts in every second layer) is in a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from railwright.measure.machines import published_machine
from railwright.measure.training.jobs import RACK
from railwright.model import load_model
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

BESIDE_SHARED = Overlap(shared=True)


@dataclass(frozen=True)
class Example:
    """One published step: what ran, its time [s], and the error of the prediction."""

    tag: str
    model: str
    gpu: str
    gpus: int
    batch: int
    layout: Layout
    seconds: float
    error: float
    sequence: int = 4096
    dtype: str = "bf16"
    graphs: tuple[str, ...] = ()
    mtp: int = 0
    capacity: float | None = None
    nodes: int | None = None
    unfused: tuple[str, ...] = ()
    overlap: Overlap = BESIDE_SHARED

    def predicted(self) -> float:
        job = TrainingJob(
            name=self.tag,
            model=self.model,
            gpus=self.gpus,
            sequence=self.sequence,
            global_batch=self.batch,
            tokens=1e12,
            dtype=self.dtype,  # type: ignore[arg-type]
            gradient_dtype="bf16",
            layout=self.layout,
            overlap=self.overlap,
            expert_capacity=self.capacity,
            expert_nodes=self.nodes,
            unfused=self.unfused,  # type: ignore[arg-type]
            cuda_graphs=self.graphs,  # type: ignore[arg-type]
            amax_over="stage" if self.dtype == "fp8" else None,
        )
        machine = published_machine(self.gpu, self.gpus, 400.0, rack=RACK)
        arch = replace(load_model(self.model), mtp_layers=self.mtp)
        return simulate(job, arch, machine, must_fit=False).step_time


def selective(*modules: str, **cut: object) -> Layout:
    return Layout(recompute="selective", recompute_modules=modules, **cut)  # type: ignore[arg-type]


NEMO = {"tensor": 2, "sequence_parallel": True, "expert": 64, "expert_tensor": 1}
EAGER = ("rotary", "router")
EXAMPLES = [
    Example("v25.05", "deepseek-v3", "H100", 1024, 8192,
            selective("mla_up_proj", pipeline=16, layers_per_stage=(3, *[4] * 14, 2), **NEMO),
            52.04, -0.16, mtp=1, capacity=1.0, unfused=EAGER),
    Example("v25.05.05", "deepseek-v3", "H100", 512, 4096,
            selective("mla_up_proj", pipeline=8, layers_per_stage=(7, *[8] * 6, 6), **NEMO),
            48.948, -0.12, mtp=1, capacity=1.0, unfused=EAGER),
    Example("v25.08", "deepseek-v3", "H100", 1024, 8192,
            selective("mla_up_proj", "mlp", "moe", pipeline=8, virtual_pipeline=2, expert=64),
            36.189, 0.01, nodes=4, unfused=("router",), overlap=Overlap()),
    Example("v25.10", "deepseek-v3", "GB200", 256, 2048,
            selective("mla_up_proj", pipeline=4, virtual_pipeline=4, expert=64),
            11.071, 0.09, mtp=1, capacity=1.0),
    # its expert all-to-alls do not look hidden: exposed, the step is 4 % too long
    Example("v25.12", "qwen3-235b-a22b", "H100", 256, 2048,
            Layout(tensor=2, sequence_parallel=True, pipeline=8, virtual_pipeline=4, expert=32,
                   expert_tensor=1),
            25.532, -0.32, overlap=Overlap(ep=True)),
]  # fmt: skip

BESIDE_PRODUCTS = Overlap(shared=True, tp=True)
"""Llama 4's recipe hides tensor parallelism too (NeMo 7a8f1cc7, collections/llm/recipes/llama4_e128.py)."""

RACKS = Layout(pipeline=2, virtual_pipeline=12, expert=64, expert_tensor=1)
SERVERS = Layout(tensor=4, sequence_parallel=True, expert=128, expert_tensor=4)
MAVERICK = [
    Example("v25.05", "llama-4-maverick", gpu, gpus, batch, layout, seconds, error, 8192, dtype, graphs,
            capacity=1.0, unfused=("router",), overlap=BESIDE_PRODUCTS)
    for gpu, gpus, batch, layout, dtype, graphs, seconds, error in (
        ("GB200", 128, 1024, RACKS, "bf16", (), 7.781, -0.05),
        ("GB200", 256, 2048, RACKS, "bf16", (), 7.859, -0.06),
        ("GB200", 512, 4096, RACKS, "bf16", (), 7.992, -0.07),
        ("GB200", 128, 1024, RACKS, "fp8", (), 6.093, 0.03),
        ("GB200", 256, 2048, RACKS, "fp8", (), 6.223, 0.01),
        ("GB200", 512, 4096, RACKS, "fp8", (), 6.327, 0.0),
        ("H100", 512, 1024, SERVERS, "bf16", (), 4.426, -0.025),
        ("H100", 512, 1024, SERVERS, "fp8", ("attention", "router"), 3.855, -0.09),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    "example", [*EXAMPLES, *MAVERICK], ids=lambda e: f"{e.tag} {e.model} {e.gpus} {e.gpu} {e.dtype}"
)
def test_a_published_example_is_as_far_off_as_the_documentation_says(example: Example) -> None:
    assert example.predicted() / example.seconds - 1 == pytest.approx(example.error, abs=0.03)


def test_all_thirteen_are_as_near_as_what_the_fit_has_left_out() -> None:
    # 10 % for mixtures of experts with their family left out (docs/training/calibration.md)
    errors = [abs(one.predicted() / one.seconds - 1) for one in (*EXAMPLES, *MAVERICK)]
    assert sum(errors) / len(errors) < 0.10


def test_what_the_example_of_qwen_does_not_hide() -> None:
    exposed = replace(EXAMPLES[-1], overlap=Overlap())
    assert exposed.predicted() / exposed.seconds - 1 == pytest.approx(0.0, abs=0.10)


def test_megatron_bridge_runs_what_nemo_ran_three_times_as_fast() -> None:
    # 256 GB200, 2,048 sequences: 34.194 s with NeMo 25.04.01 (a record), 11.071 s five months later
    fast = EXAMPLES[3]
    slow = replace(
        fast,
        layout=selective("core_attn", pipeline=4, layers_per_stage=(15, 16, 16, 14), **NEMO),
        unfused=EAGER,
    )
    assert slow.predicted() > 1.8 * fast.predicted()
