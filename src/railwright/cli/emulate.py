"""`railwright emulate`: a study's fabric with real processes, beside what the engines predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.fabric import VariantOption
from railwright.cli.opened import remember
from railwright.cli.studies import StudyArgument, open_study
from railwright.errors import RailwrightError

if TYPE_CHECKING:
    from railwright.emulate import Emulation, Faults
    from railwright.emulate.faults import When
    from railwright.spec.study import Study

DATA_MISSING = 1
SHOWN = 8


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("emulate")(emulate)


def emulate(
    study: StudyArgument,
    pattern: Annotated[
        str,
        typer.Option("--pattern", help="all-to-all, pxn, ring, hierarchical, send-recv or gloo."),
    ] = "all-to-all",
    block: Annotated[
        str, typer.Option("--block", metavar="SIZE", help="Per pair; or an n-th of a GPU's data.")
    ] = "64KiB",
    gpus: Annotated[int, typer.Option("--gpus", help="Only the servers with the first GPUs.")] = 0,
    servers: Annotated[int, typer.Option("--servers", help="Only the first servers.")] = 0,
    variant: VariantOption = None,
    order: Annotated[
        str, typer.Option("--order", help="All-to-all's sends, e.g. by-rank: GPU 0 first.")
    ] = "host-rail-shift",
    slow: Annotated[
        list[str] | None, typer.Option("--slow", metavar="LINK=FRACTION", help="Rate left (repeatable).")
    ] = None,
    dead: Annotated[
        list[str] | None,
        typer.Option("--dead", metavar="LINK[@WHEN]", help="during (default), before or known (repeatable)."),
    ] = None,
    loss: Annotated[
        list[str] | None, typer.Option("--loss", metavar="LINK=RATE", help="Packets lost (repeatable).")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Measured runs; the median counts.")] = 3,
    rate: Annotated[
        str, typer.Option("--rate", help="Of a NIC here, e.g. '25 Mb/s'; default: what this machine moves.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", min=0.0, help="Of each run, in seconds.")] = 0.0,
    python: Annotated[
        str | None, typer.Option("--python", help="A Python that has PyTorch, for gloo.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (SI units) instead of text.")] = False,
) -> None:
    """Run real processes on a study's fabric.

    Network namespaces joined and shaped as the study says, at lower rates; measured times beside those the
    engines predict.  LINK is 'leaf-03', 'server-01/nic-2' or 'leaf-03 port 37'.  Nothing is left behind.
    Exit status 1 when data is missing; then the pairs and the suspect are shown.
    """
    faults = _faults(slow or [], dead or [], loss or [])
    written = open_study(study)
    asked = _chosen(written, variant)
    remember(study, written, variant)

    from railwright.catalog import find, load_catalog
    from railwright.emulate import emulate as run
    from railwright.emulate.topology import refuse_too_many
    from railwright.fabric import build
    from railwright.network import Network
    from railwright.units import parse, parse_test_size

    catalog = load_catalog(asked.catalog)
    per_server = find(catalog.servers, asked.cluster.server).gpus
    asked = _cut(asked, gpus, servers, per_server)
    refuse_too_many(asked.cluster.servers * per_server, per_server)
    compute = asked.cluster.compute
    found = run(
        Network(build(asked.cluster, catalog), compute.routing, compute.seed),
        pattern,
        int(parse_test_size(block)),
        order,
        faults,
        repeat,
        timeout or None,
        parse(rate, "bandwidth") if rate else None,
        python,
    )
    if as_json:
        import json

        typer.echo(json.dumps(found.as_json(), indent=1, ensure_ascii=False))
    else:
        _show(found)
    if found.missing:
        raise typer.Exit(DATA_MISSING)


def _chosen(study: Study, variant: str | None) -> Study:
    """The study as written, or with a variant's changes."""
    from railwright.errors import nearest
    from railwright.spec import override

    if variant is None:
        return study
    known = {v.name: v.set for v in study.variants}
    if variant not in known:
        hint = nearest(variant, known) or f"; it has {', '.join(map(repr, known)) or 'none'}"
        raise RailwrightError(f"the study has no variant '{variant}'{hint}")
    return override(study, known[variant])


