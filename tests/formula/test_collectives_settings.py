"""NCCL's variables act by their mechanism: channels, rails, hashed flows, chunks."""

import numpy as np
import pytest

from collectives_machines import machine, world
from railwright.collectives import NcclSettings, p2p, predict
from railwright.collectives.group import group_of
from railwright.collectives.ring import channels_of, crowding

RING = {"algorithm": "ring", "protocol": "simple"}


def bandwidth(on, op: str = "all_reduce", size: float = 2.0**30) -> float:
    """Seconds of the bandwidth term of all GPUs."""
    return {t.name: t.seconds for t in predict(on, op, size, world(on)).terms}["bandwidth"]


def test_two_channels_leave_six_of_eight_nics_idle() -> None:
    # a channel sends through one NIC: 2 of 8 carry everything, so the network takes four times as long
    few = machine(4, nccl=NcclSettings(**RING, max_channels=2))
    group = group_of(few, world(few)[0])
    assert channels_of(group) == 2
    assert crowding(group) == 4.0
    assert bandwidth(few) >= 4 * bandwidth(machine(4, nccl=NcclSettings(**RING))) * 0.999


def test_four_channels_carry_four_times_what_one_can() -> None:
    # H100 in one node: a channel carries 38.7 GB/s of busbw with Simple (perChMaxTreeBws)
    few = machine(1, nccl=NcclSettings(**RING, max_channels=4))
    assert bandwidth(few) == pytest.approx(2.0**30 * 1.75 / (4 * 38.7e9))


def test_limits_that_nccl_keeps_anyway_change_nothing() -> None:
    plain = bandwidth(machine(4, nccl=NcclSettings(**RING)))
    assert bandwidth(machine(4, nccl=NcclSettings(**RING, max_channels=32))) == pytest.approx(plain)
    assert bandwidth(machine(4, nccl=NcclSettings(**RING, min_channels=1))) == pytest.approx(plain)
    assert bandwidth(machine(4, nccl=NcclSettings(**RING, qps_per_connection=4))) == pytest.approx(plain)


def test_crossing_rails_costs_nothing_on_a_full_spine_and_its_ratio_on_a_thin_one() -> None:
    same, crossed = (NcclSettings(**RING, cross_nic=c) for c in (None, True))
    assert bandwidth(machine(30, nccl=crossed)) == pytest.approx(bandwidth(machine(30, nccl=same)), rel=1e-6)
    thin = bandwidth(machine(30, nccl=crossed, oversubscription=4.0))
    # rails are closed by their leaves, so only the crossing ring sees the 4:1 spine; two leaves at least
    assert thin > 1.5 * bandwidth(machine(30, nccl=same, oversubscription=4.0))


def test_more_queue_pairs_collide_less_under_ecmp() -> None:
    # mean over seeds of cross-rail rings: 1 flow per NIC pair collides badly, 16 average out
    def mean(qps: int) -> float:
        times = []
        for seed in range(4):
            on = hashed(seed, qps)
            times.append(bandwidth(on))
        return float(np.mean(times))

    one, sixteen = mean(1), mean(16)
    assert sixteen < 0.85 * one
    assert sixteen >= bandwidth(machine(30, nccl=NcclSettings(**RING, cross_nic=True))) * 0.999


def hashed(seed: int, qps: int):
    """30 servers whose rings cross rails, on ECMP with one seed."""
    from dataclasses import replace

    from railwright.network.routing.solution import Network

    on = machine(30, routing="ecmp", nccl=NcclSettings(**RING, cross_nic=True, qps_per_connection=qps))
    return replace(on, network=Network(on.network.fabric, "ecmp", seed))


def test_smaller_chunks_mean_more_posts() -> None:
    # 8 MiB messages: 64 chunks of 128 KiB, 256 of 32 KiB
    on = machine(30, nccl=NcclSettings(pxn=False))
    group = group_of(on, world(on)[0])
    usual = p2p.posting_seconds("all_to_all", 240 * 2.0**23, group, False)
    small = p2p.posting_seconds("all_to_all", 240 * 2.0**23, group, False, chunk=32768)
    assert small == pytest.approx(4 * usual)
