"""Articulation points and bridges on graphs small enough to see, and blast radii that are refused."""

from __future__ import annotations

import pytest

import network_fabrics as hand
from railwright.audit import audit, blast_radius
from railwright.audit.cuts import cuts
from railwright.errors import PlanError


def csr(size: int, edges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    rows: list[list[int]] = [[] for _ in range(size)]
    for a, b in edges:
        rows[a].append(b)
        rows[b].append(a)
    ptr = [0]
    for row in rows:
        ptr.append(ptr[-1] + len(row))
    return ptr, [x for row in rows for x in row]


def test_a_chain_of_five_breaks_at_every_inner_node() -> None:
    """Nodes 0-1-2-3-4, one each: without 1, node 0 is alone and {2,3,4} stay; without 2, {0,1} fall off."""
    found = cuts(*csr(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), [1] * 5)
    assert found.node == [0, 1, 2, 1, 0]
    assert {tuple(sorted(k)): v for k, v in found.bridges.items()} == {
        (0, 1): 1,
        (1, 2): 2,
        (2, 3): 2,
        (3, 4): 1,
    }


def test_a_ring_breaks_nowhere() -> None:
    found = cuts(*csr(5, [(i, (i + 1) % 5) for i in range(5)]), [1] * 5)
    assert found.node == [0] * 5
    assert found.bridges == {}


def test_a_star_loses_everything_with_its_hub() -> None:
    """Four servers on one switch that counts nothing: each is alone without it."""
    found = cuts(*csr(5, [(4, i) for i in range(4)]), [1, 1, 1, 1, 0])
    assert found.node == [0, 0, 0, 0, 4]
    assert sorted(found.bridges.values()) == [1, 1, 1, 1]


def test_two_parts_are_judged_apart() -> None:
    found = cuts(*csr(6, [(0, 1), (1, 2), (3, 4), (4, 5), (5, 3)]), [1] * 6)
    assert found.node == [0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ("leaf-99", r"element 'leaf-99': there is no such leaf; .* did you mean 'leaf-02'"),
        ([], "group 'PDU' names no device"),
        ("pdu-7", r"element 'pdu-7' names no element"),
    ],
)
def test_an_unknown_element_is_refused(elements: str | list[str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        blast_radius(hand.make(), elements, "PDU")


def test_a_group_of_an_audit_is_checked_too() -> None:
    with pytest.raises(PlanError, match="no such server"):
        audit(hand.make(servers=2), groups={"rack 1": ["server-01", "server-03"]})
