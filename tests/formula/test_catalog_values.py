"""The shipped parts say what the published sheets say, and hang together."""

from __future__ import annotations

from datetime import date

import pytest

from railwright.catalog import KINDS, Catalog, describe, load_catalog, source_of
from railwright.catalog.fields import DTYPES, FIELDS
from railwright.catalog.load import _aliases, _read_data, find

GBIT = 1e9 / 8
CATALOG = load_catalog()
PARTS = [(kind, part) for kind in KINDS for part in getattr(CATALOG, kind).values()]
NAMES = [f"{kind}.{part.name}" for kind, part in PARTS]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


# name: bf16 [TFLOP/s], memory [MiB], memory bandwidth [GB/s], scale-up, one direction [GB/s], power [W]
# Source: Bekman, Machine Learning Engineering at 744d01e, accelerator and network README tables;
# memory: the total that nvidia-smi or rocm-smi prints (a label in GB counts differently).
PUBLISHED_GPUS = {
    "a100-sxm-80": (312, 81920, 2039, 300, 400),
    "h100-sxm": (989, 81559, 3350, 450, 700),
    "h100-pcie": (756, 81559, 2000, 0, 350),
    "h200-sxm": (989, 143771, 4800, 450, 700),
    "b200-sxm": (2250, 183359, 8000, 900, 1000),
    "gb200": (2500, 189471, 8000, 900, 1200),
    "gb300": (2500, 284208, 8000, 900, 1400),
    "vr200": (4000, 284208, 22000, 1800, 2300),
    "mi300x": (1307.4, 196592, 5300, 448, 750),
    "mi325x": (1307.4, 262144, 6000, 448, 1000),
    "mi355x": (2500, 294912, 8000, 535.5, 1400),
}


@pytest.mark.parametrize("name", PUBLISHED_GPUS)
def test_gpus_have_their_published_values(catalog: Catalog, name: str) -> None:
    bf16, memory, bandwidth, scale_up, power = PUBLISHED_GPUS[name]
    gpu = catalog.gpus[name]
    assert gpu.peak_flops["bf16"] == pytest.approx(bf16 * 1e12, rel=1e-12)
    assert gpu.hbm_bytes == pytest.approx(memory * 2**20, rel=1e-12)
    assert gpu.hbm_bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-12)
    assert gpu.scale_up_bandwidth == pytest.approx(scale_up * 1e9, rel=1e-12)
    assert gpu.power == power


def test_h800_is_an_h100_with_its_nvlink_cut(catalog: Catalog) -> None:
    """400 GB/s both ways together are 200 GB/s one way, of the H100's 450; all else is the H100's."""
    h800, h100 = catalog.gpus["h800"], catalog.gpus["h100-sxm"]
    assert h800.scale_up_bandwidth == 200e9
    assert (h800.peak_flops, h800.hbm_bandwidth, h800.sms) == (h100.peak_flops, h100.hbm_bandwidth, h100.sms)


# name: ports, cages, port rate [Gb/s], rack units
PUBLISHED_SWITCHES = {
    "qm8700": (40, 40, 200, 1),
    "qm8790": (40, 40, 200, 1),
    "qm9700": (64, 32, 400, 1),
    "qm9790": (64, 32, 400, 1),
    "q3400-ra": (144, 72, 800, 4),
    "sn5600": (64, 64, 800, 2),
    "sn5600-400g": (128, 64, 400, 2),
    "th5-400g": (128, 64, 400, 2),
    "cs7520": (216, 216, 100, 12),
    "arista-7800-576": (576, 576, 400, 32),
    "sn4600c": (64, 64, 100, 2),
    "slingshot-64": (64, 32, 200, 1),
}


@pytest.mark.parametrize("name", PUBLISHED_SWITCHES)
def test_switches_have_their_published_ports(catalog: Catalog, name: str) -> None:
    switch = catalog.switches[name]
    measured = (switch.ports, switch.cages, switch.rate / GBIT, switch.rack_units)
    assert measured == PUBLISHED_SWITCHES[name]


def test_the_cs7520_has_the_six_spines_that_carry_its_216_ports(catalog: Catalog) -> None:
    """Six spine modules of 36 ports take 6 x 36 = 216 up-links: as many as there are ports."""
    director = catalog.switches["cs7520"]
    assert director.director_spines * catalog.switches["sb7800"].ports == director.ports


# name: GPUs, compute NICs, their rate [Gb/s], rack units, power [kW]
PUBLISHED_SERVERS = {
    "dgx-1-v100": (8, 4, 100, 3, 3.5),
    "dgx-a100": (8, 8, 200, 6, 6.5),
    "dgx-h100": (8, 8, 400, 8, 10.2),
    "dgx-h200": (8, 8, 400, 8, 10.2),
    "dgx-b200": (8, 8, 400, 10, 14.3),
    "dgx-b300": (8, 8, 800, 10, 14),
    "gb200-nvl72": (72, 72, 400, 48, 120),
    "gb300-nvl72": (72, 72, 800, 48, 142),
    "vr200-nvl72": (72, 72, 800, 48, 230),
    "mi300x-8": (8, 8, 400, 8, 10),
    "aws-p4de": (8, 4, 100, 6, 6.5),
    "aws-p5": (8, 8, 400, 8, 10.2),
}


