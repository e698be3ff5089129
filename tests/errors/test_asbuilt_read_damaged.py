"""Whatever happens to a dump on its way, it is read or refused in one sentence: never a traceback."""

import io
import json
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.asbuilt.formats import FORMATS
from railwright.asbuilt.forwarding import ForwardingTables
from railwright.asbuilt.host import HostTopology
from railwright.asbuilt.read.dump import decode
from railwright.asbuilt.wiring import Wiring
from railwright.errors import SpecError

DATA = Path(__file__).parent.parent / "data" / "asbuilt"
TYPES = {"fabric": Wiring, "host": HostTopology, "tables": ForwardingTables, "names": dict}


def gpu(bus, to):
    link = f'<gpu dev="0"><nvlink target="{to}" count="2" tclass="0x030200"/></gpu>'
    return f'<pci busid="{bus}" class="0x030200" link_speed="16.0 GT/s" link_width="16">{link}</pci>\n'


def neighbour(name, port):
    return {
        "chassis": {name: {"capability": [{"type": "Bridge", "enabled": True}]}},
        "port": {"id": {"value": port}},
    }


SAMPLES = {
    **{
        form: ((DATA / file).read_bytes())
        for form, file in {
            "ibnetdiscover": "small.topology",
            "ibnetdiscover-ports": "small.ports",
            "iblinkinfo": "small.iblinkinfo",
            "forwarding-tables": "small.fts",
        }.items()
    },
    "nccl-xml": (
        '<system version="1">\n<cpu numaid="0" affinity="ff">\n'
        '<pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">\n'
        + gpu("0000:02:00.0", "0000:03:00.0")
        + gpu("0000:03:00.0", "0000:02:00.0")
        + '<pci busid="0000:05:00.0" class="0x020700"><nic><net name="m" speed="200000"/></nic></pci>\n'
        "</pci>\n</cpu>\n</system>\n"
    ).encode(),
    "hwloc": (
        b'<topology version="2.0">\n<object type="Machine">\n'
        b'<object type="NUMANode" os_index="0" cpuset="0x1"/>\n'
        b'<object type="Bridge" bridge_type="0-1">\n<object type="PCIDev" pci_busid="0000:01:00.0" '
        b'pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="31.5">\n'
        b'<object type="OSDev" name="nvml0"/>\n'
        b"</object>\n</object>\n</object>\n</topology>\n"
    ),
    "nvidia-smi-topo": (
        b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
        b"GPU0\t X \tNV4\tPIX\t0-7\t0\nGPU1\tNV4\t X \tSYS\t8-15\t1\n"
        b"NIC0\tPIX\tSYS\t X \nNIC Legend:\n  NIC0: mlx5_0\n"
    ),
    "slurm-conf": (
        b"SwitchName=s0 Nodes=n[1-2],m1\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=top Switches=s[0-1]\n"
    ),
    "slurm-yaml": (
        b"- topology: a\n  tree:\n    switches:\n      - switch: top\n        children: s[0-1]\n"
        b"      - switch: s0\n        nodes: n[1-2]\n"
        b"  block:\n    blocks:\n      - block: b\n        nodes: n1\n"
    ),
    "netq": json.dumps(
        [{"nodes": [{"compounded_nodes": [{"id": "a", "name": "A", "device_type": "switch"}]}],
          "links": [{"compounded_links": [{"id": "x", "interfaces": [
              {"node": "a", "interface": "swp1s0"}, {"node": "b", "interface": "eth0"}]}]}]}], indent=1,
    ).encode(),
    "infragraph": (
        b'name: small\ndevices:\n'
        b'- {"name": "box", "components": [{"name": "nic", "choice": "nic", "count": 2}]}\n'
        b'- {"name": "sw", "components": [{"name": "port", "choice": "port", "count": 4}]}\n'
        b'links:\n- {"name": "l", "physical": {"bandwidth": {"choice": "gigabits_per_second", '
        b'"gigabits_per_second": 400}}}\n'
        b'instances:\n- {"name": "host", "device": "box", "count": 2}\n'
        b'- {"name": "leaf", "device": "sw", "count": 1}\n'
        b'edges:\n- {"ep1": {"instance": "host[0:2]", "component": "nic[0:2]"}, '
        b'"ep2": {"instance": "leaf[0]", "component": "port[0:4]"}, "scheme": "one2one", "link": "l"}\n'
    ),
    "lldp": json.dumps({"lldp": {"interface": [{"swp1": neighbour("s", "swp2")}]}}, indent=1).encode(),
    "cable-sheet": (
        b"cable,from,from_port,to,to_port,rate_gbps,length_m,state\n1,h-1/nic-0,1,leaf-1,swp1s0,400,3,ok\n"
        b"2,h-1/nic-1,1,leaf-1,swp1s1,400,3,failed\n3,leaf-1,1/2,spine-1,7,800,20.5,slow\n"
    ),
    "node-names": b'# map\n0x0002c902400a1b20 "leaf-07"\n0x0002c902400a1b21\t"leaf-08"\n',
}  # fmt: skip


