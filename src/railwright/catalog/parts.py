"""What a catalogue part is: a GPU, NIC, switch or server, every value in base units and with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = Literal["read", "read_third_party", "computed", "memory"]
"""How far a value was checked: read in the source here; read in somebody else's copy of it;
computed from read values; or from memory (never tested exactly against)."""


@dataclass(frozen=True)
class Source:
    """Where a value comes from: document, place in it, date it was read (ISO), and how far to trust it."""

    document: str
    where: str = ""
    date: str = ""
    status: Status = "read"


PCIE_5 = 63e9
"""One direction of a PCIe 5.0 x16 slot: 16 lanes of 32 GT/s, 128b/130b. [byte/s]"""

PCIE: dict[str, float] = {
    "volta": 15.75e9,
    **dict.fromkeys(("ampere", "ada", "cdna2"), 31.5e9),
    **dict.fromkeys(("hopper", "blackwell-rtx", "cdna3", "cdna4"), PCIE_5),
}
"""Generation -> one direction of its x16 slot [byte/s]: 16 lanes of 8 GT/s, 128b/130b (PCIe 3.0), from the
data sheet of V100; of 16 GT/s (4.0) from those of A100 PCIe, L40, L40S, RTX 4090 and MI250X; of 32 GT/s (5.0,
"128 GB/s" both ways) from those of H100, H200, RTX PRO 6000, RTX 5090, MI300X and MI355X.  Blackwell's GPUs
for data centres have PCIe 6.0, and take the generation of the NICs beside them."""

LIKE_BLACKWELL = ("blackwell", "blackwell-ultra", "rubin")
"""Generations with the tensor cores of Blackwell's data-centre GPUs: compute capability 10, whose kernels are
written in the same instructions (PTX ISA 9.4: tcgen05 on sm_100, sm_103 and sm_107)."""

HOST_SHARE = 0.95
"""Share of a host's nominal memory that is there for processes; firmware and kernel keep the rest."""


@dataclass(frozen=True)
class Gpu:
    """One GPU (for MI250X: one module of two dies).

    peak_flops       dense peak by dtype ('fp32', 'tf32', 'bf16', 'fp16', 'fp8', 'fp4') [flop/s]
    hbm_bytes        memory a job can address, as the driver reports it (a label of 80 GB is 79.6 GiB) [byte]
    hbm_bandwidth    memory bandwidth [byte/s]
    scale_up_bandwidth  what one GPU sends into its scale-up domain, one direction [byte/s]; 0 without one
    scale_up_links   links to as many peers that the GPU's bandwidth is shared over, where no switch joins
                     the domain: two GPUs then reach each other over one of them; 0 behind switches
    power            board power limit [W]
    sms              streaming multiprocessors or compute units (for wave effects)
    sources          field name -> Source; '*' stands for every field not named
    """

    name: str
    vendor: str
    generation: str
    peak_flops: Mapping[str, float]
    hbm_bytes: float
    hbm_bandwidth: float
    scale_up_bandwidth: float
    scale_up_links: int
    power: float
    sms: int
    sources: Mapping[str, Source]

    @property
    def slot(self) -> float:
        """One direction of its slot in a host of PCIe 5.0, whatever the NIC's is. [byte/s]"""
        return PCIE.get(self.generation, PCIE_5)

    def lane_to(self, nic: Nic) -> float:
        """One direction of the PCIe lane between it and a NIC: the slower of their slots. [byte/s]

        GPUs that are not in PCIE have the generation of the NICs beside them, PCIe 6.0 too.
        """
        return min(nic.pcie_bandwidth, PCIE.get(self.generation, nic.pcie_bandwidth))


@dataclass(frozen=True)
class Nic:
    """One network adapter.

    rate     per port, one direction [byte/s]
    ports    ports of that rate
    pcie_bandwidth  host side, one direction [byte/s]
    latency  one side, host memory to wire [s]
    technology  what it speaks: 'infiniband', 'ethernet', or 'both'
    """

    name: str
    vendor: str
    rate: float
    ports: int
    pcie_bandwidth: float
    latency: float
    power: float
    technology: Literal["infiniband", "ethernet", "both"]
    sources: Mapping[str, Source]

    def speaks(self, technology: str) -> bool:
        """Whether it can be cabled to a switch of that technology."""
        return self.technology in ("both", technology)


@dataclass(frozen=True)
class Switch:
    """One switch, or one director (a chassis sold and counted as one).

    ports      logical ports of `rate` (a twin-port cage counts twice)
    cages      front-panel cages
    rate       per port, one direction [byte/s]
    technology 'infiniband' or 'ethernet'
    latency    port to port [s]
    power_typical, power_max  [W]; 0 where no source gives one
    adaptive_routing, sharp   whether it can
    director_spines  internal spine modules of a director; 0 for a fixed switch
    """

    name: str
    vendor: str
    technology: Literal["infiniband", "ethernet"]
    ports: int
    cages: int
    rate: float
    latency: float
    power_typical: float
    power_max: float
    rack_units: int
    adaptive_routing: bool
    sharp: bool
    director_spines: int
    sources: Mapping[str, Source]


@dataclass(frozen=True)
class Server:
    """One server (for NVL72: one rack, which is one scale-up domain of 72 GPUs).

    gpus         GPUs in it, all in one scale-up domain when the GPU has scale_up_bandwidth
    nics         compute NICs, spread evenly over its GPUs (gpus / nics GPUs share one)
    cpu          'intel', 'amd' or 'arm': NCCL's proxy overhead depends on it
    power_max    [W]
    hosts        operating systems in it, each with an even share of its GPUs (an NVL72's compute trays)
    memory       main memory of one host, nominal; 0 where no source gives one [byte]
    """

    name: str
    vendor: str
    gpu: str
    gpus: int
    nic: str
    nics: int
    cpu: Literal["intel", "amd", "arm"]
    rack_units: int
    power_max: float
    sources: Mapping[str, Source]
    hosts: int = 1
    memory: float = 0.0


@dataclass(frozen=True)
class Catalog:
    """All known parts by kind and name; a user's own file is merged over the shipped ones."""

    gpus: Mapping[str, Gpu]
    nics: Mapping[str, Nic]
    switches: Mapping[str, Switch]
    servers: Mapping[str, Server]
