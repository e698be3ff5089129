"""Every mistake in a user's catalogue file: one clear sentence with its place, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.catalog import find, load_catalog, rows
from railwright.errors import RailwrightError, SpecError


def mistakes_of(tmp_path: Path, text: str) -> list[str]:
    """The mistakes told about a file, without its path."""
    path = tmp_path / "parts.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_catalog(path)
    return [str(mistake).replace(f"{path}:", "") for mistake in caught.value.mistakes]


CASES = {
    "a number without its unit": (
        "gpus:\n  h100-sxm:\n    power: 650\n",
        "3:12: gpus.h100-sxm.power: 650 has no unit; write a power with its unit, like '10.2 kW' or '700 W'",
    ),
    "a text without its unit": (
        "nics:\n  cx7-400:\n    rate: '400'\n",
        "3:11: nics.cx7-400.rate: '400' has no unit; write a bandwidth with its unit, like '400 Gb/s'",
    ),
    "a unit of another dimension": (
        "gpus:\n  h100-sxm: {hbm_bytes: 80 W}\n",
        "2:25: gpus.h100-sxm.hbm_bytes: unknown unit 'W' for a size",
    ),
    "nothing where something must be": (
        "nics:\n  cx7-400: {rate: 0 Gb/s}\n",
        "2:19: nics.cx7-400.rate: '0 Gb/s' is zero; a part without it cannot be modelled",
    ),
    "an unknown field": (
        "gpus:\n  h100-sxm:\n    hbm_byte: 80 GB\n",
        "3:5: gpus.h100-sxm.hbm_byte: not a field of a GPU; did you mean 'hbm_bytes'?",
    ),
    "an unknown dtype": (
        "gpus:\n  h100-sxm:\n    peak_flops: {bf17: 989 TFLOP/s}\n",
        "3:18: gpus.h100-sxm.peak_flops.bf17: not a dtype; allowed are fp32, tf32, bf16, fp16, fp8, fp4",
    ),
    "one peak for all dtypes": (
        "gpus:\n  h100-sxm:\n    peak_flops: 989 TFLOP/s\n",
        "3:17: gpus.h100-sxm.peak_flops: must map dtypes to dense peaks, like {bf16: 989 TFLOP/s}",
    ),
    "an unknown kind": (
        "gpu:\n  h100-sxm: {power: 650 W}\n",
        "1:1: gpu: not a kind of part; allowed are gpus, nics, switches, servers; did you mean 'gpus'?",
    ),
    "a kind that is no mapping": (
        "gpus: h100-sxm\n",
        "1:7: gpus: must be a mapping from part names to records",
    ),
    "an empty record": (
        "gpus:\n  h100-sxm:\n",
        "2:3: gpus.h100-sxm: must be a mapping of the fields of a GPU",
    ),
    "a wrong choice": (
        "switches:\n  qm9700: {technology: infinband}\n",
        "2:24: switches.qm9700.technology: 'infinband' is not one of infiniband, ethernet; "
        "did you mean 'infiniband'?",
    ),
    "a word for a truth": (
        "switches:\n  qm9700: {sharp: maybe}\n",
        "2:19: switches.qm9700.sharp: 'maybe' is neither true nor false",
    ),
    "half a port": (
        "switches:\n  qm9700: {ports: 63.5}\n",
        "2:19: switches.qm9700.ports: '63.5' is not a whole number",
    ),
    "no port": (
        "switches:\n  qm9700: {ports: 0}\n",
        "2:19: switches.qm9700.ports: 0 is too small; the least is 2",
    ),
    "a server of an unknown GPU": (
        "servers:\n  mine: {like: dgx-h100, gpu: h1000-sxm}\n",
        "2:31: servers.mine.gpu: no GPU 'h1000-sxm' in the catalogue; did you mean 'h100-sxm'",
    ),
    "a server of an unknown NIC": (
        "servers:\n  mine:\n    like: dgx-h100\n    nic: cx9-1600\n",
        "4:10: servers.mine.nic: no NIC 'cx9-1600' in the catalogue",
    ),
    "NICs that do not spread": (
        "servers:\n  mine: {like: dgx-h100, nics: 3}\n",
        "2:32: servers.mine.nics: 3 NICs do not spread evenly over 8 GPUs; "
        "one count must be a multiple of the other",
    ),
    "like nothing we know": (
        "gpus:\n  mine: {like: h101-sxm}\n",
        "2:16: gpus.mine.like: no GPU 'h101-sxm' in the catalogue; did you mean 'h100-sxm'",
    ),
    "like itself": (
        "gpus:\n  a: {like: b}\n  b: {like: a}\n",
        "2:13: gpus.a.like: 'a' is like itself, by way of a, b",
    ),
    "fields left out": (
        "nics:\n  mine: {vendor: us, rate: 100 Gb/s, ports: 1}\n",
        "2:3: nics.mine: a new NIC also needs pcie_bandwidth, latency, power; "
        "or say `like:` which NIC it resembles",
    ),
    "a name twice, written differently": (
        "gpus:\n  h100-sxm: {power: 650 W}\n  H100: {power: 640 W}\n",
        "3:3: gpus.H100: 'h100-sxm' is given twice; put both into one record",
    ),
    "a name that is none": (
        "gpus:\n  'h100/sxm': {power: 650 W}\n",
        "2:3: gpus.h100/sxm: 'h100/sxm' is not a part's name",
    ),
    "a source of no field": (
        "gpus:\n  h100-sxm: {power: 650 W, sources: {powr: us}}\n",
        "2:38: gpus.h100-sxm.sources.powr: not a field of a GPU; did you mean 'power'?",
    ),
    "a source without a document": (
        "gpus:\n  h100-sxm: {power: 650 W, source: {where: page 2}}\n",
        "2:36: gpus.h100-sxm.source: needs a `document`: where the value was read",
    ),
    "an unknown status": (
        "gpus:\n  h100-sxm: {power: 650 W, source: {document: us, status: guess}}\n",
        "status 'guess' is not one of read, read_third_party, computed, memory",
    ),
    "no YAML": ("gpus: [\n", "not YAML: "),
    "a day that is none": (
        "gpus:\n  h100-sxm: {power: 650 W, sources: {power: {date: 2026-13-45}}}\n",
        "a value cannot be read: month must be in 1..12",
    ),
    "nested beyond reason": ("gpus: " + "[" * 1000 + "]" * 1000, "a value cannot be read: nested too deeply"),
    "a key twice": ("gpus:\n  h100-sxm: {power: 650 W, power: 640 W}\n", "not YAML: found duplicate key"),
    "a list": ("- gpus\n", "a catalogue file maps kinds of parts to records; allowed kinds are gpus, nics"),
    "an empty file": ("", "a catalogue file maps kinds of parts to records"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(tmp_path: Path, case: str) -> None:
    text, told = CASES[case]
    assert told in mistakes_of(tmp_path, text)[0]


def test_all_mistakes_are_told_at_once_in_file_order(tmp_path: Path) -> None:
    text = """\
