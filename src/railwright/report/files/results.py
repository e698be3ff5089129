"""The whole result as JSON: SI base units, named in the fields; keys in a fixed order; no NaN, no Infinity.

Fields are documented in docs/report.md.  Fabrics are summarised (their cables are in cables.csv) and the
timeline is referred to (of one step it is in trace.json).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from railwright.collectives.prediction import CollectivePrediction
from railwright.fabric.counts import Counts
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.solution import Bottleneck
from railwright.report.files.plain import finite
from railwright.report.files.rooms import rooms
from railwright.report.files.trace import traced
from railwright.report.words.figures import letter
from railwright.study.bottleneck import exposed_between
from railwright.study.result import JobResult, Result, SensitivityRow, VariantResult
from railwright.training.lanes.critical import critical_path
from railwright.training.lanes.result import HostMemory, StepResult
from railwright.training.memory.cached import Reserved

FORMAT = "railwright-result"
FORMAT_VERSION = 1


def results(result: Result) -> dict[str, Any]:
    """The result as plain dicts, lists, strings and finite numbers (null where a number is not finite)."""
    drawn = traced(result)
    whole = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "railwright_version": result.version,
        "spec_sha256": result.spec_hash,
        "models_used": list(result.models_used),
        "seconds_to_compute": result.seconds,
        "question": result.study.question,
        "answer": list(result.answer),
        "recommended": letter(result.recommended) if result.variants else None,
        "bottleneck": result.bottleneck,
        "variants": [_variant(i, v, drawn) for i, v in enumerate(result.variants)],
        "sensitivity": [_sensitivity(row) for row in result.sensitivity],
        "what_ifs": [_sensitivity(row) for row in result.what_ifs],
        "published": [
            {
                "name": p.name,
                "published": p.published,
                "predicted": p.predicted,
                "why": p.why,
                "source": p.source,
                "under": [{"assumption": name, "predicted": value} for name, value in p.under],
            }
            for p in result.published
        ],
        **rooms(result.rooms),
        "assumptions": [{"name": a.name, "value": a.value, "source": a.source} for a in result.assumptions],
        "warnings": list(result.warnings),
        "study": result.study.model_dump(mode="json"),
    }
    plain = finite(whole)
    assert isinstance(plain, dict)
    return plain


def to_text(value: object) -> str:
    """JSON text: two spaces of indent, UTF-8, a newline at the end; refuses what JSON cannot hold."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _variant(index: int, variant: VariantResult, drawn: tuple[int, JobResult] | None) -> dict[str, Any]:
    """A variant; `drawn` is the one job whose step is in trace.json, and its variant."""
    file = "trace.json" if drawn is not None and drawn[0] == index else None
    return {
        "letter": letter(index),
        "name": variant.name,
        "why": variant.why,
        "infeasible": variant.infeasible,
        "notes": list(variant.notes),
        "fabric": None if variant.fabric is None else _fabric(variant.fabric),
        "counts": None if variant.counts is None else _counts(variant.counts),
        "curves": [
            {"op": c.op, "label": c.label, "points": [_prediction(p) for p in c.points]}
            for c in variant.curves
        ],
        "jobs": [
            _job(job, variant.fabric, file if drawn and job is drawn[1] else None) for job in variant.jobs
        ],
    }


def _fabric(fabric: Fabric) -> dict[str, Any]:
    worst = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2])
    return {
        "name": fabric.name,
        "family": fabric.family,
        "parts": dict(fabric.parts),
        "devices": {kind.name.lower(): len(fabric.devices(kind)) for kind in Kind},
        "cables": {role.name.lower(): int(np.count_nonzero(fabric.role == role)) for role in Role},
        "cables_failed": int(np.count_nonzero(worst <= 0)),
        "cables_slow": int(np.count_nonzero((worst > 0) & (worst < fabric.rate))),
        "notes": list(fabric.notes),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "servers": counts.servers,
        "gpus": counts.gpus,
        "leaves": counts.leaves,
        "spines": counts.spines,
        "cores": counts.cores,
        "switches": counts.switches,
        "cables_node_leaf": counts.node_leaf,
        "cables_leaf_spine": counts.leaf_spine,
        "cables_spine_core": counts.spine_core,
        "cables": counts.cables,
        "optics": counts.optics,
        "switch_power_w": None if counts.unrated else counts.switch_power,
        "hops_max": counts.hops_max,
        "bisection_bytes_per_s": counts.bisection,
    }