def _cut(study: Study, gpus: int, servers: int, per_server: int) -> Study:
    """The study with fewer servers."""
    from railwright.spec import override

    if gpus and servers:
        raise RailwrightError("--gpus and --servers both say how much to keep; give one of them")
    if gpus < 0 or servers < 0 or gpus % per_server:
        raise RailwrightError(
            f"--gpus {gpus}: whole servers are emulated, and each has {per_server}; give a multiple of it"
            if not servers
            else f"--servers {servers}: give how many servers to keep"
        )
    keep = servers or gpus // per_server
    if keep > study.cluster.servers:
        raise RailwrightError(f"{keep} servers are more than the {study.cluster.servers} of the study")
    return override(study, {"cluster.servers": keep}) if keep else study


def _faults(slow: list[str], dead: list[str], loss: list[str]) -> Faults:
    """Raise RailwrightError for what is not LINK=NUMBER, or LINK@WHEN."""
    from railwright.emulate import Faults

    return Faults(
        tuple(_numbered("--slow", text) for text in slow),
        tuple(_numbered("--loss", text) for text in loss),
        tuple(_timed(text) for text in dead),
    )


def _numbered(option: str, text: str) -> tuple[str, float]:
    element, equals, number = text.rpartition("=")
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        equals = ""
        value = 0.0
    if not (element and equals):
        raise RailwrightError(f"{option} '{text}': write LINK=NUMBER, like 'leaf-01 port 2=0.5'")
    return element, value


def _timed(text: str) -> tuple[str, When]:
    from railwright.errors import nearest

    element, _, word = text.partition("@")
    whens: dict[str, When] = {"": "during", "during": "during", "before": "before", "known": "known"}
    if word not in whens:
        raise RailwrightError(
            f"--dead '{text}': no time '{word}'{nearest(word, whens) or ';'} known are during, before, known"
        )
    return element, whens[word]


def _show(found: Emulation) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_bit_rate, show_change, show_size, show_time

    typer.echo(
        f"{found.fabric}: {found.pattern}, {found.gpus} GPUs, blocks of {show_size(found.block)}, "
        f"NICs at {show_bit_rate(found.nic_rate)} (1/{1 / found.scale:,.0f} of the real rate)"
    )
    if found.missing:
        _show_missing(found)
    else:
        runs = ", ".join(show_time(t) for t in found.times)
        typer.echo(f"measured {show_time(found.measured)}, the median of {runs}")
    typer.echo(
        f"built in {found.setup:.1f} s; load average {found.load[0]:.1f} before, {found.load[1]:.1f} after, "
        f"on {found.cores} cores; {found.resent} segments sent again"
    )
    typer.echo("")
    rows = [
        [p.engine, show_time(p.time), *([f"{p.ratio:.2f}", show_change(p.error)] if p.ratio else ["", ""])]
        for p in found.predictions
    ]
    print_table(["engine", "predicted", "over measured", "error"], rows, right=True)
    for note in found.notes:
        typer.echo(f"- {note}")


def _show_missing(found: Emulation) -> None:
    typer.echo(f"data is missing between {len(found.missing)} of {found.pairs} pairs that talk:")
    for a, b in found.missing[:SHOWN]:
        typer.echo(f"  {a} -> {b}")
    if len(found.missing) > SHOWN:
        typer.echo(f"  and {len(found.missing) - SHOWN} more")
    for rank, suspect in enumerate(found.suspects):
        typer.echo(
            f"{'suspect' if not rank else 'less likely'}: {suspect.name} ({suspect.missing} of the "
            f"{suspect.crossing} pairs that cross it miss data; score {suspect.score:.2f})"
        )
