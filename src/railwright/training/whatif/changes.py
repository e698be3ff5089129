"""What if: one thing about a job or its machine changed, and the step simulated again.

Nothing is scaled: a faster network is a fabric with faster links on which NCCL chooses anew, better overlap
is another order of tasks.  So an effect that something else then limits comes out as small as it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Muon, TrainingJob
from railwright.traffic.placement import can_relay
from railwright.training.checks.experts import in_unequal_parts
from railwright.training.lanes.result import StepResult
from railwright.training.layers.communication import Predict
from railwright.training.layers.costs import KernelTime
from railwright.training.layers.unhidden import hides_parameters
from railwright.training.layout.placement import place
from railwright.training.layout.schedule import in_pairs, schedule_name
from railwright.training.layout.sizes import Sizes, data_parallel, domain_of, job_gpus, microbatches
from railwright.training.software.eras import (
    Pace,
    eager_parts,
    hides_sends,
    pace_alone,
    pace_of,
    unfuses_loss,
)
from railwright.training.step.simulating import NONE_SLOWER, simulate
from railwright.training.whatif.machine import at_rate, free_between_servers, in_no_time, kernel_in_no_time

J = TypeVar("J")
"""A job, of a transformer or a recommendation model."""
C = TypeVar("C")
"""What a change makes of one to be simulated."""
SLOWER = 1.1
"""Times as long as others' that products and attention of one GPU take, where that is asked."""
FREE_BETWEEN = "Free network between servers"
FREE_COMMUNICATION = "Free communication"
FREE_LAUNCHES = "Kernel launches free (CUDA graphs)"
INFINITE_COMPUTE = "Infinite compute"
FREE_WORK = "Free compute and launches"
FREE = (FREE_BETWEEN, FREE_COMMUNICATION, FREE_LAUNCHES, INFINITE_COMPUTE, FREE_WORK)
"""Changes that free a step of one thing: which of them shortens it most says what holds it back."""
ROUNDING = 1e-9
"""Changes below this share of the step are sums of times in another order."""


@dataclass(frozen=True)
class Case:
    """A job on a machine, and what prices its collectives and times its kernels, as in `simulate`.

    slower  times as long as on others that products and attention take on one GPU
    """

    job: TrainingJob
    machine: Machine
    predict: Predict | None = None
    kernel: KernelTime | None = None
    pace: Pace | None = None
    slower: float | None = None


Change = Callable[[TrainingJob, Machine], Case | None]
"""What is to be simulated under a change; None where the job has nothing for it to change."""
Question = tuple[str, str, Change]
"""(name, why, change)."""


@dataclass(frozen=True)
class WhatIf:
    """One change and its step.

    step   None where the change cannot run; then `note` says why
    """

    name: str
    why: str
    step: StepResult | None
    note: str = ""


def what_ifs(
    job: TrainingJob,
    arch: Transformer,
    machine: Machine,
    stage: int | None = None,
    questions: Sequence[Question] | None = None,
    must_fit: bool = True,
) -> tuple[WhatIf, ...]:
    """Every change of some questions that means something to this job, in their order.

    stage      whose shares the steps tell, so that they compare with those of a step told of that stage, and
               where a slower GPU is; default: of each its own `StepResult.stage`, and the first
    questions  default: QUESTIONS
    must_fit   as in `simulate`

    Nobody draws what is only compared: the steps' timelines have no more than whole passes.
    """

    def step(case: Case) -> StepResult:
        return simulate(
            case.job,
            arch,
            case.machine,
            predict=case.predict,
            kernel=case.kernel,
            pace=case.pace,
            stage=stage,
            slower={stage or 0: case.slower} if case.slower else NONE_SLOWER,
            must_fit=must_fit,
            most_events=0,
        )

    return answered(QUESTIONS if questions is None else questions, job, machine, step)


