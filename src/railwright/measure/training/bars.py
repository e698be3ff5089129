"""What is asked of predicted training steps (issue 6): every bar with what is reached, met or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from railwright.measure.bands import LEVEL
from railwright.measure.table import Row, Skipped, quantile
from railwright.measure.training.bands import Named, coverage
from railwright.measure.training.habits import framework_of
from railwright.measure.training.models import architectures
from railwright.measure.training.unseen_runs import frameworks_of_runs, groups_of_runs, runs_in_ranges

STEPS = "training "
"""How families of step times begin."""


MEMORY = "memory "
"""How families of peaks of memory begin."""


@dataclass(frozen=True)
class Reached:
    """One bar: what is asked, what is reached, and whether that is enough."""

    what: str
    asked: str
    reached: str
    met: bool


def reached(
    rows: Sequence[Row], skipped: Sequence[Skipped], records: Mapping[str, Mapping[str, str]]
) -> list[Reached]:
    """All bars on the training rows.

    records  record -> its row of training.csv (rows of other tables are told by their family)
    """
    # A record's memory is a row of its own, in another family.
    steps = [r for r in rows if r.record in records and r.family.startswith(STEPS)]
    good = [r for r in steps if records[r.record]["quality"] == "A"]
    routed = {name for name, r in records.items() if (a := architectures().get(r["model"])) and a.is_moe}
    dense = [r for r in good if r.record not in routed]
    moe = [r for r in good if r.record in routed]
    multi = [r for r in steps if records[r.record]["family"].startswith("vtrain")]
    simumax = [r for r in steps if records[r.record]["family"].startswith("simumax")]
    single = [r for r in rows if r.family == "vTrain single server"]
    eight = [r for r in rows if r.family == "Korthikanti table 5"]
    refused = [
        s
        for s in skipped
        if s.record in records and s.family.startswith(STEPS) and records[s.record]["quality"] == "A"
    ]
    found = [_dense(dense), _moe(moe), _left_out(steps)]
    if good:
        share = len(good) / (len(good) + len(refused))
        found.append(Reached("A records predicted", ">= 97 %", f"{share:.1%}", share >= 0.97))
    found += [_growth(good, records), _ranking(steps, records)]
    found.append(_memory("peak memory within 7 %", [r for r in rows if r.family.startswith(MEMORY)], 0.07))
    found.append(_eight(eight))
    found.append(_mean_bias("vTrain, several servers", multi, 0.08, 0.03))
    found.append(_mean_bias("vTrain, one server, rows not fitted", single, 0.08, None))
    found.append(_mean_bias("SimuMax, B200", simumax, 0.05, 0.02))
    allocated = [r for r in rows if r.family == "memory allocated" and r.record.startswith("simumax")]
    found.append(_memory("SimuMax, B200, memory within 2 %", allocated, 0.02))
    inside, total = coverage(ranged(rows, records), *belonging(records))
    if total:
        share = inside / total
        found.append(
            Reached(f"{LEVEL:.0%} intervals, nested", "75-85 %", f"{share:.1%}", 0.75 <= share <= 0.85)
        )
    return found


def ranged(rows: Sequence[Row], records: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Rows that ranges are made of: steps of records, and other people's runs."""
    steps = (r for r in rows if r.record in records and r.family.startswith(STEPS))
    count = runs_in_ranges()
    return [*steps, *(r for r in rows if r.record in count)]


def belonging(records: Mapping[str, Mapping[str, str]]) -> tuple[Named, Named]:
    """Families and frameworks of records, and of other people's runs, whose groups are their families."""
    families = {name: record["family"] for name, record in records.items()}
    frameworks = {name: framework_of(record) for name, record in records.items()}
    return families | groups_of_runs(), frameworks | frameworks_of_runs()


def lines(found: Sequence[Reached]) -> list[str]:
    """The bars as text of 80 columns."""
    head = f"{'bar of training':<38}{'asked':<16}{'reached':<22}"
    return [head, *(f"{b.what:<38}{b.asked:<16}{b.reached:<22}{'met' if b.met else 'NOT'}" for b in found)]


def _sizes(rows: Sequence[Row]) -> list[float]:
    return [abs(r.error) for r in rows] or [float("nan")]


def _dense(rows: Sequence[Row]) -> Reached:
    e = _sizes(rows)
    values = (mean(e), quantile(e, 0.9), max(e))
    text = "/".join(f"{100 * v:.1f}" for v in values) + " %"
    met = all(v <= bar for v, bar in zip(values, (0.07, 0.15, 0.30), strict=True))
    return Reached("dense: mean/p90/worst", "7/15/30 %", text, met)


