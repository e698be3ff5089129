"""Host lint: a sound server has no findings; each fault planted in it has its own, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.asbuilt.host import Bridge, Cpu, Gpu, HostTopology, Nic, PathType
from railwright.asbuilt.lint import lint, nearest_nics
from railwright.asbuilt.read import read_host

GEN5_X16, NDR = 63e9, 50e9


def server() -> HostTopology:
    """Eight GPUs and eight NICs, one pair per PCIe switch, four switches per NUMA node, 18 NVLinks each."""
    gpus = tuple(Gpu(f"g{i}", f"GPU{i}", i // 4, f"b{i}", 16, GEN5_X16, 18) for i in range(8))
    nics = tuple(Nic(f"n{i}", f"mlx5_{i}", i // 4, f"b{i}", 16, GEN5_X16, NDR) for i in range(8))

    def path(g: int, n: int) -> PathType:
        return "PXB" if g == n else "NODE" if g // 4 == n // 4 else "SYS"

    paths = tuple(tuple(path(g, n) for n in range(8)) for g in range(8))
    nvlink = tuple(tuple(0 if i == j else 18 for j in range(8)) for i in range(8))
    bridges = tuple(Bridge(f"b{i}", "", i // 4) for i in range(8))
    return HostTopology("test", (Cpu(0), Cpu(1)), bridges, gpus, nics, nvlink, paths)


def kinds(host: HostTopology) -> list[tuple[str, str]]:
    return [(f.kind, f.element) for f in lint(host)]


def with_nic(host: HostTopology, at: int, **changes: object) -> HostTopology:
    nics = list(host.nics)
    nics[at] = replace(nics[at], **changes)  # type: ignore[arg-type]
    return replace(host, nics=tuple(nics))


def with_gpu(host: HostTopology, at: int, **changes: object) -> HostTopology:
    gpus = list(host.gpus)
    gpus[at] = replace(gpus[at], **changes)  # type: ignore[arg-type]
    return replace(host, gpus=tuple(gpus))


def test_a_sound_server_has_no_findings():
    assert lint(server()) == []


def test_nearest_nic_is_the_one_behind_the_same_switch():
    assert nearest_nics(server(), 5) == (1, [5])


def test_a_nic_in_the_slot_of_another_gpu_leaves_one_gpu_far_and_one_nic_shared():
    host = server()
    paths = [list(row) for row in host.paths]
    for g in range(8):  # NIC 3 moved beside NIC 2
        paths[g][3] = paths[g][2]
    found = kinds(replace(host, paths=tuple(map(tuple, paths))))  # type: ignore[arg-type]
    assert ("NIC far from GPU", "GPU3 (g3)") in found
    assert all(element.startswith("GPU3") for _, element in found)


def test_gpus_that_must_share_a_nic_are_told_where_no_assignment_exists():
    host = server()
    paths = [list(row) for row in host.paths]
    paths[3] = list(paths[2])  # GPU 3 sits where GPU 2 is
    found = kinds(replace(host, paths=tuple(map(tuple, paths))))  # type: ignore[arg-type]
    assert found == [("NIC shared by GPUs", "GPU3 (g3)")]


@pytest.mark.parametrize("lanes", [8, 4])
def test_a_narrow_nic_is_degraded_and_too_slow_for_its_port(lanes):
    found = kinds(with_nic(server(), 6, lanes=lanes, rate=GEN5_X16 * lanes / 16))
    assert found == [("NIC PCIe link degraded", "mlx5_6 (n6)"), ("PCIe slower than NIC", "mlx5_6 (n6)")]


def test_a_card_of_another_kind_is_no_degraded_one():
    assert kinds(with_nic(server(), 7, lanes=1, rate=0.25e9, speed=0.0)) == []


def test_a_narrow_gpu_is_degraded():
    assert kinds(with_gpu(server(), 1, lanes=8, rate=GEN5_X16 / 2)) == [
        ("GPU PCIe link degraded", "GPU1 (g1)")
    ]


def test_a_lower_generation_on_full_width_is_degraded_too():
    assert kinds(with_gpu(server(), 1, rate=GEN5_X16 / 2)) == [("GPU PCIe link degraded", "GPU1 (g1)")]


def test_missing_nvlinks_are_counted_against_the_other_gpus():
    assert kinds(with_gpu(server(), 4, switch_nvlinks=17)) == [("NVLink missing", "GPU4 (g4)")]


def test_a_pair_with_fewer_nvlinks_than_both_have_elsewhere_is_told():
    host = server()
    nvlink = [list(row) for row in host.nvlink]
    nvlink[2][5] = nvlink[5][2] = 17
    (found,) = lint(replace(host, nvlink=tuple(map(tuple, nvlink))))
    assert (found.kind, found.element) == ("NVLink missing", "GPU2 (g2) - GPU5 (g5)")
    assert (found.expected, found.found) == ("18 NVLinks, as each has to other GPUs", "17")


def test_an_nvlink_known_to_one_end_only_is_told():
    host = server()
    nvlink = [list(row) for row in host.nvlink]
    nvlink[2][5] = 17
    found = kinds(replace(host, nvlink=tuple(map(tuple, nvlink))))
    assert found == [("NVLink told differently by its ends", "GPU2 (g2) - GPU5 (g5)")]


def test_a_nic_on_the_other_numa_node_is_told():
    assert kinds(with_nic(server(), 0, numa=1)) == [("NIC on another NUMA node", "GPU0 (g0)")]


def test_one_nic_for_many_gpus_cannot_be_near_to_all():
    host = server()
    assert lint(replace(host, nics=host.nics[:1], paths=tuple(row[:1] for row in host.paths))) == []


def test_a_server_whose_nics_are_all_behind_the_cpu_has_no_gpudirect_path():
    host = server()
    far = tuple(tuple("NODE" for _ in row) for row in host.paths)
    assert ("no GPUDirect path", "all GPUs") in kinds(replace(host, paths=far))  # type: ignore[arg-type]


GB200 = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNODE\tSYS\t0-71\t0,2-17\t\t2
GPU1\tNV18\t X \tSYS\tNODE\t72-143\t1,18-33\t\t10
NIC0\tNODE\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tNODE\tSYS\t X \t\t\t\t
"""
C2C_XML = """\
<system version="1">{cpus}
</system>
"""
C2C_CPU = """
  <cpu numaid="{n}" affinity="f" arch="arm64">
    <pci busid="000{n}:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="{n}" sm="100" rank="{n}" gdr="1"><c2c bw="225000" count="1"/></gpu>
    </pci>
    <pci busid="000{n}:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_{n}" dev="{n}" speed="400000" port="1" gdr="1"/></nic>
    </pci>
  </cpu>"""


@pytest.mark.parametrize("text", [GB200, C2C_XML.format(cpus="".join(C2C_CPU.format(n=n) for n in (0, 1)))])
def test_a_gpu_with_a_link_of_its_own_to_the_cpu_has_gpudirect_to_that_cpus_nics(tmp_path, text):
    """A sound tray of GB200 was said to stage its traffic through the CPU."""
    file = tmp_path / "topology"
    file.write_text(text)
    host = read_host(file)
    assert [gpu.c2c for gpu in host.gpus] == [True, True]
    assert "no GPUDirect path" not in [kind for kind, _ in kinds(host)]
    silent = replace(host, gpus=tuple(replace(gpu, c2c=False) for gpu in host.gpus))
    assert any("unless the GPUs hang on Grace" in f.evidence for f in lint(silent))
    far = replace(host, paths=tuple(tuple("SYS" for _ in row) for row in host.paths))  # type: ignore[misc]
    assert "no GPUDirect path" in [kind for kind, _ in kinds(far)]


def test_nothing_known_nothing_said():
    assert lint(HostTopology("empty", (), (), (), (), (), ())) == []
