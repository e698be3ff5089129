"""NCCL's choice of algorithm and protocol: the pair with the least modelled time on a healthy fabric."""

from __future__ import annotations

from math import floor, log2

from railwright.collectives.algorithm import Algorithm, Path
from railwright.collectives.collnet import COLLNET
from railwright.collectives.constants import nccl
from railwright.collectives.group import Group
from railwright.collectives.nvls import NVLS, NVLS_TREE, nominal_channel_limit
from railwright.collectives.pat import PAT
from railwright.collectives.prediction import NcclSettings, Op
from railwright.collectives.rates import bus_factor
from railwright.collectives.ring import RING, crowding
from railwright.collectives.tree import TREE
from railwright.errors import PlanError

ALGORITHMS: dict[str, Algorithm] = {a.name: a for a in (RING, TREE, NVLS, NVLS_TREE, COLLNET, PAT)}


def choose(op: Op, size: float, group: Group, settings: NcclSettings) -> tuple[Algorithm, str]:
    """The algorithm and protocol that NCCL's tuner picks for S = size [byte].

    NCCL knows the nominal rates only, so a congested or broken fabric does not change its choice.
    A forced algorithm or protocol that cannot run this op on this group raises PlanError.
    Source: NCCL 2.30 src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime.
    """
    allowed = candidates(op, group, settings)
    return min(allowed, key=lambda pair: tuner_time(op, size, group, *pair))


def candidates(op: Op, group: Group, settings: NcclSettings) -> list[tuple[Algorithm, str]]:
    """Every (algorithm, protocol) that may run, in the order of NCCL's tables; never empty."""
    reasons: list[str] = []
    found: list[tuple[Algorithm, str]] = []
    for algorithm in ALGORITHMS.values():
        if settings.algorithm not in ("auto", algorithm.name) or op not in algorithm.ops:
            continue
        why = algorithm.unavailable(op, group, settings.sharp)
        if why:
            reasons.append(f"{algorithm.name}: {why}")
            continue
        for protocol in algorithm.protocols:
            if settings.protocol in ("auto", protocol) and not (protocol == "ll128" and not _ll128(group)):
                found.append((algorithm, protocol))
    if not found:
        able = [
            a.name
            for a in ALGORITHMS.values()
            if op in a.ops and not a.unavailable(op, group, settings.sharp)
        ]
        raise PlanError(
            f"NCCL cannot run {op} on {group.ranks} ranks in {group.nodes} node(s) with algorithm "
            f"'{settings.algorithm}' and protocol '{settings.protocol}'"
            + (f" ({'; '.join(reasons)})" if reasons else "")
            + f"; it can with {', '.join(able)}: "
            "set nccl.algorithm and nccl.protocol to 'auto' or to one that fits.",
            "nccl.protocol" if settings.algorithm == "auto" else "nccl.algorithm",
        )
    return found


def tuner_time(op: Op, size: float, group: Group, algorithm: Algorithm, protocol: str) -> float:
    """The time NCCL's tuner expects, for choosing only. [s]

    Source: NCCL 2.30 src/graph/tuning.cc, ncclTopoTuneModel ("Convert bus BW to algorithm BW", which leaves
    out all but rings in all-gather and reduce-scatter) and ncclTopoGetAlgoTime.
    """
    per_byte = nominal_seconds_per_byte(op, group, algorithm, protocol)
    if op in ("all_gather", "reduce_scatter") and algorithm is not RING:
        per_byte /= bus_factor(op, group.ranks)  # takes the bus bandwidth for the algorithm's
    if algorithm is NVLS_TREE:
        per_byte = max(per_byte, bus_factor(op, group.ranks) / nominal_channel_limit(group))
    step = floor(log2(max(size, 64.0) / 64))
    table = nccl()["tree_correction"][protocol]
    if algorithm is TREE:
        table = table[:-1]  # ncclTopoGetAlgoTime: logSize < 23, of an NVLS tree < 24
    corrected = algorithm is TREE or (
        algorithm is NVLS_TREE and group.generation == "blackwell" and group.cpu != "arm"
    )
    if corrected and size >= 64 and step < len(table):
        per_byte /= float(table[step])
    return algorithm.steps(op, protocol, group, Path()) + size * per_byte


def nominal_seconds_per_byte(op: Op, group: Group, algorithm: Algorithm, protocol: str) -> float:
    """Time per byte of S that NCCL's tuner expects of the nominal rates, PCIe's included. [s/byte]"""
    network = algorithm.per_nic(op, group) * algorithm.wire(protocol) / group.searched_nic * crowding(group)
    return max(network, bus_factor(op, group.ranks) / algorithm.inside(op, protocol, group))


def _ll128(group: Group) -> bool:
    """LL128 needs NVLink's 128-byte stores. Source: NCCL 2.30 src/graph/tuning.cc (typeIntra <= PATH_NVB)."""
    return group.scale_up > 0 and group.generation != "cdna"
