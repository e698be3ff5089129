"""`railwright moe`: dispatch and combine of a mixture-of-experts layer, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import open_study
from railwright.errors import PlanError, RailwrightError, nearest
from railwright.units import listed

if TYPE_CHECKING:
    from railwright.collectives import Machine
    from railwright.collectives.moe import MoePrediction
    from railwright.collectives.moe_kernels import Stage
    from railwright.spec.serving import ServingJob
    from railwright.spec.study import Study
    from railwright.spec.training import TrainingJob
    from railwright.traffic.demand import Communicator

KERNELS = ("nccl", "deepep", "deepep-low-latency", "deepep-low-latency-rdma")
TOKENS = (128, 4096)
"""Tokens per rank that DeepEP's own tests use: decoding, and training or prefill."""
FORMATS = {1: "FP8", 2: "BF16", 4: "FP32"}


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("moe")(moe)


def moe(
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="STUDY", help="Study file or template.")],
    tokens: Annotated[
        list[int] | None,
        typer.Option("--tokens", "-t", help="Tokens per GPU; repeatable. Default: 128, 4096."),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option("--kernel", "-k", help=f"{', '.join(KERNELS)}; repeatable. Default: all."),
    ] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="GPUs of an expert-parallel group.")] = None,
    hidden: Annotated[int | None, typer.Option("--hidden", help="Elements of a token.")] = None,
    topk: Annotated[int | None, typer.Option("--topk", help="Experts of a token.")] = None,
    experts: Annotated[int | None, typer.Option("--experts", help="Routed experts, spread evenly.")] = None,
    dispatch_bytes: Annotated[int, typer.Option("--dispatch-bytes", help="Of an element; 1: FP8.")] = 1,
    combine_bytes: Annotated[int, typer.Option("--combine-bytes", help="Of an element; 2: BF16.")] = 2,
    nodes_limit: Annotated[
        int | None, typer.Option("--nodes-limit", help="Nodes that a token may go to. [all]")
    ] = None,
    imbalance: Annotated[float, typer.Option("--imbalance", help="Busiest GPU over the mean.")] = 1.0,
) -> None:
    """Predict dispatch and combine of a mixture-of-experts layer.

    In groups that run at the same time: those of the study's first job with experts, training before serving,
    or all GPUs where that exchanges no tokens; with --ep consecutive GPUs of the whole study.  Widths and
    experts that are not given are that job's too.
    """
    kernels = [_kernel(name) for name in kernel or KERNELS]
    study = open_study(cluster)
    asked = {"hidden": hidden, "topk": topk, "experts": experts}
    source, layer = _layer_of(study, asked)
    hidden, topk, experts = layer["hidden"], layer["topk"], layer["experts"]

    import numpy as np

    from railwright import __version__
    from railwright.collectives import predict_dispatch
    from railwright.study.evaluate import Workshop
    from railwright.traffic.demand import Communicator

    machine = Workshop.of(study).machine(study)
    world = machine.network.fabric.num_gpus
    groups = _groups_of(source.job, machine) if ep is None and source is not None else ()
    taken = [name for name, given in asked.items() if given is None] + ["groups"] * bool(groups)
    if not groups:
        size = world if ep is None else ep
        if size < 1 or world % size:
            raise RailwrightError(
                f"--ep {size} does not divide the {world} GPUs of the study; "
                f"give a divisor of {world}, such as {_divisor(world, size)}"
            )
        groups = tuple(Communicator(row) for row in np.arange(world, dtype=np.int32).reshape(-1, size))
    answers: list[tuple[int, MoePrediction]] = []
    refused: dict[str, str] = {}
    for name in kernels:
        for count in tokens or TOKENS:
            try:
                answer = predict_dispatch(
                    machine,
                    groups,
                    count,
                    hidden,
                    topk,
                    experts,
                    kernel=name,  # type: ignore[arg-type]
                    dispatch_bytes=dispatch_bytes,
                    combine_bytes=combine_bytes,
                    nodes_limit=nodes_limit,
                    imbalance=imbalance,
                )
            except PlanError as no:
                refused[name] = str(no)
                break
            answers.append((count, answer))
    if not answers:
        raise PlanError(_refusals(refused))
    nodes = answers[0][1].nodes
    typer.echo(f"# railwright {__version__}: MoE dispatch and combine predicted on {study.name}")
    each = len(groups[0])
    typer.echo(f"# {len(groups)} group(s) of {each} GPUs on {nodes} node(s) at once; all tokens are per GPU")
    if source is not None and taken:
        typer.echo(f"# {listed(taken)} of {source.words()}")
    typer.echo(
        f"# hidden {hidden}, top-{topk} of {experts} experts, {_format(dispatch_bytes)} dispatch, "
        f"{_format(combine_bytes)} combine, imbalance {imbalance:g}"
        + (f", at most {nodes_limit} nodes a token" if nodes_limit else "")
    )
    for line in (*table(answers), *(f"# left out: {name}: {reason}" for name, reason in refused.items())):
        typer.echo(line)


def _refusals(refused: dict[str, str]) -> str:
    """Why no kernel runs: what all say alike is said once, of the layer and not of a kernel."""
    if len(set(refused.values())) == 1:
        return next(iter(refused.values()))
    reasons = "\n".join(f"{name}: {reason}" for name, reason in refused.items())
    return f"No kernel can run this layer.\n{reasons}"


