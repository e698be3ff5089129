"""80 % bands of a step's time, from predictions made without the family they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from railwright.measure.bands import band
from railwright.measure.table import Row
from railwright.training.software.constants import DECIDES

GROWTH = 0.5
"""A family of n records weighs sqrt(n), as in the fit (tools/fit_training.py): its records share much of
their error, not all of it."""
EACH = 0.76
"""Share that each of a job's two bands holds, so that the wider of them at each end holds 80 %: nested, 83 %
of the measurements and 79 % of families (at 0.8 each, 86 and 83; tools/training_coverage.py)."""
FEWEST = 3
"""A slice (kind of model, GPU, width) with fewer model families gets the band of its kind of model."""

Band = tuple[float, float]


Named = Mapping[str, str]
"""Record -> what it belongs to."""


def bands(rows: Sequence[Row], families: Named, frameworks: Named) -> str:
    """The bands as YAML: training/data/error_band.yaml.

    rows        rows of records and of runs that no fit has seen, with `left_out`
    families    record -> family (model, GPU and publisher); run -> group
    frameworks  record or run -> framework
    """
    lines = [
        "# Written by tools/readme.py from `railwright validate training`; do not edit.",
        "# 80 % band of measured / predicted step time, of records with factors fitted without their own",
        "# family, and of other people's runs, which no fit has seen (measure/data/unseen_runs.yaml);",
        f"# each holds {EACH:.0%}, and the wider of a job's two at each end 80 %;",
        "# a family of n records weighs sqrt(n), as in the fit.  A slice is here with at least",
        f"# {FEWEST} families of its own; the others get the band of their kind of model.  A job gets the",
        "# wider at each end of its slice's band and its framework's, and of `launches` where its GPUs wait",
        f"# for launches in {DECIDES:.0%} of a step or more.",
        "kinds:",
    ]
    known = [r for r in rows if r.left_out is not None]
    for kind in ("dense", "moe", "linear"):
        chosen = [r for r in known if _kind(r) == kind]
        lines += _entry(kind, chosen, families, f"all {kind} models, ") if chosen else []
    for head, name_of in (("families", _slice), ("frameworks", lambda r: _framework(r, frameworks))):
        lines.append(f"{head}:")
        for name in sorted({name_of(r) for r in known}):
            chosen = [r for r in known if name_of(r) == name]
            if len({families[r.record] for r in chosen}) >= FEWEST:
                lines += _entry(name, chosen, families)
    if bound := [r for r in known if _waits(r)]:
        lines += ["launches:", *_entry("all", bound, families, "steps that wait for launches, ")]
    return "\n".join(lines) + "\n"


def coverage(rows: Sequence[Row], families: Named, frameworks: Named) -> tuple[int, int]:
    """(measurements inside, all) where each band too is made without the record's family (nested)."""
    inside = covered(rows, families, frameworks)
    return sum(inside.values()), len(inside)


def covered(rows: Sequence[Row], families: Named, frameworks: Named, share: float = EACH) -> dict[str, bool]:
    """Record -> whether its measurement lies inside, each band made without its family.

    share  that each band holds
    Records of the only family of their kind of model have no band, and are not there.
    """
    known = [r for r in rows if r.left_out is not None]
    inside: dict[str, bool] = {}
    made: dict[tuple[str, str], Band | None] = {}

    def found(row: Row, name_of: Callable[[Row], str], fewest: int) -> Band | None:
        name, mine = name_of(row), families[row.record]
        if (name, mine) not in made:
            same = [r for r in known if name_of(r) == name and families[r.record] != mine]
            enough = len({families[r.record] for r in same}) >= fewest
            made[name, mine] = _band(same, families, share) if enough else None
        return made[name, mine]

    for row in known:
        limits = found(row, _slice, FEWEST) or found(row, _kind, 1)
        if limits is not None:
            own = found(row, lambda r: _framework(r, frameworks), FEWEST) or limits
            bound = (found(row, _binds, FEWEST) if _waits(row) else None) or limits
            lows, highs = zip(limits, own, bound, strict=True)
            inside[row.record] = min(lows) <= _ratio(row) <= max(highs)
    return inside


def _slice(row: Row) -> str:
    """'dense H100 fp8', behind what a row is: a training record, or a run that nobody fitted."""
    return row.family.split(" ", 1)[1]


def _waits(row: Row) -> bool:
    return row.launches >= DECIDES


def _binds(row: Row) -> str:
    return "launches" if _waits(row) else "kernels"


def _framework(row: Row, frameworks: Named) -> str:
    return f"{_kind(row)} {frameworks[row.record]}"


def _kind(row: Row) -> str:
    return row.family.split()[1]


def _ratio(row: Row) -> float:
    """Measured over what was predicted without the record's family."""
    assert row.left_out is not None
    return row.measured / row.left_out


def _band(rows: Sequence[Row], families: Named, share: float = EACH) -> Band:
    return band([_ratio(r) for r in rows], [families[r.record] for r in rows], GROWTH, share)


def _entry(name: str, rows: Sequence[Row], families: Named, what: str = "") -> list[str]:
    low, high = _band(rows, families)
    middle = sorted(_ratio(r) for r in rows)[len(rows) // 2]
    count = len({families[r.record] for r in rows})
    return [
        f"  {name}:",
        f"    low: {low:.2f}",
        f"    high: {high:.2f}",
        f'    source: "railwright validate training: {what}{len(rows)} steps of {count} families, each '
        f'predicted without its own, median {middle:.2f}"',
    ]
