"""`railwright trace`: a step in others' formats, others' steps on our fabric, a measured step beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.fabric import JsonOption, VariantOption, open_fabric
from railwright.cli.groups import group
from railwright.cli.jobs import training_job
from railwright.cli.studies import StudyArgument, refuse_swapped
from railwright.errors import PlanError, among

if TYPE_CHECKING:
    from railwright.collectives.machine import Machine
    from railwright.spec.study import Study
    from railwright.spec.training import TrainingJob
    from railwright.traces import Comparison, Replayed
    from railwright.training import StepResult

JobOption = Annotated[
    str | None, typer.Option("--job", help="Name of a job of the study; default its first.")
]

commands = group("Traces of a step: write, replay, compare.")


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    app.add_typer(commands, name="trace")


@commands.command("export")
def export(
    study: StudyArgument,
    format: Annotated[
        str, typer.Option("--format", "-f", help="chakra (a file per rank), goal, simai or perfetto.")
    ] = "chakra",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; a new or an empty one.")] = Path(
        "trace"
    ),
    job: JobOption = None,
    variant: VariantOption = None,
) -> None:
    """Write the predicted step of a job in another tool's format."""
    from railwright.cli.tables import print_words
    from railwright.model import load_model
    from railwright.report.files.trace import told
    from railwright.traces import FORMATS
    from railwright.traces import export as write
    from railwright.traces.files import shortened, unsaid
    from railwright.traces.step import MOST_EVENTS
    from railwright.training import simulate
    from railwright.units import number, show_size

    known = (*FORMATS, "perfetto")
    if format not in known:
        raise PlanError(f"no trace format '{format}'{among(format, known)}")
    asked, machine = _machine(study, variant)
    chosen = training_job(asked, job, "a trace")
    arch = load_model(chosen.model)
    if format == "perfetto":
        step = simulate(chosen, arch, machine, most_events=MOST_EVENTS, end_events=MOST_EVENTS // 2)
        files = [_perfetto(asked, chosen, step, out)]
    else:
        files, step = write(chosen, arch, machine, format, out)
    more = f" and {number(len(files) - 1, 'more file')}" if len(files) > 1 else ""
    size = show_size(sum(file.stat().st_size for file in files))
    typer.echo(
        f"{chosen.name}: a step of {step.step_time * 1e3:.3f} ms as {format}: {files[0]}{more}, {size}"
    )
    if format == "perfetto" and (head := told(step.timeline)):
        print_words(head["left_out"])
    for words in (unsaid(format, chosen, machine.network.fabric), shortened(format, step)):
        if words:
            print_words(words)


@commands.command("replay")
def replay(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE", help="Folder of Chakra traces, or a SimAI workload (a file, or its folder)."
        ),
    ],
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="STUDY", help="Study file or template.")],
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay a recorded or generated step on a study's fabric.

    Computing takes what the trace says, communication what it takes on this fabric.
    """
    _, machine = _machine(cluster, variant)

    from railwright.traces import load
    from railwright.traces import replay as run

    _show_replay(run(load(trace, machine.network.fabric.num_gpus), machine), as_json)


@commands.command("compare")
def compare(
    study: StudyArgument,
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE...", help="PyTorch profiler traces of ranks (.json, .gz).")
    ],
    job: JobOption = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="The whole trace is one step; nothing in it marks one.")
    ] = False,
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a measured step beside the predicted one.

    Says which share is off, and by how much.
    """
    refuse_swapped(study, profiles, "trace compare STUDY PROFILE...")
    asked, machine = _machine(study, variant)
    chosen = training_job(asked, job, "a comparison")

    from railwright.model import load_model
    from railwright.traces import compare as beside
    from railwright.traces import read_profile, step_of

    steps = [step_of(read_profile(profile), whole) for profile in profiles]
    result, _ = beside(steps, chosen, load_model(chosen.model), machine)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps(asdict(result), indent=1))
        return
    for step in steps:
        who = f"rank {step.rank}" if step.rank is not None else "a rank"
        count = f"{step.steps} step{'s' if step.steps > 1 else ''} by {step.found}"
        typer.echo(f"{step.file}: {who}, {count}, the median one {step.seconds * 1e3:.2f} ms")
    _show_comparison(result)


