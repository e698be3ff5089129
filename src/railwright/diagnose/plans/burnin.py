"""The acceptance plan of a new cluster: what to run from one node to all of them, and what passes.

Expected figures are our own prediction on the study's fabric; a test passes at the lower end of its 80 %
band, so of sound clusters one in ten fails any one kind of test: what fails is repeated before it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from railwright.collectives import Machine, predict
from railwright.collectives.prediction import Op
from railwright.diagnose.elements import Elements
from railwright.diagnose.paths import Routing
from railwright.diagnose.plans.schedule import Round, rounds
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.paths import find_routes
from railwright.traffic.demand import Communicator, Traffic

Ints = NDArray[np.int64]

PLATEAU = float(8 * 2**30)
"""Size of the tests: large enough that bandwidth, not latency, decides [byte]."""
ONE_BY_ONE = 256
"""Most ranks of an all-to-all whose messages are solved one by one; under adaptive routing none are."""
INSIDE = {"amd": "`rvs` (ROCm Validation Suite) and `rocm-bandwidth-test`"}
"""What tests a node's GPUs and their memory, by their vendor; of the others `dcgmi` and `nvbandwidth`."""
PAIR_PASS = 0.9
"""Part of the line rate that a pair test must reach: perftest reaches 0.97-0.98 of it (estimated)."""


@dataclass(frozen=True)
class Check:
    """One test of the plan.

    stage      '1-node', '2-leaf', '3-pairs', '4-rings'
    name       of its host file and result
    op         collective, or 'pairs'
    servers    that take part, from 0
    ranks      GPUs that take part
    size       [byte]
    expected   bus bandwidth [byte/s]
    passes     least bus bandwidth that passes [byte/s]
    basis      where the figures come from
    """

    stage: str
    name: str
    op: str
    servers: tuple[int, ...]
    ranks: int
    size: float
    expected: float
    passes: float
    basis: str


@dataclass(frozen=True, eq=False)
class Burnin:
    """The whole plan.

    checks   in the order in which they are run: a stage begins when the one before has passed
    plan     rounds of pair tests across leaves
    spines   spine -> number of pair tests of the plan that certainly cross it; empty where paths are hashed
    notes    what the plan cannot prove
    inside   what is run on every node before all else
    """

    checks: tuple[Check, ...]
    plan: tuple[Round, ...]
    spines: dict[str, int]
    notes: tuple[str, ...]
    inside: str


def burnin(machine: Machine, elements: Elements, routing: Routing, pair_rounds: int = 4) -> Burnin:
    """The acceptance plan on a fabric: each node, each rail under its leaf, pairs of leaves, spines, rings.

    A kind of test that this cluster has no place for is named in a note.
    Raises PlanError where the fabric cannot carry a test, and for a cluster of one GPU, which has none.
    """
    fabric = machine.network.fabric
    if fabric.num_gpus < 2:
        raise PlanError(
            "An acceptance plan is of collectives and of pairs of NICs, and this cluster is a single GPU: "
            f"test it from inside, by {_inside(machine)}, or raise cluster.servers.",
            "cluster.servers",
        )
    checks = [*_nodes(machine), *_rails(machine), *_rings(machine)]
    notes = _without(machine, checks)
    plan: list[Round] = []
    spines: dict[str, int] = {}
    if fabric.num_servers > 1:
        plan = rounds(fabric, routing, pair_rounds)
        checks += _pairs(fabric, plan)
        if routing.certain:
            spines = _crossings(fabric, elements, routing, plan)
            missed = [name for name, count in spines.items() if not count]
            if missed:
                more = " …" if len(missed) > 5 else ""
                notes.append(f"no pair test crosses {', '.join(missed[:5])}{more}: add rounds")
        elif len(fabric.devices(Kind.SPINE)):
            notes.append(
                f"routing is {routing.name}: no pair test is certain to cross a given spine or uplink; read "
                "ibqueryerrors before and after stage 3 and give both to `railwright diagnose`"
            )
    order = {name: i for i, name in enumerate(("1-node", "2-leaf", "3-pairs", "4-rings"))}
    checks.sort(key=lambda c: (order[c.stage], len(c.servers), c.name))
    return Burnin(tuple(checks), tuple(plan), spines, tuple(notes), _inside(machine))


def _without(machine: Machine, checks: Sequence[Check]) -> list[str]:
    """Kinds of tests that the plan does not have, each with the reason."""
    fabric = machine.network.fabric
    stages = {check.stage for check in checks}
    if fabric.num_servers == 1:
        return [
            "stages 2-leaf, 3-pairs and 4-rings need a second server: no test crosses a NIC, a cable or the "
            "switch; run `ib_write_bw` between the server's own NICs"
        ]
    found = []
    if "1-node" not in stages:
        found.append(f"a server has one GPU, so stage 1-node has no collective: run {_inside(machine)} there")
    if "2-leaf" not in stages:
        found.append("no two servers share all their leaves, so stage 2-leaf has no test")
    if not _all_to_all(machine, fabric.num_gpus):
        found.append(
            f"stage 4-rings has no all-to-all over more than {ONE_BY_ONE} GPUs: under "
            f"{machine.network.routing} routing its messages are solved one by one"
        )
    return found


