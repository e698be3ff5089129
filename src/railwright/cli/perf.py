"""`railwright perf`: the table that nccl-tests would print, predicted; variants beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.settings import SHORT, changes
from railwright.cli.studies import open_study
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.collectives.prediction import CollectivePrediction
    from railwright.spec.study import Study
    from railwright.study.result import Curve

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
CUSTOM = "custom_all_reduce"
"""The all-reduce of inference engines, inside one server."""
ENGINES = ("vllm", "trtllm")
_MAX_SIZES = 1000
_ELEMENT = 4.0
"""nccl-tests' default type, float [byte]."""


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("perf")(perf)


def perf(
    op: Annotated[
        str,
        typer.Argument(metavar="OP", help=f"{', '.join(OPS)}; nccl-tests' spellings too; or {CUSTOM}."),
    ],
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="STUDY", help="Study file or template.")],
    begin: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="Smallest size.")] = "8",
    end: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Largest size.")] = "1G",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Each size over the last.")] = 2,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help=f"A variant beside it, like pxn=off; repeatable. Short names: {', '.join(SHORT)}.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help=f"Whose {CUSTOM}: {', '.join(ENGINES)}.")] = ENGINES[
        0
    ],
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", help=f"Ranks of {CUSTOM}; else the most that it joins in one host."),
    ] = None,
) -> None:
    """Predict a collective as nccl-tests prints it.

    Over all GPUs of the study, size by size, with NCCL's choice of algorithm and protocol, and the times
    that 80 % of measurements lie between.  custom_all_reduce is over a tensor-parallel group of one host.
    """
    name = op_named(op)
    sizes = sizes_between(begin, end, factor)
    settings = [changes(text) for text in compare or ()]
    study = open_study(cluster)

    from railwright import __version__
    from railwright.spec import override
    from railwright.study import perf as predict
    from railwright.study.networks import compute_doubts

    if name == CUSTOM:
        if settings:
            raise RailwrightError(f"--compare: {CUSTOM} stays inside a server, whatever the study's network")
        curve = _engine_curve(study, sizes, engine, gpus)
        typer.echo(
            f"# railwright {__version__}: {engine}'s all-reduce predicted on {study.name}, "
            f"{curve.points[0].ranks} ranks"
        )
        for line in table(curve):
            typer.echo(line)
        return
    if gpus is not None:
        raise RailwrightError(
            f"--gpus {gpus}: only {CUSTOM} is of a part of the cluster; {name} is over all GPUs of the "
            "study: lower cluster.servers for fewer."
        )
    asked = [study]
    for text, fields in zip(compare or (), settings, strict=True):
        asked.append(override(study, fields, name=f"--compare {text}"))

    curves = predict(study, name, sizes, compare=settings)
    first = curves[0].points[0]
    typer.echo(f"# railwright {__version__}: {name} predicted on {study.name}, {first.ranks} ranks")
    for line in table(curves[0]):
        typer.echo(line)
    if settings:
        typer.echo("#")
        for line in side_by_side(curves, [study.as_written, *(compare or ())]):
            typer.echo(line)
    for doubt in dict.fromkeys(doubt for one in asked for doubt in compute_doubts(one)):
        typer.echo(f"# ! {doubt}")


def op_named(text: str) -> str:
    """The collective behind nccl-tests' spellings: 'alltoall', 'all_to_all', 'alltoall_perf', 'AllReduce', …

    Raises RailwrightError with the nearest name.
    """
    plain = text.lower().removesuffix("_perf").replace("_", "").replace("-", "")
    for op in (*OPS, CUSTOM):
        if plain == op.replace("_", ""):
            return op
    hint = nearest(text, OPS) or f"; known are {', '.join(OPS)}"
    raise RailwrightError(f"'{text}' is not a collective{hint}")


def sizes_between(begin: str, end: str, factor: int) -> list[float]:
    """Sizes from begin to end, each `factor` times the one before [byte]. Raises RailwrightError."""
    from railwright.units import parse_test_size

    first, last = parse_test_size(begin), parse_test_size(end)
    if first <= 0:
        raise RailwrightError(f"-b {begin}: the smallest size must be above 0")
    if last < first:
        raise RailwrightError(f"-e {end} is smaller than -b {begin}")
    if factor < 2:
        raise RailwrightError(f"-f {factor}: each size must be at least twice the one before")
    sizes = [first]
    while sizes[-1] * factor <= last and len(sizes) < _MAX_SIZES:
        sizes.append(sizes[-1] * factor)
    return sizes


