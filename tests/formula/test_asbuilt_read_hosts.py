"""Servers from inside: NCCL's XML, nvidia-smi's matrix and hwloc's XML, in dumps made by hand."""

import pytest

from railwright.asbuilt.lint import lint
from railwright.asbuilt.read import read_host, recognised

GPU, NIC, SWITCH = 'class="0x030200"', 'class="0x020700"', 'class="0x060400"'
LINK = 'link_speed="16.0 GT/s PCIe" link_width="16"'
NCCL = f"""<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:01:00.0" {SWITCH} {LINK}>
      <pci busid="0000:02:00.0" {GPU} {LINK}><gpu dev="0" sm="90" rank="0" gdr="1">
        <nvlink target="0000:12:00.0" count="4" tclass="0x030200"/>
        <nvlink target="0000:c4:00.0" count="2" tclass="0x068000"/></gpu></pci>
      <pci busid="0000:03:00.0" {NIC} {LINK}><nic>
        <net name="mlx5_0" dev="0" speed="200000" port="1"/>
        <net name="mlx5_1" dev="1" speed="200000" port="2"/>
      </nic></pci>
      <pci busid="0000:04:00.0" {SWITCH} {LINK}><pci busid="0000:05:00.0" {NIC} {LINK}/></pci>
    </pci>
    <pci busid="0000:08:00.0" {NIC} {LINK}/>
  </cpu>
  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:12:00.0" {GPU} {LINK}><gpu dev="1" sm="90" rank="1" gdr="1">
      <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci>
    <nic><net name="eth0" dev="2" speed="100000" port="0"/></nic>
  </cpu>
</system>
"""


def test_nccl_xml_tells_tree_speeds_and_paths(tmp_path):
    path = tmp_path / "topo.xml"
    path.write_text(NCCL)
    host = read_host(path)
    assert recognised(path) == "nccl-xml"
    assert [(c.numa, c.model) for c in host.cpus] == [(0, "AuthenticAMD/143/49"), (1, "AuthenticAMD/143/49")]
    assert [(g.name, g.numa, g.bridge, g.switch_nvlinks) for g in host.gpus] == [
        ("GPU0", 0, "0000:01:00.0", 2),
        ("GPU1", 1, "", 0),
    ]
    assert [n.name for n in host.nics] == ["mlx5_0,mlx5_1", "", "", "eth0"]
    assert [n.speed * 8 / 1e9 for n in host.nics] == [400, 0, 0, 100]
    # 16 lanes of 16 GT/s: 16 * 16 * 128/130 / 8 = 31.5 GB/s.
    assert host.gpus[0].rate == pytest.approx(31.5077e9, rel=1e-4)
    assert host.nvlink == ((0, 4), (4, 0))
    # one switch; two switches; the CPU; the other CPU
    assert host.paths == (("PIX", "PXB", "PHB", "SYS"), ("SYS", "SYS", "SYS", "PHB"))


def test_the_matrix_of_nvidia_smi(tmp_path):
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV18\tPIX\tSYS\t0-47,96-143\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tSYS\tPXB\t48-95,144-191\t1\t\tN/A\n"
        "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
        "NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n"
        "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n\nNIC Legend:\n\n"
        "  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    )
    path = tmp_path / "topo.txt"
    path.write_text(text)
    host = read_host(path)
    assert recognised(path) == "nvidia-smi-topo"
    assert [(g.name, g.numa) for g in host.gpus] == [("GPU0", 0), ("GPU1", 1)]
    assert [(n.key, n.name) for n in host.nics] == [("NIC0", "mlx5_0"), ("NIC1", "mlx5_1")]
    assert host.nvlink == ((0, 18), (18, 0))
    assert host.paths == (("PIX", "SYS"), ("SYS", "PXB"))
    assert [(c.numa, c.affinity) for c in host.cpus] == [(0, "0-47,96-143"), (1, "48-95,144-191")]
    assert host.notes == ()

    path.write_text(text.replace("NIC1\tSYS\tPXB", "NIC1\tSYS\tPHB"))
    assert any("GPU1 is PHB" in n or "PXB for the way back" in n for n in read_host(path).notes)
    path.write_text(text[: text.index("GPU1\tNV18")])
    cut = read_host(path)
    assert any("no row of GPU1, NIC0, NIC1" in note for note in cut.notes)
    assert cut.nvlink == ((0, 18), (18, 0)), "the row of GPU0 tells the way back as well"


