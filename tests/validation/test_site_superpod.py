"""Published rooms of DGX SuperPODs against plans of the same machines.

Sources: the H100 reference architecture in a third party's copy (cidian.kuaisou.com: 127 nodes, 4 UFM
appliances and 5 management servers in 38 racks); docs.nvidia.com, scalable infrastructure B200 (two DGX in a
rack, over
25 kW) and B300 (four in a rack, over 50 kW; 56 kW on three PDUs).
"""

from __future__ import annotations

import pytest

from railwright.site import SitePlan, plan_site
from railwright.spec import load_study_text


def planned(server: str, servers: int, site: str, services: str = "") -> SitePlan:
    return plan_site(
        load_study_text(
            f"""
railwright: 1
name: SuperPOD
cluster:
  servers: {servers}
  server: {server}
  compute: {{family: rail-optimised, switch: qm9700, servers_per_group: 32}}
{services}
site: {{{site}}}
"""
        )
    )


def test_the_h100_superpod_of_four_units_fills_38_racks():
    """32 racks of four DGX, and six for the rest; ours are seven, packed in our order.  Band: one rack."""
    services = """
  storage: {family: fat-tree, switch: qm9700, ports_per_server: 2}
  inband: {family: fat-tree, switch: sn4600c, ports_per_server: 2, hosts: 9}
  oob: {family: fat-tree, switch: ethernet-1g-48}
"""
    plan = planned("dgx-h100", 127, "rack_power: 45 kW, power: {redundancy: n+1}", services)
    assert plan.kinds["servers"] == 32
    assert len(plan.racks) == pytest.approx(38, abs=1)
    assert all(all(rack.power.survivors()) for rack in plan.racks)
    longest = float(plan.runs["compute"].length.max())
    assert longest < 50, "the reference design uses multimode between servers and leaves"


def test_the_b200_superpod_has_two_servers_a_rack_and_over_25_kw():
    plan = planned("dgx-b200", 64, "rack_power: 30 kW")
    assert plan.fill.servers == 2
    assert plan.fill.power.watts > 25e3
    assert plan.kinds["servers"] == 32


def test_the_b300_superpod_has_four_servers_a_rack_on_three_pdus():
    plan = planned("dgx-b300", 64, "rack_power: 60 kW, power: {redundancy: n+1, pdus_per_rack: 3}")
    assert plan.fill.servers == 4
    assert plan.fill.power.watts == pytest.approx(56e3)
    assert plan.fill.power.pdus == 3
    assert plan.kinds["servers"] == 16
