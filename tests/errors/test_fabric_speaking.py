"""NICs and switches that cannot be cabled together are refused, at the field: InfiniBand and Ethernet."""

import itertools
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.fabric import build_networks
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

CATALOG = load_catalog()
INFINIBAND = {"sb7800", "qm8700", "qm8790", "qm9700", "qm9790", "q3400-ra", "cs7520"}
VPI = {"cx5-100", "cx6-200", "cx6-100", "cx7-400", "cx7-200", "cx8-800", "cx9-800", "cx9-2x800", "bf3-400"}
"""Adapters whose makers sell them for both protocols."""


def refused(server: str, servers: int = 2, catalog=CATALOG, **network) -> str:
    compute = ComputeNetwork(**{"family": "fat-tree", "switch": "qm9700", **network})
    try:
        fabric.build(Cluster(servers=servers, server=server, compute=compute), catalog)
    except PlanError as error:
        return f"{error.field}: {error}"
    return ""


@pytest.mark.parametrize(("nic", "switch"), list(itertools.product(CATALOG.nics, CATALOG.switches)))
def test_every_adapter_meets_the_switches_of_its_protocol_and_no_others(nic, switch):
    """EFA and Slingshot were taken on InfiniBand without a word, Ethernet adapters with a warning."""
    server = replace(CATALOG.servers["dgx-h100"], name="own", nic=nic, nics=2)
    catalog = replace(CATALOG, servers={"own": server})
    text = refused("own", catalog=catalog, switch=switch)
    assert bool(text) == (switch in INFINIBAND and nic not in VPI)
    if text:
        assert text.startswith(f"cluster.compute.switch: switch '{switch}' is InfiniBand, and NIC '{nic}' of")


def test_a_refusal_names_switches_of_the_nics_rate_first():
    assert "Ethernet switches are 'sn5600-400g', 'sn5400', 'th5-400g'" in refused("aws-p5")
    assert "Ethernet switches are 'slingshot-64', 'sn5600-400g'" in refused("mi250x-4", switch="qm8700")
    assert "'sn4600c', 'sn3700c'" in refused("aws-p4d")


def test_nothing_crosses_the_network_of_one_machine():
    assert not refused("mi350x-8", servers=1)


@pytest.mark.parametrize("field", ["spine_switch", "core_switch"])
def test_switches_of_both_protocols_in_one_network_are_refused(field):
    text = refused("dgx-h100", servers=4, tiers=2, servers_per_group=1, **{field: "th5-400g"})
    assert text.startswith(
        f"cluster.compute.{field}: {field} 'th5-400g' is Ethernet, and switch 'qm9700' Inf"
    )
    assert "InfiniBand switches are 'qm9700', 'qm9790'" in text
    assert not refused("dgx-h100", servers=4, tiers=2, servers_per_group=1, spine_switch="qm9790")


def test_an_infiniband_storage_network_of_servers_with_ethernet_nics_has_ports_of_its_own():
    storage = ServiceNetwork(family="single-switch", switch="qm8700")
    compute = ComputeNetwork(family="fat-tree", switch="th5-400g")
    asked = Cluster(servers=2, server="mi350x-8", compute=compute, storage=storage)
    assert set(build_networks(asked, CATALOG)) == {"compute", "storage"}
    mixed = storage.model_copy(update={"spine_switch": "sn5400"})
    with pytest.raises(PlanError) as caught:
        build_networks(asked.model_copy(update={"storage": mixed}), CATALOG)
    assert caught.value.field == "cluster.storage.spine_switch"


def test_check_and_design_tell_it_at_its_line(tmp_path):
    study = tmp_path / "efa.yaml"
    study.write_text(
        "railwright: 1\nname: efa\ncluster:\n  servers: 4\n  server: aws-p5\n"
        "  compute:\n    family: fat-tree\n    switch: qm9700\n"
    )
    for command in ("check", "run", ("fabric", "count"), ("fabric", "audit"), ("burnin",)):
        words = command if isinstance(command, tuple) else (command,)
        more = ("--out", str(tmp_path / "b")) if "burnin" in words else ()
        done = CliRunner().invoke(app, [*words, str(study), *more])
        assert done.exit_code in (1, 2)
        assert f"{study}:8:13: cluster.compute.switch: switch 'qm9700' is InfiniBand" in done.output
