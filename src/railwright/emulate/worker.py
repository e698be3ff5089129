"""One GPU of the emulation: a process in its own namespace that sends and receives messages over TCP.

Standard library only.  A worker is told what to send, over which lanes and after which other messages; it
knows no pattern.  Lanes carry bytes one way, so the end that sends connects.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import time
from typing import Any

PORT = 5001
HEADER = struct.Struct("!III")
"""Message, where in it these bytes belong, and how many they are."""

READ = 1 << 18
SOL_TCP_CONGESTION = getattr(socket, "TCP_CONGESTION", 13)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def work(gpu: int, control: socket.socket) -> None:
    """Serve runs until the other end closes."""
    orders = control.makefile("r", encoding="ascii")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", PORT))
    listener.listen(1024)
    listener.setblocking(False)
    _say(control, {"listening": gpu})
    for line in orders:
        order = json.loads(line)
        run = _Run(gpu, order, listener)
        _say(control, run.connect(time.monotonic() + order["connect_within"]))
        go = json.loads(orders.readline())
        if "at" in go:
            _say(control, run.exchange(go["at"], order["within"]))
            # Not before everybody has what we sent: closing throws away what the kernel still holds.
            orders.readline()
        run.close()
        _say(control, {"closed": gpu})


def _say(control: socket.socket, answer: dict[str, Any]) -> None:
    control.sendall(json.dumps(answer).encode() + b"\n")


class _Run:
    """One repetition.

    order  lanes_out [[peer, lane]], lanes_in (number), sends [[message, peer, size, [[lane, bytes]], after,
           body, chunks]], receives {message: [peer, size, then, chunks]}, chunks, chunk, value
    """

    def __init__(self, gpu: int, order: dict[str, Any], listener: socket.socket) -> None:
        self.gpu, self.order, self.listener = gpu, order, listener
        self.poll = selectors.DefaultSelector()
        self.out: dict[tuple[int, int], socket.socket] = {}
        self.incoming: list[socket.socket] = []
        self.queues: dict[tuple[int, int], list[memoryview]] = {}
        self.parsers: dict[socket.socket, list[Any]] = {}
        self.waiting: dict[int, set[int]] = {}
        self.dependents: dict[int, list[int]] = {}
        self.left: dict[int, int] = {}
        self.bodies: dict[int, bytearray] = {}
        self.bad = 0
        size = order["chunk"]
        first = int.from_bytes(order["value"].to_bytes(8, "little") * (size // 8), "little") if size else 0
        self.vector = [first] * order["chunks"]

    def connect(self, deadline: float) -> dict[str, Any]:
        """Open all lanes; says which of ours did not open, and how many of others' did not come."""
        self.poll.register(self.listener, selectors.EVENT_READ, None)
        opening: set[tuple[int, int]] = set()
        for peer, lane in self.order["lanes_out"]:
            end = socket.socket()
            end.setblocking(False)
            _tune(end)
            end.bind((f"10.{self.gpu}.{peer}.{lane + 1}", 0))
            with contextlib.suppress(OSError):
                end.connect_ex((f"10.{peer}.{self.gpu}.{lane + 1}", PORT))
            self.out[peer, lane] = end
            opening.add((peer, lane))
            self.poll.register(end, selectors.EVENT_READ, (peer, lane))
        while (opening or len(self.incoming) < self.order["lanes_in"]) and time.monotonic() < deadline:
            for key, _ in self.poll.select(max(0.0, deadline - time.monotonic())):
                if key.data is None:
                    self._accept()
                    continue
                self.poll.unregister(key.fileobj)
                with contextlib.suppress(OSError):
                    if self.out[key.data].recv(1):
                        opening.discard(key.data)
        return {"unopened": sorted(opening)}

    def exchange(self, begin: float, within: float) -> dict[str, Any]:
        """Send and receive until all is done or the time is over; times are from `begin` on."""
        order = self.order
        self.poll.unregister(self.listener)
        for end in self.incoming:
            self.parsers[end] = [bytearray(), 0, 0, 0]
            self.poll.register(end, selectors.EVENT_READ, "in")
        for message, (_, size, _, _) in order["receives"].items():
            self.left[int(message)] = size
            self.bodies[int(message)] = bytearray(size)
        for index, send in enumerate(order["sends"]):
            self.waiting[index] = set(send[4])
            for before in send[4]:
                self.dependents.setdefault(before, []).append(index)
        todo, unsent = set(self.left), set(self.waiting)
        time.sleep(max(0.0, begin - time.monotonic()))
        for index in sorted(unsent):
            if not self.waiting[index]:
                unsent.discard(index)
                self._post(index)
        finish = 0.0
        while todo or unsent or any(self.queues.values()):
            remaining = begin + within - time.monotonic()
            if remaining <= 0:
                break
            for key, events in self.poll.select(remaining):
                if key.data == "in":
                    for done in self._receive(key.fileobj):  # type: ignore[arg-type]
                        todo.discard(done)
                        finish = time.monotonic() - begin
                        for index in self.dependents.get(done, ()):
                            self.waiting[index].discard(done)
                            if not self.waiting[index] and index in unsent:
                                unsent.discard(index)
                                self._post(index)
                elif events & selectors.EVENT_WRITE:
                    self._flush(key.data)
        wanted = order["total"]
        if order["chunks"] and not todo:
            whole = int.from_bytes(wanted.to_bytes(8, "little") * (order["chunk"] // 8), "little")
            self.bad += sum(chunk != whole for chunk in self.vector)
        return {"finish": finish, "missing": sorted(todo), "bad": self.bad, "resent": _resent()}

    def close(self) -> None:
        """All connections away at once, with nothing left to be sent."""
        for end in (*self.out.values(), *self.incoming):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            end.close()
        with contextlib.suppress(BlockingIOError):
            while True:
                self.listener.accept()[0].close()
        self.poll.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                end, _ = self.listener.accept()
                end.setblocking(False)
                _tune(end)
                # A SYN-ACK cannot offer more than 64 KiB; this byte brings the whole window to the sender.
                end.send(b"!")
                self.incoming.append(end)

    def _post(self, index: int) -> None:
        message, peer, _, parts, after, body, chunks = self.order["sends"][index]
        if body == "chunks":
            size = self.order["chunk"]
            data = b"".join(
                self.vector[c].to_bytes(size, "little") for c in range(chunks[0], chunks[0] + chunks[1])
            )
        elif body == "forward":
            data = bytes(self.bodies.pop(after[0]))
        else:
            data = fill(message, sum(size for _, size in parts))
        begin = 0
        for lane, size in parts:
            queue = self.queues.setdefault((peer, lane), [])
            queue.append(memoryview(HEADER.pack(message, begin, size) + data[begin : begin + size]))
            begin += size
            self._flush((peer, lane))

    def _flush(self, lane: tuple[int, int]) -> None:
        end, queue = self.out[lane], self.queues[lane]
        with contextlib.suppress(BlockingIOError):
            while queue:
                try:
                    sent = end.send(queue[0])
                except BlockingIOError:
                    raise
                except OSError:
                    # A cable that died under us; the receiver misses the message and says so.
                    queue.clear()
                    break
                if sent == len(queue[0]):
                    queue.pop(0)
                else:
                    queue[0] = queue[0][sent:]
        registered = end in self.poll.get_map()
        if queue and not registered:
            self.poll.register(end, selectors.EVENT_WRITE, lane)
        elif not queue and registered:
            self.poll.unregister(end)

    def _receive(self, end: socket.socket) -> list[int]:
        parser, done = self.parsers[end], []
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = end.recv(READ)
                except BlockingIOError:
                    break
                except OSError:
                    data = b""
                if not data:
                    self.poll.unregister(end)
                    break
                parser[0] += data
                done += self._parse(parser)
        return done

    def _parse(self, parser: list[Any]) -> list[int]:
        """Take whole headers and what there is of bodies.

        parser is [bytes not taken, message, where its next byte belongs, bytes of this part to come].
        """
        done: list[int] = []
        buffer = parser[0]
        while buffer:
            if not parser[3]:
                if len(buffer) < HEADER.size:
                    break
                parser[1:] = HEADER.unpack_from(buffer)
                del buffer[: HEADER.size]
            part = buffer[: parser[3]]
            del buffer[: len(part)]
            message, place = parser[1], parser[2]
            parser[2] += len(part)
            parser[3] -= len(part)
            self.left[message] -= len(part)
            self.bodies[message][place : place + len(part)] = part
            if part and not self.left[message]:
                self._arrived(message)
                done.append(message)
        return done

    def _arrived(self, message: int) -> None:
        _, size, then, (first, number) = self.order["receives"][str(message)]
        body = self.bodies[message]
        if then in ("check", "hold"):
            origin = self.order["origin"].get(str(message), message)
            self.bad += bytes(body) != fill(origin, size)
            if then == "check":
                del self.bodies[message]
            return
        each = size // number
        for c in range(number):
            value = int.from_bytes(body[c * each : (c + 1) * each], "little")
            self.vector[first + c] = value + (self.vector[first + c] if then == "add" else 0)
        del self.bodies[message]


def fill(message: int, size: int) -> bytes:
    """Bytes that tell messages, and places in a message, apart."""
    word = struct.pack("!II", message, 0x9E3779B9 * (message + 1) & 0xFFFFFFFF)
    return (word * (size // 8 + 1))[:size]


def _tune(end: socket.socket) -> None:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.IPPROTO_TCP, SOL_TCP_CONGESTION, b"reno")


def _resent() -> int:
    """TCP segments sent again in this namespace since it was made."""
    with open("/proc/thread-self/net/snmp", encoding="ascii") as file:
        names, values = [line.split() for line in file if line.startswith("Tcp:")]
    return int(values[names.index("RetransSegs")])
