"""A site that cannot stand is refused with the limit, the numbers and a way out; never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import PlanError, RailwrightError, SpecError
from railwright.site import load_site_parts, plan_site
from railwright.spec import load_study, load_study_text


def refusal(site: str, servers: int = 8, server: str = "dgx-h100", extra: str = "") -> str:
    text = f"""
railwright: 1
name: refused
cluster: {{servers: {servers}, server: {server}, compute: {{family: rail-optimised, switch: qm9700}}{extra}}}
site: {{{site}}}
"""
    with pytest.raises(RailwrightError) as caught:
        plan_site(load_study_text(text))
    assert isinstance(caught.value, PlanError) or "known are" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("servers_per_rack: 7", "7 dgx-h100 do not fit a rack; height: 56 units in a rack of 48"),
        ("servers_per_rack: 3, rack_power: 25 kW", "site.rack_power: 30.6 kW in a rack of 25 kW"),
        ("rack_power: 9 kW", "not even one dgx-h100 fits a rack; site.rack_power: 10.2 kW in a rack of 9 kW"),
        ("room_power: 50 kW", "site.room_power: the machines take"),
        ("power: {feed_power: 60 kW}", "site.power.feed_power: feed A would carry"),
        ("power: {redundancy: 2n, feeds: 3}", "2n means two feeds, not 3"),
        ("power: {redundancy: 2n, pdus_per_rack: 3}", "2n takes PDUs in pairs, not 3"),
        ("power: {redundancy: n+1, feeds: 1}", "n+1 needs two feeds or more"),
        ("power: {pdus_per_rack: 6}", "6 PDUs do not fit a 'rack-48u', which holds 4"),
        ("power: {pdu: apc-ap8967}", "no PDU 'apc-ap8967' is known; did you mean"),
        ("rack: rack-47u", "no rack 'rack-47u' is known; did you mean"),
        ("power: {busway: busway-400a-208v}", "gives 208 V, and IEC 60309 60 A 3P+N+PE (560P6W) needs 415 V"),
        ("power: {busway: bus}", "no busway 'bus' is known"),
        ("power: {redundancy: 2n}", "9.9 kW of the 10.2 kW it takes"),
        ("power: {pdu: pdu-208v-30a-1ph, pdus_per_rack: 1}", "not even one dgx-h100 fits a rack"),
        ("switches: in-rack", "do not stand in one rack with its 8 leaves"),
        ("storage: {}", "site.storage.checkpoint: how large is a checkpoint?"),
        ("cooling: {air_limit: 10 kW}", "site.cooling.air_limit: 10.2 kW to air in a rack of 10 kW"),
    ],
)  # fmt: skip
def test_each_limit_is_named_with_its_numbers(site: str, words: str):
    assert words in refusal(site)


def test_a_server_whose_supplies_nobody_wrote_down_has_one_more_than_carry_it_and_is_named():
    text = """
railwright: 1
name: unknown
cluster: {servers: 4, server: mi250x-4, compute: {family: single-switch, switch: sn5600}}
"""
    plan = plan_site(load_study_text(text))
    machine = plan.racks[0].power.machines[0]
    assert (machine.intake.supplies, machine.intake.watts) == (2, 3e3), "3 kW, and one to spare"
    assert any("estimated: mi250x-4" in note for note in plan.notes)


def test_a_director_drawn_as_modules_has_no_place():
    text = """
railwright: 1
name: director
cluster:
  servers: 4
  server: dgx-1-v100
  compute: {family: single-switch, switch: cs7520, expand_directors: true}
"""
    with pytest.raises(PlanError, match="expand_directors: false"):
        plan_site(load_study_text(text))


def test_all_mistakes_of_a_users_parts_are_told_at_once(tmp_path: Path):
    file = tmp_path / "parts.yaml"
    file.write_text(
        "pdus:\n"
        "  mine: {title: mine, plug: nema-l6-30, banks: [{legs: XY, breaker: 20}], source: me}\n"
        "  other: {like: apc-ap9999}\n"
        "racks:\n"
        "  tall: {like: rack-48u, width: 60}\n"
        "media:\n"
        "  odd: {like: dac-400g, kind: string}\n"
        "lamps: {}\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError) as caught:
        load_site_parts(file)
    said = str(caught.value)
    for words in (
        "pdus.other: is like 'apc-ap9999', which is not known",
        "racks.tall: width: 60 has no unit",
        "media.odd: kind: 'string' is not one of",
        "lamps: must map names of parts to fields",
    ):
        assert words in said
    file.write_text(
        "pdus:\n  mine: {title: mine, plug: nema-l6-30, banks: [{legs: BC, breaker: 20}], source: me}\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError, match=r"legs 'BC': with plug 'nema-l6-30' a bank stands on one of AB"):
        load_site_parts(file)
    file.write_text("pdus: [unclosed", encoding="utf-8")
    with pytest.raises(SpecError, match="not YAML"):
        load_site_parts(file)
    with pytest.raises(SpecError, match="cannot read this file of parts"):
        load_site_parts(tmp_path / "absent.yaml")


def test_a_users_parts_lie_beside_the_study(tmp_path: Path):
    (tmp_path / "parts.yaml").write_text(
        "machines:\n  mi250x-4: {supplies: 2, watts: 3 kW, inlet: c20, source: my data sheet}\n"
        "pdus:\n  mine: {like: apc-ap8966, title: mine, source: my data sheet}\n",
        encoding="utf-8",
    )
    study = tmp_path / "study.yaml"
    study.write_text(
        "railwright: 1\nname: mine\n"
        "cluster:\n  servers: 2\n  server: mi250x-4\n"
        "  compute: {family: single-switch, switch: sn5600}\n"
        "site: {parts: parts.yaml, power: {pdu: mine}}\n",
        encoding="utf-8",
    )
    plan = plan_site(load_study(study))
    assert {rack.power.supplying.pdu.name for rack in plan.racks} == {"mine"}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("machines: {dgx-h100: {liquid: 1.5}}", "liquid: '1.5' is a share, from 0 to 1"),
        ("machines: {dgx-h100: {peak: 0.5}}", "peak: '0.5' is less than 1"),
        ("machines: {dgx-h100: {supplies: 0}}", "supplies: '0' is less than 1"),
        ("machines: {dgx-h100: {ports_per_cage: 0}}", "ports_per_cage: '0' is less than 1"),
        ("storage: {lustre: {nics: 0}}", "nics: '0' is less than 1"),
        ("storage: {lustre: {data: 0}}", "data: '0' is less than 1"),
        ("storage: {lustre: {software: 0}}", "software: '0' is less than 0.01"),
        ("storage: {lustre: {nic: 0 Gb/s}}", "nic: '0 Gb/s' must be above zero"),
        ("racks: {rack-48u: {width: 0 cm}}", "width: '0 cm' must be above zero"),
        ("plugs: {cs8365: {phases: 2}}", "phases: '2' is neither 1 nor 3"),
        ("plugs: {cs8365: {amps: 0}}", "amps: '0' is less than 1"),
    ],
)
def test_parts_that_cannot_be(tmp_path: Path, part: str, said: str):
    """Some ended in a division by zero, others in air that carries less heat than none."""
    file = tmp_path / "parts.yaml"
    file.write_text(f"{part}\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_site_parts(file)
    assert said in str(caught.value)
