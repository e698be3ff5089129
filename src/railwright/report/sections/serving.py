"""The page's serving jobs: what users see, whether promises are kept, where the time goes."""

from __future__ import annotations

from railwright.report.parts.charts import colour_key, part_looks, stacked_bar
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.serving.result import Parts, ServingResult
from railwright.study.result import Result
from railwright.units import show_count, show_power, show_share, show_time


def serving_section(result: Result) -> Html | None:
    """Every serving job of the study."""
    jobs = result.rooms.serving
    if not jobs:
        return None
    return join([_job(job, named=len(jobs) > 1) for job in jobs])


def _job(s: ServingResult, named: bool) -> Html:
    return join(
        [
            tag("h3", f"{s.name}: {s.model}") if named else None,
            *(tag("p", sentence) for sentence in s.words),
            _latencies(s),
            _bar("Time to first token", s.ttft_parts),
            _bar("Time per output token", s.tpot_parts),
            _work(s),
        ]
    )


def _latencies(s: ServingResult) -> Html:
    kinds = (
        ("time to first token", s.ttft),
        ("time per output token", s.tpot),
        ("between tokens", s.itl),
        ("end to end", s.end_to_end),
    )
    rows: list[list[Child]] = [
        [name, *(show_time(x) for x in (d.mean, d.p50, d.p90, d.p99))] for name, d in kinds
    ]
    table = data_table("What users see", ("", "mean", "p50", "p90", "p99"), rows, (1, 2, 3, 4))
    said: list[Child] = [
        tag(
            "p",
            f"{p.what} within {show_time(p.bound)} for {p.percentile:g} %: "
            f"{'kept' if p.kept else 'broken'}, {show_time(p.value)}.",
            class_=None if p.kept else "bad",
        )
        for p in s.promises
    ]
    return join([table, *said])


def _bar(name: str, parts: Parts) -> Html:
    looks = part_looks(parts.parts)
    shown = {k: v for k, v in parts.parts.items() if v > 0}
    bar = stacked_bar(
        [(looks[k], v, f"{k}: {show_time(v)}") for k, v in shown.items()],
        parts.total,
        label=f"{name}: {show_time(parts.total)}",
    )
    key = colour_key((looks[k], f"{k} {show_time(v)}") for k, v in shown.items())
    words = f"{name}, mean {show_time(parts.total)}"
    if parts.network > 0:  # a prompt's own collectives are inside its prefill, and not told apart
        words += f"; {show_share(parts.network / parts.total)} of it crosses the network or NVLink"
    return tag("figure", bar, key, tag("figcaption", f"{words}."))


def _work(s: ServingResult) -> Html:
    rows: list[list[Child]] = [
        [
            "GPUs",
            f"{show_count(s.gpus)} in {s.replicas} replica{'s' if s.replicas > 1 else ''}" + _prefill(s),
        ],
        ["output tokens a second", show_count(round(s.tokens_per_second))],
        ["a second and GPU", show_count(round(s.tokens_per_second_per_gpu))],
        ["a second and user", show_count(round(s.tokens_per_second_per_user))],
        [
            "room for keys and values",
            f"{show_count(s.cache.tokens)} tokens, {show_share(s.cache.peak)} used at most",
        ],
        ["power of its servers", f"{show_power(s.power)}, {s.joules_per_token:,.2f} J a token"],
    ]
    if s.good is not None:
        rows.append(["requests that keep every promise", show_share(s.good)])
    return data_table("What gets done, and on what", ("", ""), rows)


def _prefill(s: ServingResult) -> str:
    return f", {s.prefill_replicas} of prefill beside them" if s.prefill_replicas else ""
