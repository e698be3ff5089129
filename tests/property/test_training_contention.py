"""Communications that meet on links: none carries more than it can, and shares are max-min fair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.network.maxmin import FluidSystem, max_min_rates
from railwright.training.lanes.contention import NICS, Uses, stretches
from railwright.training.lanes.tasks import Task, run

USES = st.builds(Uses, st.booleans(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0.0, 1.0))
NIC, SLOT = range(2)


@given(st.lists(USES, min_size=1, max_size=8))
def test_no_link_is_asked_for_more_than_it_has(uses: list[Uses]) -> None:
    times = stretches(uses)
    assert all(one >= 1.0 for one in times)
    assert sum(use.nic / one for use, one in zip(uses, times, strict=True)) <= 1 + 1e-9
    assert sum(use.slot / one for use, one in zip(uses, times, strict=True)) <= 1 + 1e-9


@given(st.integers(1, 9))
def test_nics_are_shared_as_if_there_were_no_slots(count: int) -> None:
    """Bit for bit: what GPUs with NVLink do."""
    assert stretches([NICS] * count) == [float(count)] * count


@given(st.lists(USES, min_size=1, max_size=8), st.randoms())
def test_the_order_of_communications_does_not_matter(uses: list[Uses], random: object) -> None:
    order = list(range(len(uses)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = stretches([uses[i] for i in order])
    assert found == pytest.approx([stretches(uses)[i] for i in order], rel=1e-12)


@given(st.lists(USES, min_size=1, max_size=8))
def test_a_slot_is_shared_as_the_network_shares_a_link(uses: list[Uses]) -> None:
    """Each communication as a flow on a link of its own, as fast as it goes through NICs, and on the slot."""
    crossing = sum(use.nic for use in uses)
    wanted = [use.slot / (crossing if use.nic else 1) for use in uses]
    ours = [i for i, want in enumerate(wanted) if want > 1e-9]
    links = np.array([link for n in range(len(ours)) for link in (n, len(ours))], np.int32)
    system = FluidSystem(
        2 * np.arange(len(ours) + 1),
        links,
        np.ones(len(links)),
        np.array([*(wanted[i] for i in ours), 1.0]),
        np.ones(len(ours)),
        np.ones(len(ours)),
    )
    if ours:
        rates = max_min_rates(system, np.arange(len(ours)), system.capacity)
        found = stretches(uses)
        assert [uses[i].slot / found[i] for i in ours] == pytest.approx(rates.tolist(), rel=1e-6)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["compute", "tp", "cp", "ep", "emb", "dp"]),
            st.floats(0.001, 2.0),
            st.floats(0.0, 1.0),
            USES,
            st.lists(st.integers(0, 30), max_size=2),
        ),
        min_size=2,
        max_size=16,
    ),
    st.sampled_from([1.0, 1.2]),
)
def test_what_runs_within_any_interval_fits_into_it(drawn: list[tuple], slowdown: float) -> None:
    """From the begin of any task to the end of any other: the NICs' and the slot's time of all between."""
    tasks = [
        Task(
            lane,
            str(i),
            "x",
            seconds,
            tuple(sorted({d for d in after if d < i})),
            wire=0.0 if lane == "compute" else share * seconds,
            uses=uses,
        )
        for i, (lane, seconds, share, uses, after) in enumerate(drawn)
    ]
    spans = run([*tasks, Task("compute", "end", "x", 0.0, tuple(range(len(tasks))))], slowdown).spans
    starts, ends = (np.array([getattr(span, at) for span in spans]) for at in ("start", "end"))
    carried = np.array([(s.task.wire * s.task.uses.nic, s.task.wire * s.task.uses.slot) for s in spans])
    for begin in starts:
        for end in ends[ends >= begin]:
            within = (starts >= begin) & (ends <= end)
            assert np.all(carried[within].sum(axis=0) <= (end - begin) * (1 + 1e-9) + 1e-12)
