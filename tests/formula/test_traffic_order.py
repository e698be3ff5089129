"""Send orders: NCCL's schedule as its source has it, and shifts."""

from __future__ import annotations

import numpy as np
import pytest

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.traffic import Communicator, all_to_all
from railwright.traffic.order import ORDERS, by_rank, host_rail_shift, nccl, places, rank_shift


def everyone(gpus: int, servers: int) -> tuple[object, Communicator]:
    fabric = hand.make(servers=servers, gpus=gpus)
    return fabric, Communicator(np.arange(gpus * servers, dtype=np.int32))


def test_nccl_goes_round_nodes_by_triangular_numbers_and_inside_by_one() -> None:
    """16 nodes: the next node served is 0, 1, 3, 6, 10, 15, 5, 12, ... further; every node takes 2 rounds."""
    fabric, comm = everyone(2, 16)
    first = np.argsort(nccl(fabric, comm)[0])  # type: ignore[arg-type]
    assert first[0::2].tolist() == [2 * d for d in (0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8)]
    assert (first[1::2] - first[0::2]).tolist() == [1] * 16


def test_one_node_is_one_group() -> None:
    fabric, comm = everyone(8, 1)
    assert np.argsort(nccl(fabric, comm)[3]).tolist() == [3, 4, 5, 6, 7, 0, 1, 2]  # type: ignore[arg-type]


def test_uneven_nodes_are_cut_into_groups_that_divide_both() -> None:
    """4 ranks on one node and 2 on another: groups of 2; rank 0 serves its own, the next, the other node."""
    fabric = hand.make(servers=2, gpus=4)
    comm = Communicator(np.array([0, 1, 2, 3, 4, 5], np.int32))
    assert np.argsort(nccl(fabric, comm)[0]).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.argsort(nccl(fabric, comm)[4]).tolist() == [4, 5, 0, 1, 2, 3]


@pytest.mark.parametrize("order", ["nccl", "rank-shift", "host-rail-shift"])
@pytest.mark.parametrize(("gpus", "servers"), [(4, 4), (8, 3), (2, 5), (1, 7)])
def test_in_every_round_each_rank_receives_from_one_other(order: str, gpus: int, servers: int) -> None:
    fabric, comm = everyone(gpus, servers)
    rounds = ORDERS[order](fabric, comm, 0)  # type: ignore[arg-type]
    ranks = np.arange(len(comm))
    assert np.array_equal(np.sort(rounds, axis=1), np.tile(ranks, (len(comm), 1)))
    assert np.array_equal(np.sort(rounds, axis=0), np.tile(ranks[:, None], (1, len(comm))))


def test_the_shifts() -> None:
    fabric, comm = everyone(2, 3)
    assert np.argsort(rank_shift(fabric, comm)[4]).tolist() == [4, 5, 0, 1, 2, 3]  # type: ignore[arg-type]
    assert np.argsort(host_rail_shift(fabric, comm)[3]).tolist() == [3, 2, 5, 4, 1, 0]  # type: ignore[arg-type]
    assert np.argsort(by_rank(fabric, comm)[4]).tolist() == [0, 1, 2, 3, 4, 5]  # type: ignore[arg-type]


def test_ranks_are_not_gpus() -> None:
    """Rank 0 on the last GPU: by rank, it is served first."""
    fabric, _ = everyone(2, 2)
    comm = Communicator(np.array([3, 0, 1, 2], np.int32))
    traffic = all_to_all(fabric, comm, 1.0, False)  # type: ignore[arg-type]
    place = places(fabric, traffic, "by-rank", [comm])  # type: ignore[arg-type]
    assert set(place[traffic.dst == 3].tolist()) == {0}


def test_the_random_order_is_its_seeds() -> None:
    fabric, comm = everyone(2, 4)
    traffic = all_to_all(fabric, comm, 1.0, False)  # type: ignore[arg-type]
    one, again, other = (places(fabric, traffic, "random", seed=s) for s in (1, 1, 2))  # type: ignore[arg-type]
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_what_no_order_can_say_is_refused() -> None:
    fabric, comm = everyone(2, 2)
    traffic = all_to_all(fabric, comm, 1.0, False)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"no send order 'ncl'; known: nccl.*did you mean"):
        places(fabric, traffic, "ncl")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no group holds both"):
        places(fabric, traffic, "nccl", [Communicator(np.array([0, 1], np.int32))])  # type: ignore[arg-type]