def _machine(study: str, variant: str | None) -> tuple[Study, Machine]:
    from railwright.study.evaluate import Workshop

    asked, _, _ = open_fabric(study, variant)
    return asked, Workshop.of(asked).machine(asked)


def _perfetto(asked: Study, job: TrainingJob, step: StepResult, out: Path) -> Path:
    """Chrome's trace format, as `railwright run` writes it for a whole study."""
    import json

    from railwright.export.files import refuse_filled, write_new
    from railwright.report.files.trace import step_events, told

    refuse_filled(out)
    file = out / "trace.json"
    about = {"study": asked.name, "job": job.name} | told(step.timeline)
    trace = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": step_events(step)}
    text = json.dumps(trace, ensure_ascii=False, separators=(",", ":"))
    write_new({file: text + "\n"})
    return file


def _show_replay(result: Replayed, as_json: bool) -> None:
    from railwright.cli.tables import print_table
    from railwright.traces import busiest, critical_path
    from railwright.units import number

    one, path = busiest(result), critical_path(result)
    shares = {"compute": one.compute, "host": one.host, **one.communication, "waiting": one.idle}
    nodes = sum(len(runs) for runs in result.runs)
    if as_json:
        import json
        from dataclasses import asdict

        found = {
            "trace": result.trace.name,
            "ranks": result.trace.ranks,
            "nodes": nodes,
            "step_time": result.time,
            "exposed_communication": sum(one.communication.values()),
            "rank": one.rank,
            "shares": shares,
            "critical_path": [asdict(part) for part in path],
            "notes": list(result.trace.notes),
        }
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(
        f"{result.trace.name}: {number(result.trace.ranks, 'rank')}, {number(nodes, 'node')}: "
        f"{result.time * 1e3:.3f} ms"
    )
    typer.echo("")
    whole = result.time or 1.0
    rows = [[kind, f"{s * 1e3:.3f}", f"{s / whole:.1%}"] for kind, s in shares.items() if s]
    print_table([f"rank {one.rank}, which waits least", "ms", "of the step"], rows, right=True)
    typer.echo("")
    rows = [[p.kind, f"{p.seconds * 1e3:.3f}", f"{p.seconds / whole:.1%}", f"{p.nodes:,}"] for p in path]
    print_table(["critical path", "ms", "of the step", "nodes"], rows, right=True)
    for note in result.trace.notes:
        typer.echo(note)


def _show_comparison(result: Comparison) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_size

    typer.echo("")
    rows = [
        [
            r.share,
            f"{r.measured * 1e3:.2f}",
            f"{r.predicted * 1e3:.2f}",
            f"{(r.measured - r.predicted) * 1e3:+.2f}",
        ]
        for r in result.rows
    ]
    ends = [f"{result.measured * 1e3:.2f}", f"{result.predicted * 1e3:.2f}"]
    rows.append(["step", *ends, f"{(result.measured - result.predicted) * 1e3:+.2f}"])
    print_table(["ms", "measured", "predicted", "more"], rows, right=True)
    typer.echo("")
    for line in result.words:
        typer.echo(line)
    if not result.collectives:
        return
    typer.echo("")
    cells = [
        [
            f"{c.op or 'unknown'}{f' ({c.kind})' if c.kind else ''}",
            str(c.ranks or "-"),
            show_size(c.size) if c.size else "-",
            f"{c.count:,}",
            f"{c.lowest * 1e6:.1f}",
            f"{c.middle * 1e6:.1f}",
            f"{c.predicted * 1e6:.1f}" if c.predicted is not None else "-",
        ]
        for c in result.collectives
    ]
    print_table(
        ["collective", "ranks", "size", "calls", "least us", "median us", "predicted us"], cells, right=True
    )
    typer.echo("A kernel runs from when its own rank has come, so its least time is nearest to the transfer.")
