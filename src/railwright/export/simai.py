"""SimAI (Alibaba's fork of ASTRA-sim on ns-3): GPUs, one NVSwitch a server, network switches, links.

Format: SimAI, docs/Tutorial.md and astra-sim-alibabacloud/inputs/topo (first line: nodes, GPUs per server,
NVSwitches, switches, links, GPU type; second line: the ids of NVSwitches, then of switches; then links as
source, destination, bandwidth, delay, error rate).
"""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.export.delays import Delays
from railwright.export.sheet import Sheet, gigabits
from railwright.fabric.graph import Kind, Role

# SimAI's GPU types; its compute and NVLink tables are kept by them.
_TYPES = {"a100": "A100", "h100": "H100", "h800": "H800", "h20": "H20"}


def render(sheet: Sheet) -> dict[str, str]:
    """GPUs keep their ids, NVSwitches follow, then leaves, spines, cores; NICs are part of their links.

    A NIC that several GPUs share gives each an equal part of its rate; of several NICs a GPU has, each is a
    link of its own.  Failed cables are left out, slow ones have their rate.  Cables that run side by side
    are one link of their summed rate: SimAI keeps interfaces by neighbour (network_frontend/ns3/common.h,
    nbr2if), so the last of them would stand for all.
    Raises PlanError where a GPU has no scale-up domain, which SimAI cannot say.
    """
    sheet.need_gpus("SimAI")
    f = sheet.fabric
    gpu = sheet.gpu
    if gpu is not None and not gpu.scale_up_bandwidth and sheet.gpus > 1:
        raise PlanError(
            f"SimAI's topology has an NVSwitch in every server; GPU '{gpu.name}' has no scale-up link; "
            "take format simgrid or graphml"
        )
    delays = Delays(sheet)
    new_id, scale_up, switches = _ids(sheet)
    links: dict[tuple[int, int], tuple[float, float]] = {}

    def join(a: int, b: int, rate: float, delay: float) -> None:
        known, longest = links.get((a, b), (0.0, 0.0))
        links[a, b] = (known + rate, max(longest, delay))

    lanes = [i for i, role in enumerate(f.role.tolist()) if role == Role.SCALE_UP]
    for i in lanes:
        if (rate := float(min(f.capacity[2 * i], f.capacity[2 * i + 1]))) > 0:
            join(new_id[int(f.a[i])], new_id[int(f.b[i])], rate, 0.0)
    users = _users(sheet)
    for c in sheet.working:
        if c.role == Role.NODE_LEAF:
            gpus = users[c.a]
            for user in gpus:
                join(user, new_id[c.b], c.live / len(gpus), delays.cable(c) + delays.half(c.a))
        else:
            join(new_id[c.a], new_id[c.b], c.live, delays.cable(c))
    lines = [_link(a, b, rate, delay) for (a, b), (rate, delay) in links.items()]
    kind = _TYPES.get(sheet.part_name("gpu").split("-")[0], "NONE")
    nodes = f.num_gpus + len(scale_up) + len(switches)
    head = f"{nodes} {sheet.gpus} {len(scale_up)} {len(switches)} {len(lines)} {kind}"
    ids = " ".join(str(new_id[d]) for d in [*scale_up, *switches])
    return {"simai.topo": "\n".join([head, ids, *lines]) + "\n"}


def _ids(sheet: Sheet) -> tuple[dict[int, int], list[int], list[int]]:
    """Device -> SimAI node for all but NICs; the scale-up switches; the network switches."""
    kinds = sheet.fabric.kind.tolist()
    kept = [d for d, kind in enumerate(kinds) if kind != Kind.NIC]
    scale_up = [d for d in kept if kinds[d] == Kind.SCALE_UP]
    switches = [d for d in kept if kinds[d] >= Kind.LEAF]
    return {d: i for i, d in enumerate(kept)}, scale_up, switches


def _users(sheet: Sheet) -> dict[int, list[int]]:
    """NIC -> the GPUs behind it."""
    f = sheet.fabric
    users: dict[int, list[int]] = {}
    for a, b, role in zip(f.a.tolist(), f.b.tolist(), f.role.tolist(), strict=True):
        if role == Role.PCIE:
            users.setdefault(b, []).append(a)
    return users


def _link(a: int, b: int, rate: float, delay: float) -> str:
    return f"{a} {b} {gigabits(rate)}Gbps {delay * 1e3:.6f}ms 0"
