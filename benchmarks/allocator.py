"""How far replays of PyTorch's allocator are from sums of tensors and from longer replays; what they cost.

Run: .venv/bin/python benchmarks/allocator.py
Every different job of the published training records is replayed on the stage that the sum says is fullest.
Prints, by software, how far the most that its tensors take is from `Memory.total` without CUDA and NCCL; how
much more is held after six steps than after two, of a draw of those jobs; how many of those that ran and fit
by their tensors would be warned of; how many ran and do not fit; and milliseconds of a replay.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from statistics import mean, median

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.measure.machines import Unsupported
from railwright.measure.training.jobs import architecture_of, job_of, machine_for
from railwright.measure.training.replay import records
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import check
from railwright.training.lanes.result import Memory
from railwright.training.memory import cached as replaying
from railwright.training.memory.peak import SYSTEM, peak_memory

DRAWN, LONGER = 140, 6


@dataclass(frozen=True)
class Case:
    """A job of records, and what the sum of its tensors says.

    ran  how many records of quality A are of it
    """

    name: str
    ran: int
    job: TrainingJob
    arch: Transformer
    machine: Machine
    memory: Memory

    def replay(self, steps: int = 2, capacity: float = inf) -> replaying.Cached | None:
        replaying.STEPS = steps
        try:
            return replaying.cached(
                self.job, self.arch, self.machine.network.fabric, self.memory.stage, capacity
            )
        finally:
            replaying.STEPS = 2


def main() -> None:
    cases = _cases()
    timed = []
    for case in cases:
        begin = time.perf_counter()
        if found := case.replay():
            timed.append((case, found, time.perf_counter() - begin))
    _print_agreement(timed)
    spent = sorted(1e3 * seconds for _, _, seconds in timed)
    print(f"\na replay: {spent[0]:.0f} to {spent[-1]:.0f} ms, median {median(spent):.0f}")
    _print_longer(cases)
    _print_warned(timed)
    _print_too_large(cases)


def _cases() -> list[Case]:
    found: dict[tuple[str, str, str], list[Mapping[str, str]]] = defaultdict(list)
    for record in records():
        try:
            job, arch, machine = job_of(record), architecture_of(record), machine_for(record)
            check(job, arch, machine.network.fabric)
        except (PlanError, Unsupported):
            continue
        key = job.model_copy(update={"name": "x"}).model_dump_json(), record["model"], record["gpu"]
        found[key].append(record)
    return [_case(rows) for rows in found.values()]


def _case(rows: list[Mapping[str, str]]) -> Case:
    record = min(rows, key=lambda row: row["quality"])
    job, arch, machine = job_of(record), architecture_of(record), machine_for(record)
    memory = peak_memory(job, arch, machine.network.fabric, machine.gpu.hbm_bytes)
    ran = sum(row["quality"] == "A" for row in rows)
    return Case(record["id"], ran, job, arch, machine, memory)


def _print_agreement(timed: list[tuple[Case, replaying.Cached, float]]) -> None:
    apart = defaultdict(list)
    for case, found, _ in timed:
        tensors = case.memory.total - case.memory.parts[SYSTEM]
        apart[case.job.software or "default"].append(abs(found.allocated / tensors - 1))
    print(f"{'software':28} {'jobs':>5} {'mean':>7} {'most':>7}   tensors of the replay against the sum")
    for software, each in sorted(apart.items()):
        print(f"{software:28} {len(each):5} {mean(each):7.1%} {max(each):7.1%}")


def _print_longer(cases: list[Case]) -> None:
    drawn = random.Random(0).sample(cases, min(DRAWN, len(cases)))
    pairs = [(case, case.replay(), case.replay(LONGER)) for case in drawn]
    more = [(b.reserved / a.reserved - 1, case) for case, a, b in pairs if a and b]
    worst, which = max(more, key=lambda one: one[0])
    print(
        f"\nsix steps for two: {sum(m > 0.005 for m, _ in more)} of {len(more)} jobs hold over 0.5 % more, "
        f"the most {worst:.1%} ({which.name}, {which.job.software})"
    )


def _print_warned(timed: list[tuple[Case, replaying.Cached, float]]) -> None:
    print("\nran, fit by their tensors, and would be warned of:")
    fit = [(c, f) for c, f, _ in timed if c.ran and c.memory.total <= c.memory.capacity]
    warned = [(c, f) for c, f in fit if f.reserved + c.memory.parts[SYSTEM] > c.memory.capacity]
    for case, _ in warned:
        again = case.replay(capacity=case.memory.capacity - case.memory.parts[SYSTEM])
        assert again is not None
        short = max(again.reserved + case.memory.parts[SYSTEM] - case.memory.capacity, 0.0) / 2**30
        print(f"  {case.name[:80]:80} {again.retries} retries a step, {short:.2f} GiB missing")
    print(f"  {len(warned)} of {len(fit)}")


def _print_too_large(cases: list[Case]) -> None:
    large = [case for case in cases if case.ran and case.memory.total > case.memory.capacity]
    print("\nran, and do not fit by their tensors:")
    for case in large:
        total, has = case.memory.total / 2**30, case.memory.capacity / 2**30
        print(f"  {case.name[:80]:80} {total:.0f} of {has:.0f} GiB")
    print(f"  {sum(case.ran for case in large)} of {sum(case.ran for case in cases)} records of quality A")


if __name__ == "__main__":
    main()
