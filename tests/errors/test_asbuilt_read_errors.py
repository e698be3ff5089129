"""Dumps that are no dumps: one sentence with file, line and what to do; never a traceback."""

import zipfile

import pytest

from railwright.asbuilt.read import read, read_host, read_names, read_tables
from railwright.errors import SpecError


def refused(tmp_path, content, reader=read, name="dump"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError) as caught:
        reader(path)
    assert len(caught.value.mistakes) == 1, "one clear error"
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text.removeprefix(str(path))


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match=r"cannot read the file.*check the path"):
        read(tmp_path / "absent")
    with pytest.raises(SpecError, match="cannot read the file"):
        read(tmp_path)


def test_empty_binary_and_compressed_files(tmp_path):
    assert "empty" in refused(tmp_path, "")
    assert "empty" in refused(tmp_path, " \n\n")
    assert "gzip" in refused(tmp_path, b"\x1f\x8b\x08rest")
    assert "not a text file" in refused(tmp_path, bytes(range(256)) * 8)
    assert "control characters" in refused(tmp_path, b"\x00\x01\x02" * 50)


def test_a_few_broken_bytes_are_noted_not_fatal(tmp_path):
    path = tmp_path / "cables.csv"
    path.write_bytes(b"from,from_port,to,to_port\nsw-1,1,sw-\xff2,1\n")
    wiring = read(path)
    assert len(wiring.links) == 1
    assert any("line 2: 1 bytes are not UTF-8" in note for note in wiring.notes)


def test_an_unknown_format_names_the_known_ones(tmp_path):
    text = refused(tmp_path, "\n\nhello world\n")
    assert text.startswith(":3: not a known format (it begins with 'hello world')")
    assert "ibnetdiscover" in text
    assert "cable-sheet" in text


def test_the_wrong_reader_names_the_right_one(tmp_path):
    matrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0\t0\nGPU1\tNV4\t X \t0\t0\n"
    assert "read it with asbuilt.read.read_host" in refused(tmp_path, matrix)
    assert "read it with asbuilt.read.read" in refused(tmp_path, "SwitchName=a Nodes=b\n", read_host)
    assert "read it with asbuilt.read.read" in refused(tmp_path, "SwitchName=a Nodes=b\n", read_tables)
    assert "the `names` argument" in refused(tmp_path, '0x12 "leaf"\n')


def test_headings_without_devices(tmp_path):
    heading = "#\n# Topology file: generated on Fri\n#\n"
    assert "no device found" in refused(tmp_path, heading)
    assert "no cable found" in refused(tmp_path, "from,from_port,to,to_port\n")
    assert "no forwarding table" in refused(tmp_path, "Unicast lids [ broken\n", read_tables)


def test_xml_that_ends_in_the_middle(tmp_path):
    cut = '<system version="1">\n  <cpu numaid="0">\n    <pci busid="0000:01:00.0"'
    assert refused(tmp_path, cut, read_host).startswith(":3: not valid XML")
    graph = '<graphs version="1"><graph id="0"/></graphs>'
    assert "NCCL_TOPO_DUMP_FILE" in refused(tmp_path, graph, read_host)
    assert "cut off" in refused(tmp_path, '<system version="1"><cpu numaid="0"/></system>', read_host)
    hwloc = (
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0"><object type="Machine"/></topology>'
    )
    assert "lstopo" in refused(tmp_path, hwloc, read_host)


def test_entities_that_explode_are_refused(tmp_path):
    entities = '<!DOCTYPE a [<!ENTITY a0 "aaaaaaaaaa">'
    for n in range(9):
        entities += f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">'
    bomb = f'<?xml version="1.0"?>{entities}]><system version="1"><cpu numaid="&a9;"/></system>'
    assert "XML" in refused(tmp_path, bomb, read_host)


def test_broken_json_and_yaml_name_the_line(tmp_path):
    assert refused(tmp_path, '[{"compounded_links": [\n1, 2').startswith(":2: not valid JSON")
    assert "no 'links'" in refused(tmp_path, '[{"compounded_links": []}]')
    assert "30 s" in refused(tmp_path, '{"lldp": {}}')
    assert "not valid YAML" in refused(tmp_path, "- topology: a\n  tree: [\n    : }\n")
    assert "nested too deeply" in refused(tmp_path, '{"lldp": ' + "[" * 100_000)


def test_slurm_lists_that_are_slips(tmp_path):
    assert refused(tmp_path, "SwitchName=a Nodes=b\nSwitchName=s Nodes=n[5-2]\n").startswith(":2: s: '5-2'")
    assert "at most 1000000" in refused(tmp_path, "SwitchName=s Nodes=n[0-99999999]\n")
    assert "bracket without its partner" in refused(tmp_path, "SwitchName=s Nodes=n[0-9\n")


def test_node_name_maps(tmp_path):
    assert refused(tmp_path, '0x1 "a"\nnonsense\n', read_names).startswith(":2: 'nonsense' is no entry")
    assert "named twice" in refused(tmp_path, '0x1 "a"\n0x1 "b"\n', read_names)
    assert "no entry found" in refused(tmp_path, "# nothing\n", read_names)


def test_archives_that_are_no_workbooks(tmp_path):
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    assert "no Excel workbook" in refused(tmp_path, path.read_bytes(), name="sheet.xlsx")
    assert "save it again" in refused(tmp_path, path.read_bytes()[:40], name="sheet.xlsx")
