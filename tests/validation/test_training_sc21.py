"""Six steps of Narayanan et al. (SC'21), table 1, in no record and no fit, beside predictions.

Achieved TFLOP/s per GPU and layouts: NVIDIA/Megatron-LM commit 50a4b5fa02, images/cases_april2021.png (the
rows that the project's records call public).  Microbatches and layers of a virtual stage: the same
repository, examples/academic_paper_scripts/sc21/run_table_1.sh.  Selene: DGX A100 of 80 GB, eight HDR NICs.
"""

from dataclasses import dataclass
from statistics import mean

import pytest

from railwright.measure.machines import published_machine
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

SEQUENCE, VOCABULARY = 2048, 51200


@dataclass(frozen=True)
class Step:
    """One row: the model, how it was cut, and what each GPU achieved [TFLOP/s]."""

    name: str
    layers: int
    hidden: int
    heads: int
    tensor: int
    pipeline: int
    virtual: int
    micro_batch: int
    global_batch: int
    gpus: int
    achieved: float

    @property
    def seconds(self) -> float:
        """The paper's formula, equation 3: FLOPs of a step with everything computed again."""
        layer = 96 * self.global_batch * SEQUENCE * self.layers * self.hidden**2
        ends = 1 + SEQUENCE / (6 * self.hidden) + VOCABULARY / (16 * self.layers * self.hidden)
        return layer * ends / (self.gpus * self.achieved * 1e12)


STEPS = [
    Step("1.7B", 24, 2304, 24, 1, 1, 1, 16, 512, 32, 137),
    Step("3.6B", 30, 3072, 32, 2, 1, 1, 16, 512, 64, 138),
    Step("18B", 40, 6144, 48, 8, 1, 1, 8, 1024, 256, 135),
    Step("76B", 60, 10240, 80, 8, 4, 3, 2, 1792, 1024, 140),
    Step("145B", 80, 12288, 96, 8, 8, 2, 2, 2304, 1536, 148),
    Step("1T", 128, 25600, 160, 8, 64, 1, 1, 3072, 3072, 163),
]


def error(step: Step) -> float:
    """Predicted over measured, less one."""
    arch = Transformer(
        name=step.name,
        layers=step.layers,
        hidden=step.hidden,
        vocab=VOCABULARY,
        heads=step.heads,
        kv_heads=step.heads,
        head_dim=step.hidden // step.heads,
        ffn=4 * step.hidden,
        gated=False,
        tied_embeddings=True,
        position_embeddings=SEQUENCE,
    )
    job = TrainingJob(
        name=step.name,
        model=step.name,
        gpus=step.gpus,
        sequence=SEQUENCE,
        global_batch=step.global_batch,
        micro_batch=step.micro_batch,
        tokens=1e9,
        dtype="fp16",
        software="megatron-2021",
        layout=Layout(
            tensor=step.tensor,
            pipeline=step.pipeline,
            virtual_pipeline=step.virtual,
            recompute="full",
            zero=0,
        ),
        # --DDP-impl torch reduces beside the backward pass, local (with a pipeline) behind it
        overlap=Overlap(dp=step.pipeline == 1),
    )
    machine = published_machine("A100", step.gpus, 200.0)
    return simulate(job, arch, machine, must_fit=False, most_events=0).step_time / step.seconds - 1


def test_steps_of_selene_that_no_fit_has_seen() -> None:
    errors = {step.name: error(step) for step in STEPS}
    assert mean(abs(e) for e in errors.values()) <= 0.025, errors
    assert max(abs(e) for e in errors.values()) <= 0.055, errors


def test_tensor_parallelism_shifts_no_step() -> None:
    # 1.7B is not cut, 18B is cut in eight: their errors are alike
    one, eight = (error(step) for step in (STEPS[0], STEPS[2]))
    assert eight - one == pytest.approx(0.0, abs=0.03)
