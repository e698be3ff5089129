"""What the process inside the namespaces is told: the fabric once, and each repetition."""

from __future__ import annotations

from typing import Any

from railwright.emulate.faults import Faults, cables_of
from railwright.emulate.lanes import Lanes, Part, host_routes, primary_routes
from railwright.emulate.patterns import Pattern
from railwright.emulate.requirements import Tools
from railwright.emulate.topology import Topology
from railwright.fabric.graph import Fabric
from railwright.network import Network
from railwright.traffic import Traffic

INITIAL_WINDOW = 1000
"""Packets that a connection may send at once: a whole block waits at the NIC, as it does in GPU memory."""

PIECE = 9000 - 20 - 32 - 12
"""Bytes of a message that fill a packet: IPv4 20, TCP with timestamps 32, our own header 12."""

SHORTEST_TIMEOUT = 0.3
"""Least time before TCP repeats what it has not heard of [s]; packets wait at shapers for about a run."""


def configuration(
    tools: Tools,
    network: Network,
    topology: Topology,
    lanes: Lanes,
    faults: Faults,
    slowest: float,
    gloo: Traffic | None,
) -> dict[str, Any]:
    """Namespaces, wires, routes and losses.

    slowest  the slowest prediction [s]: TCP is not to repeat what still waits in a queue
    gloo     pairs that an unmodified library joins
    """
    fabric = network.fabric
    routes = host_routes(fabric, topology, lanes)
    if gloo is not None:
        routes += primary_routes(network, topology, gloo)
    timeout = SHORTEST_TIMEOUT if faults.loss else max(SHORTEST_TIMEOUT, 2 * slowest)
    return {
        "ip": tools.ip,
        "tc": tools.tc,
        "nft": tools.nft,
        "nodes": len(topology.names),
        "gpus": fabric.num_gpus,
        "wires": [[w.cable, w.name, w.a, w.b, w.rates, w.mtu] for w in topology.wires],
        "routes": [[r.node, r.goal, r.wire, r.mtu, r.first] for r in routes],
        "losses": [
            [node, name, rate]
            for element, rate in faults.loss
            for node, name in _both(fabric, topology, element)
        ],
        "gloo": [_device(topology, gpu) for gpu in range(fabric.num_gpus)] if gloo is not None else [],
        "first_hop": f"rto_min {round(timeout * 1000)}ms initcwnd {INITIAL_WINDOW} initrwnd {INITIAL_WINDOW}",
    }


def run_order(
    script: Pattern, lanes: Lanes, gpus: int, connect_within: float, within: float
) -> dict[str, Any]:
    """One repetition: what everybody shares, and each GPU's part."""
    parts: list[dict[str, Any]] = [
        {"lanes_out": [], "lanes_in": 0, "sends": [], "receives": {}, "origin": {}, "value": gpu + 1}
        for gpu in range(gpus)
    ]
    opened: set[tuple[int, int, int]] = set()
    for number, message in enumerate(script.messages):
        leg = lanes.legs[message.demand][message.leg]
        pieces = _deal(message.size, leg.parts, leg.src + number)
        parts[leg.src]["sends"].append(
            [number, leg.dst, message.size, pieces, message.after, message.body, message.chunks]
        )
        parts[leg.dst]["receives"][str(number)] = [leg.src, message.size, message.then, message.chunks]
        if message.body == "forward":
            parts[leg.dst]["origin"][str(number)] = message.after[0]
        for lane in dict.fromkeys(lane for lane, _ in pieces):
            if (leg.src, leg.dst, lane) not in opened:
                opened.add((leg.src, leg.dst, lane))
                parts[leg.src]["lanes_out"].append([leg.dst, lane])
                parts[leg.dst]["lanes_in"] += 1
    common = {
        "connect_within": connect_within, "within": within, "chunks": script.chunks, "chunk": script.chunk,
        "total": gpus * (gpus + 1) // 2,
    }  # fmt: skip
    return {"do": "run", "common": common, "gpus": parts}


def ends_of(fabric: Fabric, topology: Topology, element: str) -> list[tuple[int, str]]:
    """(namespace, device) to take down so that an element is dead: of each cable, the end nearer the spines.

    A GPU's own end stays up, as a real NIC's interface does not vanish with its cable: packets are lost.
    """
    cables = set(cables_of(fabric, element).tolist())
    return [(max(w.a, w.b), w.name) for w in topology.wires if w.cable in cables]


def _both(fabric: Fabric, topology: Topology, element: str) -> list[tuple[int, str]]:
    cables = set(cables_of(fabric, element).tolist())
    return [(node, w.name) for w in topology.wires if w.cable in cables for node in (w.a, w.b)]


def _device(topology: Topology, gpu: int) -> str:
    """The first NIC cable of a GPU, by which a library knows it."""
    own = [w for w in topology.wires if gpu in (w.a, w.b)]
    return min(own, key=lambda w: (w.mtu, w.cable)).name


def _deal(size: int, parts: tuple[Part, ...], turn: int) -> list[tuple[int, int]]:
    """(lane, bytes) of a message's pieces in order of sending: packets dealt over lanes by their shares.

    turn  which lane begins: were it the same for all, everybody would meet on it at once
    """
    if len(parts) == 1:
        return [(parts[0][0], size)]
    sent = [0.0] * len(parts)
    pieces: list[tuple[int, int]] = []
    left = size
    while left:
        piece = min(left, PIECE)
        i = min(range(len(parts)), key=lambda i: ((sent[i] + piece) / parts[i][1], (i - turn) % len(parts)))
        sent[i] += piece
        pieces.append((parts[i][0], piece))
        left -= piece
    return pieces
