"""The compiled FIFO is its definition in Python, bit for bit: same events, same order, same sums."""

from __future__ import annotations

import numpy as np
import pytest

import network_fabrics as hand
from railwright.network import Network
from railwright.network.fifo import run as engine
from railwright.network.fifo.run import FLUID, ROCE, Framing, simulate
from railwright.traffic import Communicator, all_to_all
from railwright.traffic.order import ORDERS, places

FRAMINGS = [FLUID, Framing(8, 1), ROCE]


@pytest.mark.parametrize("case", range(48))
def test_every_number_is_the_same(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(case)
    family = ["rail-optimised", "fat-tree", "single-switch", "rail-only"][case % 4]
    gpus = int(drawn.integers(1, 4))
    fabric = hand.make(
        servers=int(drawn.integers(2, 5)), gpus=gpus, family=family, spines=int(drawn.integers(1, 4)),
        servers_per_group=0 if family == "rail-only" else int(drawn.integers(1, 3)),
        uplink=float(drawn.choice([25.0, 50.0, 110.0])),
    )  # fmt: skip
    world = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    sizes = drawn.choice([0.0, 10.0, 64.0, 100.0], (len(world), len(world)))
    traffic = all_to_all(fabric, world, sizes, family == "rail-only" or bool(drawn.integers(2)))
    framing = FRAMINGS[int(drawn.integers(3))]
    chunk = float(drawn.choice([5.0, 20.0, 1000.0]))
    wire = chunk + (np.ceil(chunk / framing.payload) * framing.header if framing.payload else 0)
    buffer = [None, wire, 2.5 * wire][int(drawn.integers(3))]

    def answer(compiled: bool) -> engine.FifoSolution:
        monkeypatch.setattr(engine, "COMPILED_FROM", 0 if compiled else 10**9)
        return simulate(
            Network(fabric, ("adaptive", "ecmp", "static")[case % 3]), traffic,
            places(fabric, traffic, sorted(ORDERS)[case % 5], seed=case), chunk,
            [None, 1, 2][int(case / 3) % 3], done=("sent", "delivered")[case % 2],
            relay=("chunk", "message")[int(case / 2) % 2], buffer=buffer, framing=framing,
        )  # fmt: skip

    slow, quick = answer(False), answer(True)
    assert "Python" in slow.solution.engine
    assert "numba" in quick.solution.engine
    assert slow.finish.tobytes() == quick.finish.tobytes()
    assert slow.posted.tobytes() == quick.posted.tobytes()
    assert slow.queue.tobytes() == quick.queue.tobytes()
    assert slow.solution.load.tobytes() == quick.solution.load.tobytes()