def _prediction(p: CollectivePrediction) -> dict[str, Any]:
    return {
        "op": p.op,
        "size_bytes": p.size,
        "ranks": p.ranks,
        "groups": p.groups,
        "time_s": p.time,
        "algbw_bytes_per_s": p.algbw,
        "busbw_bytes_per_s": p.busbw,
        "algorithm": p.algorithm,
        "protocol": p.protocol,
        "terms": [{"name": t.name, "seconds": t.seconds, "why": t.why} for t in p.terms],
        "bottleneck": None if p.bottleneck is None else _bottleneck(p.bottleneck),
        "error_low": p.error_low,
        "error_high": p.error_high,
        "notes": list(p.notes),
    }


def _reserved(held: Reserved) -> dict[str, Any]:
    """What PyTorch's allocator holds of the GPU where it holds most."""
    return {
        "stage": held.stage,
        "reserved_bytes": held.reserved,
        "holes_bytes": held.holes,
        "reserved_in_growing_segments_bytes": held.growing,
        "beside_bytes": held.system,
        "retries_per_step": held.retries,
        "short_bytes": held.short,
    }


def _bottleneck(b: Bottleneck) -> dict[str, Any]:
    return {"link": b.link, "name": b.name, "utilisation": b.utilisation, "demands": b.share, "why": b.why}


def _job(job: JobResult, fabric: Fabric | None, file: str | None) -> dict[str, Any]:
    return {
        "name": job.name,
        "infeasible": job.infeasible,
        "step": None
        if job.step is None
        else _step(job.step, fabric, file, job.reserved) | {"critical_path": _critical(job)},
    }


def _host(held: HostMemory) -> dict[str, Any]:
    return {
        "parts_bytes": dict(held.parts),
        "total_bytes": held.total,
        "capacity_bytes": held.capacity or None,
        "ranks": held.ranks,
    }


def _step(step: StepResult, fabric: Fabric | None, file: str | None, held: Reserved | None) -> dict[str, Any]:
    return {
        "step_time_s": step.step_time,
        "unit": step.unit,
        "tokens": step.tokens,
        "tokens_per_s": step.tokens_per_second,
        "tokens_per_s_per_gpu": step.tokens_per_second_per_gpu,
        "model_flop": step.model_flops,
        "mfu": step.mfu,
        "exposed_share": step.exposed_share,
        "exposed_between_servers_share": exposed_between(fabric, step) / step.step_time,
        "shares": [{"kind": s.kind, "busy_s": s.busy, "exposed_s": s.exposed} for s in step.shares],
        "memory": {
            "parts_bytes": dict(step.memory.parts),
            "total_bytes": step.memory.total,
            "capacity_bytes": step.memory.capacity,
            "allocator": None if held is None else _reserved(held),
            "why": step.memory.why,
            "host": None if step.memory.host is None else _host(step.memory.host),
            "stages": [
                {"stage": s.stage, "total_bytes": s.total, "moment": s.moment, "passes_held": s.passes}
                | {"parts_bytes": dict(s.parts)}
                for s in step.memory.stages
            ],
        },
        "data": None
        if step.feed is None
        else {
            "read_bytes": step.feed.read,
            "busiest_server_bytes": step.feed.server,
            "reading_s": step.feed.reading,
            "preparing_s": step.feed.preparing,
            "ahead": step.feed.ahead,
        },
        "collectives": [
            {
                "purpose": u.purpose,
                "kind": u.kind,
                "count_per_step": u.count,
                "prediction": _prediction(u.prediction),
            }
            for u in step.collectives
        ],
        "timeline": {"span_s": step.timeline.span, "events": len(step.timeline.events), "file": file},
        "tokens_total": step.tokens_total,
        "time_to_train_s": step.time_to_train,
        "gpu_hours": step.gpu_hours,
        "error_low": step.error_low,
        "error_high": step.error_high,
        "error_source": step.error_source,
        "warnings": list(step.warnings),
    }


def _critical(job: JobResult) -> dict[str, Any] | None:
    """What the step's critical path consists of; its seconds add up to the step with `waits_s`."""
    path = job.critical or (critical_path(job.step.timeline) if job.step is not None else None)
    if path is None:
        return None
    return {
        "sentences": list(path.sentences(dict(job.worth))),
        "parts": [
            {"stage": p.rank, "lane": p.lane, "what": p.what, "seconds": p.seconds, "share": p.share}
            for p in path.parts
        ],
        "waits_s": sum(w.end - w.start for w in path.waits),
        "beside": [{"what": b.what, "kind": b.kind, "seconds": b.seconds} for b in path.beside],
    }


def _sensitivity(row: SensitivityRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "why": row.why,
        "step_time_s": row.step_time,
        "effect": row.effect,
        "pxn_gain": row.pxn_gain,
        "note": row.note,
        "changes": [{"kind": kind, "seconds": seconds} for kind, seconds in row.changes],
    }