@dataclass(frozen=True)
class _Source:
    """The job whose layer is priced, and how many jobs of the study have experts."""

    job: TrainingJob | ServingJob
    several: int

    def words(self) -> str:
        first = f", the first of {self.several} with experts" if self.several > 1 else ""
        return f"job '{self.job.name}' ({self.job.model}){first}"


def _layer_of(study: Study, asked: dict[str, int | None]) -> tuple[_Source | None, dict[str, int]]:
    """The widths of a layer, those that are not given from the first job with experts.

    Raises RailwrightError where some are not given and no job has any.
    """
    from railwright.model import load_model

    jobs: list[TrainingJob | ServingJob] = [*study.jobs, *study.serving]
    models = [(job, load_model(job.model)) for job in jobs]
    routed = [(job, arch) for job, arch in models if arch.is_moe]
    if not routed:
        if missing := [f"--{name}" for name, given in asked.items() if given is None]:
            raise RailwrightError(
                f"no job of '{study.name}' has a model with experts, so the layer is yours to say: give "
                f"{listed(missing)} (DeepSeek-V3's is --hidden 7168 --topk 8 --experts 256)"
            )
        return None, {name: given for name, given in asked.items() if given is not None}
    job, arch = routed[0]
    own = {"hidden": arch.expert_width, "topk": arch.experts_per_token, "experts": arch.experts}
    return _Source(job, len(routed)), {n: own[n] if given is None else given for n, given in asked.items()}


def _groups_of(job: TrainingJob | ServingJob, machine: Machine) -> tuple[Communicator, ...]:
    """The GPUs that exchange tokens, where a job's layout puts them; none where it exchanges none."""
    from railwright.serving.simulator.cluster import places
    from railwright.spec.training import TrainingJob
    from railwright.traffic.demand import Communicator
    from railwright.training.layout.placement import place

    if isinstance(job, TrainingJob):
        return place(job, machine.network.fabric).of("ep") if job.layout.expert > 1 else ()
    prefill, others = places(job, machine)
    layouts = [*([job.prefill.layout] * len(prefill) if job.prefill else []), *[job.layout] * len(others)]
    return tuple(
        Communicator(row)
        for gpus, layout in zip((*prefill, *others), layouts, strict=True)
        if layout.attention_data > 1
        for row in gpus.reshape(-1, layout.tensor * layout.attention_data)
    )


def table(answers: Sequence[tuple[int, MoePrediction]]) -> list[str]:
    """One row per kernel, tokens and stage: time with its 80 % interval, what moves, and what bounds it."""
    width = max(len(answer.kernel) for _, answer in answers)
    head = f"{'kernel':<{width}} {'tokens':>6} {'stage':<8} {'time':>9} {'80 % of measured':>19}"
    unit = f"{'':<{width}} {'':>6} {'':<8} {'(us)':>9} {'(us)':>19}"
    lines = [
        f"# {head} {'logical':>8} {'NIC':>8} {'NVLink':>8} bound by",
        f"# {unit} {'(GB/s)':>8} {'(MB)':>8} {'(MB)':>8}",
    ]
    for count, answer in answers:
        for stage in (answer.dispatch, answer.combine):
            band = f"{_us(stage.time * stage.error_low)} - {_us(stage.time * stage.error_high)}"
            moved = (stage.logical_bandwidth / 1e9, stage.network_bytes / 1e6, stage.scale_up_bytes / 1e6)
            lines.append(
                f"  {answer.kernel:<{width}} {count:>6} {stage.name:<8} {_us(stage.time):>9} {band:>19} "
                + " ".join(f"{value:>8.1f}" for value in moved)
                + f" {_bound(stage)}"
            )
    return [*lines, *_notes(answers)]


def _notes(answers: Sequence[tuple[int, MoePrediction]]) -> Iterator[str]:
    """What holds for a kernel whatever its tokens: SMs kept from computing, and what is not modelled."""
    yield "# logical: DeepEP's own figure, copies to the sender's node included; NIC, NVLink: sent by one GPU"
    said: dict[str, None] = {}
    for _, answer in answers:
        said[f"# {answer.kernel}: {answer.sms} SMs busy while it runs"] = None
        for note in (*answer.dispatch.notes, *answer.combine.notes):
            said[f"# {answer.kernel}: {note}"] = None
    yield from said


def _bound(stage: Stage) -> str:
    """The longest term, and the link behind it where that is the fabric's."""
    if not stage.terms:
        return "nothing"
    longest = max(stage.terms, key=lambda term: term.seconds)
    link = stage.bottleneck
    if longest.name == "bandwidth" and link is not None:
        return f"{longest.why}: {link.name}"
    return f"{longest.name}: {longest.why}"


def _kernel(name: str) -> str:
    if name not in KERNELS:
        hint = nearest(name, KERNELS) or f"; known are {', '.join(KERNELS)}"
        raise RailwrightError(f"'{name}' is not a dispatch kernel{hint}")
    return name


def _format(size: int) -> str:
    return FORMATS.get(size, f"{size}-byte")


def _divisor(world: int, near: int) -> int:
    return min((d for d in range(1, world + 1) if world % d == 0), key=lambda d: abs(d - near))


def _us(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:.1f}" if value < 1e4 else f"{value:.0f}"
