"""How many published training steps lie in their 80 % ranges: all, by framework, and other people's runs.

python tools/training_coverage.py        print it for several shares that each of a job's two bands holds

The figures of docs/training/calibration.md (The range of 80 %) and `measure.training.bands.EACH`; about a
minute.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from railwright.measure import validate
from railwright.measure.training import bands as training_bands
from railwright.measure.training.bars import belonging, ranged
from railwright.measure.training.replay import records
from railwright.measure.training.unseen_runs import RUNS

SHARES = (0.80, 0.78, training_bands.EACH, 0.74)


def main() -> int:
    """Print one line for each share."""
    carried = {r["id"]: r for r in records()}
    rows = ranged(validate("training").rows, carried)
    families, frameworks = belonging(carried)
    for share in SHARES:
        inside = training_bands.covered(rows, families, frameworks, share)
        groups: dict[str, list[bool]] = {"all": list(inside.values())}
        for row in rows:
            if row.record in inside:
                whose = "other people's runs" if row.family.startswith(RUNS) else "records"
                for name in (whose, frameworks[row.record]):
                    groups.setdefault(name, []).append(inside[row.record])
        parts = [f"{name} {100 * sum(found) / len(found):.1f}" for name, found in groups.items()]
        print(
            f"{share:.2f} each: {', '.join(parts)}; by families {100 * _by_families(inside, families):.1f} %"
        )
    return 0


def _by_families(inside: Mapping[str, bool], families: Mapping[str, str]) -> float:
    """The same where each family counts once."""
    found: dict[str, list[bool]] = {}
    for record, lies in inside.items():
        found.setdefault(families[record], []).append(lies)
    return sum(sum(one) / len(one) for one in found.values()) / len(found)


if __name__ == "__main__":
    sys.exit(main())
