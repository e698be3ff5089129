"""Rings of domains that are alike are made at once; walking domain by domain says what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.traffic import Communicator
from railwright.traffic.rings import _alike, _walked, heads, local_members
from training_cases import machine


@pytest.mark.parametrize("pxn", [True, False])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), servers=st.integers(2, 8), each=st.integers(1, 8), shuffled=st.booleans())
def test_alike_domains(pxn: bool, seed: int, servers: int, each: int, shuffled: bool) -> None:
    fabric = machine(8).network.fabric
    rng = np.random.default_rng(seed)
    gpus = np.concatenate([8 * s + rng.permutation(8)[:each] for s in rng.permutation(8)[:servers]])
    members = local_members(
        fabric, Communicator((rng.permutation(gpus) if shuffled else gpus).astype(np.int32))
    )
    entry = heads(fabric, members)
    # With one more domain that has more members, heads are found domain by domain.
    slow = heads(fabric, [*members, np.arange(8, dtype=np.int32)])[:-1] if each < 8 else entry
    assert np.array_equal(entry, slow)
    walked = _walked(fabric, members, entry, pxn)
    at_once = _alike(fabric, np.stack(members), entry, pxn)
    assert len(walked) == len(at_once) == each
    for (order, via, rings), (order_2, via_2, rings_2) in zip(walked, at_once, strict=True):
        assert rings == rings_2
        assert np.array_equal(order, order_2)
        assert np.array_equal(via, via_2)
