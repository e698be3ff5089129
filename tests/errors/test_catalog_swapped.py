"""A part named where another kind of part belongs is told to be what it is."""

from __future__ import annotations

import pytest

from railwright.catalog import find, load_catalog
from railwright.errors import RailwrightError

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("servers", "qm9700", r"no server 'qm9700' in the catalogue, it is a switch; known are dgx-1"),
        ("servers", "h100", r"no server 'h100' in the catalogue, it is a GPU; known are"),
        ("switches", "CX7_400", r"no switch 'CX7_400' in the catalogue, it is a NIC; known are sb7800"),
        ("gpus", "dgx-h100", r"no GPU 'dgx-h100' in the catalogue, it is a server; known are"),
        ("servers", "dgx-h1000", r"no server 'dgx-h1000' in the catalogue; did you mean 'dgx-h100'"),
    ],
)
def test_a_part_of_another_kind_is_told_to_be_one(kind, name, said):
    with pytest.raises(RailwrightError, match=said):
        find(getattr(CATALOG, kind), name)
