"""The acceptance plan as files: a page, host files, scripts, and the expected figures as a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict

from railwright.diagnose.elements import Elements
from railwright.diagnose.paths import need_fabric
from railwright.diagnose.plans.burnin import Burnin, Check
from railwright.diagnose.plans.plan_files import plan_files
from railwright.fabric.trays import host_names

STAGES = {
    "1-node": "Every node by itself: GPUs, NVLink, PCIe. Run all nodes at the same time.",
    "2-leaf": "Every scalable unit: each rail under its own leaf, without a spine. Run all units "
    "at the same time.",
    "3-pairs": "Every NIC with partners under other leaves, all at once and without meeting on a cable: leaf "
    "pairs, uplinks, spines.",
    "4-rings": "Growing groups, spread over the machine, up to all of it.",
}
_BINARY = {"all_reduce": "all_reduce_perf", "all_to_all": "alltoall_perf"}


def burnin_files(plan: Burnin, elements: Elements, title: str) -> Mapping[str, str]:
    """Path below the folder -> text."""
    gpus = need_fabric(elements).gpus_per_server
    files: dict[str, str] = {"plan.md": _page(plan, title), "expected.csv": _expected(plan)}
    record = {
        "title": title,
        "checks": [asdict(c) for c in plan.checks],
        "tests_through_each_spine": plan.spines,
        "notes": plan.notes,
    }
    files["plan.json"] = json.dumps(record, indent=1) + "\n"
    for check in plan.checks:
        if check.op == "pairs":
            continue
        servers = [elements.name[int(elements.of_server[s])] for s in check.servers]
        hosts = [host for server in servers for host in host_names(server, gpus)]
        text = "".join(f"{host} slots={check.ranks // len(hosts)}\n" for host in hosts)
        files[f"{check.stage}/{check.name}.hosts"] = text
    for stage in STAGES:
        mine = [c for c in plan.checks if c.stage == stage and c.op != "pairs"]
        if mine:
            files[f"{stage}/run.sh"] = _script(stage, mine, len(host_names("", gpus)))
    for name, text in plan_files(elements, plan.plan).items() if plan.plan else ():
        files[f"3-pairs/{name}"] = text
    return files


def _script(stage: str, checks: list[Check], hosts: int) -> str:
    """Runs the checks of a stage: those of disjoint hosts together, rings one by one.

    hosts  of a server: a rack has one for each of its trays
    """
    background = " &" if stage in ("1-node", "2-leaf") else ""
    lines = [
        "#!/usr/bin/env bash",
        f"# {STAGES[stage]}",
        "# NCCL_TESTS: folder of the nccl-tests binaries.  Logs land beside the host files; then:",
        f"# railwright diagnose STUDY {' '.join(f'--log {c.name}.log' for c in checks[:2])} …",
        "set -u",
        'cd "$(dirname "$0")" || exit 1',
        ': "${NCCL_TESTS:=/opt/nccl-tests/build}"',
    ]
    for c in checks:
        size = f"{int(c.size) >> 30}G"
        each = c.ranks // (len(c.servers) * hosts)
        lines.append(
            f"mpirun --hostfile {c.name}.hosts -np {c.ranks} --map-by ppr:{each}:node "
            f'"$NCCL_TESTS/{_BINARY[c.op]}" -b {size} -e {size} -n 20 -w 5 >{c.name}.log 2>&1{background}'
        )
    if background:
        lines.append("wait")
    return "\n".join(lines) + "\n"


def _page(plan: Burnin, title: str) -> str:
    out = [f"# Burn-in of {title}", ""]
    out += [
        "Run the stages in order; a stage begins when the one before has passed.",
        "A test passes at the lower end of the 80 % band of our prediction, so repeat what fails before you "
        "refuse a part.",
        "What fails twice goes to `railwright diagnose`, which names the element.",
        "",
    ]
    for stage, what in STAGES.items():
        mine = [c for c in plan.checks if c.stage == stage]
        if not mine:
            continue
        out += [f"## {stage}", "", what, ""]
        if stage == "1-node":
            out += [
                f"First on every node: {plan.inside}.",
                "",
            ]
        out += [
            "| test | servers | GPUs | expected busbw | passes from | basis |",
            "|---|--:|--:|--:|--:|---|",
        ]
        seen: dict[tuple[str, int, float], list[Check]] = {}
        for c in mine:
            seen.setdefault((c.op, len(c.servers), round(c.expected)), []).append(c)
        for same in seen.values():
            c = same[0]
            name = c.name if len(same) == 1 else f"{same[0].name} … {same[-1].name} ({len(same)})"
            out.append(
                f"| {name} | {len(c.servers)} | {c.ranks} | {c.expected / 1e9:.1f} GB/s | "
                f"{c.passes / 1e9:.1f} GB/s | {c.basis} |"
            )
        out.append("")
    if plan.spines:
        fewest, most = min(plan.spines.values()), max(plan.spines.values())
        out += [
            f"Each of the {len(plan.spines)} spines and cores is crossed by {fewest} to {most} pair tests.",
            "",
        ]
    out += [f"Note: {note}" for note in plan.notes]
    return "\n".join(out).rstrip() + "\n"


def _expected(plan: Burnin) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["stage", "test", "op", "servers", "GPUs", "bytes", "expected GB/s", "passes GB/s"])
    for c in plan.checks:
        writer.writerow(
            [c.stage, c.name, c.op, len(c.servers), c.ranks, f"{c.size:.0f}", f"{c.expected / 1e9:.2f}",
             f"{c.passes / 1e9:.2f}"]
        )  # fmt: skip
    return out.getvalue()
