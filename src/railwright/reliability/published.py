"""Published figures that disagree with each other: shown with their reason, never averaged silently."""

from __future__ import annotations

from functools import cache
from typing import Any

from railwright.reliability.constants import read_data
from railwright.reliability.formulas import job_mtti, ratio_of_mtbf, ratio_survival, ratio_up
from railwright.reliability.result import Contradiction
from railwright.units import DAY, HOUR


@cache
def published() -> dict[str, Any]:
    """The published figures that the contradictions are computed from."""
    return read_data("published")


def table5() -> tuple[int, float]:
    """Llama 3's table 5: the sum of its counts, and the GPU's share of them. [1]"""
    row = published()["llama3-table5"]
    total = sum(row["counts"].values())
    gpu = sum(row["counts"][name] for name in row["gpu"])
    return total, gpu / total


def rsc_series_rate() -> tuple[float, float]:
    """Failures per 1,000 node-days that the two MTTFs of Meta's RSC paper imply, at 8 and at 1,024 GPUs."""
    row = published()["rsc-mttf"]
    one = 1000 * DAY / row["8_gpus"]
    many = 1000 * DAY / row["1024_gpus"] / (1024 / 8)
    return one, many


def superlinear() -> float:
    """Failures at 100,000 GPUs over what the rate at 32,768 would give them. [1]"""
    row = published()["ft-hsdp-100k"]
    return float(job_mtti(row["gpus"] / 8, row["rate_at_32k"]) / row["mtbf"])


def contradictions(gpus: int, rates: str, everything: bool = False) -> tuple[Contradiction, ...]:
    """What a reader of this job's figures should know; with `everything`, all that are known."""
    found = [_definitions()]
    if everything or rates in ("llama3-2024", "pooled"):
        found.append(_percentages())
    if everything or gpus > 32_768:
        found.append(_superlinear())
    if everything or rates == "pooled":
        found.append(_two_rates())
    if everything:
        found += [Contradiction(r["name"], r["text"], r["explanation"]) for r in published()["other"]]
    return tuple(found)


def _percentages() -> Contradiction:
    row = published()["llama3-table5"]
    total, share = table5()
    faulty = row["counts"]["faulty_gpu"]
    return Contradiction(
        "percentages that do not match counts",
        f"Llama 3's table 5 prints {row['printed_faulty_gpu']} % for faulty GPUs and {row['printed_gpu']} % "
        f"for all GPU causes; its own counts, {faulty} and {round(share * total)} of {total}, are "
        f"{100 * faulty / total:.1f} % and {100 * share:.1f} %.",
        "Railwright uses the counts: they add up to the 419 interruptions of the text.",
    )


def _definitions() -> Contradiction:
    row = published()["ft-hsdp-100k"]
    m, r = row["mtbf"], row["recovery"]
    return Contradiction(
        "three meanings of effective training time",
        f"FT-HSDP's 100,000 GPUs, {m / 60:.0f} min between failures and {r / 60:.0f} min to recover, train "
        f"{ratio_of_mtbf(m, r):.3f} of the time by (M - R)/M, which the paper prints as 0.44, "
        f"{ratio_survival(m, r):.3f} by exp(-R/M), and {ratio_up(m, r):.3f} by M/(M + R).",
        "(M - R)/M takes M from failure to failure, M/(M + R) takes it as time up; exp(-R/M) lets failures "
        "strike recoveries. Railwright prints each by its name, and its own ETTR is the renewal formula's.",
    )


def _superlinear() -> Contradiction:
    row = published()["ft-hsdp-100k"]
    linear = job_mtti(row["gpus"] / 8, row["rate_at_32k"])
    return Contradiction(
        "more failures at 100,000 GPUs than the sum of their parts",
        f"2.3 per 1,000 node-days (32,768 GPUs) would give 100,000 GPUs {linear / 60:.0f} min between "
        f"failures; {row['mtbf'] / 60:.0f} min were reported: {superlinear():.1f} times as many failures.",
        "Railwright adds up independent parts. Common causes (switches, software at scale, storage, power) "
        "do not show in smaller fleets; set reliability.correlated: 2.8 to plan with the reported figure.",
    )


def _two_rates() -> Contradiction:
    row = published()["rsc-mttf"]
    one, many = rsc_series_rate()
    projected = job_mtti(16384 / 8, row["stated_rate"])
    return Contradiction(
        "two failure rates in one paper",
        f"Meta's RSC paper measures 47.7 days between failures at 8 GPUs and 7.9 h at 1,024, which is "
        f"{one:.0f} and {many:.0f} per 1,000 node-days; its projections ({projected / HOUR:.1f} h at 16,384 "
        f"GPUs) use {row['stated_rate']:g}.",
        "The two points agree with each other, so failures scale with GPUs; they count any failed job, the "
        "stated rate counts failures of infrastructure. Railwright's pooled rates are of the second kind.",
    )