servers:
  mine: {like: dgx-h100, gpu: no-such, nics: two}
gpus:
  h100-sxm:
    power: 650
    hbm_size: 80 GB
  mine: {like: h100}
switch: {}
"""
    told = mistakes_of(tmp_path, text)
    assert [line.split(": ")[0] for line in told] == ["2:46", "5:12", "6:5", "8:1"]


def test_a_part_like_a_bad_one_adds_no_second_complaint(tmp_path: Path) -> None:
    told = mistakes_of(tmp_path, "gpus:\n  a: {like: h100-sxm, power: 1}\n  b: {like: a}\n")
    assert len(told) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot read this catalogue file: No such file"):
        load_catalog(tmp_path / "nowhere.yaml")


def test_a_folder_and_a_binary_file_are_not_catalogues(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read this catalogue file"):
        load_catalog(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not a text file in UTF-8"):
        load_catalog(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("gpus", "h101", "no GPU 'h101' in the catalogue; did you mean 'h100'"),
        ("nics", "connectx-5x", "no NIC 'connectx-5x' in the catalogue; did you mean 'connectx-"),
        ("switches", "qm970", "no switch 'qm970' in the catalogue; did you mean "),
        ("servers", "dgx-h10", "no server 'dgx-h10' in the catalogue; did you mean "),
        ("servers", "???", "no server '???' in the catalogue; known are dgx-1-v100, dgx-a100"),
    ],
)
def test_an_unknown_part_is_told_with_its_kind_and_the_nearest(kind: str, name: str, told: str) -> None:
    with pytest.raises(RailwrightError) as caught:
        find(getattr(load_catalog(), kind), name)
    assert told in str(caught.value)
    assert "known are " in str(caught.value)


def test_an_unknown_kind_cannot_be_listed() -> None:
    with pytest.raises(
        RailwrightError, match=r"no kind of part 'switchs'; kinds are gpus.*did you mean 'switches'"
    ):
        rows(load_catalog(), "switchs")
