"""`railwright search` of a recommendation job: every sharding of its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.search.recommendation import Placed, Placements
    from railwright.spec import Study


def recommendation_wanted(asked: Study, job: str | None) -> bool:
    """Whether the search is of a recommendation job: named, or all there is of training jobs."""
    if not asked.jobs:
        return bool(asked.recommendations) and job not in [s.name for s in asked.serving]
    return job in [r.name for r in asked.recommendations] and job not in [j.name for j in asked.jobs]


def search_recommendation_job(
    asked: Study,
    name: str | None,
    gpus: int | None,
    top: int,
    space: Path | None,
    objective: str,
    export: str | None,
    framework: str | None,
    as_json: bool,
) -> None:
    """The command, for a recommendation job."""
    for option, value in (("--export", export), ("--framework", framework)):
        if value is not None:
            raise RailwrightError(
                f"{option} is of transformers; a recommendation job's best fields are in the table, to be "
                "written into the study"
            )
    from railwright.cli.spaces import space_of
    from railwright.model.recommendation.dlrm import load_recommender
    from railwright.search import recommendation as room
    from railwright.study.evaluate import Workshop

    names = [r.name for r in asked.recommendations]
    if name is not None and name not in names:
        hint = nearest(name, names) or f"; its jobs are {', '.join(names)}"
        raise RailwrightError(f"'{asked.name}' has no job '{name}'{hint}")
    job = next(r for r in asked.recommendations if name in (None, r.name))
    if gpus is not None:
        job = job.model_copy(update={"gpus": gpus})
    given = None if space is None else space_of(space, lambda plain: room.space_of(plain, str(space)))
    machine = Workshop.of(asked).machine(asked)
    found = room.search_recommendation(job, load_recommender(job.model), machine, given, objective=objective)
    if as_json:
        typer.echo(json.dumps(_plain(found, top), indent=2))
    else:
        _show(found, top)


def _row(one: Placed) -> dict[str, Any]:
    return {
        "changed": {**one.changed},
        "step_time_s": one.step.step_time,
        "samples_per_s": one.step.tokens_per_second,
        "memory_bytes": one.step.memory.total,
        "balance": one.balance,
        "shares": {s.kind: s.exposed for s in one.step.shares},
    }


def _plain(found: Placements, top: int) -> dict[str, Any]:
    return {
        "tried": found.tried,
        "best": [_row(one) for one in found.best[:top]],
        "own": None if found.own is None else _row(found.own),
        "own_refused": found.own_refused,
        "refused": dict(found.refused),
    }


def _show(found: Placements, top: int) -> None:
    from railwright.cli.tables import print_table, print_words
    from railwright.units import show_share, show_size, show_time

    print_words(
        f"{found.tried} shardings, {len(found.best)} of them different and within memory; all simulated."
    )
    rows = []
    for place, one in enumerate(found.best[:top], 1):
        exposed = show_share(one.step.exposed_share)
        rows.append(
            [
                str(place),
                f"{one.step.tokens_per_second:,.0f}",
                show_time(one.step.step_time),
                exposed,
                show_size(one.step.memory.total),
                f"{one.balance:.2f}",
                _words(one),
            ]
        )
    heads = ("", "samples/s", "step", "exposed", "memory", "busiest", "changes")
    print_table(heads, rows)
    if found.own is None:
        print_words(f"As written it cannot run: {found.own_refused}")
        return
    fastest = max(one.step.tokens_per_second for one in found.best)
    gain = fastest / found.own.step.tokens_per_second - 1
    print_words(
        f"As written: {found.own.step.tokens_per_second:,.0f} samples/s, "
        + (f"the fastest has {show_share(gain)} more." if gain > 0.0005 else "nothing is faster.")
        + " 'exposed' is communication over the step, 'busiest' what the busiest GPUs move over the mean."
    )
    for why, count in sorted(found.refused.items(), key=lambda one: -one[1])[:1]:
        print_words(f"{count} cannot work: {why}")


def _words(one: Placed) -> str:
    from railwright.units import show_size

    changed = dict(one.changed)
    kind, pieces = changed.get("sharding"), changed.get("column_shards")
    found = [kind] if kind else []
    if pieces:
        found.append(f"in {pieces} pieces")
    if "replicate_below" in changed:
        below = changed["replicate_below"]
        found.append(f"replicate_below {show_size(below)}" if below else "none replicated")
    if "global_batch" in changed:
        found.append(f"global_batch {changed['global_batch']:,}")
    return ", ".join(found) or "as written"
