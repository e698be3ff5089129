"""`railwright fabric`: what a study's network consists of."""

from __future__ import annotations

import typer

from railwright.cli.studies import StudyArgument, open_study


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    group = typer.Typer(
        help="Count the parts of a study's network.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("count")(count)
    app.add_typer(group, name="fabric")


def count(study: StudyArgument) -> None:
    """Count switches, cables and optics.

    Of the study as written and of every variant, side by side.
    """
    asked = open_study(study)

    from railwright.catalog import load_catalog
    from railwright.cli.tables import print_table
    from railwright.errors import PlanError
    from railwright.fabric import build
    from railwright.fabric import count as count_parts
    from railwright.spec import override
    from railwright.units import show_count, show_power, show_rate

    studies = [(asked.as_written, asked)]
    studies += [(variant.name, override(asked, variant.set)) for variant in asked.variants]
    columns: list[list[str]] = []
    impossible: list[str] = []
    for name, one in studies:
        try:
            catalog = load_catalog(one.catalog)
            parts = count_parts(build(one.cluster, catalog), catalog)
        except PlanError as error:
            impossible.append(f"{name}: {error}")
            continue
        numbers = (
            parts.servers, parts.gpus, parts.leaves, parts.spines, parts.cores, parts.switches,
            parts.node_leaf, parts.leaf_spine, parts.spine_core, parts.cables, parts.optics, parts.hops_max,
        )  # fmt: skip
        power = show_power(parts.switch_power) if parts.switch_power else "unknown"
        columns.append([name, *map(show_count, numbers), power, show_rate(parts.bisection)])
    rows = [
        "", "servers", "GPUs", "leaf switches", "spine switches", "core switches", "switches in all",
        "cables server-leaf", "cables leaf-spine", "cables spine-core", "cables in all", "optics",
        "switches on longest way", "switch power, max", "bisection",
    ]  # fmt: skip
    if columns:
        header, *lines = zip(rows, *columns, strict=True)
        print_table(header, lines, right=True)
    for reason in impossible:
        typer.echo(f"impossible: {reason}")
    if not columns:
        raise PlanError(f"none of the {len(studies)} designs of '{study}' can be built")
