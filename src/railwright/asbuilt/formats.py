"""Every format that can be read: how it is recognised, what parses it, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from railwright.asbuilt.read import (
    hwloc,
    iblinkinfo,
    ibnetdiscover,
    infragraph,
    lldp,
    names,
    nccl_topo,
    nvsmi,
    ports_report,
    sheet,
    slurm,
    tables,
)
from railwright.asbuilt.read.dump import Dump

Yields = Literal["fabric", "host", "tables", "names"]


@dataclass(frozen=True)
class Format:
    """One format.

    recognise  True when the file's content is of this format
    parse      (dump, node-name map) -> Wiring, HostTopology, ForwardingTables or a map, as `yields` says
    """

    recognise: Callable[[Dump], bool]
    parse: Callable[[Dump, Mapping[str, str]], object]
    yields: Yields
    description: str


def _alone(parse: Callable[[Dump], object]) -> Callable[[Dump, Mapping[str, str]], object]:
    """A parser that has no use for a node-name map."""
    return lambda dump, _: parse(dump)


# In order of how surely each is recognised: the first that knows a file reads it.
FORMATS: Mapping[str, Format] = {
    "nccl-xml": Format(nccl_topo.recognise, _alone(nccl_topo.parse), "host", "an NCCL topology file (XML)"),
    "hwloc": Format(hwloc.recognise, _alone(hwloc.parse), "host", "an hwloc topology (lstopo XML)"),
    "iblinkinfo": Format(iblinkinfo.recognise, iblinkinfo.parse, "fabric", "the output of iblinkinfo"),
    "ibnetdiscover": Format(
        ibnetdiscover.recognise, ibnetdiscover.parse, "fabric", "the topology file of ibnetdiscover"
    ),
    "ibnetdiscover-ports": Format(
        ports_report.recognise, ports_report.parse, "fabric", "the ports report of ibnetdiscover -p"
    ),
    "forwarding-tables": Format(
        tables.recognise, _alone(tables.parse), "tables", "forwarding tables (dump_fts, ibroute, OpenSM)"
    ),
    "nvidia-smi-topo": Format(nvsmi.recognise, _alone(nvsmi.parse), "host", "nvidia-smi topo -m"),
    "slurm-conf": Format(slurm.recognise_conf, slurm.parse_conf, "fabric", "Slurm's topology.conf"),
    "slurm-yaml": Format(slurm.recognise_yaml, slurm.parse_yaml, "fabric", "Slurm's topology.yaml"),
    "netq": Format(lldp.recognise_netq, lldp.parse_netq, "fabric", "a NetQ topology graph (JSON)"),
    "infragraph": Format(infragraph.recognise, infragraph.parse, "fabric", "an InfraGraph infrastructure"),
    "lldp": Format(lldp.recognise_lldp, lldp.parse_lldp, "fabric", "the neighbours of lldpctl -f json"),
    "cable-sheet": Format(sheet.recognise, sheet.parse, "fabric", "a cable sheet (CSV or .xlsx)"),
    "node-names": Format(names.recognise, _alone(names.parse), "names", "a node-name map"),
}  # fmt: skip
