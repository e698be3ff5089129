"""What the chunk FIFO refuses, each in one sentence that says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.network import Network
from railwright.network.fifo import paths as fifo_paths
from railwright.network.fifo import run as fifo
from railwright.network.fifo.fifo_events import Load, Record, Servers, run
from railwright.network.fifo.run import Framing, simulate
from railwright.traffic import send_recv


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"chunk": 0.0}, "A chunk of 0 bytes carries nothing"),
        ({"chunk": float("nan")}, "A chunk of nan bytes"),
        ({"window": 0}, "A window of 0 messages lets nobody send"),
        ({"order": np.zeros(3, int)}, "The order has 3 places for 1 demands"),
        ({"chunk": 10.0, "buffer": 9.0}, "A buffer of 9 bytes does not hold one chunk of 10 bytes"),
        (
            {"chunk": 10.0, "buffer": 11.0, "framing": Framing(5, 1)},
            "A buffer of 11 bytes does not hold one chunk of 12 bytes on the wire",
        ),
    ],
)
def test_senseless_settings(settings: dict[str, Any], sentence: str) -> None:
    fabric = hand.make()
    with pytest.raises(PlanError, match=sentence):
        simulate(Network(fabric), send_recv(fabric, [0], [2], 100.0), **settings)


def test_too_much_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo_paths, "MOST_HOPS", 100)
    fabric = hand.make(family="single-switch")
    traffic = send_recv(fabric, [0], [2], 100.0)
    with pytest.raises(
        PlanError, match=r"would make 400 steps.*at most 100: give chunks of at least 4 bytes"
    ):
        simulate(Network(fabric), traffic, chunk=1)
    assert simulate(Network(fabric), traffic, chunk=4).time > 0


def test_full_buffers_in_a_circle_never_end_in_an_answer() -> None:
    """Links 0, 1, 2 in a circle, fed by links 3, 4, 5; each message crosses all three.

    With room for one chunk before each, every chunk waits for the next; with more room all arrive.
    """
    load = Load(
        path_ptr=np.array([0, 4, 8, 12]),
        path_link=np.array([3, 0, 1, 2, 4, 1, 2, 0, 5, 2, 0, 1], np.int32),
        gap=np.full(3, -1),
        spread=np.full(3, -1),
        deal_ptr=np.array([0]),
        deal=np.zeros(0, np.int64),
        whole=np.zeros(12, bool),
        gate=np.zeros(12, bool),
        clock=np.array([0, 4, 8]),
        first_chunk=np.array([0, 8, 16, 24]),
        chunk_size=np.ones(24),
        sender_ptr=np.array([0, 1, 2, 3]),
        sender_message=np.array([0, 1, 2]),
    )

    def finish(room: float) -> NDArray[np.float64]:
        rooms = np.array([room] * 3 + [np.inf] * 3)
        return run(load, Servers(np.ones(6), np.zeros(6), rooms, 1.0, 1, True)).finish

    assert np.isnan(finish(1.0)).all()
    assert not np.isnan(finish(99.0)).any()


def test_a_message_that_never_arrives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = hand.make(family="single-switch")

    def stuck(load: Load, servers: Servers) -> Record:
        return replace(run(load, servers), finish=np.full(1, np.nan))

    monkeypatch.setattr(fifo, "run", stuck)
    with pytest.raises(PlanError, match="1 of 1 messages never arrive: full buffers wait for one another"):
        simulate(Network(fabric), send_recv(fabric, [0], [2], 100.0))
