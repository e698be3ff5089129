"""The machine a published measurement was made on, as far as its record tells."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog, Nic, Server, Source
from railwright.collectives import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.spec.study import Cluster, ComputeNetwork

SERVER_OF_GPU = {
    "V100": "dgx-1-v100",
    "A100": "dgx-a100",
    "A100-40": "dgx-a100-40",
    "H100": "dgx-h100",
    "H100-96": "grand-teton-h100",
    "H800": "hgx-h800",
    "H200": "dgx-h200",
    "B200": "dgx-b200",
    "B300": "dgx-b300",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
    "MI300X": "mi300x-8",
    "MI325X": "mi325x-8",
    "MI350X": "mi350x-8",
    "MI355X": "mi355x-8",
    "H100-NVL": "server-8x-h100-nvl",
    "H100-PCIE": "server-8x-h100-pcie",
    "H20": "hgx-h20",
    "GH200": "gh200-1",
    "L40S": "server-8x-l40s",
    "L40": "server-8x-l40",
    "RTX-4090": "workstation-1x-rtx-4090",
    "RTX-5090": "workstation-1x-rtx-5090",
    "RTX-PRO-6000": "server-8x-rtx-pro-6000",
}
"""A record names a GPU; its usual server gives the scale-up domain and the processor."""
EFA_SERVERS = {"A100": "aws-p4de", "H100": "aws-p5", "H200": "aws-p5en"}
"""Servers on AWS, for their EFA adapters; GPUs not listed get p5's."""
SWITCHES = ((100e9, "q3400-ra"), (50e9, "qm9700"), (0.0, "qm8700"))
"""The usual switch by NIC port rate [byte/s]: the first whose rate is reached."""


class Unsupported(Exception):
    """A record whose machine or job this stage cannot describe; the text is the reason."""


@lru_cache(maxsize=256)
def published_machine(
    gpu: str,
    gpus: int,
    nic_gbps: float | None,
    nccl: NcclSettings | None = None,
    efa: bool = False,
    rack: int | None = None,
    nics: int | None = None,
    server_gpus: int | None = None,
    nvlink_gb_s: float | None = None,
) -> Machine:
    """A non-blocking fabric of the GPU's usual servers, large enough for `gpus`.

    Servers of 8 GPUs are joined by rails, racks of one NVLink domain by a fat tree, and a single server
    of 8 by one switch.
    nic_gbps  NIC rate per GPU where the record states it [Gb/s]; otherwise the usual server's
    efa       the record was measured on AWS
    rack      GPUs used of each larger NVLink domain, where a job takes several
    nics      NICs of each server where the record tells them apart; otherwise the usual server's
    server_gpus  GPUs of each server, a NIC for each, where those are not the usual one's (four GH200 of Alps)
    nvlink_gb_s  NVLink of each GPU, one direction, where it is cut (A800, an A100) [GB/s]
    """
    if gpu not in SERVER_OF_GPU:
        raise Unsupported(f"no usual server for GPU '{gpu}'")
    catalog = load_catalog()
    server = catalog.servers[SERVER_OF_GPU[gpu]]
    if rack is not None and server.gpus > rack and gpus > server.gpus:
        server = replace(server, gpus=rack, nics=server.nics * rack // server.gpus)
    if server_gpus is not None:
        server = replace(server, gpus=server_gpus, nics=server_gpus)
    if nvlink_gb_s is not None:
        cut = replace(catalog.gpus[server.gpu], scale_up_bandwidth=nvlink_gb_s * 1e9)
        catalog = replace(catalog, gpus={**catalog.gpus, cut.name: cut})
    if efa:
        server = replace(server, nic=catalog.servers[EFA_SERVERS.get(gpu, "aws-p5")].nic)
    if nics is not None:
        server = replace(server, nics=nics)
    # No record names its switches: the usual ones stand for those of any protocol.
    nic = replace(catalog.nics[server.nic], technology="both")
    if nic_gbps is not None:
        nic = _at_rate(nic, nic_gbps * 1e9 / 8 * server.gpus / server.nics / nic.ports)
        server = replace(server, nic=nic.name)
    servers = -(-gpus // server.gpus)
    switch = next(part for rate, part in SWITCHES if nic.rate >= rate)
    if servers == 1 and server.nics * nic.ports <= catalog.switches[switch].ports:
        network = ComputeNetwork(family="single-switch", switch=switch)
    elif server.gpus > 16:
        network = ComputeNetwork(family="fat-tree", switch=switch)
    else:
        network = ComputeNetwork(family="rail-optimised", switch=switch)
    cluster = Cluster(servers=servers, server=server.name, compute=network)
    return Machine.of(cluster, _with(catalog, server, nic), nccl or NcclSettings())


def _at_rate(nic: Nic, rate: float) -> Nic:
    """The NIC at the rate a record states [byte/s per port]; itself when that is its own."""
    if abs(rate / nic.rate - 1) < 1e-6:
        return nic
    source = Source("the published record", status="read")
    return replace(
        nic, name=f"{nic.name}-at-{rate * 8 / 1e9:g}", rate=rate, sources={**nic.sources, "rate": source}
    )


def _with(catalog: Catalog, server: Server, nic: Nic) -> Catalog:
    """The catalogue with these two parts in place."""
    return replace(
        catalog,
        servers={**catalog.servers, server.name: server},
        nics={**catalog.nics, nic.name: nic},
    )