@pytest.mark.parametrize(
    ("links", "found"),
    [
        ("NV18 NV18 NV18", [18, 18, 18, 18]),  # three peers of a GPU that has 18 links: through NVSwitches
        ("NV17 NV18 NV18", [17, 18, 18, 18]),  # GPU 0 has lost one
        ("NV4 NV4 NV4", [0, 0, 0, 0]),  # four links to each of three peers: from GPU to GPU
    ],
)
def test_links_through_nvswitches_are_counted_once_and_not_for_every_peer(tmp_path, links, found):
    one, *_, other = links.split()
    names = [f"GPU{i}" for i in range(4)]
    rows = [
        [a, *(" X " if a == b else one if "GPU0" in (a, b) else other for b in names), "0-47", "0"]
        for a in names
    ]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"]), *("\t".join(row) for row in rows)]
    path = tmp_path / "topo.txt"
    path.write_text("\n".join(lines) + "\n")
    host = read_host(path)
    assert [gpu.switch_nvlinks for gpu in host.gpus] == found
    missing = [(f.element, f.expected, f.found) for f in lint(host) if f.kind == "NVLink missing"]
    assert missing == ([("GPU0", "18 NVLinks, as most", "17")] if one != other else [])


def bridge(kind, bus, inner, pci=""):
    busid = f'pci_busid="{pci}"' if pci else ""
    return f'<object type="Bridge" bridge_type="{kind}" {busid} bridge_pci="{bus}">{inner}</object>'


def device(bus, kind, inner=""):
    return (
        f'<object type="PCIDev" pci_busid="{bus}" pci_type="{kind} [10de:2330] [10de:16c1] a1" '
        f'pci_link_speed="31.507692">{inner}</object>'
    )


def test_hwloc_shows_a_pcie_switch_as_its_ports(tmp_path):
    gpu = device("0000:04:00.0", "0302", '<object type="OSDev" name="nvml0" osdev_type="5"/>')
    nic = device("0000:05:00.0", "0207", '<object type="OSDev" name="mlx5_0" osdev_type="3"/>')
    ports = bridge("1-1", "a", gpu, "0000:03:00.0") + bridge("1-1", "b", nic, "0000:03:01.0")
    switch = bridge("1-1", "c", bridge("1-1", "d", ports, "0000:02:00.0"), "0000:01:00.0")
    same_root = bridge("1-1", "e", device("0000:09:00.0", "0200"), "0000:08:00.0")
    near = bridge("0-1", "f", switch + same_root)
    far = bridge("0-1", "g", device("0000:20:00.0", "0200"))

    def package(numa, inner):
        return (
            f'<object type="Package" os_index="{numa}"><info name="CPUModel" value="Some CPU"/>'
            f'<object type="NUMANode" os_index="{numa}" cpuset="0x{numa + 1}"/>{inner}</object>'
        )

    other = bridge("0-1", "h", device("0000:80:00.0", "0200"))
    path = tmp_path / "server.xml"
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        '<topology version="2.0">'
        f'<object type="Machine">{package(0, near + far)}{package(1, other)}</object>'
        "</topology>"
    )
    host = read_host(path)
    assert recognised(path) == "hwloc"
    assert [(g.name, g.numa, g.rate) for g in host.gpus] == [("nvml0", 0, pytest.approx(31.5077e9, rel=1e-4))]
    assert [n.name for n in host.nics] == ["mlx5_0", "", "", ""]
    # one switch; the host bridge; another host bridge of the same CPU; the other CPU
    assert host.paths == (("PIX", "PHB", "NODE", "SYS"),)
    assert [c.numa for c in host.cpus] == [0, 1]