def _inside(machine: Machine) -> str:
    """What tests a node without the others."""
    gpus = INSIDE.get(machine.gpu.vendor, "`dcgmi diag -r 3` and `nvbandwidth`")
    return f"{gpus}, and `ib_write_bw` on its own NICs"


def _all_to_all(machine: Machine, ranks: int) -> bool:
    """Whether an all-to-all over so many GPUs is predicted."""
    return machine.network.routing == "adaptive" or ranks <= ONE_BY_ONE


def _nodes(machine: Machine) -> list[Check]:
    fabric = machine.network.fabric
    if fabric.gpus_per_server < 2:
        return []
    one = _predicted(machine, "all_reduce", [0])
    return [
        Check("1-node", f"node-{s + 1:03d}", "all_reduce", (s,), fabric.gpus_per_server, PLATEAU, *one)
        for s in range(fabric.num_servers)
    ]


def _rails(machine: Machine) -> list[Check]:
    """Servers that share all their leaves (a scalable unit), all-reduce together: no spine is needed."""
    fabric = machine.network.fabric
    units: dict[tuple[int, ...], list[int]] = {}
    down = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    server, leaf = fabric.server[fabric.a[down]], fabric.b[down]
    for s in range(fabric.num_servers):
        units.setdefault(tuple(np.unique(leaf[server == s]).tolist()), []).append(s)
    known: dict[int, tuple[float, float, str]] = {}
    out = []
    for number, members in enumerate(units.values(), 1):
        if len(members) < 2:
            continue
        if len(members) not in known:
            known[len(members)] = _predicted(machine, "all_reduce", members)
        ranks = len(members) * fabric.gpus_per_server
        out.append(
            Check("2-leaf", f"unit-{number:02d}", "all_reduce", tuple(members), ranks, PLATEAU,
                  *known[len(members)])
        )  # fmt: skip
    return out


def _rings(machine: Machine) -> list[Check]:
    """All-reduce and all-to-all over 2, 4, 8, … servers up to all: from where on is it too slow?"""
    fabric = machine.network.fabric
    counts = [2**k for k in range(1, 20) if 2**k < fabric.num_servers]
    counts = [c for c in [*counts, fabric.num_servers] if c > 1]
    out = []
    for count in counts:
        # Spread over the machine, so that a small ring crosses spines too.
        members = np.unique(np.linspace(0, fabric.num_servers - 1, count).astype(int)).tolist()
        ranks = len(members) * fabric.gpus_per_server
        for op in ("all_reduce", "all_to_all"):
            if op == "all_to_all" and not _all_to_all(machine, ranks):
                continue
            expected = _predicted(machine, op, members)
            name = f"ring-{count:04d}-{op.replace('_', '-')}"
            out.append(Check("4-rings", name, op, tuple(members), ranks, PLATEAU, *expected))
    return out


def _pairs(fabric: Fabric, plan: Sequence[Round]) -> list[Check]:
    rate = float(fabric.rate[fabric.role == Role.NODE_LEAF].min())
    basis = f"line rate of the NIC; {PAIR_PASS:.0%} of it passes"
    out = []
    for number, one in enumerate(plan, 1):
        servers = tuple(np.unique(fabric.server[np.concatenate([one.a, one.b])]).tolist())
        ranks = 2 * len(one)
        out.append(
            Check("3-pairs", f"round-{number:02d}", "pairs", servers, ranks, 2.0**20, rate,
                  PAIR_PASS * rate, basis)
        )  # fmt: skip
    return out


def _predicted(machine: Machine, op: str, servers: Sequence[int]) -> tuple[float, float, str]:
    """(expected busbw, least that passes, basis) of a collective over all GPUs of some servers."""
    fabric = machine.network.fabric
    per = fabric.gpus_per_server
    gpus = np.concatenate([np.arange(s * per, (s + 1) * per) for s in servers]).astype(np.int32)
    found = predict(machine, cast(Op, op), PLATEAU, [Communicator(gpus)])
    basis = f"{found.algorithm}/{found.protocol}, 80 % of measurements take {found.error_low:.2f} to "
    return found.busbw, found.busbw / found.error_high, f"{basis}{found.error_high:.2f} of the predicted time"


def _crossings(fabric: Fabric, elements: Elements, routing: Routing, plan: Sequence[Round]) -> dict[str, int]:
    """Tests of the plan through each spine and core."""
    counts = np.zeros(fabric.num_devices, np.int64)
    for one in plan:
        src, dst = one.transfers()
        none = np.full(len(src), -1, np.int32)
        traffic = Traffic(src.astype(np.int32), dst.astype(np.int32), none, np.ones(len(src)))
        _, link, _ = find_routes(routing.network(fabric), traffic).flat()
        head = np.where(link % 2, fabric.a[link // 2], fabric.b[link // 2])
        # A path enters each switch once.
        counts += np.bincount(head, minlength=fabric.num_devices)
    upper = np.flatnonzero(fabric.kind >= Kind.SPINE)
    return {elements.name[int(elements.of_device[d])]: int(counts[d]) for d in upper}
