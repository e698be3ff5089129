"""Published effects of fabrics: right sign and within half of the measured gain, or a stated miss."""

import pytest

from railwright.measure.effects import EFFECTS, effect_rows, records, reproduced
from railwright.measure.table import Row

MISSED = {"meta-qp-scaling", "oci-adaptive", "asterfusion-adaptive", "rail-only"}


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.record: row for row in effect_rows() if isinstance(row, Row)}


def test_every_record_has_a_prediction_a_mechanism_and_a_source(rows: dict[str, Row]) -> None:
    found = records()
    assert [r["id"] for r in found] == list(EFFECTS) == list(rows)
    assert all(r["mechanism"] and r["source"] for r in found)


def test_effects_are_reproduced_or_their_miss_is_stated(rows: dict[str, Row]) -> None:
    missed = {name for name, row in rows.items() if not reproduced(row)}
    assert missed == MISSED
    assert {name for name, row in rows.items() if row.reason} == MISSED


def test_no_effect_has_the_wrong_sign(rows: dict[str, Row]) -> None:
    assert all(row.predicted >= 1 - 1e-6 for row in rows.values() if row.unit == "x")


def test_eight_gpus_of_a_server_post_as_one_under_pxn(rows: dict[str, Row]) -> None:
    # nccl issues 1189, 918: 8 times fewer messages, exactly
    assert rows["pxn-aggregation"].predicted == 8.0


def test_two_nodes_tell_little_of_a_fabric(rows: dict[str, Row]) -> None:
    # 467-487 against 370-386 GB/s
    assert 467 / 386 * 0.95 <= rows["two-node-h100"].predicted <= 487 / 370 * 1.05
