"""The rooms beside training as plain values: serving, failures, the site and money."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from railwright.cost.options import middle, people
from railwright.cost.priced import Priced
from railwright.serving.result import ServingResult
from railwright.study.result import Rooms
from railwright.units import JOULES_PER_KWH


def rooms(found: Rooms) -> dict[str, Any]:
    """One key per room the study has; figures that are not finite become null further up."""
    plain: dict[str, Any] = {}
    if found.serving:
        plain["serving"] = [serving(one) for one in found.serving]
    if found.goodput is not None:
        plain["goodput"] = asdict(found.goodput)
    if found.site is not None:
        plain["site"] = found.site.to_dict()
    if found.money is not None:
        plain["money"] = money(found.money)
    return plain


def serving(s: ServingResult) -> dict[str, Any]:
    """What users see and what gets done, without the requests themselves."""
    return {
        "name": s.name,
        "model": s.model,
        "engine": s.engine,
        "gpu": s.gpu,
        "gpus": s.gpus,
        "replicas": s.replicas,
        "prefill_replicas": s.prefill_replicas,
        "requests": s.requests,
        "ttft_s": asdict(s.ttft),
        "tpot_s": asdict(s.tpot),
        "itl_s": asdict(s.itl),
        "end_to_end_s": asdict(s.end_to_end),
        "throughput": asdict(s.throughput),
        "promises": [{**asdict(p), "kept": p.kept} for p in s.promises],
        "meeting_the_slo": s.good,
        "goodput_requests_per_s": s.goodput,
        "cache": asdict(s.cache),
        "ttft_parts_s": s.ttft_parts.parts,
        "tpot_parts_s": s.tpot_parts.parts,
        "bottleneck": s.bottleneck,
        "power_w": s.power,
        "kernels": asdict(s.kernels),
        "words": list(s.words),
    }


def money(priced: Priced) -> dict[str, Any]:
    """Every way with its parts, runs and tokens, break-even, swings, carbon."""
    found = priced.comparison
    return {
        "gpus": found.case.cluster.gpus,
        "gpu_hours_wanted_a_month": found.case.wanted,
        "people": float(people(found.case, middle(found.book))),
        "ways": [
            {
                "name": c.name,
                "kind": c.kind,
                "upfront_usd": float(c.upfront),
                "usd_a_month": {k: float(v) for k, v in c.parts.items()},
                "usd_per_gpu_hour": float(c.per_gpu_hour),
                "usd_per_gpu_hour_5_50_95": list(found.ranges[c.name]),
                "cheapest_in_share_of_draws": found.cheapest[c.name],
                "cheapest_in_share_of_draws_without_spot": found.lasting.get(c.name),
                "owned": c.owned,
                "usd_per_run": {run.job: float(run.cost(c)) for run in priced.runs},
                "usd_per_million_tokens": {one.job: float(one.cost(c)) for one in priced.served},
            }
            for c in found.costs
        ],
        "runs": [asdict(run) for run in priced.runs],
        "break_even": [
            {
                "own": b.own,
                "cloud": b.cloud,
                "months": float(b.months),
                "utilisation": float(b.utilisation),
            }
            for b in found.breaks
        ],
        "swings": [{"item": s.item, "low": s.low, "high": s.high, "source": s.source} for s in found.swings],
        "carbon": [
            {
                "region": c.region,
                "kwh_a_year": c.energy / JOULES_PER_KWH,
                "g_per_kwh": c.intensity,
                "kg_a_year": c.operation,
                "kg_making_a_year": c.making,
                "g_per_gpu_hour": float(c.per_gpu_hour),
                "usd_per_gpu_hour_owned": float(found.owned_in[c.region]),
                "source": c.source,
            }
            for c in found.carbon
        ],
        "prices_nobody_read": list(found.unread),
        "prices_with_an_assumed_range": list(found.assumed),
    }
