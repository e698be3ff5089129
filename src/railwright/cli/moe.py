"""`railwright moe`: dispatch and combine of a mixture-of-experts layer, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import open_study
from railwright.errors import PlanError, RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.collectives.moe import MoePrediction
    from railwright.collectives.moe_kernels import Stage
    from railwright.spec.study import Study
    from railwright.spec.training import TrainingJob

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

    In groups that run at the same time: those of the study's first job with experts, with --ep consecutive
    GPUs of the whole study.  Widths and experts that are not given are that job's too; without one it is
    DeepSeek-V3's layer over all GPUs.
    """
    kernels = [_kernel(name) for name in kernel or KERNELS]
    study = open_study(cluster)
    layer = _layer_of(study)
    hidden = layer.hidden if hidden is None else hidden
    topk = layer.topk if topk is None else topk
    experts = layer.experts if experts is None else experts

    import numpy as np

    from railwright import __version__
    from railwright.collectives import predict_dispatch
    from railwright.study.evaluate import Workshop
    from railwright.traffic.demand import Communicator
    from railwright.training.placement import place

    machine = Workshop.of(study).machine(study)
    world = machine.network.fabric.num_gpus
    if ep is None and layer.job is not None:
        groups = place(layer.job, machine.network.fabric).of("ep")
    else:
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
class _Layer:
    """A layer's widths, and the job whose ranks hold its experts (None: all GPUs)."""

    hidden: int
    topk: int
    experts: int
    job: TrainingJob | None


def _layer_of(study: Study) -> _Layer:
    from railwright.model import load_model

    for job in study.jobs:
        arch = load_model(job.model)
        if arch.is_moe:
            spread = job if job.layout.expert > 1 else None
            return _Layer(arch.expert_width, arch.experts_per_token, arch.experts, spread)
    return _Layer(hidden=7168, topk=8, experts=256, job=None)


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