def answered(
    questions: Sequence[tuple[str, str, Callable[[J, Machine], C | None]]],
    job: J,
    machine: Machine,
    step: Callable[[C], StepResult],
) -> tuple[WhatIf, ...]:
    """Every question whose change means something to a job, with the step of the changed one."""
    found = []
    for name, why, change in questions:
        case = change(job, machine)
        if case is None:
            continue
        try:
            found.append(WhatIf(name, why, step(case)))
        except PlanError as no:
            found.append(WhatIf(name, why, None, str(no)))
    return tuple(found)


def share_changes(before: StepResult, after: StepResult) -> tuple[tuple[str, float], ...]:
    """(kind, change of its exposed time), rounding aside; they add up to the change of the step. [s]

    Of two stages they also hold what tells these apart, so both steps should tell the same one.
    """
    old = {s.kind: s.exposed for s in before.shares}
    new = {s.kind: s.exposed for s in after.shares}
    both = ((kind, new.get(kind, 0.0) - old.get(kind, 0.0)) for kind in dict.fromkeys((*old, *new)))
    return tuple((kind, seconds) for kind, seconds in both if abs(seconds) > ROUNDING * before.step_time)


def _free(job: TrainingJob, machine: Machine) -> Case | None:
    """No communication takes time; None for one GPU, which has none."""
    if job_gpus(job, machine.network.fabric) == 1:
        return None
    return Case(job, machine, predict=in_no_time)


def _free_between_servers(job: TrainingJob, machine: Machine) -> Case | None:
    if _in_one_server(job, machine):
        return None
    return Case(job, machine, predict=free_between_servers(machine))


def _by_adam(job: TrainingJob, machine: Machine) -> Case | None:
    if job.optimizer == "adam":
        return None
    return Case(job.model_copy(update={"optimizer": "adam", "muon": Muon()}), machine)


def _rate(factor: float) -> Change:
    def change(job: TrainingJob, machine: Machine) -> Case | None:
        if _in_one_server(job, machine):
            return None
        return Case(job, at_rate(machine, factor))

    return change


def _pxn(wanted: bool) -> Change:
    def change(job: TrainingJob, machine: Machine) -> Case | None:
        if machine.nccl.pxn is wanted or _in_one_server(job, machine):
            return None
        if not can_relay(machine.network.fabric):
            return None
        return Case(job, replace(machine, nccl=replace(machine.nccl, pxn=wanted)))

    return change


def _overlap(*kinds: str) -> Change:
    """Flags of `overlap` set where that hides something more; with several, all that do."""

    def change(job: TrainingJob, machine: Machine) -> Case | None:
        data = data_parallel(job, machine.network.fabric)
        off = [kind for kind in kinds if _hides_more(job, kind, data)]
        if not off or (len(kinds) > 1 and len(off) < 2):
            return None
        return Case(_with_flags(job, off), machine)

    return change


def _with_flags(job: TrainingJob, kinds: Sequence[str]) -> TrainingJob:
    changed = job.overlap.model_copy(update=dict.fromkeys(kinds, True))
    return job.model_copy(update={"overlap": changed})


def _hides_more(job: TrainingJob, kind: str, data: int) -> bool:
    """Whether a flag of `overlap` is off and its job, cut over `data` replicas, can use it.

    'gather'  only what is gathered once a step
    'cp'  only blocks on a ring run beside attention
    'pp'  only where the job's framework hides sends under its schedule
    'ep'  only where passes of two microbatches run in pairs, and there are two
    """
    between = "dp" if kind == "gather" else kind
    if getattr(job.overlap, kind) or Sizes.under(job.layout, data).degrees()[between] == 1:
        return False
    changed = _with_flags(job, (kind,))
    if kind == "gather":
        return job.layout.zero in (1, 2) and hides_parameters(changed)
    if kind == "cp":
        return job.layout.context_kind == "ring"
    if kind == "pp":
        return hides_sends(changed)
    if kind == "ep":
        return in_pairs(changed) and job.global_batch > data * job.micro_batch
    return True


def _in_one_server(job: TrainingJob, machine: Machine) -> bool:
    """Whether all GPUs of a job lie in one server, so that it sends nothing over the network."""
    fabric = machine.network.fabric
    return job_gpus(job, fabric) <= domain_of(job, fabric)


