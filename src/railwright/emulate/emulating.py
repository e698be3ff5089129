"""A fabric emulated: real processes send a pattern over it, and the engines predict it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

from railwright.emulate.faults import Faults, with_faults
from railwright.emulate.lanes import Lanes, find_lanes
from railwright.emulate.orders import configuration, ends_of, run_order
from railwright.emulate.patterns import ORDER, Pattern, pattern
from railwright.emulate.predict import predict
from railwright.emulate.requirements import find_tools
from railwright.emulate.result import Emulation, Prediction, Suspect
from railwright.emulate.session import Session
from railwright.emulate.suspects import crossings, suspects
from railwright.emulate.topology import Topology, moved, topology
from railwright.errors import PlanError, RailwrightError
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network
from railwright.traffic import Communicator, Traffic, all_to_all
from railwright.units import show_bit_rate

CONNECT_WITHIN = 3.0
"""For all connections to be opened [s]: time for one repeat of a lost SYN (after 1 s, RFC 6298), and far less
than the minutes that TCP itself would try."""

CONNECT_THROUGH_LOSS = 30.0
"""The same where packets are lost on purpose [s]: SYNs are repeated after 1, 3, 7 and 15 s."""

CUT_AT = 0.3
"""When an element dies 'during' a run, as a fraction of its predicted time."""

SMALLEST_BLOCK = 16384
"""Source: EMULATION notes: below about 16 KiB nothing is quantitative."""

SOFTNET = "/proc/net/softnet_stat"


def emulate(
    network: Network,
    name: str = "all-to-all",
    block: int = 65536,
    order: str = ORDER,
    faults: Faults = Faults(),
    repeat: int = 3,
    timeout: float | None = None,
    nic_rate: float | None = None,
    python: str | None = None,
) -> Emulation:
    """Build the network's fabric of namespaces, run a pattern on it, and compare with the engines.

    name      a pattern of `patterns.PATTERNS`, or 'gloo': all-reduce by an unmodified library
    block     bytes of a pair, or an n-th of what each GPU holds [byte]
    order     of an all-to-all's sends
    repeat    measured repetitions, after one to warm up; one without, where an element dies unknown to routes
    timeout   of each repetition [s]; default: ten times the slowest prediction, at least 10 s
    nic_rate  of the fastest NIC [byte/s]; default: what this machine can move (see `topology`)
    python    for gloo: a Python that has PyTorch; default: this one
    Raises PlanError for what the fabric does not allow, RailwrightError for what the machine does not.
    """
    if block < 1 or repeat < 1:
        raise PlanError("a block of less than 1 byte, or less than one repetition, measures nothing")
    fabric = with_faults(network.fabric, faults)
    network = Network(fabric, network.routing, network.seed, network.tables)
    plan = topology(fabric, nic_rate)
    gloo = name == "gloo"
    interpreter = _with_torch(python) if gloo else sys.executable
    script = pattern("ring" if gloo else name, fabric, block, order)
    lanes = find_lanes(network, plan, script.traffic)
    expected = predict(Network(fabric, "static") if gloo else network, script, plan.scale)
    within = timeout or max(10.0, 10 * max(expected.values()))
    tools = find_tools(loss=bool(faults.loss))
    notes = _notes(network, gloo, block, faults)
    sure = moved(fabric.num_gpus, os.cpu_count() or 1)
    if nic_rate is not None and nic_rate > sure:
        notes.append(
            f"NICs at {show_bit_rate(nic_rate)} are more than the {show_bit_rate(sure)} that this machine "
            "is sure to move for so many GPUs: times may be the machine's, not the fabric's"
        )
    if "fifo" not in expected:
        notes.append("blocks are too large for packets to be followed one by one: no FIFO prediction")
    slowest = max(expected.values())
    load, dropped = os.getloadavg()[0], _backlog_drops()
    config = configuration(tools, network, plan, lanes, faults, slowest, _everybody(fabric) if gloo else None)
    with Session(tools, config) as session:
        if gloo:
            ran = _run_gloo(session, fabric, script, config["gloo"], interpreter, repeat, within)
        else:
            ran = _run(session, fabric, plan, script, lanes, faults, repeat, within, slowest)
        setup = session.built
    if drops := _backlog_drops() - dropped:
        notes.append(
            f"the kernel dropped {drops} packets in its backlog, which costs seconds each time; raise "
            "net.core.netdev_max_backlog"
        )
    measured = statistics.median(ran.times) if ran.times else 0.0
    return Emulation(
        fabric=fabric.name,
        pattern=name,
        order=order,
        gpus=fabric.num_gpus,
        block=block,
        nic_rate=float(fabric.rate[fabric.role == Role.NODE_LEAF].max()) * plan.scale,
        scale=plan.scale,
        setup=setup,
        times=ran.times,
        measured=measured,
        predictions=tuple(
            Prediction(engine, seconds, seconds / measured if measured else 0.0)
            for engine, seconds in expected.items()
        ),
        load=(load, os.getloadavg()[0]),
        cores=os.cpu_count() or 1,
        missing=tuple((plan.names[u], plan.names[v]) for u, v in ran.missing),
        pairs=ran.pairs,
        suspects=ran.suspects,
        resent=ran.resent,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Ran:
    """Times of the repetitions [s], or the pairs that missed data and the suspects; pairs that talk; segments
    sent again."""

    pairs: int
    times: tuple[float, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    suspects: tuple[Suspect, ...] = ()
    resent: int = 0


def _run(
    session: Session,
    fabric: Fabric,
    plan: Topology,
    script: Pattern,
    lanes: Lanes,
    faults: Faults,
    repeat: int,
    within: float,
    predicted: float,
) -> _Ran:
    dying = faults.unknown_to_routes
    patience = CONNECT_THROUGH_LOSS if faults.loss else CONNECT_WITHIN
    order = run_order(script, lanes, fabric.num_gpus, patience, within)
    order["cut"] = [end for element, _ in dying for end in ends_of(fabric, plan, element)]
    early = any(when == "before" for _, when in dying)
    order["cut_at"] = None if early else CUT_AT * predicted
    talking = sorted({(leg.src, leg.dst) for legs in lanes.legs for leg in legs})
    times: list[float] = []
    resent: list[int] = []
    for _ in range(1 if dying else repeat + 1):
        said = session.ask(order, patience + within + 30)
        if "unopened" in said:
            missing = {(u, v) for u, v, _ in said["unopened"]}
            crossed = crossings(fabric, plan, lanes, talking, both_ways=True)
            return _Ran(len(talking), (), tuple(sorted(missing)), suspects(missing, crossed))
        answers = said["gpus"]
        if not all(answers):
            raise RailwrightError("a GPU's process did not answer; the machine may be too busy, try again")
        if wrong := sum(one["bad"] for one in answers):
            raise RailwrightError(f"{wrong} messages arrived with other bytes than were sent")
        if missing := _unsent_apart(script, lanes, {m for one in answers for m in one["missing"]}):
            crossed = crossings(fabric, plan, lanes, talking, both_ways=False)
            return _Ran(len(talking), (), tuple(sorted(missing)), suspects(missing, crossed))
        times.append(max(one["finish"] for one in answers))
        resent.append(sum(one["resent"] for one in answers))
    measured = times if dying else times[1:]
    return _Ran(len(talking), tuple(measured), resent=resent[-1] - (0 if dying else resent[0]))


def _unsent_apart(script: Pattern, lanes: Lanes, late: set[int]) -> set[tuple[int, int]]:
    """Pairs whose message was sent and did not arrive; one that waited for another late one was not sent."""
    legs = [
        lanes.legs[script.messages[m].demand][script.messages[m].leg]
        for m in sorted(late)
        if not late.intersection(script.messages[m].after)
    ]
    return {(leg.src, leg.dst) for leg in legs}


def _run_gloo(
    session: Session,
    fabric: Fabric,
    script: Pattern,
    devices: list[str],
    python: str,
    repeat: int,
    within: float,
) -> _Ran:
    order = {
        "do": "gloo", "gpus": fabric.num_gpus, "devices": devices, "python": python,
        "bytes": script.chunks * script.chunk, "repeats": repeat, "within": within,
    }  # fmt: skip
    said = session.ask(order, (repeat + 1) * within + 180)
    if "failed" in said:
        raise RailwrightError(said["failed"])
    if said["bad"]:
        raise RailwrightError(f"gloo: {said['bad']} elements of the result are wrong")
    return _Ran(len(script.traffic), tuple(said["times"]))


def _everybody(fabric: Fabric) -> Traffic:
    """All pairs: gloo opens a connection between any two, whatever it sends."""
    return all_to_all(fabric, Communicator(np.arange(fabric.num_gpus, dtype=np.int32)), 1.0, pxn=False)


def _with_torch(python: str | None) -> str:
    """A Python that has PyTorch. Raises RailwrightError where there is none."""
    chosen = python or sys.executable
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    try:
        found = subprocess.run([chosen, "-c", probe], capture_output=True, check=False).returncode == 0
    except OSError:
        found = False
    if not found:
        raise RailwrightError(
            f"the pattern 'gloo' needs PyTorch, which {chosen} does not have; install it, or name "
            "a Python that has it by --python"
        )
    return chosen


def _notes(network: Network, gloo: bool, block: int, faults: Faults) -> list[str]:
    notes = []
    if block < SMALLEST_BLOCK:
        notes.append("blocks below 16 KiB measure the machine, not the fabric: nothing here is quantitative")
    if faults.loss:
        notes.append("no engine models lost packets: TCP repeats them, and the predictions are for none lost")
    if faults.unknown_to_routes:
        notes.append("the predictions are for the fabric before the element died")
    if gloo:
        notes.append("gloo knows one address per GPU, so its packets follow the static tables")
    elif network.routing == "adaptive":
        notes.append(
            "adaptive routing is emulated as one connection per path, with its share of every message"
        )
    return notes


def _backlog_drops() -> int:
    """Packets that the kernel has dropped before its stack, on all CPUs (second column, hexadecimal)."""
    with open(SOFTNET, encoding="ascii") as file:
        return sum(int(line.split()[1], 16) for line in file)
