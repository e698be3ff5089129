"""Published dispatch and combine times replayed, with each record left out beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from railwright.catalog import find, load_catalog
from railwright.collectives import Machine, NcclSettings, predict_dispatch
from railwright.collectives.constants import load
from railwright.collectives.moe_kernels import moe_facts
from railwright.measure.table import Row, Skipped
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic.demand import Communicator

OWN, PORT = "dispatch, DeepEP", "dispatch, UCCL-EP"
"""Families: DeepEP's own software, another library of its interface."""
HIDDEN, TOPK, EXPERTS = 7168, 8, 256
NOT_COMPARED = {
    "deepseek-profile-train": "kernels overlapped with compute inside a training step",
    "rdma-a2a-p5-crossrail-vs-rail": "an input: EFA's cost per message comes from it",
}
SETUPS = {
    "deepep-v1-normal-h800": ("hgx-h800", "deepep", None, 4096),
    "deepep-v1-normal-h800-later": ("hgx-h800", "deepep", None, 4096),
    "deepep-v1-lowlat-h800-pure-rdma": ("hgx-h800", "deepep-low-latency-rdma", None, 128),
    "ucclep-h200-efa-normal": ("dgx-h200", "deepep", "efa-400", 4096),
    "ucclep-mi300x-cx7-normal": ("mi300x-8", "deepep", None, 4096),
    "ucclep-mi300x-thor2-normal": ("mi300x-8", "deepep", "thor2-400", 4096),
    "ucclep-mi300x-cx7-lowlat": ("mi300x-8", "deepep-low-latency", None, 128),
    "ucclep-b200-efa-lowlat": ("dgx-b200", "deepep-low-latency", "efa-400", 128),
    "deepep-h200x8-aws": ("dgx-h200", "deepep", None, 4096),
}
"""Record -> (server, kernel, NIC where it is not the server's, tokens per GPU)."""
H100, V2 = "h100-ib-table", "deepep-v2-sm100"
"""The two records that data/moe.yaml holds itself."""
_PROXIES = "UCCL-EP posts through CPU threads, which are not modelled: 20 us more and a third less bandwidth"
_REORDER = (
    "UCCL-EP's proxies and reordering on EFA are not modelled: combine on 16 ranks is slower than on 32"
)
_UNTUNED = "dispatch of FP8 takes longer than combine of twice the bytes, which no layout of ours explains"
_EFA16 = "16 ranks are faster than 24 by more than their messages, at the cost of each measured on p5"
MISSES = {
    (H100, "deepep dispatch, 128 tokens, EP64"): _UNTUNED,
    (H100, "deepep dispatch, 1024 tokens, EP64"): _UNTUNED,
    (H100, "deepep dispatch, 4096 tokens, EP64"): _UNTUNED,
    ("ucclep-h200-efa-normal", "deepep dispatch, EP16"): _REORDER,
    ("ucclep-h200-efa-normal", "deepep combine, EP16"): _REORDER,
    ("ucclep-h200-efa-normal", "deepep combine, EP24"): _REORDER,
    ("ucclep-mi300x-thor2-normal", "deepep combine, EP16"): "45 GB/s, dispatch 71, CX7 78: not explained",
    ("ucclep-mi300x-cx7-lowlat", "deepep-low-latency dispatch, EP8"): _PROXIES,
    ("ucclep-mi300x-cx7-lowlat", "deepep-low-latency combine, EP8"): _PROXIES,
    ("ucclep-mi300x-cx7-lowlat", "deepep-low-latency dispatch, EP32"): _PROXIES,
    ("ucclep-b200-efa-lowlat", "deepep-low-latency dispatch, EP16"): _EFA16,
    ("ucclep-b200-efa-lowlat", "deepep-low-latency combine, EP16"): _EFA16,
}  # fmt: skip
"""Values more than a quarter off in time, and why as far as it is known."""


@dataclass(frozen=True)
class Case:
    """One published time of one stage: the layer and machine it was measured on, and the time [s].

    rate  logical GB/s where that is what was published; the time then follows from our count of bytes
    """

    record: str
    source: str
    server: str
    kernel: str
    nic: str | None
    ranks: int
    tokens: int
    stage: str
    what: str
    time: float | None
    rate: float | None

    @property
    def family(self) -> str:
        return PORT if self.record.startswith("ucclep") else OWN


def moe_rows() -> Iterator[Row | Skipped]:
    """Every published dispatch and combine as a time, ours with and without its record."""
    unseen = left_out()
    for case in cases():
        ours, measured = timed(case, moe_facts())
        other, _ = timed(case, unseen[case.record])
        what = f"{case.kernel} {case.what}"
        reason = MISSES.get((case.record, what), "")
        yield Row(case.family, case.record, what, ours, measured, "s", case.source, reason, left_out=other)
    for record, why in NOT_COMPARED.items():
        yield Skipped(OWN, record, why)


