"""`railwright bench` and `railwright compare`: measure the real thing, and hold it against the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.groups import group
from railwright.cli.perf import op_named, sizes_between
from railwright.cli.studies import open_study, refuse_swapped
from railwright.errors import RailwrightError

if TYPE_CHECKING:
    from railwright.measure.bench.session import Session

WRONG_RESULTS = 1

BeginOption = Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="Smallest size.")]
EndOption = Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Largest size.")]
FactorOption = Annotated[int, typer.Option("-f", "--stepfactor", help="Each size over the last.")]
WarmupOption = Annotated[int, typer.Option("-w", "--warmup", min=0, help="Calls before the clock starts.")]
ItersOption = Annotated[int, typer.Option("-n", "--iters", min=1, help="Timed calls per size.")]
BackendOption = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", help="nccl or gloo; default: nccl where GPUs are.")
]
JsonOption = Annotated[
    Path | None, typer.Option("-J", "--json", metavar="FILE", help="Also write JSON here.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    app.command("compare")(compare)
    commands = group("Measure collectives, under torchrun, srun or mpirun.")
    commands.command("run")(bench_run)
    commands.command("pairs")(bench_pairs)
    commands.command("rails")(bench_rails)
    app.add_typer(commands, name="bench")


def compare(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="Log of nccl-tests, rccl-tests, OSU or bench; of a training job (Megatron-LM, NeMo, "
            "torchtitan, …); or result of vllm bench serve, aiperf, genai-perf, guidellm or inference-perf.",
        ),
    ],
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study file, or the name of a template.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (SI units) instead of text.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the curves here.")
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="The collective, where the log does not say.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, help="Ranks of a group, where the log does not say.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", help="The study's training or serving job, for a log or result of one."),
    ] = None,
) -> None:
    """Hold a benchmark's or a job's log against a study.

    Measured and predicted size by size (collectives), step by step (training) or percentile by percentile
    (serving), and what explains the difference, with the next test.
    """
    from railwright.measure.loadgen import is_result

    _refuse_existing(html)
    refuse_swapped(study, [log], "compare LOG STUDY")
    if is_result(Path(log)):
        from railwright.cli.serve_measured import show_compared

        show_compared(Path(log), open_study(study), job, as_json, html)
        return
    from railwright.measure.steplog import EXPECTED, is_step_log, why_untimed

    if is_step_log(Path(log)):
        from railwright.cli.steps_measured import show_steps

        show_steps(Path(log), open_study(study), job, as_json, html)
        return
    from railwright.measure.compare.comparing import compare as compared
    from railwright.measure.logs import read_log

    try:
        curves = read_log(Path(log), op=op, ranks=ranks, also=EXPECTED)
    except RailwrightError as no:
        if (why := why_untimed(Path(log))) is None:
            raise
        raise RailwrightError(why) from no
    found = compared(curves, open_study(study))
    if html is not None:
        from railwright.export.files import write_new
        from railwright.report.pages.compare import compare_page

        write_new({html: compare_page(found)})
    if as_json:
        _print_json(found.as_json())
        return
    for line in found.lines():
        typer.echo(line)
    if html is not None:
        typer.echo(f"\n{html}")


def bench_run(
    op: Annotated[str, typer.Argument(metavar="OP", help="all_reduce, all_gather, alltoall, sendrecv, …")],
    begin: BeginOption = "8",
    end: EndOption = "128M",
    factor: FactorOption = 2,
    warmup: WarmupOption = 5,
    iters: ItersOption = 20,
    split: Annotated[
        str,
        typer.Option("--split", metavar="HOW", help="Groups at once: none, host, rail, or 'MOD 8' and kin."),
    ] = "none",
    dtype: Annotated[str, typer.Option("-d", "--datatype", help="float, int32 or double.")] = "float",
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check every element of results.")] = True,
    backend: BackendOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure a collective over sizes.

    Prints nccl-tests' table; exits with 1 where a result was wrong.
    """
    name: Any = op_named(op)
    sizes = sizes_between(begin, end, factor)
    _refuse_existing(json_file)

    from railwright.measure.bench.collective import bench_collective
    from railwright.measure.bench.session import open_session

    with open_session(backend) as session:
        report = bench_collective(
            session,
            name,
            sizes,
            dtype=dtype,
            splitting=split,
            warmup=warmup,
            iterations=iters,
            check=check,
        )
        _show(session, report.lines(), report.as_json(), json_file)
    if report.wrong:
        raise typer.Exit(WRONG_RESULTS)


def bench_pairs(
    size: Annotated[str, typer.Option("-s", "--size", metavar="SIZE", help="Of one message.")] = "8M",
    warmup: WarmupOption = 2,
    iters: ItersOption = 10,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the matrix here.")] = None,
    backend: BackendOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure every pair of ranks.

    In parallel rounds, both ways at once; names the ranks and pairs that stand out.
    """
    message = int(sizes_between(size, size, 2)[0])
    _refuse_existing(csv, json_file)

    from railwright.measure.bench.pairs import bench_pairs as measure
    from railwright.measure.bench.session import open_session

    with open_session(backend) as session:
        matrix = measure(session, message, warmup=warmup, iterations=iters)
        if session.world.rank == 0 and csv is not None:
            from railwright.export.files import write_new

            write_new({csv: matrix.csv()})
        _show(session, matrix.lines(), matrix.as_json(), json_file)


def bench_rails(
    begin: BeginOption = "1M",
    end: EndOption = "64M",
    factor: FactorOption = 4,
    warmup: WarmupOption = 5,
    iters: ItersOption = 20,
    hosts: Annotated[
        int | None, typer.Option("--hosts", help="Take the ranks as if on that many hosts, to try it on one.")
    ] = None,
    backend: BackendOption = None,
    json_file: JsonOption = None,
) -> None:
    """Probe rails and PXN.

    A flat all-to-all against one in two steps along the rails; says which one should not win.
    """
    sizes = sizes_between(begin, end, factor)
    _refuse_existing(json_file)

    from railwright.measure.bench.rails import bench_rails as measure
    from railwright.measure.bench.session import open_session

    with open_session(backend) as session:
        probe = measure(session, sizes, warmup=warmup, iterations=iters, hosts=hosts)
        _show(session, probe.lines(), probe.as_json(), json_file)
    if any(row[3] for row in probe.rows):
        raise typer.Exit(WRONG_RESULTS)


def _show(session: Session, lines: list[str], values: dict[str, Any], file: Path | None) -> None:
    """Rank 0 prints and writes; the others stay silent."""
    if session.world.rank != 0:
        return
    for line in lines:
        typer.echo(line)
    if file is not None:
        from railwright.export.files import write_new

        write_new({file: _json_text(values)})


def _print_json(values: dict[str, Any]) -> None:
    typer.echo(_json_text(values), nl=False)


def _json_text(values: dict[str, Any]) -> str:
    import json

    return json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _refuse_existing(*files: Path | None) -> None:
    """Before the work, and on every rank: nobody then waits for a rank 0 that has refused."""
    from railwright.export.files import refuse_existing

    refuse_existing([file for file in files if file is not None])
