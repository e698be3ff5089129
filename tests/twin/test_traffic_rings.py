"""Rings of many communicators are made at once; walking domain by domain says what they are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.collectives import Machine
from railwright.collectives.group import group_of, shapes_of
from railwright.traffic import Communicator
from railwright.traffic.placement import domain_of_gpu
from railwright.traffic.rings import _alike, _edges, _walked, heads, local_members, rings
from training_cases import machine

SERVERS = ["dgx-h100", "aws-p4de"]
"""Eight GPUs with a NIC each, and with one for two."""


@cache
def eight(server: str) -> Machine:
    return machine(8, server=server)


def communicator(rng: np.random.Generator, servers: int, each: int, shuffled: bool) -> Communicator:
    """`each` GPUs of some servers, in any order of servers, and of ranks if shuffled."""
    gpus = np.concatenate([8 * s + rng.permutation(8)[:each] for s in rng.permutation(8)[:servers]])
    return Communicator((rng.permutation(gpus) if shuffled else gpus).astype(np.int32))


@pytest.mark.parametrize("server", SERVERS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), servers=st.integers(2, 8), each=st.integers(1, 8), shuffled=st.booleans())
def test_heads_of_domains_alike(server: str, seed: int, servers: int, each: int, shuffled: bool) -> None:
    """With one more domain, of another number of members, heads are found domain by domain."""
    fabric = eight(server).network.fabric
    members = local_members(fabric, communicator(np.random.default_rng(seed), servers, each, shuffled))
    entry = heads(fabric, members)
    more = [*members, np.arange(8, dtype=np.int32)] if each < 8 else members
    slow = heads(fabric, more)[: len(members)]
    assert np.array_equal(entry, slow[:, : entry.shape[1]])


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("pxn", [True, False])
@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), shuffled=st.booleans(), count=st.integers(1, 6))
def test_many_communicators_at_once(server: str, pxn: bool, seed: int, shuffled: bool, count: int) -> None:
    fabric, rng = eight(server).network.fabric, np.random.default_rng(seed)
    sizes = [(int(rng.integers(1, 5)), int(rng.choice([1, 2, 4, 8]))) for _ in range(2)]
    comms = [communicator(rng, *sizes[int(rng.integers(2))], shuffled) for _ in range(count)]
    size = [1.0 + i for i in range(count)]
    found = rings(fabric, comms, size, pxn)
    walked = [_edges(*_walked(fabric, comm, pxn), [size[i]]) for i, comm in enumerate(comms) if len(comm) > 1]
    for name in ("src", "dst", "relay", "size"):
        expected = np.concatenate([getattr(one, name) for one in walked]) if walked else np.zeros(0)
        assert np.array_equal(getattr(found, name), expected), name


def test_communicators_laid_alike_are_not_walked() -> None:
    """Data-parallel groups of a packed job: one GPU of every second server, eight groups in one go."""
    fabric = eight("dgx-h100").network.fabric
    gpus = np.array([[8 * s + i for s in range(0, 8, 2)] for i in range(8)], np.int32)
    found = _alike(fabric, gpus, True)
    assert found is not None
    assert len(found[0]) == 8
    assert _alike(fabric, np.array([[0, 8, 1, 9], [2, 10, 3, 11]], np.int32), True) is None


@pytest.mark.parametrize("server", SERVERS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 6))
def test_shapes_of_communicators(server: str, seed: int, count: int) -> None:
    """Nodes are domains touched, NICs the fewest that any of them offers; counted one by one here."""
    one, rng = eight(server), np.random.default_rng(seed)
    fabric = one.network.fabric
    comms = [Communicator(rng.permutation(64)[: rng.integers(1, 65)].astype(np.int32)) for _ in range(count)]
    expected = []
    for comm in comms:
        nics: dict[int, set[int]] = {}
        for gpu in comm.gpus.tolist():
            nics.setdefault(int(domain_of_gpu(fabric)[gpu]), set()).add(int(fabric.nic_of_gpu[gpu]))
        expected.append((len(comm), len(nics), min(map(len, nics.values()))))
    shapes = shapes_of(one, comms)
    assert [(s.ranks, s.nodes, s.nics) for s in shapes] == [*dict.fromkeys(expected)]
    assert [group_of(one, comm) for comm in comms[:1]] == [shapes[0]]
