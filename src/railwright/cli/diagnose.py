"""`railwright diagnose`: which element is at fault; `railwright burnin`: the acceptance plan of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from railwright.catalog.parts import Gpu
    from railwright.diagnose.elements import Elements
    from railwright.diagnose.evidence import Evidence
    from railwright.diagnose.paths import Routing
    from railwright.diagnose.result import Diagnosis

FAULT = 1
ROUTINGS = ("static", "ecmp", "adaptive")
Files = list[Path] | None


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    app.command("diagnose")(diagnose)
    app.command("burnin")(burnin)


@dataclass(frozen=True)
class Given:
    """The machine that evidence is about.

    routing  how paths run; None without topology
    lids     LID -> name
    gpu      of its servers; None where nothing names them
    """

    elements: Elements
    routing: Routing | None
    lids: Mapping[int, str]
    title: str
    gpu: Gpu | None = None


def diagnose(
    study: Annotated[str, typer.Argument(metavar="[STUDY]", help="Study or template of the machine.")] = "",
    machine: Annotated[
        str | None, typer.Option(help="Dump of the real machine (ibnetdiscover, …), instead of a study.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Catalogue name of the servers, with --machine.")] = None,
    routing: Annotated[
        str | None, typer.Option(help=f"How paths run: {', '.join(ROUTINGS)}; default the study's.")
    ] = None,
    tables: Annotated[Path | None, typer.Option(help="Forwarding tables (dump_fts, ibroute), exact.")] = None,
    pairs: Annotated[
        Files, typer.Option(help="Pair bandwidths: `bench pairs`, or a filled-in round.")
    ] = None,
    log: Annotated[Files, typer.Option(help="nccl-tests log of a group of hosts (repeatable).")] = None,
    counters: Annotated[Files, typer.Option(help="ibqueryerrors or perfquery, now (repeatable).")] = None,
    before: Annotated[Files, typer.Option(help="The same, earlier.")] = None,
    links: Annotated[str | None, typer.Option(help="ibnetdiscover or iblinkinfo, now.")] = None,
    links_before: Annotated[str | None, typer.Option(help="The same, earlier; default --machine.")] = None,
    recorder: Annotated[Files, typer.Option(help="Flight-recorder dumps of all ranks, or a folder.")] = None,
    dmesg: Annotated[list[str] | None, typer.Option(help="[HOST=]kernel log (repeatable).")] = None,
    steps: Annotated[Files, typer.Option(help="CSV of rank, seconds[, step, op, stage].")] = None,
    most: Annotated[int, typer.Option(min=1, max=12, help="Most faults at once.")] = 6,
    plan: Annotated[Path | None, typer.Option(help="Write rounds of pair tests into this folder.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=32, help="Rounds, with --plan.")] = 4,
    html: Annotated[Path | None, typer.Option(help="Also write this page, with the fabric drawn.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Name the element at fault, from any evidence.

    Suspects with probabilities and evidence, what they take with them, what this evidence cannot tell, and
    the cheapest next test.  Exit status 1 when a fault is more probable than not.
    """
    given = _given(study, machine, server, routing, tables)
    if plan is not None:
        _write_plan(given, plan, rounds)
        return
    parts = [
        *_network(given, pairs, log, counters, before),
        *_links(given, links, links_before or machine),
        *_ranks(given, recorder, dmesg, steps),
    ]
    if not parts:
        raise RailwrightError(
            "no evidence: give --pairs, --log, --counters, --links, --recorder, --dmesg or --steps; or "
            "--plan DIR for the tests that would bring some"
        )
    from railwright.diagnose import diagnose as find
    from railwright.diagnose.evidence import together
    from railwright.diagnose.text import lines

    result = find(given.elements, together(parts), given.routing, most)
    if html is not None:
        _write_page(html, given, result)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"machine": given.title, **asdict(result)}, indent=1))
    else:
        for line in lines(result):
            typer.echo(line)
    if result.faults:
        raise typer.Exit(FAULT)


def burnin(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study file or template.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    rounds: Annotated[int, typer.Option(min=1, max=32, help="Rounds of pair tests.")] = 4,
) -> None:
    """Write the acceptance plan of a new cluster.

    Per node, per scalable unit and rail, across leaves and spines, growing rings; host files, scripts,
    expected figures and pass marks from our own prediction.  Nothing is overwritten.
    """
    from railwright.cli.fabric import open_fabric
    from railwright.collectives import Machine, NcclSettings
    from railwright.diagnose import Routing, elements_of
    from railwright.diagnose.plans.burnin import burnin as plan_of
    from railwright.diagnose.plans.burnin_files import burnin_files

    asked, catalog, fabric = open_fabric(study, None)
    machine = Machine.of(asked.cluster, catalog, NcclSettings.of(asked.nccl))
    elements = elements_of(fabric)
    found = plan_of(machine, elements, Routing(asked.cluster.compute.routing), rounds)
    _write_files(out, burnin_files(found, elements, asked.name))
    typer.echo(f"{out}/plan.md: {len(found.checks)} tests in {len({c.stage for c in found.checks})} stages")
    for note in found.notes:
        typer.echo(f"note: {note}")


