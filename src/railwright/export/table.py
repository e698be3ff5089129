"""Every format a fabric can be written in, and the two ways to ask for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError, among
from railwright.export import (
    astra,
    bom,
    cables,
    cvt,
    dot,
    graphml,
    htsim,
    ibnet,
    infragraph,
    kueue,
    nccl,
    netbox,
    simai,
    simgrid,
    slurm,
    topograph,
)
from railwright.export.files import write_new
from railwright.export.sheet import Sheet
from railwright.fabric.graph import Fabric


@dataclass(frozen=True)
class Export:
    """One format: what writes it, the files it makes, and what it is for.

    files  names in the order written; a name with '*' stands for one file per part of the fabric
    """

    function: Callable[[Sheet], dict[str, str]]
    files: tuple[str, ...]
    description: str


EXPORTS: Mapping[str, Export] = {
    "cable-schedule": Export(
        cables.render, ("cables.csv",), "every cable with the labels of both ends, role, rate, length, medium"
    ),
    "bom": Export(
        bom.render, ("bom.csv",), "bill of materials: counts of parts, cables by length, transceivers"
    ),
    "ibsim": Export(
        ibnet.render_ibsim, ("fabric.net",), "net file of ibsim, the InfiniBand fabric simulator"
    ),
    "ibnetdiscover": Export(
        ibnet.render_discovered,
        ("fabric.ibnetdiscover",),
        "what `ibnetdiscover` would print of the fabric as it stands",
    ),
    "ibnetdiscover-ports": Export(
        ibnet.render_ports,
        ("fabric.ports",),
        "what `ibnetdiscover -p` would print: one line per connected port",
    ),
    "node-names": Export(
        ibnet.render_names, ("node-name-map",), "node-name map of infiniband-diags and OpenSM: GUID and name"
    ),
    "slurm": Export(
        slurm.render_tree,
        ("topology.conf", "topology.yaml", "slurm.conf", "gres.conf"),
        "Slurm's topology/tree, a logical switch per scalable unit, with nodes and GPUs",
    ),
    "slurm-block": Export(
        slurm.render_block,
        ("topology.conf", "topology.yaml", "slurm.conf", "gres.conf"),
        "Slurm's topology/block (23.11 and later): a block per rack-scale NVLink domain",
    ),
    "netbox": Export(
        netbox.render,
        (
            "manufacturers.csv",
            "device_roles.csv",
            "sites.csv",
            "device-types/*.yaml",
            "devices.csv",
            "cables.csv",
        ),
        "NetBox: device types and the CSV of its bulk import, in this order, status planned",
    ),
    "cvt": Export(
        cvt.render,
        ("p2p.csv", "fabric.topo", "hca_map.csv"),
        "UFM Cable Validation Tool: point-to-point sheet, topo file, adapter numbers",
    ),
    "dot": Export(dot.render, ("fabric.dot",), "Graphviz: servers, switches and bundles of cables"),
    "kueue": Export(
        kueue.render,
        ("topology.yaml", "node-labels.yaml"),
        "Kubernetes: Kueue Topology and resource flavor, labels of every node",
    ),
    "topograph": Export(
        topograph.render, ("model.yaml",), "cluster model of NVIDIA topograph's test provider"
    ),
    "nccl": Export(nccl.render, ("nccl-topo.xml",), "NCCL_TOPO_FILE of one server"),
    "infragraph": Export(
        infragraph.render, ("infragraph.json", "infragraph.yaml"), "Keysight/MLCommons InfraGraph 2.x"
    ),
    "simai": Export(simai.render, ("simai.topo",), "topology of SimAI's packet simulator (ns-3)"),
    "htsim": Export(
        htsim.render, ("fabric.topo", "hosts.csv"), "htsim's fat-tree topology, and which host is which NIC"
    ),
    "simgrid": Export(simgrid.render, ("platform.xml",), "SimGrid 4.1 platform"),
    "astra-sim": Export(astra.render, ("network.yml",), "ASTRA-sim's analytical network"),
    "graphml": Export(
        graphml.render, ("fabric.graphml",), "GraphML: every device and cable with its figures"
    ),
}
"""Format -> how it is written.  A new format is one module and one row here."""


def render(
    fabric: Fabric, format: str, study_name: str = "", catalog: Catalog | None = None
) -> dict[str, str]:
    """The files of one format: name (with '/' where it lies in a folder) -> text.

    study_name  put on top of the files that have room for it
    catalog     where the fabric's parts are looked up (default: the shipped one); a part it does not know
                is written with what the graph says of it
    Raises PlanError for a format that does not exist or that cannot say this fabric.
    """
    if format not in EXPORTS:
        raise PlanError(f"no export format '{format}'{among(format, EXPORTS)}")
    title = "".join(c if c.isprintable() else " " for c in study_name)
    sheet = Sheet(fabric, catalog or load_catalog(), " ".join(title.split()))
    return EXPORTS[format].function(sheet)


def write(
    fabric: Fabric,
    format: str,
    target: str | Path,
    study_name: str = "",
    catalog: Catalog | None = None,
) -> list[Path]:
    """Write one format and return the files, in the order of its table row.

    target  a folder (made if it is missing), or, for a format of one file, the file to write: a path that
            has a suffix and is no folder
    Raises PlanError, before anything is written, where a file exists already or `render` refuses.
    """
    texts = render(fabric, format, study_name, catalog)
    place = Path(target)
    single = len(texts) == 1 and bool(place.suffix) and not place.is_dir()
    files = {place if single else place / name: text for name, text in texts.items()}
    return write_new(files)
