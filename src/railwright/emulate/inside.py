"""The process that holds the emulated fabric: process 1 of its own namespaces, told what to do on its stdin.

`python -m railwright.emulate.inside`, started by `session` under `unshare`.  Standard library only, so it
starts at once.  When it ends, for whatever reason, the kernel ends all of its children and takes the
namespaces, veth pairs and rules away.  It ends when its stdin does: when the process that started it has
died.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from railwright.emulate import gloo_ranks
from railwright.emulate.namespaces import (
    NotAllowed,
    batch,
    drop_rules,
    enter,
    new_namespace,
    plain_packets,
)
from railwright.emulate.worker import work

GATEWAY = "169.254.0.1"
LIMIT = 64 << 20
"""Bytes that wait at a shaper before it drops: practically lossless."""

MARGIN = 0.05
"""Between the word to begin and the beginning, for every worker to hear it [s]."""


def main() -> None:
    """Build the fabric of the first line, then serve the orders of the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = json.loads(_line(0))
    try:
        begin = time.monotonic()
        fabric = _Held(config)
        _answer({"built": time.monotonic() - begin})
        while order := _line(0):
            _answer(fabric.serve(json.loads(order)))
    except NotAllowed as no:
        _answer({"refused": str(no)})


class _Held:
    """Namespaces, wires and workers."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.spaces = [new_namespace(not config["losses"]) for _ in range(config["nodes"])]
        self._wire()
        self._route()
        self.workers: list[socket.socket] = (
            [] if config["gloo"] else [self._worker(gpu) for gpu in range(config["gpus"])]
        )
        for control in self.workers:
            if "listening" not in _heard(control, time.monotonic() + 30):
                raise NotAllowed("a GPU's process did not start within 30 s")

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "gloo":
            return gloo_ranks.run(self.spaces, order, self._ended)
        return self._exchange(order)

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        """One repetition: everybody connects, everybody begins at the same time."""
        if order["cut"] and order["cut_at"] is None:
            self._cut(order["cut"])
        for control, part in zip(self.workers, order["gpus"], strict=True):
            _tell(control, {**order["common"], **part})
        limit = time.monotonic() + order["common"]["connect_within"] + 5
        opened = [_heard(control, limit) for control in self.workers]
        unopened = [[u, *lane] for u, said in enumerate(opened) for lane in said.get("unopened", ())]
        if unopened:
            self._close()
            return {"unopened": unopened}
        at = time.monotonic() + MARGIN + 0.001 * len(self.workers)
        for control in self.workers:
            _tell(control, {"at": at})
        if order["cut"] and order["cut_at"] is not None:
            if self._ended(at + order["cut_at"] - time.monotonic()):
                sys.exit(0)
            self._cut(order["cut"])
        limit = at + order["common"]["within"] + 5
        answers = [_heard(control, limit) for control in self.workers]
        self._close()
        return {"gpus": answers}

    def _close(self) -> None:
        for control in self.workers:
            _tell(control, {"close": 1})
        for control in self.workers:
            _heard(control, time.monotonic() + 10)

    def _cut(self, ends: list[list[Any]]) -> None:
        """Take devices down: [namespace, device]."""
        for node in sorted({node for node, _ in ends}):
            enter(self.spaces[node])
            batch(self.config["ip"], [f"link set {name} down" for n, name in ends if n == node])

    def _wire(self) -> None:
        """All veth pairs, up, shaped, with the neighbour at the other end written down."""
        pairs = self.config["wires"]
        lines = [
            f"link add {name} netns /proc/self/fd/{self.spaces[a]} address {_mac(cable, 0)} mtu {mtu} "
            f"type veth peer name {name} netns /proc/self/fd/{self.spaces[b]} "
            f"address {_mac(cable, 1)} mtu {mtu}"
            for cable, name, a, b, _, mtu in pairs
        ]
        batch(self.config["ip"], lines, tuple(self.spaces))
        ends: dict[int, list[tuple[int, str, int, float, int]]] = {}
        for cable, name, a, b, rates, mtu in pairs:
            ends.setdefault(a, []).append((cable, name, 1, rates[0], mtu))
            ends.setdefault(b, []).append((cable, name, 0, rates[1], mtu))
        losses: dict[int, list[tuple[str, float]]] = {}
        for node, name, rate in self.config["losses"]:
            losses.setdefault(node, []).append((name, rate))
        for node, here in sorted(ends.items()):
            enter(self.spaces[node])
            plain_packets(name for _, name, _, _, _ in here)
            lines = ["link set lo up"]
            for cable, name, far, _, _ in here:
                lines += [
                    f"link set {name} up",
                    f"neigh add {GATEWAY} lladdr {_mac(cable, far)} dev {name} nud permanent",
                ]
            batch(self.config["ip"], lines)
            batch(
                self.config["tc"],
                (
                    f"qdisc add dev {name} root tbf rate {round(rate * 8)}bit "
                    f"burst {2 * (mtu + 14)} limit {LIMIT}"
                    for _, name, _, rate, mtu in here
                ),
            )
            drop_rules(self.config["nft"], losses.get(node, ()))

    def _route(self) -> None:
        """Host routes of every namespace, and the addresses of the GPUs."""
        lines: dict[int, list[str]] = {}
        for gpu in range(self.config["gpus"]):
            lines[gpu] = [f"route add local 10.{gpu}.0.0/16 dev lo"]
            if self.config["gloo"]:
                lines[gpu].append(f"addr add 10.{gpu}.{gpu}.1/32 dev {self.config['gloo'][gpu]}")
        for node, goal, cable, mtu, first in self.config["routes"]:
            line = f"route add {goal}/32 via {GATEWAY} dev c{cable} onlink"
            if first:
                line += f" {self.config['first_hop']}" + (f" mtu lock {mtu}" if mtu else "")
                owner = goal.split(".")
                if self.config["gloo"] and owner[1] == owner[2]:
                    line += f" src 10.{node}.{node}.1"
            lines.setdefault(node, []).append(line)
        for node, here in sorted(lines.items()):
            enter(self.spaces[node])
            batch(self.config["ip"], here)

    def _worker(self, gpu: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        enter(self.spaces[gpu])
        if os.fork() == 0:
            status = 1
            try:
                os.close(0)
                ours.close()
                work(gpu, theirs)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        return ours

    def _ended(self, seconds: float) -> bool:
        """Wait; true at once when our stdin has ended."""
        return bool(select.select([0], [], [], max(0.0, seconds))[0])


_unread = bytearray()
_heard_of: dict[int, bytearray] = {}


def _line(descriptor: int) -> bytes:
    """The next line of stdin, b'' at its end."""
    while b"\n" not in _unread:
        data = os.read(descriptor, 1 << 20)
        if not data:
            return b""
        _unread.extend(data)
    end = _unread.index(b"\n") + 1
    line = bytes(_unread[:end])
    del _unread[:end]
    return line


def _heard(control: socket.socket, limit: float) -> dict[str, Any]:
    """The next answer of a worker; {} after `limit`. Ends this process when stdin ends meanwhile."""
    buffer = _heard_of.setdefault(control.fileno(), bytearray())
    while b"\n" not in buffer:
        ready, _, _ = select.select([control.fileno(), 0], [], [], max(0.0, limit - time.monotonic()))
        if 0 in ready:
            sys.exit(0)
        data = control.recv(1 << 20) if ready else b""
        if not data:
            return {}
        buffer.extend(data)
    end = buffer.index(b"\n") + 1
    line = bytes(buffer[:end])
    del buffer[:end]
    answer: dict[str, Any] = json.loads(line)
    return answer


def _tell(control: socket.socket, order: dict[str, Any]) -> None:
    control.sendall(json.dumps(order).encode() + b"\n")


def _answer(values: dict[str, Any]) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


def _mac(cable: int, end: int) -> str:
    return f"02:{end:02x}:" + ":".join(f"{cable >> shift & 255:02x}" for shift in (24, 16, 8, 0))


if __name__ == "__main__":
    main()
