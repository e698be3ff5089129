"""The bundle of day one: every file, in the order in which they are installed, with a page that says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

from railwright import export
from railwright.catalog.parts import Catalog
from railwright.deploy import health, kubernetes, masks, nccl_conf, notebooks, slurm
from railwright.deploy.advice import NAMES, Advice, advise
from railwright.deploy.hosts import Host, host_of
from railwright.deploy.templates import template
from railwright.errors import PlanError
from railwright.export.hierarchy import gpus_per_host, hosts_of
from railwright.export.sheet import Sheet
from railwright.fabric.graph import Fabric
from railwright.spec.sharing import Sharing
from railwright.spec.study import Study

LEAST_MEMORY = 1024
"""Of a host for each GPU, below which a figure is a slip of the pen [MiB]."""

_CONTROLLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(\([A-Za-z0-9.:-]+\))?")
"""A host name, and its address where it has another (slurm.conf(5), SlurmctldHost)."""
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,-]*")
"""Linux interfaces, one or a list (NCCL_SOCKET_IFNAME)."""

EXECUTABLE = (".sh", "gpuq", ".sbatch")


@dataclass(frozen=True)
class Bundle:
    """advice  what the machines are shared with, and why
    files   path in the bundle -> text
    facts   where figures that are not the study's own come from
    """

    advice: Advice
    files: dict[str, str]
    facts: tuple[str, ...]


def bundle(study: Study, fabric: Fabric, catalog: Catalog) -> Bundle:
    """Every file of the way its people share this cluster.

    Raises PlanError where the study has no section `sharing`, or asks for what cannot work.
    """
    sharing = study.sharing
    if sharing is None:
        raise PlanError(
            "the study does not say who shares the machines: add a section `sharing`, at least\n"
            "sharing:\n  users: 8"
        )
    sheet = Sheet(fabric, catalog, " ".join(study.name.split()))
    sheet.need_gpus("a deploy bundle")
    gpus = gpus_per_host(sheet)
    hosts = sum(len(names) for names in hosts_of(sheet))
    advice = advise(sharing, hosts, gpus)
    _check(sharing, advice)
    files: dict[str, str] = {}
    facts: list[str] = []
    if advice.scheduler == "masks":
        files |= masks.render(sharing, gpus)
    elif advice.scheduler == "queue":
        files |= masks.render_queue(gpus)
    else:
        host = host_of(study.cluster.server, sharing)
        _check_host(host, gpus)
        facts.append(
            f"A host has {host.sockets} sockets, {host.cores} cores, {host.threads} thread(s) each and "
            f"{host.memory / 1e12:g} TB: {host.source}."
        )
        if advice.scheduler == "kubernetes":
            facts += kubernetes.left_without(sharing, hosts * gpus)
            files |= kubernetes.render(sheet, sharing, host)
        else:
            files |= slurm.render(sheet, sharing, host, single=advice.scheduler == "slurm-node")
    files |= health.render(sheet, gpus)
    if hosts > 1:
        files |= nccl_conf.render(sheet, study.cluster, study.nccl, sharing.interface)
        topology = export.render(fabric, "nccl", sheet.title, catalog)
        files |= {f"nccl/{name}": text for name, text in topology.items()}
    if sharing.containers == "toolkit":
        files |= {"containers/install.sh": template("container-toolkit.sh")}
    if sharing.notebooks:
        files |= notebooks.render(advice.scheduler)
    files = {"README.md": _readme(sheet, advice, files, facts), **files}
    return Bundle(advice, files, tuple(facts))


def _check(sharing: Sharing, advice: Advice) -> None:
    if not _CONTROLLER.fullmatch(sharing.controller):
        raise PlanError(f"sharing.controller: '{sharing.controller}' is no host name; give one like head-01")
    if sharing.interface is not None and not _INTERFACE.fullmatch(sharing.interface):
        raise PlanError(f"sharing.interface: '{sharing.interface}' is no interface; give one like bond0")
    if sharing.containers == "enroot" and advice.scheduler not in ("slurm", "slurm-node"):
        raise PlanError(
            f"sharing.containers: Enroot and Pyxis belong to Slurm, and this cluster is shared by "
            f"{NAMES[advice.scheduler]}; take toolkit"
        )


def _check_host(host: Host, gpus: int) -> None:
    """Every GPU brings a share of cores and memory, and to Slurm a share of 0 is all of it."""
    if host.cores * host.threads < gpus:
        raise PlanError(
            f"sharing.cores: {host.cores} cores of {host.threads} thread(s) are less than one for each of "
            f"the {gpus} GPUs of a host"
        )
    if host.real_memory < gpus * LEAST_MEMORY:
        raise PlanError(
            f"sharing.memory: {host.memory:g} bytes are less than {LEAST_MEMORY} MiB for each of the {gpus} "
            "GPUs of a host; write it with its unit, as '2 TB'"
        )


STEPS = {
    "masks/": "as root: install -m 644 masks/gpu-masks.sh /etc/profile.d/ (or append each "
    "masks/bashrc-NAME to that person's .bashrc).  Check: `echo $CUDA_VISIBLE_DEVICES` "
    "after a new login.",
    "queue/": "as root: apt install task-spooler; install -m 755 queue/gpuq /usr/local/bin/; "
    "install -d -m 1777 /run/gpuq.  Check: `gpuq nvidia-smi -L`, then `gpuq`.",
    "health/": "on every host, as root: install -m 755 health/check-node.sh /etc/slurm/ (without "
    "Slurm: /usr/local/sbin/).  Check: it prints nothing and ends with 0.",
    "slurm/": "on every host, as root: munge with one key everywhere; install slurm/* into "
    "/etc/slurm (scripts with mode 755); slurmctld on the controller, slurmd on the "
    "hosts; install -d -o slurm /var/spool/slurmctld /var/log/slurm.  Compare NodeName "
    "with `slurmd -C`.  Check: `sinfo`, then `srun --gpus=1 nvidia-smi -L`.",
    "enroot/": "on every host, as root: Enroot and Pyxis (built against your Slurm); install "
    "enroot/enroot.conf into /etc/enroot; install -d -m 1777 /run/enroot "
    "/var/cache/enroot /var/lib/enroot.  Check: `srun --gpus=1 --container-image=ubuntu "
    "nvidia-smi -L`.",
    "kubernetes/": "with the GPU operator and Kueue installed: kubectl apply --server-side -f "
    "kubernetes/node-labels.yaml, then topology.yaml and queues.yaml.  Check: `kubectl "
    "create -f kubernetes/job.yaml`, `kubectl get workloads -A`.",
    "nccl/": "on every host, as root: install -m 644 nccl/nccl.conf /etc/nccl.conf. "
    "nccl/nccl-topo.xml has placeholder bus ids: only for machines that hide their PCIe "
    "tree (virtual ones), with the ids put in.  Check: `railwright burnin` writes the "
    "tests with what they should reach.",
    "containers/": "on every host, as root: bash containers/install.sh.  Check: `docker run --rm --gpus "
    "all ubuntu nvidia-smi -L`.",
    "jupyter/": "for whoever wants it: the template is theirs to copy and change.",
}


def _readme(sheet: Sheet, advice: Advice, files: dict[str, str], facts: list[str]) -> str:
    lines = [f"# Day one of {sheet.title}", "", f"**{_capital(NAMES[advice.scheduler])}.** {advice.why}"]
    if advice.grow:
        lines.append(advice.grow)
    lines += ["", "Not taken:", ""]
    lines += [f"- {NAMES[way]}: {reason}." for way, reason in advice.against]
    lines += ["", "## Install, in this order", ""]
    folders = [folder for folder in STEPS if any(name.startswith(folder) for name in files)]
    lines += [f"{i + 1}. `{folder}`: {STEPS[folder]}" for i, folder in enumerate(folders)]
    lines += [
        "",
        "Host names are those of the design (server-01, …): change them in one go, or name the hosts so.",
    ]
    lines += facts
    return "\n".join(lines) + "\n"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