def _balanced(job: TrainingJob, machine: Machine) -> Case | None:
    if job.expert_load == 1.0 or job.expert_capacity is not None:
        return None
    return Case(job.model_copy(update={"expert_imbalance": 1.0}), machine)


def _grouped(job: TrainingJob, machine: Machine) -> Case | None:
    """Products of all experts at once; None where they are anyway."""
    if "experts" not in job.unfused:
        return None
    return Case(job.model_copy(update={"unfused": tuple(p for p in job.unfused if p != "experts")}), machine)


def _fused(job: TrainingJob, machine: Machine) -> Case | None:
    """Other parts of layers and the loss in one kernel each; None where they are anyway."""
    eager = [part for part in eager_parts(job) if part != "experts" and (part != "loss" or unfuses_loss(job))]
    if not eager:
        return None
    return Case(job.model_copy(update={"unfused": tuple(p for p in job.unfused if p == "experts")}), machine)


def _once_per_server(job: TrainingJob, machine: Machine) -> Case | None:
    """Kernels that send a token once to a server of its experts; None where they are used, where no token
    leaves its server, and where they do not run: without NVLink, or where a group has more ranks on one
    server than on another."""
    expert = job.layout.expert
    if expert == 1 or job.expert_nodes is not None or not machine.gpu.scale_up_bandwidth:
        return None
    parts = place(job, machine.network.fabric).parts("ep")
    if max(map(len, parts)) == 1 or in_unequal_parts(parts):
        return None
    return Case(job.model_copy(update={"expert_nodes": expert}), machine)


def _interleaved(job: TrainingJob, machine: Machine) -> Case | None:
    """Two virtual stages on each of a 1F1B pipeline; None where its microbatches, which then go in rounds of
    as many as stages, allow none, or where the layout says what each stage has."""
    layout = job.layout
    if layout.pipeline == 1 or schedule_name(layout) != "1f1b" or layout.layers_per_stage is not None:
        return None
    if microbatches(job, data_parallel(job, machine.network.fabric)) % layout.pipeline:
        return None
    return laid_out(job, machine, schedule="auto", virtual_pipeline=2)


def _inside_servers(job: TrainingJob, machine: Machine) -> Case | None:
    """Every server has a copy of what ZeRO shards; None where nothing is sharded or groups have copies
    already, where a server holds no two ranks or all of them or its ranks are no neighbours (expert-across),
    and for Muon, which shares whole matrices."""
    layout, fabric = job.layout, machine.network.fabric
    sizes, here = Sizes.of(job, fabric), domain_of(job, fabric) // layout.tensor
    if layout.zero == 0 or layout.shard is not None or job.optimizer != "adam":
        return None
    if not 2 <= here < sizes.replicas or here not in sizes.shardings():
        return None
    asked = laid_out(job, machine, shard=here)
    return asked if place(asked.job, fabric).servers("shard") == 1 else None


def laid_out(job: TrainingJob, machine: Machine, **changes: Any) -> Case:
    """The job with some fields of its layout changed."""
    layout = Layout(**{**job.layout.model_dump(), **changes})
    return Case(job.model_copy(update={"layout": layout}), machine)


def _hbm(factor: float) -> Change:
    def change(job: TrainingJob, machine: Machine) -> Case:
        gpu = replace(machine.gpu, hbm_bandwidth=machine.gpu.hbm_bandwidth * factor)
        return Case(job, replace(machine, gpu=gpu))

    return change


def _all_alike(job: TrainingJob, machine: Machine) -> Case | None:
    """No GPU is slower than another; None for one GPU."""
    if job_gpus(job, machine.network.fabric) == 1:
        return None
    return Case(job, machine, pace=pace_alone(job, machine.gpu))


def _one_slower(job: TrainingJob, machine: Machine) -> Case | None:
    """One GPU with a lower clock; None where it is the only one."""
    if job_gpus(job, machine.network.fabric) == 1:
        return None
    return Case(job, machine, slower=SLOWER)


