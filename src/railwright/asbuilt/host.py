"""One server from inside: CPUs, PCIe bridges, GPUs, NICs, NVLink, and how far each NIC is from each GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PathType = Literal["PIX", "PXB", "PHB", "NODE", "SYS", ""]
"""What lies between a GPU and a NIC, as `nvidia-smi topo -m` names it in its legend.

PIX   at most one PCIe switch          PXB   several PCIe switches, no CPU
PHB   a PCIe host bridge (the CPU)     NODE  two host bridges of one NUMA node
SYS   the link between NUMA nodes      ''    the dump does not say
"""


@dataclass(frozen=True, slots=True)
class Cpu:
    """One NUMA node. numa: its number; affinity: its cores as the dump writes them; model as told, or ''."""

    numa: int
    affinity: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A PCIe bridge or switch port.

    key     bus id, '0000:2b:00.0'; 'host-0' for a host bridge
    parent  key of the bridge above; '' at the CPU
    numa    NUMA node, -1 unknown
    """

    key: str
    parent: str = ""
    numa: int = -1
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU.

    key     bus id, or 'GPU0' where the dump has none
    name    as the dump calls it ('GPU0', 'cuda0'), '' otherwise
    bridge  key of the bridge above it; '' directly at the CPU or unknown
    lanes, rate  its PCIe link: lanes (0 unknown) and one direction [byte/s] (0 unknown)
    switch_nvlinks  NVLinks into NVSwitches (0: none, or the dump does not tell)
    c2c     it has a link to its CPU that is not PCIe, NVLink-C2C (GH200, GB200); False: none, or not told
    """

    key: str
    name: str = ""
    numa: int = -1
    bridge: str = ""
    lanes: int = 0
    rate: float = 0.0
    switch_nvlinks: int = 0
    c2c: bool = False


@dataclass(frozen=True, slots=True)
class Nic:
    """A network adapter.

    key, numa, bridge, lanes, rate  as of a Gpu
    name   'mlx5_0'; several ports as 'mlx5_0,mlx5_1'; '' when the dump has only the bus id
    speed  what its network ports carry together, one direction [byte/s]; 0 unknown
    """

    key: str
    name: str = ""
    numa: int = -1
    bridge: str = ""
    lanes: int = 0
    rate: float = 0.0
    speed: float = 0.0


@dataclass(frozen=True)
class HostTopology:
    """Everything one topology file says about a server.

    nvlink  [i][j] NVLinks between GPU i and GPU j; () where the dump has no NVLink information
            ('NV18' of nvidia-smi counts a GPU's links through NVSwitches to every peer)
    paths   [i][j] PathType between GPU i and NIC j
    """

    source: str
    cpus: tuple[Cpu, ...]
    bridges: tuple[Bridge, ...]
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    nvlink: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[PathType, ...], ...]
    notes: tuple[str, ...] = field(default=())