@pytest.mark.parametrize("name", PUBLISHED_SERVERS)
def test_servers_have_their_published_make_up(catalog: Catalog, name: str) -> None:
    server = catalog.servers[name]
    rate = find(catalog.nics, server.nic).rate / GBIT
    made_of = (server.gpus, server.nics, rate, server.rack_units, server.power_max / 1e3)
    assert made_of == pytest.approx(PUBLISHED_SERVERS[name], rel=1e-12)


@pytest.mark.parametrize(
    ("server", "node_bandwidth"),
    [("aws-p4de", 50e9), ("aws-p5", 400e9), ("aws-p5en", 400e9), ("dgx-h100", 400e9), ("dgx-b300", 800e9)],
)
def test_node_bandwidth_is_the_published_sum_over_its_nics(
    catalog: Catalog, server: str, node_bandwidth: float
) -> None:
    """Source: Bekman at 744d01e, network README, node table, column 'Total Uni-dir.'. [byte/s]"""
    node = catalog.servers[server]
    nic = catalog.nics[node.nic]
    assert node.nics * nic.ports * nic.rate == pytest.approx(node_bandwidth, rel=1e-12)


@pytest.mark.parametrize("name", CATALOG.servers)
def test_servers_are_made_of_known_parts_and_their_nics_spread_evenly(catalog: Catalog, name: str) -> None:
    server = catalog.servers[name]
    gpu = find(catalog.gpus, server.gpu)
    assert server.nic in catalog.nics
    assert server.gpus % server.nics == 0 or server.nics % server.gpus == 0
    assert server.power_max > server.gpus * gpu.power, "a server takes more than its GPUs alone"


@pytest.mark.parametrize("name", CATALOG.nics)
def test_pcie_carries_what_the_nic_sends(catalog: Catalog, name: str) -> None:
    nic = catalog.nics[name]
    assert nic.pcie_bandwidth >= nic.ports * nic.rate


@pytest.mark.parametrize("name", CATALOG.gpus)
def test_peaks_are_dense(catalog: Catalog, name: str) -> None:
    """Halving the width doubles the dense rate; a rate "with sparsity" slipped in would give 4 or 1.

    Only to 2 %: sheets round (1513 is not 2 x 756).
    """
    peaks = catalog.gpus[name].peak_flops
    pairs = [("tf32", "bf16")]
    # Blackwell Ultra widened FP4 alone, Rubin 8 and 4 bits; GeForce halves the rate of products summed in
    # fp32, but FP4's
    if name != "vr200":
        pairs += [("fp16", "fp8"), ("bf16", "fp8")]
    if name not in ("b300-sxm", "gb300", "rtx-5090"):
        pairs.append(("fp8", "fp4"))
    for wide, narrow in pairs:
        if wide in peaks and narrow in peaks:
            assert peaks[narrow] == pytest.approx(2 * peaks[wide], rel=0.02)
    if "bf16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]


def test_old_gpus_lack_the_dtypes_of_new_ones(catalog: Catalog) -> None:
    assert set(catalog.gpus["v100-sxm2-32"].peak_flops) == {"fp32", "fp16"}
    assert "fp8" not in catalog.gpus["a100-sxm-80"].peak_flops
    assert "fp4" not in catalog.gpus["h100-sxm"].peak_flops
    assert set(catalog.gpus["b200-sxm"].peak_flops) == set(DTYPES)


@pytest.mark.parametrize("name", CATALOG.switches)
def test_switch_latencies_are_of_their_technology(catalog: Catalog, name: str) -> None:
    """InfiniBand 0.09 to 0.13 us a chip; Ethernet from 0.4 us, HPE's of 0.35."""
    switch = catalog.switches[name]
    chips = 3 if switch.director_spines else 1
    if switch.technology == "infiniband":
        assert 0.09e-6 <= switch.latency / chips <= 0.13e-6
    else:
        assert 0.35e-6 <= switch.latency <= 5e-6
    assert not (switch.sharp and switch.technology == "ethernet")


@pytest.mark.parametrize(("kind", "part"), PARTS, ids=NAMES)
def test_every_value_has_a_source_with_a_status(kind: str, part: object) -> None:
    described = describe(part)  # type: ignore[arg-type]
    assert {field.split(".")[0] for field, _, _ in described} == set(FIELDS[kind])
    for field, shown, source in described:
        assert shown
        assert source.document, field
        assert source.status in ("read", "read_third_party", "computed", "memory"), field
        if source.status.startswith("read"):
            # A year alone marks a reading carried from earlier, whose day was not written down.
            assert source.date == "2026" or date.fromisoformat(source.date) <= date(2026, 12, 31), field
        if source.status == "computed":
            assert source.where, f"{field}: computed from what?"


def test_every_document_is_named_by_some_part() -> None:
    used = {source.document for _, part in PARTS for _, _, source in describe(part)}
    unused = [key for key, d in _read_data("documents").items() if d["document"] not in used]
    assert unused == []


def test_a_peak_may_have_a_source_of_its_own(catalog: Catalog) -> None:
    b300 = catalog.gpus["b300-sxm"]
    assert "nvfp4" in source_of(b300, "peak_flops.fp4").where
    assert "nvfp4" not in source_of(b300, "peak_flops.fp8").where


@pytest.mark.parametrize("kind", KINDS)
def test_aliases_lead_to_parts_and_shadow_none(catalog: Catalog, kind: str) -> None:
    parts = getattr(catalog, kind)
    for alias, name in _aliases()[kind].items():
        assert name in parts
        assert alias not in parts
