"""Published effects of fabrics: right sign and within half of the measured gain, or a stated miss."""

import pytest

from railwright.measure import validate
from railwright.measure.published.effects import EFFECTS, effect_rows, records
from railwright.measure.table import Bar, Row, Skipped, ValidationTable

NOT_PREDICTABLE = {"oci-adaptive", "asterfusion-adaptive"}


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.record: row for row in effect_rows() if isinstance(row, Row)}


def test_every_record_has_a_prediction_a_mechanism_and_a_source(rows: dict[str, Row]) -> None:
    found = records()
    assert [r["id"] for r in found if r["id"] not in NOT_PREDICTABLE] == list(EFFECTS) == list(rows)
    assert all(r["mechanism"] and r["source"] for r in found)


def test_every_predictable_effect_is_within_half_of_its_gain(rows: dict[str, Row]) -> None:
    assert {name for name, row in rows.items() if not row.reproduced} == set()


def test_records_that_state_too_little_are_left_out_with_the_reason() -> None:
    left = {row.record: row.reason for row in effect_rows() if isinstance(row, Skipped)}
    assert set(left) == NOT_PREDICTABLE
    assert all("not predictable: " in why and "stated" in why for why in left.values())


def test_validate_fails_on_an_effect_that_is_lost(rows: dict[str, Row]) -> None:
    assert validate("effects").passed
    bars = {"fabric effects": Bar(0.1, "", reproduced=1.0)}
    lost = Row("fabric effects", "x", "", 1.05, 1.4, "x", "", no_effect=1.0)
    assert not ValidationTable((*rows.values(), lost), (), bars).passed


def test_rings_of_one_nic_hash_apart(rows: dict[str, Row]) -> None:
    # NCCL doubles its rings, so a NIC has two flows under ECMP and one way under any other routing
    from railwright.measure.published.effects import RING, _machine, _wire

    hashed, sprayed = (
        _wire(_machine(16, family="fat-tree", routing=r, servers_per_group=2, nccl=RING, spare_spines=16))
        for r in ("ecmp", "adaptive")
    )
    # three of one direction on an up-link are 1.5 of its rate; two are none too many
    assert hashed / sprayed == pytest.approx(1.5, abs=0.51)


def test_no_effect_has_the_wrong_sign(rows: dict[str, Row]) -> None:
    assert all(row.predicted >= 1 - 1e-6 for row in rows.values() if row.unit == "x")


def test_eight_gpus_of_a_server_post_as_one_under_pxn(rows: dict[str, Row]) -> None:
    # nccl issues 1189, 918: 8 times fewer messages, exactly
    assert rows["pxn-aggregation"].predicted == 8.0


def test_two_nodes_tell_little_of_a_fabric(rows: dict[str, Row]) -> None:
    # 467-487 against 370-386 GB/s
    assert 467 / 386 * 0.95 <= rows["two-node-h100"].predicted <= 487 / 370 * 1.05
