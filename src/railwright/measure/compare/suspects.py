"""What could be different from the study: each suspect is a curve, predicted by the same model.

Some are the study with one thing changed (PXN, routing, a forced algorithm or protocol).  Others scale the
terms of the prediction by what a fault does to them: k of N NICs gone makes the bandwidth term N/(N-k) times
as long, a slower way to the wire makes the latency terms longer.  Nothing is fitted: each has one meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from railwright.collectives import CollectivePrediction, Machine, sweep
from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.measure.compare.result import Suspect
from railwright.network.routing.solution import Network
from railwright.traffic.demand import Communicator

DESIGNED = "as-designed"
_INIT = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH"


@dataclass(frozen=True)
class Scaling:
    """A fault as what it does to the terms: factors on latencies and on the bandwidth term."""

    key: str
    name: str
    next_test: str
    latency: float
    bandwidth: float


def suspects(
    machine: Machine,
    op: Op,
    groups: Sequence[Communicator],
    predictions: Sequence[CollectivePrediction],
    measured: Sequence[float],
    servers: int,
) -> tuple[Suspect, ...]:
    """Every suspect's curve, the best fit first; 'as-designed' is one of them.

    predictions  as designed, at the measured sizes
    measured     times [s]
    """
    sizes = [p.size for p in predictions]
    found = [_suspect(DESIGNED, "as the study says", "", [p.time for p in predictions], measured)]
    for key, name, test, changed in _changed(machine, op, servers):
        try:
            times = [p.time for p in sweep(changed, op, sizes, groups)]
        except PlanError:
            continue  # an algorithm that cannot run here is no suspect
        if all(abs(t / p.time - 1) < 1e-6 for t, p in zip(times, predictions, strict=True)):
            continue  # changes nothing, so nothing can speak for it
        found.append(_suspect(key, name, test, times, measured))
    for scaling in _scalings(machine, servers):
        times = [scaled(p, scaling.latency, scaling.bandwidth) for p in predictions]
        found.append(_suspect(scaling.key, scaling.name, scaling.next_test, times, measured))
    return tuple(sorted(found, key=lambda s: (s.misfit, s.key)))


def bounds(
    machine: Machine,
    op: Op,
    groups: Sequence[Communicator],
    predictions: Sequence[CollectivePrediction],
) -> list[float]:
    """The shortest time the wires allow at each size, over NCCL's algorithms, calibrated or not [s]."""
    sizes = [p.size for p in predictions]
    if machine.profile:
        machine = replace(machine, profile=None)
        predictions = sweep(machine, op, sizes, groups)
    best = [_wires(p) for p in predictions]
    if op != "all_reduce":
        return best
    for algorithm in ("ring", "tree", "nvls", "nvlstree"):
        try:
            forced = sweep(
                replace(machine, nccl=replace(machine.nccl, algorithm=algorithm)), op, sizes, groups
            )
        except PlanError:
            continue
        best = [min(b, _wires(p)) for b, p in zip(best, forced, strict=True)]
    return best


def scaled(prediction: CollectivePrediction, latency: float, bandwidth: float) -> float:
    """The predicted time with its latencies and its bandwidth term stretched; the ramp is their mean. [s]"""
    total = 0.0
    for term in prediction.terms:
        factor = {"bandwidth": bandwidth, "ramp": math.sqrt(latency * bandwidth)}.get(term.name, latency)
        total += term.seconds * factor
    return total


def misfit(measured: Sequence[float], times: Sequence[float]) -> float:
    """Root mean square of ln(measured / times)."""
    if not measured:
        return math.inf
    return math.sqrt(sum(math.log(m / t) ** 2 for m, t in zip(measured, times, strict=True)) / len(measured))


def _wires(prediction: CollectivePrediction) -> float:
    return sum(t.seconds for t in prediction.terms if t.name == "bandwidth")


def _suspect(key: str, name: str, test: str, times: Sequence[float], measured: Sequence[float]) -> Suspect:
    return Suspect(key, name, test, tuple(times), misfit(measured, times))