def _no_launches(job: TrainingJob, machine: Machine) -> Case | None:
    """The host launches in no time; None where a CUDA graph of the whole step does that already."""
    if "step" in job.cuda_graphs:
        return None
    pace = pace_of(job, machine.gpu, job_gpus(job, machine.network.fabric))
    return Case(job, machine, pace=replace(pace, host=0.0))


def _is_work(job: TrainingJob, machine: Machine) -> bool:
    """Whether nothing would be left of a step without kernels and launches: that of one GPU alone."""
    return job_gpus(job, machine.network.fabric) == 1 and not job.layout.offload


def _no_kernels(job: TrainingJob, machine: Machine) -> Case | None:
    if "step" in job.cuda_graphs and _is_work(job, machine):
        return None
    return Case(job, machine, kernel=kernel_in_no_time)


def _no_work(job: TrainingJob, machine: Machine) -> Case | None:
    """Neither kernels nor launches take time; None where launches take none anyway, or no step is left."""
    if _is_work(job, machine):
        return None
    launched = _no_launches(job, machine)
    return launched and replace(launched, kernel=kernel_in_no_time)


QUESTIONS: tuple[Question, ...] = (
    ("Network ×2", "NICs, their PCIe lanes, switches and cables twice as fast", _rate(2.0)),
    ("Network ÷2", "NICs, their PCIe lanes, switches and cables half as fast", _rate(0.5)),
    ("No PXN", "messages for another rail cross the spines, one by one", _pxn(False)),
    ("PXN", "messages for another rail first go to the local GPU on it", _pxn(True)),
    (FREE_BETWEEN, "collectives that leave a server take no time", _free_between_servers),
    (FREE_COMMUNICATION, "no collective takes any time, inside servers neither", _free),
    ("Gradients overlapped", "reduced in buckets beside the backward pass", _overlap("dp")),
    ("Parameters overlapped", "gathered beside the next step's first passes", _overlap("gather")),
    ("Tensor-parallel overlapped", "collectives in shards beside the products", _overlap("tp")),
    ("Expert all-to-all overlapped", "beside the compute of another microbatch", _overlap("ep")),
    ("Context-parallel overlapped", "blocks of keys and values beside attention", _overlap("cp")),
    ("Pipeline sends overlapped", "the sender computes on while it sends", _overlap("pp")),
    ("All of it overlapped", "every flag of overlap set", _overlap("dp", "gather", "tp", "ep", "cp", "pp")),
    ("Experts perfectly balanced", "no GPU's experts get more tokens than the mean", _balanced),
    ("Experts grouped", "products of all in one call, as transformers 5 and Megatron-LM run them", _grouped),
    ("Kernels fused", "one each for what `unfused` names, experts apart, as Liger's and Megatron's", _fused),
    ("HBM bandwidth ×2", "memory-bound kernels; products where memory limits them", _hbm(2.0)),
    (
        "Tokens once per server",
        "expert exchange by DeepEP or HybridEP, not NCCL's all-to-all",
        _once_per_server,
    ),
    ("Interleaved pipeline", "two virtual stages on each: half the bubble, twice the sends", _interleaved),
    (
        "Sharding inside servers",
        "each server has a copy of what zero shards, whose share alone is summed up over servers",
        _inside_servers,
    ),
    ("Adam instead of Muon", "two moments for each weight, and no products in the optimizer", _by_adam),
    ("GPUs all alike", "no wait for the slowest", _all_alike),
    ("One GPU 10 % slower", "its products and attention, as at a lower clock; all others wait", _one_slower),
    (
        FREE_LAUNCHES,
        "the host takes no time to launch, as under `cuda_graphs: [step]`; all else stays",
        _no_launches,
    ),
    (
        INFINITE_COMPUTE,
        "no kernel takes any time; communication, launches and waits are left",
        _no_kernels,
    ),
    (FREE_WORK, "neither kernels nor launches take any time; communication and waits are left", _no_work),
)
"""(name, why, change), in the order of a report."""
