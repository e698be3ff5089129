"""Chunks through FIFO links, by hand: NICs of 50 byte/s, PCIe 100, lanes 450, no latency unless said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import network_fabrics as hand
from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, solve
from railwright.network.fifo.run import FifoSolution, Framing, simulate
from railwright.network.fifo_order import order_sensitivity
from railwright.network.routing.latency import link_delay
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Traffic, all_to_all, ring, send_recv
from railwright.traffic.order import places


def run(fabric: Fabric, traffic: Traffic, **settings: object) -> FifoSolution:
    given = {"delay": np.zeros(fabric.num_links), **settings}
    return simulate(Network(fabric), traffic, **given)  # type: ignore[arg-type]


def even(fabric: Fabric) -> Fabric:
    """Every link at 50 byte/s."""
    return replace(fabric, capacity=np.full(fabric.num_links, 50.0))


def world(fabric: Fabric) -> Communicator:
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32))


@pytest.mark.parametrize("chunks", [1, 2, 10])
@pytest.mark.parametrize(("family", "hops"), [("single-switch", 4), ("fat-tree", 6)])
def test_stored_and_forwarded_chunks_form_a_pipeline(family: str, hops: int, chunks: int) -> None:
    """k chunks of c bytes over h links of B byte/s: (k + h - 1) c / B."""
    fabric = even(hand.make(family=family, servers_per_group=2, spines=1))
    answer = run(fabric, send_recv(fabric, [0], [6], 100.0 * chunks), chunk=100, framing=Framing(100, 0))
    assert answer.time == pytest.approx((chunks + hops - 1) * 100 / 50)


def test_packets_pass_switches_while_their_chunk_still_arrives() -> None:
    """4 chunks of 100 B in packets of 10 B over 4 links of 50 B/s: 400 / 50, and 3 packets of 10 / 50."""
    fabric = even(hand.make(family="single-switch"))
    answer = run(fabric, send_recv(fabric, [0], [6], 400.0), chunk=100, framing=Framing(10, 0))
    assert answer.time == pytest.approx(400 / 50 + 3 * 10 / 50)


def test_perfect_cut_through_takes_the_slowest_link_alone() -> None:
    fabric = hand.make(family="single-switch")
    assert run(fabric, send_recv(fabric, [0], [6], 400.0), chunk=100).time == pytest.approx(400 / 50)


def test_headers_ride_with_every_packet() -> None:
    """100 B in packets of 40 B: three headers of 5 B, 115 B on the wire."""
    fabric = hand.make(family="single-switch")
    answer = run(fabric, send_recv(fabric, [0], [6], 100.0), chunk=100, framing=Framing(40, 5))
    nic = hand.links_of(fabric, Role.NODE_LEAF)
    assert sorted(answer.solution.load[nic])[-2:] == pytest.approx([115, 115])
    assert answer.time >= 115 / 50


@pytest.mark.parametrize("senders", [2, 3, 7])
def test_incast_queues_at_the_receivers_switch_port(senders: int) -> None:
    """n senders of s bytes into one NIC: n s / B; as they send, (n - 1) s less some chunks gathers there."""
    fabric = hand.make(servers=8, gpus=1, family="single-switch")
    traffic = send_recv(fabric, np.arange(1, senders + 1), np.zeros(senders, int), 100.0)
    answer = run(fabric, traffic, chunk=10)
    assert answer.time == pytest.approx(senders * 100 / 50)
    down = int(np.argmax(answer.queue))
    tail = fabric.a if down % 2 == 0 else fabric.b
    assert fabric.kind[tail[down // 2]] == Kind.LEAF
    assert (senders - 1) * 100 - senders * 10 <= answer.queue[down] <= (senders - 1) * 100


def test_one_message_at_a_time_pays_every_latency() -> None:
    """5 messages of 100 B, each posted when the one before has arrived: 5 (100 / 50 + latency)."""
    fabric = hand.make(family="single-switch")
    slow = replace(fabric, latency=fabric.latency * 1e6)
    traffic = send_recv(fabric, np.zeros(5, int), np.full(5, 6), 100.0)
    delay = link_delay(slow)
    answer = simulate(Network(slow), traffic, chunk=100, window=1, delay=delay)
    latency = float(solve(Network(slow), traffic).latency[0])
    assert answer.time == pytest.approx(5 * (2 + latency))
    assert answer.posted == pytest.approx(np.arange(5) * (2 + latency))
    streamed = simulate(Network(slow), traffic, chunk=100, window=1, done="sent", delay=delay)
    assert streamed.time == pytest.approx(5 * 2 + latency)


@pytest.mark.parametrize(("relay", "before"), [("chunk", 10 / 450), ("message", 100 / 450)])
def test_a_relay_waits_for_a_chunk_or_for_the_message(relay: str, before: float) -> None:
    """100 B over lanes of 450 B/s to the relay, from there at 50 B/s: after a chunk, or after all."""
    fabric = hand.make(family="rail-only")
    traffic = send_recv(fabric, [0], [3], 100.0, pxn=True)
    assert traffic.relay[0] == 1
    assert run(fabric, traffic, chunk=10, relay=relay).time == pytest.approx(before + 100 / 50)


def test_head_of_line_blocking_needs_full_buffers() -> None:
    """Server 0 sends to 2, and 4 and 5 too; server 1 sends to 3, which is idle, over the same spine.

    With unlimited buffers 1 -> 3 takes 100 / 50; with small ones it is stopped behind chunks for 2, which
    gets a third of its NIC: three times as long, less what the buffers took in at first.
    """
    fabric = hand.make(servers=6, gpus=1, family="fat-tree", servers_per_group=2, spines=1, uplink=200.0)
    traffic = send_recv(fabric, [0, 4, 5, 1], [2, 2, 2, 3], 100.0)
    free = run(fabric, traffic, chunk=1)
    assert free.finish[3] == pytest.approx(100 / 50, rel=0.02)
    blocked = run(fabric, traffic, chunk=1, buffer=2)
    assert 2.2 <= blocked.finish[3] / free.finish[3] <= 3
    assert blocked.time == pytest.approx(300 / 50, rel=0.02)


def test_everyone_to_rank_0_first_takes_almost_twice_as_long() -> None:
    """n ranks: 0's NIC drains n - 1 messages; each further rank's begins to receive one message later."""
    fabric = hand.make(servers=8, gpus=1, family="single-switch")
    traffic = all_to_all(fabric, world(fabric), 100.0, False)
    found = order_sensitivity(Network(fabric), traffic, chunk=10)
    assert found.times["nccl"] == pytest.approx(7 * 100 / 50)
    assert found.times["rank-shift"] == pytest.approx(7 * 100 / 50)
    assert 1.7 <= found.times["by-rank"] / found.fluid <= 2
    assert found.sensitive
    assert found.worst == "by-rank"
    assert "leaf-01 port" in found.why


def test_a_ring_has_no_order() -> None:
    fabric = hand.make(servers=4, family="rail-optimised")
    found = order_sensitivity(Network(fabric), ring(fabric, world(fabric), 100.0), chunk=10)
    assert not found.sensitive
    assert found.ratio == pytest.approx(1)
    assert found.why.startswith("Not order-sensitive")


@pytest.mark.parametrize("chunk", [50.0, 5.0, 0.5])
def test_small_chunks_and_all_messages_at_once_come_to_the_fluid(chunk: float) -> None:
    """An all-to-all over 4 x 4 rails: within a few chunks of the fluid's time on the way out of a NIC."""
    fabric = hand.make(servers=4, gpus=4, spines=2, servers_per_group=2)
    traffic = all_to_all(fabric, world(fabric), 50.0, False)
    place = places(fabric, traffic, "host-rail-shift")
    fluid = solve(Network(fabric), traffic).time
    answer = run(fabric, traffic, order=place, chunk=chunk)
    assert fluid * (1 - 1e-9) <= answer.time <= fluid + 12 * chunk / 50


def test_a_nic_of_two_ports_uses_both() -> None:
    """ConnectX-7 split into two ports of 25 GB/s on two planes: 1 MB / 50 GB/s, and a chunk's tail."""
    network = ComputeNetwork(family="dual-plane", switch="qm9700", servers_per_group=2)
    fabric = build(Cluster(servers=4, server="dgx-h100", compute=network), load_catalog())
    gpus = np.arange(fabric.num_gpus)
    answer = run(fabric, send_recv(fabric, gpus, np.roll(gpus, -16), 1e6), chunk=1e4)
    assert 1e6 / 50e9 <= answer.time <= 1e6 / 50e9 + 3 * 1e4 / 25e9