@st.composite
def damage(draw, data):
    """Cut, bytes changed, lines dropped, swapped, repeated, or stray text put in: one to three times."""
    for kind in draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)):
        lines = data.split(b"\n")
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at + 1 :]
        elif kind == 2:
            data = b"\n".join(lines[:i] + lines[i + 1 :])
        elif kind == 3:
            lines[i], lines[j] = lines[j], lines[i]
            data = b"\n".join(lines)
        elif kind == 4:
            data = b"\n".join(lines[:i] + [lines[j]] + lines[i:])
        else:
            data = data[:at] + draw(st.text('0123456789[]"-,{}<>&;:\x1b', max_size=30)).encode() + data[at:]
    return data


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_a_sample_that_only_it_recognises(form):
    dump = decode("sample", SAMPLES[form])
    assert next(name for name, known in FORMATS.items() if known.recognise(dump)) == form
    assert isinstance(FORMATS[form].parse(dump, {}), TYPES[FORMATS[form].yields])


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_dump_is_read_or_refused(form, data):
    broken = data.draw(damage(SAMPLES[form]))
    known = FORMATS[form]
    try:
        dump = decode("broken", broken)
        known.recognise(dump)
        value = known.parse(dump, {})
    except SpecError:
        return
    assert isinstance(value, TYPES[known.yields])
    if isinstance(value, Wiring):
        assert all(0 <= k.a < len(value.nodes) and 0 <= k.b < len(value.nodes) for k in value.links)
        assert len({node.key for node in value.nodes}) == len(value.nodes)
        ends = [end for k in value.links for end in ((k.a, k.a_port), (k.b, k.b_port)) if end[1]]
        if all(k.a_port and k.b_port for k in value.links):
            assert len(set(ends)) == len(ends), "a port takes one cable"


def small_workbook():
    """One sheet of two cables."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    rows = (
        ("Source", "Port", "Destination", "Port"),
        ("leaf-1", "1", "spine-1", "1"),
        ("leaf-1", "2", "spine-1", "2"),
    )
    body = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) + "</row>"
        for row in rows
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{rel}"><sheets><sheet name="a" r:id="r1"/></sheets>'
            "</workbook>",
        )
        relation = '<Relationship Id="r1" Target="worksheets/sheet1.xml"/>'
        archive.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}">{relation}</Relationships>'
        )
        archive.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>'
        )
    return file.getvalue()


@settings(max_examples=80, derandomize=True)
@given(data=st.data())
def test_a_damaged_workbook_is_read_or_refused(data):
    assert len(FORMATS["cable-sheet"].parse(decode("whole", small_workbook()), {}).links) == 2
    broken = data.draw(damage(small_workbook()))
    try:
        dump = decode("broken", broken)
        if dump.workbook:
            assert isinstance(FORMATS["cable-sheet"].parse(dump, {}), Wiring)
    except SpecError:
        return


@pytest.mark.alone
@pytest.mark.parametrize("piece", ["\n", " ", "1", "1 1[", "a,", '"', "("])
def test_a_long_run_of_one_character_costs_no_time(piece):
    """Recognising a format looks at each place of a file once, not once for every other place."""
    dump = decode("long", ("==( CA SwitchName - topology:" + piece * (60_000 // len(piece))).encode())
    start = time.perf_counter()
    for known in FORMATS.values():
        known.recognise(dump)
    assert time.perf_counter() - start < 2.0
