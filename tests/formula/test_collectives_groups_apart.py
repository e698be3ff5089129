"""Groups that run at once share links only where they meet, and PXN forwards over NVLink only."""

from __future__ import annotations

import numpy as np
import pytest

from collectives_machines import machine
from railwright.collectives import NcclSettings, predict
from railwright.collectives.prediction import Op
from railwright.traffic.demand import Communicator

SIZES = (1e5, 2e6, 1e8)


def blocks(size: int, gpus: int) -> list[Communicator]:
    """Blocks of `size` neighbouring GPUs."""
    ids = np.arange(gpus, dtype=np.int32).reshape(-1, size)
    return [Communicator(row, f"block {i}") for i, row in enumerate(ids)]


@pytest.mark.parametrize("server", ["dgx-a100", "dgx-h100", "server-8x-l40s"])
@pytest.mark.parametrize("op", ["all_gather", "all_reduce", "reduce_scatter", "all_to_all", "sendrecv"])
def test_groups_inside_servers_do_not_wait_for_the_nics_of_others(server: str, op: Op) -> None:
    # Blocks of 3 on servers of 8: of every 8 blocks the third and the sixth lie on two servers.
    on, groups = machine(3, server), blocks(3, 24)
    across = [g for i, g in enumerate(groups) if i % 8 in (2, 5)]
    inside = [g for i, g in enumerate(groups) if i % 8 not in (2, 5)]
    for size in SIZES:
        together = predict(on, op, size, groups)
        apart = [predict(on, op, size, some) for some in (across, inside)]
        slowest = max(apart, key=lambda one: one.time)
        assert together.time == pytest.approx(slowest.time, rel=1e-12)
        assert together.bottleneck == slowest.bottleneck


@pytest.mark.parametrize("op", ["all_to_all", "sendrecv"])
def test_pxn_changes_nothing_without_nvlink(op: Op) -> None:
    # Two NICs for eight GPUs: a neighbour on the other rail is no relay, it would send over its own slot.
    for shift in (1, 2):
        groups = [Communicator(np.arange(i, 32, shift, dtype=np.int32)) for i in range(shift)]
        on, off = (machine(4, "server-8x-l40s", nccl=NcclSettings(pxn=pxn)) for pxn in (True, False))
        for size in SIZES:
            assert predict(on, op, size, groups).time == predict(off, op, size, groups).time


def test_a_ring_of_servers_without_nvlink_stays_on_its_rail() -> None:
    on = machine(3, "server-8x-l40s", family="rail-only")
    assert predict(on, "all_reduce", 1e8, blocks(24, 24)).time > 0