def table(curve: Curve) -> list[str]:
    """A curve in nccl-tests' columns (out of place), and what NCCL would choose.

    Source: nccl-tests, src/common.cu (columns) and src/*.cu (what `count` means for each collective).
    """
    lines = [
        f"#{'size':>10} {'count':>10} {'type':>5} {'redop':>5} {'root':>4} "
        f"{'time':>9} {'algbw':>6} {'busbw':>6} {'algo':>8} {'proto':>6} {'80 % from':>9} {'to':>9}",
        f"#{'(B)':>10} {'(elements)':>10} {'':>5} {'':>5} {'':>4} {'(us)':>9} {'(GB/s)':>6} {'(GB/s)':>6} "
        f"{'':>8} {'':>6} {'(us)':>9} {'(us)':>9}",
    ]
    lines += [_row(point) for point in curve.points]
    mean = sum(point.busbw for point in curve.points) / len(curve.points)
    lines.append(f"# Avg bus bandwidth    : {mean / 1e9:g}")
    low = sum(point.busbw / point.error_high for point in curve.points) / len(curve.points)
    high = sum(point.busbw / point.error_low for point in curve.points) / len(curve.points)
    lines.append(f"# 80 % of measured     : {low / 1e9:g} to {high / 1e9:g}, if all sizes err alike")
    notes = dict.fromkeys(note for point in curve.points for note in point.notes)
    return lines + [f"# {note}" for note in notes]


def side_by_side(curves: Sequence[Curve], labels: Sequence[str]) -> list[str]:
    """Bus bandwidth of several variants by size, and each against the first."""
    lines = ["# busbw (GB/s), and the gain of each variant over [0]"]
    lines += [f"# [{index}] {label}" for index, label in enumerate(labels)]
    lines.append(
        f"#{'size (B)':>10} {'[0]':>7}"
        + "".join(f" {f'[{i}]':>7} {'gain':>7}" for i in range(1, len(curves)))
    )
    for points in zip(*(curve.points for curve in curves), strict=True):
        base = points[0]
        line = f" {base.size:>10.0f} {_short(base.busbw / 1e9):>7}"
        for point in points[1:]:
            gain = f"{100 * (point.busbw / base.busbw - 1):>+6.1f}%" if base.busbw else "-"
            line += f" {_short(point.busbw / 1e9):>7} {gain:>7}"
        lines.append(line)
    return [*lines, *_bands(curves)]


def _bands(curves: Sequence[Curve]) -> list[str]:
    """What 80 % of measured bus bandwidths are of each variant's figures, from size to size."""
    lines = ["# 80 % of measured busbw lie between these parts of the figures, from each size on:"]
    for index, curve in enumerate(curves):
        parts: dict[tuple[float, float], float] = {}
        last = None
        for point in curve.points:
            band = (1 / point.error_high, 1 / point.error_low)
            if band != last:
                parts[band] = min(point.size, parts.get(band, point.size))
            last = band
        shown = ", ".join(f"{size:.0f} B {low:.2f}-{high:.2f}" for (low, high), size in parts.items())
        lines.append(f"# [{index}] {shown}")
    return lines


def _engine_curve(study: Study, sizes: Sequence[float], engine: str, gpus: int | None) -> Curve:
    """An engine's all-reduce over GPUs of one host, and NCCL's where the engine hands over."""
    from railwright.collectives.custom import engine_all_reduce, engine_group
    from railwright.study.evaluate import Workshop
    from railwright.study.result import Curve

    machine = Workshop.of(study).machine(study)
    ranks = engine_group(machine, engine) if gpus is None else gpus
    return Curve(CUSTOM, engine, tuple(engine_all_reduce(machine, size, engine, ranks) for size in sizes))


def _row(point: CollectivePrediction) -> str:
    # nccl-tests counts what one rank contributes where every rank contributes a part.
    parts = point.ranks if point.op in ("all_gather", "reduce_scatter", "all_to_all") else 1
    redop = "sum" if point.op in ("all_reduce", "reduce_scatter") else "none"
    root = "0" if point.op == "broadcast" else "-1"
    return (
        f" {point.size:>10.0f} {point.size // (_ELEMENT * parts):>10.0f} {'float':>5} {redop:>5} {root:>4} "
        f"{_short(point.time * 1e6):>9} {_short(point.algbw / 1e9):>6} {_short(point.busbw / 1e9):>6} "
        f"{point.algorithm:>8} {point.protocol:>6} "
        f"{_short(point.time * point.error_low * 1e6):>9} {_short(point.time * point.error_high * 1e6):>9}"
    )


def _short(value: float) -> str:
    """Two decimals while they fit, as nccl-tests does."""
    return f"{value:.2f}" if value < 1000 else f"{value:.1f}" if value < 1e6 else f"{value:.0f}"
