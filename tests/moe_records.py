"""Every published dispatch and combine beside its prediction; `python tests/moe_records.py` updates the docs.

Logical GB/s and microseconds are both turned into times, so that +10 % always means predicted too slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

from collectives_machines import machine, world
from railwright.catalog import find, load_catalog
from railwright.collectives import predict_dispatch
from railwright.collectives.constants import load

PAGE = Path(__file__).parents[1] / "docs" / "moe-communication.md"
BEGIN, END = "<!-- errors: begin -->", "<!-- errors: end -->"
NOT_COMPARED = {
    "deepseek-profile-train": "kernels overlapped with compute inside a training step",
    "rdma-a2a-p5-crossrail-vs-rail": "an input: EFA's cost per message comes from it",
}


@dataclass(frozen=True)
class Row:
    """One published value and ours; times [s], or for a logical bandwidth its inverse."""

    record: str
    kernel: str
    what: str
    published: str
    predicted: str
    error: float
    basis: str


@cache
def rows() -> tuple[Row, ...]:
    """All rows, in the order of the records."""
    return (*_h100(), *_readme(), *_v2())


def _predict(server: str, ranks: int, tokens: int, kernel: str, nic: str | None = None):
    on = machine(max(1, ranks // 8), server)
    if nic:
        on = replace(on, nic=find(load_catalog().nics, nic))
    experts = -(-256 // ranks) * ranks
    return predict_dispatch(
        on,
        world(on),
        tokens,
        7168,
        8,
        experts,
        kernel=kernel,
        dispatch_bytes=1,
        nodes_limit=4 if kernel == "deepep" else None,
    )


def _h100() -> list[Row]:
    table, made = load("moe.yaml")["published"], []
    for name, kernel in (("normal", "deepep"), ("low_latency", "deepep-low-latency")):
        for tokens, line in table[name].items():
            for nodes, pair in zip(table["nodes"], line, strict=True):
                answer = _predict("dgx-h100", 8 * nodes, tokens, kernel)
                basis = "launch" if tokens == min(table[name]) else "left out of the launch times"
                for stage, us in zip((answer.dispatch, answer.combine), pair, strict=True):
                    what = f"{stage.name}, {tokens} tokens, {nodes} node(s)"
                    made.append(_timed("h100-ib-table", kernel, what, us, stage.time, basis))
    return made


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


def records() -> dict[str, dict]:
    """The dispatch and combine records among the public measurements."""
    text = files("railwright").joinpath("measure", "data", "collectives.yaml").read_text(encoding="utf-8")
    content = YAML(typ="safe", pure=True).load(text)
    listed = content if isinstance(content, list) else content["records"]
    chosen = [r for r in listed if r["op"].startswith("moe_") or r["op"] == "rdma_alltoall"]
    return {r["id"]: r for r in chosen}


def _readme() -> list[Row]:
    made = []
    for name, record in records().items():
        if name in NOT_COMPARED:
            continue
        server, kernel, nic, tokens = SETUPS[name]
        if record["columns"][0] == "op":
            fp8, _, combine = record["points"]
            answer = _predict(server, 8, tokens, kernel)
            made.append(_timed(name, kernel, "dispatch, EP8", fp8[2], answer.dispatch.time, "one node"))
            made.append(_timed(name, kernel, "combine, EP8", combine[2], answer.combine.time, "one node"))
            continue
        for point in record["points"]:
            cells = dict(zip(record["columns"], point, strict=True))
            answer = _predict(server, cells["ep"], tokens, kernel, nic)
            for stage in (answer.dispatch, answer.combine):
                what = f"{stage.name}, EP{cells['ep']}"
                us = cells.get(f"{stage.name}_us")
                if us is not None:
                    made.append(_timed(name, kernel, what, us, stage.time, "other software"))
                    continue
                rate = cells.get(f"{stage.name}_GBs", cells.get(f"{stage.name}_fp8_GBs"))
                made.append(_rated(name, kernel, what, rate, stage.logical_bandwidth, ""))
    return made


def _v2() -> list[Row]:
    made = []
    for ranks, pair in load("moe.yaml")["published"]["v2_sm100"].items():
        answer = _predict("dgx-b200", ranks, 8192, "deepep")
        for stage, rate in zip((answer.dispatch, answer.combine), pair, strict=True):
            what = f"{stage.name}, EP{ranks}"
            made.append(_rated("deepep-v2-sm100", "deepep", what, rate, stage.logical_bandwidth, ""))
    return made


def _timed(record: str, kernel: str, what: str, us: float, seconds: float, basis: str) -> Row:
    shown = f"{us:.0f} us", f"{seconds * 1e6:.0f} us"
    return Row(record, kernel, what, *shown, seconds * 1e6 / us - 1, basis)


def _rated(record: str, kernel: str, what: str, rate: float, ours: float, basis: str) -> Row:
    return Row(
        record, kernel, what, f"{rate:.0f} GB/s", f"{ours / 1e9:.0f} GB/s", rate * 1e9 / ours - 1, basis
    )


def table() -> str:
    """The error table of the page."""
    lines = ["| record | kernel | what | published | ours | time error |", "|---|---|---|---|---|---|"]
    for row in rows():
        error = f"{row.error:+.0%}".replace("%", " %")
        bold = f"**{error}**" if abs(row.error) > 0.25 else error
        lines.append(
            f"| {row.record} | {row.kernel} | {row.what} | {row.published} | {row.predicted} | {bold} |"
        )
    errors = np.array([abs(row.error) for row in rows()])
    lines += ["", f"{len(errors)} values, median {np.median(errors):.0%}, "
              f"{int((errors > 0.25).sum())} beyond 25 % (bold)."]  # fmt: skip
    return "\n".join(lines).replace("%, ", " %, ").replace("  %", " %")


def page(text: str) -> str:
    """The page with its table renewed."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