def _given(
    study: str, machine: str | None, server: str | None, routing: str | None, tables: Path | None
) -> Given:
    from railwright.diagnose import Routing, elements_of

    if study and machine:
        raise RailwrightError("name a study, or the dump of a machine by --machine, not both")
    if routing is not None and routing not in ROUTINGS:
        raise RailwrightError(
            f"--routing '{routing}' is none of {', '.join(ROUTINGS)}{nearest(routing, ROUTINGS)}"
        )
    if not study and not machine:
        if tables is not None or routing is not None:
            raise RailwrightError("--tables and --routing need a topology: a study, or --machine")
        return Given(elements_of(None), None, {}, "no topology")
    if machine:
        return _given_machine(machine, server, routing or "static", tables)

    from railwright.catalog import find, load_catalog
    from railwright.cli.studies import open_study
    from railwright.fabric import build

    asked = open_study(study)
    catalog = load_catalog(asked.catalog)
    fabric = build(asked.cluster.model_copy(update={"faults": ()}), catalog)
    found = Routing(routing or asked.cluster.compute.routing)
    if tables is not None:
        from railwright.measure import opensm

        found = Routing("tables", opensm.design_tables(tables, fabric, catalog)[0])
    gpu = find(catalog.gpus, find(catalog.servers, asked.cluster.server).gpu)
    return Given(elements_of(fabric), found, {}, asked.name, gpu)


def _given_machine(dump: str, server: str | None, routing: str, tables: Path | None) -> Given:
    from railwright.asbuilt import fabric_names, infer, to_fabric
    from railwright.asbuilt.read import read
    from railwright.catalog import find, load_catalog
    from railwright.diagnose import Routing, elements_of
    from railwright.diagnose.read.names import name_in_elements

    wiring = read(dump)
    inferred = infer(wiring)
    catalog = load_catalog()
    fabric = to_fabric(inferred, catalog, server)
    found = Routing(routing)
    if tables is not None:
        from railwright.measure import opensm

        found = Routing("tables", opensm.machine_tables(tables, inferred, fabric)[0])
    lids = {node.lid: name_in_elements(node) for node in wiring.nodes if node.lid}
    gpu = find(catalog.gpus, find(catalog.servers, server).gpu) if server else None
    return Given(elements_of(fabric, fabric_names(inferred, fabric)), found, lids, Path(dump).name, gpu)


def _network(given: Given, pairs: Files, log: Files, counters: Files, before: Files) -> list[Evidence]:
    from railwright.diagnose.read import counters as ports
    from railwright.diagnose.read.grouplogs import group_evidence, read_group
    from railwright.diagnose.read.pairs import pair_evidence, read_pairs

    found = []
    if (pairs or log) and given.routing is None:
        raise RailwrightError("--pairs and --log need a topology: name the study, or the dump by --machine")
    for path in pairs or ():
        assert given.routing is not None
        found.append(pair_evidence(given.elements, given.routing, read_pairs(path), str(path)))
    if log:
        assert given.routing is not None
        read = [read_group(path, gpu=given.gpu) for path in log]
        found.append(group_evidence(given.elements, given.routing, read))
    if before and not counters:
        raise RailwrightError("--before is the earlier snapshot of --counters, which is missing")
    if counters:
        now = ports.merged([ports.read_counters(path) for path in counters])
        old = ports.merged([ports.read_counters(path) for path in before]) if before else None
        found.append(ports.counter_evidence(given.elements, now, old, given.lids))
    return found


def _links(given: Given, links: str | None, before: str | None) -> list[Evidence]:
    if links is None:
        return []
    if before is None:
        raise RailwrightError("--links needs --links-before, the dump from when all was well")

    from railwright.asbuilt.read import read
    from railwright.diagnose.read.links import link_evidence

    return [link_evidence(given.elements, read(links), read(before))]


def _ranks(given: Given, recorder: Files, dmesg: list[str] | None, steps: Files) -> list[Evidence]:
    from railwright.diagnose.read.dmesg import dmesg_evidence, read_dmesg
    from railwright.diagnose.read.recorder import read_recorder, recorder_evidence
    from railwright.diagnose.read.steps import read_steps, step_evidence

    found = []
    if recorder:
        found.append(recorder_evidence(given.elements, read_recorder(recorder)))
    lines = []
    for text in dmesg or ():
        host, equals, file = text.partition("=")
        lines += read_dmesg(Path(file), host) if equals else read_dmesg(Path(text))
    if dmesg:
        found.append(dmesg_evidence(given.elements, lines))
    found += [step_evidence(given.elements, read_steps(path)) for path in steps or ()]
    return found


def _write_plan(given: Given, folder: Path, count: int) -> None:
    from railwright.diagnose.paths import need_fabric
    from railwright.diagnose.plans.plan_files import plan_files
    from railwright.diagnose.plans.schedule import rounds

    fabric = need_fabric(given.elements)
    assert given.routing is not None
    made = rounds(fabric, given.routing, count)
    _write_files(folder, plan_files(given.elements, made))
    typer.echo(f"{folder}: {count} rounds of {', '.join(str(len(r)) for r in made)} pairs")
    if not given.routing.certain:
        typer.echo(
            f"note: routing is {given.routing.name}: these tests find NICs, servers and leaves; which cable "
            "or spine above the leaf, only counters or static tables (--tables) can tell"
        )


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    from railwright.export.files import refuse_filled, write_new

    refuse_filled(folder)
    for path in write_new({folder / name: text for name, text in files.items()}):
        if path.suffix == ".sh":
            path.chmod(0o755)


def _write_page(path: Path, given: Given, result: Diagnosis) -> None:
    from railwright.diagnose.text import findings, lines
    from railwright.diagnose.verdict import marked
    from railwright.export.files import write_new
    from railwright.report.pages.suspects import suspects_page

    fabric = marked(given.elements, result)
    notes = [*result.unidentifiable, *(t.command for t in result.next_tests), *result.notes]
    text = suspects_page(
        f"Diagnosis of {given.title}", lines(result)[0].rstrip(":"), findings(result), notes, fabric
    )
    write_new({path: text})
