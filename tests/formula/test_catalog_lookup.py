"""Finding, listing and describing parts, and a user's own file merged over the shipped ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from railwright.catalog import KINDS, describe, find, load_catalog, rows, source_of

OWN = """\
gpus:
  h100-sxm:
    power: 650 W
    source: our own power capping, 2026-11-01
  H100_TEST:
    like: h100-pcie
    hbm_bytes: 94 GB
    hbm_bandwidth: 3.9 TB/s
    sources:
      hbm_bytes: {document: data sheet, where: page 2, date: 2026-11-02, status: read}
  b200:
    peak_flops: {fp8: 4400 TFLOP/s}
servers:
  our-nvl-4:
    like: server-8x-h100-pcie
    gpu: h100-test
    gpus: 4
nics:
  toy:
    vendor: us
    rate: 10 Gb/s
    ports: 2
    pcie_bandwidth: 4 GB/s
    latency: 2 us
    power: 5 W
    source: a bench in our laboratory
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "parts.yaml"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize("written", ["h100-sxm", "H100-SXM", "h100_sxm", " h100 sxm", "h100", "H100"])
def test_case_hyphens_and_aliases_do_not_matter(written: str) -> None:
    assert find(load_catalog().gpus, written).name == "h100-sxm"


def test_each_kind_has_its_own_aliases() -> None:
    catalog = load_catalog()
    assert find(catalog.nics, "ConnectX-7").name == "cx7-400"
    assert find(catalog.switches, "MQM9700").name == "qm9700"
    assert find(catalog.servers, "p5").name == "aws-p5"


def test_a_user_changes_single_fields_and_keeps_the_rest(own: Path) -> None:
    mine, shipped = load_catalog(own).gpus["h100-sxm"], load_catalog().gpus["h100-sxm"]
    assert (mine.power, shipped.power) == (650.0, 700.0)
    assert mine.hbm_bandwidth == shipped.hbm_bandwidth
    assert mine.sources["power"].document == "our own power capping, 2026-11-01"
    assert mine.sources["power"].status == "read"
    assert mine.sources["hbm_bandwidth"] == shipped.sources["hbm_bandwidth"]


def test_a_user_adds_a_part_like_another(own: Path) -> None:
    catalog = load_catalog(own)
    nvl, pcie = catalog.gpus["h100-test"], catalog.gpus["h100-pcie"]
    assert (nvl.name, nvl.hbm_bytes, nvl.hbm_bandwidth) == ("h100-test", 94e9, 3.9e12)
    assert nvl.peak_flops == pcie.peak_flops
    assert nvl.sources["hbm_bytes"].where == "page 2"
    assert catalog.servers["our-nvl-4"].gpu == "h100-test"
    assert catalog.servers["our-nvl-4"].gpus == 4


def test_a_value_without_a_source_is_marked_as_the_user_files(own: Path) -> None:
    source = load_catalog(own).gpus["h100-test"].sources["hbm_bandwidth"]
    assert source.document == f"user file {own}"
    assert source.where == "line 8"
    assert source.status == "memory"


def test_one_peak_can_be_changed_alone_under_an_alias(own: Path) -> None:
    mine, shipped = load_catalog(own).gpus["b200-sxm"], load_catalog().gpus["b200-sxm"]
    assert mine.peak_flops == {**shipped.peak_flops, "fp8": 4400e12}
    sources = {field: source for field, _, source in describe(mine)}
    assert sources["peak_flops.fp8"].document == f"user file {own}"
    assert sources["peak_flops.bf16"] == source_of(shipped, "peak_flops.bf16")


def test_a_new_part_may_stand_alone(own: Path) -> None:
    toy = load_catalog(own).nics["toy"]
    assert (toy.rate, toy.ports, toy.latency) == (1.25e9, 2, pytest.approx(2e-6))
    assert toy.technology == "both", "the one field that a new NIC may leave out"
    given = {source.document for field, source in toy.sources.items() if field != "technology"}
    assert given == {"a bench in our laboratory"}


def test_a_users_file_leaves_the_shipped_catalogue_as_it_is(own: Path) -> None:
    before = load_catalog()
    load_catalog(own)
    assert load_catalog() is before
    assert "toy" not in before.nics


def test_own_parts_come_after_the_shipped_in_file_order(own: Path) -> None:
    names = list(load_catalog(own).gpus)
    assert names == [*load_catalog().gpus, "h100-test"]


def test_a_record_may_come_before_the_one_it_is_like(tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    path.write_text(
        "switches:\n  a: {like: b, ports: 32}\n  b: {like: qm9700, latency: 200 ns}\n", encoding="utf-8"
    )
    switches = load_catalog(path).switches
    assert (switches["a"].ports, switches["a"].latency) == (32, pytest.approx(200e-9))
    assert switches["a"].cages == 32


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_has_one_row_per_part_and_the_same_columns(kind: str) -> None:
    catalog = load_catalog()
    listed = rows(catalog, kind)
    assert [row["name"] for row in listed] == list(getattr(catalog, kind))
    assert len({tuple(row) for row in listed}) == 1
    for row in listed:
        checked = [int(count) for count in re.findall(r"(\d+) ", row["sources"])]
        assert sum(checked) == len(describe(getattr(catalog, kind)[row["name"]]))


def test_a_part_is_shown_in_the_units_of_its_sheet() -> None:
    catalog = load_catalog()
    h100 = {field: shown for field, shown, _ in describe(catalog.gpus["h100-sxm"])}
    assert h100["peak_flops.bf16"] == "989 TFLOP/s"
    assert h100["peak_flops.tf32"] == "494.5 TFLOP/s"
    assert (h100["hbm_bytes"], h100["hbm_bandwidth"]) == ("81559 MiB", "3350 GB/s")
    qm9700 = {field: shown for field, shown, _ in describe(catalog.switches["qm9700"])}
    assert (qm9700["rate"], qm9700["latency"], qm9700["sharp"]) == ("400 Gb/s", "0.13 us", "yes")
    dgx = {field: shown for field, shown, _ in describe(catalog.servers["dgx-h100"])}
    assert dgx["power_max"] == "10.2 kW"


def test_the_example_of_the_manual_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "catalog.md"
    if not page.exists():
        pytest.skip("docs/catalog.md is not beside the tests (an installed copy)")
    example = re.search(r"```yaml\n(# my-parts\.yaml\n.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    path = tmp_path / "my-parts.yaml"
    path.write_text(example.group(1), encoding="utf-8")
    catalog = load_catalog(path)
    assert catalog.servers["our-box"].gpu == "h100-sxm"
    assert catalog.gpus["h100-sxm"].hbm_bandwidth == 3.2e12
    assert catalog.gpus["h100-pcie-94"].sources["hbm_bandwidth"].date == "2026-11-02"