def _moe(rows: Sequence[Row]) -> Reached:
    e = _sizes(rows)
    text = f"{100 * mean(e):.1f}/{100 * quantile(e, 0.9):.1f} %"
    return Reached("MoE: mean/p90", "12/25 %", text, mean(e) <= 0.12 and quantile(e, 0.9) <= 0.25)


def _left_out(rows: Sequence[Row]) -> Reached:
    e = [abs(r.error_left_out) for r in rows if r.error_left_out is not None] or [float("nan")]
    return Reached("each family left out, all", "12 %", f"{mean(e):.1%}", mean(e) <= 0.12)


def _mean_bias(what: str, rows: Sequence[Row], bar: float, bias: float | None) -> Reached:
    e, lean = mean(_sizes(rows)), mean([r.error for r in rows] or [float("nan")])
    asked = f"{bar:.0%}" + (f", bias {bias:.0%}" if bias else "")
    return Reached(what, asked, f"{e:.1%}, bias {lean:+.1%}", e <= bar and (not bias or abs(lean) <= bias))


def _memory(what: str, rows: Sequence[Row], bar: float) -> Reached:
    e = _sizes(rows)
    close, most = sum(x <= bar for x in e), at_most(rows, bar)
    asked = f"all ({most} can be)" if most < len(rows) else "all records"
    return Reached(what, asked, f"{close} of {len(rows)}, mean {mean(e):.1%}", close == len(rows) > 0)


def at_most(rows: Sequence[Row], bar: float) -> int:
    """How many rows any model could have within `bar`: jobs that are predicted alike are one to it, and their
    readings may be too far apart for one number."""
    alike: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        alike[row.family, row.predicted].append(row.measured)
    # p is within the bar of every reading from p / (1 + bar) to p / (1 - bar)
    width = (1 + bar) / (1 - bar)
    return sum(max(sum(low <= m <= low * width for m in found) for low in found) for found in alike.values())


def _eight(rows: Sequence[Row]) -> Reached:
    e = _sizes(rows)
    met = mean(e) <= 0.036 and max(e) <= 0.08
    what = f"Korthikanti, {len(rows)} points: mean/max"
    return Reached(what, "3.6/8 %", f"{100 * mean(e):.1f}/{100 * max(e):.1f} %", met)


SAME = ("family", "model", "software", "dtype", "seq", "tp", "pp", "vpp", "cp", "ep", "mbs", "kind")
"""What the records of one weak-scaling series share, beside the batch of one GPU."""


def _growth(rows: Sequence[Row], records: Mapping[str, Mapping[str, str]]) -> Reached:
    """Growth of the step from the smallest to the largest machine of a dgxc series, in points."""
    series: dict[tuple[object, ...], list[tuple[int, Row]]] = defaultdict(list)
    for row in rows:
        r = records[row.record]
        if r["family"].startswith("dgxc") and r["kind"] == "pretrain":
            each = int(r["gbs"]) / int(r["gpus"])
            series[(*(r[k] for k in SAME), each)].append((int(r["gpus"]), row))
    off = []
    for points in series.values():
        ordered = sorted(points, key=lambda p: p[0])
        if len(ordered) > 1:
            first, last = ordered[0][1], ordered[-1][1]
            off.append(abs(last.predicted / first.predicted - last.measured / first.measured))
    if not off:
        return Reached("weak scaling", "3 points", "no series", False)
    close = sum(x <= 0.03 for x in off)
    text = f"{close} of {len(off)}, mean {100 * mean(off):.1f}"
    return Reached("weak-scaling growth within 3 points", "all series", text, close == len(off))


def _ranking(rows: Sequence[Row], records: Mapping[str, Mapping[str, str]]) -> Reached:
    """Rank correlation over the layouts of one model, GPUs and batch in a sweep; the mean over sweeps.

    Records whose notes differ (another state of the machine) are not compared.
    """
    sweeps: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        r = records[row.record]
        if r["family"].startswith(("vtrain", "bigscience")):
            sweeps[(r["family"], r["model"], r["gpus"], r["gbs"], r["notes"])].append(row)
    found = [_spearman(s) for s in sweeps.values() if len(s) >= 8]
    if not found:
        return Reached("ranking of layouts", "0.9", "no sweep", False)
    text = f"{mean(found):.2f} of {len(found)}, least {min(found):.2f}"
    return Reached("ranking of layouts (Spearman)", ">= 0.9", text, mean(found) >= 0.9)


def _spearman(rows: Sequence[Row]) -> float:
    """Correlation of the ranks of predicted and measured; equal values share their mean rank."""
    a, b = _ranks([r.predicted for r in rows]), _ranks([r.measured for r in rows])
    middle = (len(rows) - 1) / 2
    both = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    one, two = (sum((x - middle) ** 2 for x in ranks) for ranks in (a, b))
    return float(both / (one * two) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
