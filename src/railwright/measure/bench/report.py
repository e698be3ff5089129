"""What a bench measured, printed as nccl-tests prints it, as text or JSON (-J).

Source of both formats: nccl-tests 2.17 and later, src/util.cu.  Torch has one form of each collective, so one
of the two halves (out-of-place, in-place) stays N/A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from railwright.measure.bench.places import Place

TESTS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf", "sendrecv": "sendrecv_perf", "broadcast": "broadcast_perf",
}  # fmt: skip
IN_PLACE = ("all_reduce", "broadcast")
"""Operations that torch.distributed does in place."""


@dataclass(frozen=True)
class Cell:
    """One measured time. [s], [byte/s], elements that are wrong (None: not checked)"""

    time: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class BenchRow:
    """One size: S [byte], nccl-tests' count, and the slowest group's time."""

    size: int
    count: int
    cell: Cell


@dataclass(frozen=True)
class BenchReport:
    """One sweep.

    places   all ranks; groups the ranks of each group that ran at the same time
    setting  minimum, maximum [byte], factor, warm-up and timed iterations
    """

    op: str
    version: str
    backend: str
    dtype: str
    places: tuple[Place, ...]
    groups: tuple[tuple[int, ...], ...]
    setting: tuple[int, int, int, int, int]
    split: str
    rows: tuple[BenchRow, ...]

    @property
    def ranks(self) -> int:
        """Ranks of the largest group."""
        return max(len(g) for g in self.groups)

    @property
    def wrong(self) -> int:
        """Wrong elements over all sizes."""
        return sum(r.cell.wrong or 0 for r in self.rows)

    def lines(self) -> list[str]:
        """The report as nccl-tests' text."""
        low, high, factor, warmup, iterations = self.setting
        checked = any(r.cell.wrong is not None for r in self.rows)
        out = [
            f"# railwright {self.version} bench, torch.distributed over {self.backend}",
            *([f'# NCCL_TESTS_SPLIT="{self.split}"'] if self.split not in ("", "none") else []),
            f"# Collective test starting: {TESTS[self.op]}",
            f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: {factor}(factor) warmup iters: "
            f"{warmup} iters: {iterations} agg iters: 1 validation: {int(checked)} graph: 0",
            "#",
            "# Using devices",
            *self._devices(),
            "#",
            f"# {'':10}  {'':12}  {'':8}  {'':6}  {'':6}           out-of-place                       "
            "in-place",
            _line("#", ("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong") * 2),
            _line("#", ("(B)", "(elements)", "", "", ""), ("(us)", "(GB/s)", "(GB/s)", "") * 2),
        ]
        out += [self._row(row) for row in self.rows]
        mean = sum(r.cell.busbw for r in self.rows) / len(self.rows) if self.rows else 0.0
        return [
            *out,
            f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}",
            f"# Avg bus bandwidth    : {mean / 1e9:g}",
            "#",
            f"# Collective test concluded: {TESTS[self.op]}",
        ]

    def as_json(self) -> dict[str, Any]:
        """The report in nccl-tests' JSON keys, and ours beside them."""
        low, high, factor, warmup, iterations = self.setting
        mean = sum(r.cell.busbw for r in self.rows) / len(self.rows) if self.rows else 0.0
        group = self._group_of()
        return {
            "version": 3,
            "args": ["railwright", "bench", "run", self.op],
            "op": self.op,
            "railwright": self.version,
            "backend": self.backend,
            "split": self.split,
            "groups": [list(g) for g in self.groups],
            "config": {
                "nthreads": 1, "ngpus": 1, "minimum_bytes": low, "maximum_bytes": high, "step_factor": factor,
                "warmup_iters": warmup, "iterations": iterations, "aggregated_iterations": 1,
                "devices": [
                    {
                        "rank": p.rank,
                        "group": group[p.rank],
                        "pid": p.pid,
                        "hostname": p.host,
                        "device": p.local,
                        "device_info": p.device,
                    }
                    for p in self.places
                ],
            },
            "results": [self._result(row) for row in self.rows],
            "out_of_bounds": {"count": self.wrong, "okay": "false" if self.wrong else "true"},
            "average_bus_bandwidth": {"bandwidth": mean / 1e9, "okay": "unchecked"},
        }  # fmt: skip

    def _group_of(self) -> dict[int, int]:
        return {rank: number for number, group in enumerate(self.groups) for rank in group}

    def _devices(self) -> list[str]:
        group = self._group_of()
        return [
            f"#  Rank {p.rank:2d} Group {group[p.rank]:2d} Pid {p.pid:6d} on {p.host:>10} device "
            f"{p.local:2d} [{self.backend}] {p.device}"
            for p in self.places
        ]

    def _names(self) -> tuple[str, int]:
        redop = "sum" if self.op in ("all_reduce", "reduce_scatter") else "none"
        return redop, 0 if self.op == "broadcast" else -1

    def _row(self, row: BenchRow) -> str:
        redop, root = self._names()
        cell = row.cell
        wrong = "N/A" if cell.wrong is None else f"{cell.wrong:g}"
        values = (_fit(cell.time * 1e6, 7), _fit(cell.algbw / 1e9, 6), _fit(cell.busbw / 1e9, 6), wrong)
        missing = ("N/A",) * 4
        halves = missing + values if self.op in IN_PLACE else values + missing
        return _line(" ", (str(row.size), str(row.count), self.dtype, redop, str(root)), halves)

    def _result(self, row: BenchRow) -> dict[str, Any]:
        redop, root = self._names()
        cell = row.cell
        half = {
            "time": cell.time * 1e6,
            "alg_bw": cell.algbw / 1e9,
            "bus_bw": cell.busbw / 1e9,
            "nwrong": cell.wrong,
        }
        inside = self.op in IN_PLACE
        return {
            "size": row.size,
            "count": row.count,
            "type": self.dtype,
            "redop": redop,
            "root": str(root),
            "out_of_place": None if inside else half,
            "in_place": half if inside else None,
        }


def _line(first: str, lead: Sequence[str], halves: Sequence[str]) -> str:
    widths = (10, 12, 8, 6, 6)
    text = f"{first} " + "  ".join(f"{word:>{width}}" for word, width in zip(lead, widths, strict=True))
    for i, word in enumerate(halves):
        text += f"  {word:>{7 if i % 4 == 0 else 6}}"
    return text.rstrip()


def _fit(value: float, width: int) -> str:
    """As many decimals (two at most) as the column holds."""
    for digits in (2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:.1e}"