def _changed(machine: Machine, op: Op, servers: int) -> list[tuple[str, str, str, Machine]]:
    """(key, name, test, machine) of the study with one thing changed."""
    out: list[tuple[str, str, str, Machine]] = []
    network = machine.network
    no_pxn = replace(machine, nccl=replace(machine.nccl, pxn=False))
    if servers > 1:
        pairs = op in ("all_to_all", "sendrecv")
        if pairs and machine.nccl.pxn:
            test = "run again with NCCL_PXN_DISABLE=0, and `railwright bench rails` (flat against rail-first)"
            out.append(("pxn-off", "PXN does not work or is switched off", test, no_pxn))
        if network.routing != "ecmp":
            hashed = Network(network.fabric, "ecmp", network.seed)
            test = (
                "look at the spines' port counters while it runs; switch adaptive routing on "
                "(NCCL_IB_ADAPTIVE_ROUTING=1) or raise NCCL_IB_QPS_PER_CONNECTION"
            )
            out.append(("ecmp", "flows collide on the spines as hashed (ECMP) ones do", test,
                        replace(machine, network=hashed)))  # fmt: skip
            if pairs and machine.nccl.pxn:
                both = replace(no_pxn, network=hashed)
                out.append(("pxn-off+ecmp", "no PXN, and flows collide on the spines", test, both))
        if network.routing == "adaptive":
            fixed = Network(network.fabric, "static", network.seed)
            test = (
                "read the subnet manager's routing engine and whether adaptive routing is on (ibdiagnet --ar)"
            )
            out.append(("static", "routes are static, not adaptive", test, replace(machine, network=fixed)))
    if op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast") and machine.nccl.algorithm == "auto":
        for algorithm in ("ring", "tree", "nvls", "nvlstree") if op == "all_reduce" else ("ring",):
            test = (
                f"run once with NCCL_ALGO={algorithm} and once without; NCCL_DEBUG_SUBSYS=TUNING prints "
                "NCCL's "
                "choice" + ("; check NCCL_NVLS_ENABLE and the fabric manager" if algorithm == "ring" else "")
            )
            forced = replace(machine, nccl=replace(machine.nccl, algorithm=algorithm))
            out.append((f"algo-{algorithm}", f"NCCL uses {algorithm} at every size", test, forced))
    if op not in ("all_to_all", "sendrecv") and machine.nccl.protocol == "auto":
        for protocol in ("simple", "ll128", "ll"):
            test = (
                f"run once with NCCL_PROTO={protocol} and once without; look for NCCL_PROTO in /etc/nccl.conf"
            )
            forced = replace(machine, nccl=replace(machine.nccl, protocol=protocol))
            out.append((f"proto-{protocol}", f"NCCL uses {protocol.upper()} at every size", test, forced))
    return out


def _scalings(machine: Machine, servers: int) -> list[Scaling]:
    nics = machine.server.nics
    inits = f"run with {_INIT} and count the NICs in its 'Using' line"
    found = [
        Scaling("latency-2", "every step takes twice as long", "", 2.0, 1.0),
        Scaling("latency-4", "every step takes four times as long", "", 4.0, 1.0),
    ]
    if servers == 1:
        return found + [Scaling("half", "half of the GPUs' links are up", "nvidia-smi nvlink -s", 1.0, 2.0)]
    if nics > 1:
        share = f"{nics - 1}/{nics}"
        rails = f'NCCL_TESTS_SPLIT="MOD {nics}" (one rail at a time), or `railwright bench run --split rail`'
        found.append(
            Scaling("nic-missing", f"one NIC per server is missing ({share} of the plateau)",
                    f"{inits}; then {rails}", 1.0, nics / (nics - 1))
        )  # fmt: skip
    if nics > 4:
        found.append(
            Scaling("one-nic", f"a server's traffic goes through one of its {nics} NICs",
                    f"{inits}; check NCCL_IB_HCA", 1.0, float(nics))
        )  # fmt: skip
    links = "lspci -vv (LnkSta of every NIC: width and speed) and ibstat (rate of every port)"
    return [
        *found,
        Scaling("half", "half of the plateau: NICs' PCIe links or ports at half width or speed, or half "
        "of the "
                "rails", links, 1.0, 2.0),
        Scaling("quarter", "a quarter of the plateau: PCIe links at a quarter, or one pair of rails of eight",
                links, 1.0, 4.0),
        Scaling("gdr-off", "GPUDirect RDMA is off, so that data go through host memory (half the plateau, "
        "twice "
                "the latency)", f"run with {_INIT}: its NET lines end in /GDRDMA where it works; "
                "check nvidia_peermem and NCCL_NET_GDR_LEVEL", 2.0, 2.0),
        Scaling("sockets", "TCP sockets carry it instead of verbs (an eighth of the plateau, five times the "
                "latency)", f"run with {_INIT}: 'Using network Socket' says so; check NCCL_NET and "
                "NCCL_IB_DISABLE", 5.0, 8.0),
    ]  # fmt: skip
