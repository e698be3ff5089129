"""Rounds of pair tests as files: what to run, where, what to expect, and a table to fill in."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from railwright.diagnose.elements import Elements
from railwright.diagnose.inference.next_test import host_and_device
from railwright.diagnose.paths import need_fabric
from railwright.diagnose.plans.schedule import Round
from railwright.fabric.graph import Role

SECONDS = 10
"""Length of one test; each way is a test of its own, so perftest's bidirectional mode is not used [s]."""
FIRST_PORT = 18_515
"""perftest's default port; the way back takes the next one."""


def plan_files(elements: Elements, plan: Sequence[Round]) -> Mapping[str, str]:
    """File name -> text: per round a table (`round-01.csv`), a script, and the hosts that take part."""
    files: dict[str, str] = {}
    for number, one in enumerate(plan, 1):
        files[f"round-{number:02d}.csv"] = round_table(elements, one, number)
        files[f"round-{number:02d}.sh"] = round_script(elements, one, number)
    hosts = sorted({host for one in plan for host in _hosts(elements, one)})
    files["hosts"] = "".join(f"{host}\n" for host in hosts)
    return files


def round_table(elements: Elements, one: Round, number: int) -> str:
    """The round as `railwright diagnose --pairs` reads it back, with an empty column GB/s to be filled in."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["round", "from", "to", "expected GB/s", "GB/s"])
    for src, dst, rate in transfers(elements, one):
        writer.writerow([number, src, dst, f"{rate / 1e9:.2f}", ""])
    return out.getvalue()


def transfers(elements: Elements, one: Round) -> list[tuple[str, str, float]]:
    """(from, to, expected rate [byte/s]) of each test of a round, both ways of a pair after one another.

    Expected is the NIC port's line rate, divided among the pairs that share a cable; what perftest reaches of
    it (97 to 98 % on InfiniBand) is common to all tests and taken out when they are read.
    """
    fabric = need_fabric(elements)
    down = fabric.role == Role.NODE_LEAF
    rate = np.zeros(fabric.num_devices)
    np.maximum.at(rate, fabric.a[down], fabric.rate[down])
    found = []
    for a, b, shared in zip(one.a.tolist(), one.b.tolist(), one.shared.tolist(), strict=True):
        nics = [int(fabric.nic_of_gpu[g]) for g in (a, b)]
        names = [elements.name[int(elements.of_device[n])] for n in nics]
        expected = float(min(rate[nics[0]], rate[nics[1]])) / shared
        found += [(names[0], names[1], expected), (names[1], names[0], expected)]
    return found


def round_script(elements: Elements, one: Round, number: int) -> str:
    """A shell script that runs all tests of the round at once, from any host that reaches the others.

    It fills the round's table in.  Adapters of a drawing are taken for mlx5_0, mlx5_1, …
    """
    tests = []
    for place, (src, dst, _) in enumerate(transfers(elements, one)):
        (host_a, device_a), (host_b, device_b) = (host_and_device(elements, name) for name in (src, dst))
        port = FIRST_PORT + 1 + place // 2 * 2 % 40_000 + place % 2
        tests.append(f"{src},{dst},{host_a},{device_a},{host_b},{device_b},{port}")
    listed = "\n".join(tests)
    return f"""#!/usr/bin/env bash
# Round {number}: {len(tests)} transfers at the same time, {SECONDS} s each (ib_write_bw over ssh).
# Fills in round-{number:02d}.csv; then: railwright diagnose STUDY --pairs round-{number:02d}.csv
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
tests=$(cat <<'END'
{listed}
END
)
while IFS=, read -r from to a da b db port; do
  ssh -n "$b" ib_write_bw -d "$db" -p "$port" -s 1048576 -D {SECONDS} --report_gbits >/dev/null 2>&1 &
done <<<"$tests"
sleep 5
number=0
while IFS=, read -r from to a da b db port; do
  number=$((number + 1))
  {{ ssh -n "$a" ib_write_bw -d "$da" -p "$port" -s 1048576 -D {SECONDS} --report_gbits "$b" |
    awk -v f="$from" -v t="$to" '$1 == 1048576 {{ g = $4 / 8 }} END {{ printf "%s,%s,%.3f\\n", f, t, g }}' \\
    >"$work/$number"; }} &
done <<<"$tests"
wait
cat "$work"/* | awk -F, -v OFS=, '
  NR == FNR {{ got[$1 "," $2] = $3; next }}
  FNR == 1 {{ print; next }}
  {{ $5 = got[$2 "," $3]; print }}' - "$here/round-{number:02d}.csv" >"$work/table" &&
  mv "$work/table" "$here/round-{number:02d}.csv"
rm -rf "$work"
"""


def _hosts(elements: Elements, one: Round) -> set[str]:
    return {
        host_and_device(elements, name)[0] for src, dst, _ in transfers(elements, one) for name in (src, dst)
    }
