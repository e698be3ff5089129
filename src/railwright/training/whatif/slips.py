"""What a run may do that its study does not say: one thing done worse, and the step simulated again.

For a measured step that is slower than predicted: which single slip would explain it.
"""

from __future__ import annotations

from railwright.collectives.machine import Machine
from railwright.spec.training import Overlap, TrainingJob
from railwright.training.layout.sizes import Sizes
from railwright.training.whatif.changes import Case, Change, Question, laid_out


def _exposed(kind: str) -> Change:
    """A flag of `overlap` that is on and hides something, off."""

    def change(job: TrainingJob, machine: Machine) -> Case | None:
        sizes = Sizes.of(job, machine.network.fabric)
        if not getattr(job.overlap, kind) or sizes.degrees()[kind] == 1:
            return None
        overlap = Overlap(**{**job.overlap.model_dump(), kind: False})
        return Case(job.model_copy(update={"overlap": overlap}), machine)

    return change


def _all_again(job: TrainingJob, machine: Machine) -> Case | None:
    if job.layout.recompute == "full":
        return None
    return laid_out(job, machine, recompute="full")


def _launched_one_by_one(job: TrainingJob, machine: Machine) -> Case | None:
    if job.launch_blocking or "step" in job.cuda_graphs:
        return None
    return Case(job.model_copy(update={"launch_blocking": True}), machine)


def _in_16_bits(job: TrainingJob, machine: Machine) -> Case | None:
    if job.dtype in ("bf16", "fp16"):
        return None
    plain = {"dtype": "bf16", "dtype_also": (), "dispatch_dtype": "bf16", "amax_over": None}
    plain |= {"activation_input_dtype": "bf16"}
    return Case(job.model_copy(update=plain), machine)


SLIPS: tuple[Question, ...] = (
    ("Gradients not overlapped", "reduced after the backward pass", _exposed("dp")),
    ("Tensor-parallel not overlapped", "collectives between the products", _exposed("tp")),
    ("Expert all-to-all not overlapped", "every pass waits for its tokens", _exposed("ep")),
    ("Context-parallel not overlapped", "attention waits for keys and values", _exposed("cp")),
    ("Pipeline sends not overlapped", "the sender waits", _exposed("pp")),
    ("Everything computed again", "recompute: full", _all_again),
    ("16 bits", "products in bf16", _in_16_bits),
    ("CUDA_LAUNCH_BLOCKING=1", "the host waits for every kernel", _launched_one_by_one),
)
"""In the order of a report."""