def timed(case: Case, constants: Mapping[str, Any]) -> tuple[float, float]:
    """(our time with these constants, the published time) of a case. [s]"""
    on = machine_for(case.server, case.ranks, case.nic)
    answer = predict_dispatch(
        on,
        [Communicator(np.arange(case.ranks, dtype=np.int32))],
        case.tokens,
        HIDDEN,
        TOPK,
        -(-EXPERTS // case.ranks) * case.ranks,
        kernel=case.kernel,  # type: ignore[arg-type]
        dispatch_bytes=1,
        nodes_limit=4 if case.kernel == "deepep" else None,
        constants=constants,
    )
    stage = answer.dispatch if case.stage == "dispatch" else answer.combine
    if case.time is not None:
        return stage.time, case.time
    assert case.rate is not None
    return stage.time, stage.logical_bytes / (case.rate * 1e9)


@cache
def cases() -> tuple[Case, ...]:
    """All published values, record by record."""
    return (*_h100(), *_listed(), *_v2())


@cache
def left_out() -> dict[str, dict[str, Any]]:
    """Constants as `tools/fit_moe.py` makes them when a record had not been published, by record."""
    path = resources.files("railwright.measure").joinpath("data/moe_left_out.json")
    fits = json.loads(path.read_text(encoding="utf-8"))
    return {record: with_constants(values) for record, values in fits.items() if record != "all"}


def with_constants(values: Mapping[str, float]) -> dict[str, Any]:
    """data/moe.yaml with other values at dotted places, such as 'normal.launch.combine.network'."""
    facts: dict[str, Any] = json.loads(json.dumps({k: v for k, v in moe_facts().items() if k != "published"}))
    for place, value in values.items():
        *path, last = place.split(".")
        inner = facts
        for key in path:
            inner = inner[key]
        inner[last] = value
    return facts


@cache
def machine_for(server: str, ranks: int, nic: str | None) -> Machine:
    """Servers of eight on rails, a single one on one switch, with other NICs where the record has them."""
    servers = max(1, ranks // 8)
    family: Any = "single-switch" if servers == 1 else "rail-optimised"
    cluster = Cluster(servers=servers, server=server, compute=ComputeNetwork(family=family, switch="qm9700"))
    catalog = load_catalog()
    on = Machine.of(cluster, catalog, NcclSettings())
    return replace(on, nic=find(catalog.nics, nic)) if nic else on


def _h100() -> Iterator[Case]:
    table = load("moe.yaml")["published"]
    source = "AIConfigurator's op tables, H100 and InfiniBand 400 Gb/s"
    for name, kernel in (("normal", "deepep"), ("low_latency", "deepep-low-latency")):
        for tokens, line in table[name].items():
            for nodes, pair in zip(table["nodes"], line, strict=True):
                for stage, us in zip(("dispatch", "combine"), pair, strict=True):
                    what = f"{stage}, {tokens} tokens, EP{8 * nodes}"
                    about = (H100, source, "dgx-h100", kernel, None)
                    yield Case(*about, 8 * nodes, tokens, stage, what, us * 1e-6, None)


def _listed() -> Iterator[Case]:
    from railwright.measure.published.collectives import published

    for record in published()["records"]:
        if record["id"] not in SETUPS:
            continue
        server, kernel, nic, tokens = SETUPS[record["id"]]
        about = (record["id"], record["source"], server, kernel, nic)
        if record["columns"][0] == "op":
            fp8, _, combine = record["points"]
            for stage, row in (("dispatch", fp8), ("combine", combine)):
                yield Case(*about, 8, tokens, stage, f"{stage}, EP8", row[2] * 1e-6, None)
            continue
        for point in record["points"]:
            cells = dict(zip(record["columns"], point, strict=True))
            for stage in ("dispatch", "combine"):
                us = cells.get(f"{stage}_us")
                rate = cells.get(f"{stage}_GBs", cells.get(f"{stage}_fp8_GBs"))
                time = None if us is None else us * 1e-6
                yield Case(*about, cells["ep"], tokens, stage, f"{stage}, EP{cells['ep']}", time, rate)


def _v2() -> Iterator[Case]:
    for ranks, pair in load("moe.yaml")["published"]["v2_sm100"].items():
        for stage, rate in zip(("dispatch", "combine"), pair, strict=True):
            yield Case(
                V2, "deepseek-ai/DeepEP README, commit 0297fc80", "dgx-b200", "deepep", None, ranks, 8192,
                stage, f"{stage}, EP{ranks}", None, float(rate),
            )  # fmt: skip
