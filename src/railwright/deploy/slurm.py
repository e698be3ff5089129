"""Slurm for one machine or the whole cluster: all its files, ready but for the accounting database.

Formats and meaning: slurm.conf(5), gres.conf(5), cgroup.conf(5), topology.conf(5), prolog_epilog guide
(slurm.schedmd.com); Pyxis README (plugstack.conf), Enroot doc/configuration.md.
"""

from __future__ import annotations

from railwright import export
from railwright.deploy.hosts import Host
from railwright.deploy.templates import template
from railwright.export.hierarchy import gpus_per_host, hosts_of
from railwright.export.hostlist import hostlist
from railwright.export.sheet import Sheet
from railwright.export.slurm import gpu_type
from railwright.spec.sharing import Sharing

ETC = "/etc/slurm"


def render(sheet: Sheet, sharing: Sharing, host: Host, single: bool) -> dict[str, str]:
    """Every file of a Slurm installation; a single node has no topology.

    The node, GPU and topology lines are those of `railwright fabric export … slurm`.
    """
    fabric_files = export.render(sheet.fabric, "slurm", sheet.title, sheet.catalog)
    folder = "slurm"
    files = {
        f"{folder}/slurm.conf": _conf(sheet, sharing, host, single),
        f"{folder}/gres.conf": fabric_files["gres.conf"],
        f"{folder}/cgroup.conf": _cgroup(sheet.title, sharing),
        f"{folder}/health-check.sh": template("health-check.sh"),
    }
    if not single:
        files[f"{folder}/topology.conf"] = fabric_files["topology.conf"]
    if sharing.containers == "enroot":
        files |= _enroot(folder)
    return files


def _conf(sheet: Sheet, sharing: Sharing, host: Host, single: bool) -> str:
    nodes = hostlist(h for names in hosts_of(sheet) for h in names)
    gpus, kind = gpus_per_host(sheet), gpu_type(sheet)
    conf = [
        _head(sheet.title),
        f"ClusterName={_name(sheet.title)}",
        f"SlurmctldHost={sharing.controller if not single else nodes}",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "",
        "# Cores, memory and GPUs are handed out one by one; a job gets nothing that it did not ask for.",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "GresTypes=gpu",
        # A thread is a CPU to Slurm (slurm.conf(5), CR_Core).
        f"DefCpuPerGPU={host.cores * host.threads // gpus}",
        f"DefMemPerGPU={host.real_memory // gpus}",
        "ProctrackType=proctrack/cgroup",
        "TaskPlugin=task/affinity,task/cgroup",
        "PrologFlags=Contain",
        "",
        "# Small jobs fill the gaps that large ones leave; waiting lifts a job.  Fair shares of people",
        "# and limits ask for accounting: slurmdbd, AccountingStorageType, PriorityWeightFairshare.",
        "SchedulerType=sched/backfill",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "PriorityWeightJobSize=1000",
    ]
    if not single:
        conf += [
            "",
            "# A job's hosts hang on as few switches as can be (topology.conf is the fabric).",
            "TopologyPlugin=topology/tree",
            "TopologyParam=SwitchAsNodeRank",
            "TreeWidth=64",
        ]
    conf += [
        "",
        "# A host that is not what the design says gets no job: the prolog's failure drains it.",
        f"Prolog={ETC}/check-node.sh",
        f"HealthCheckProgram={ETC}/health-check.sh",
        "HealthCheckInterval=300",
        "HealthCheckNodeState=IDLE",
        "SlurmdTimeout=300",
        "ReturnToService=1",
        "",
        f"NodeName={nodes} Sockets={host.sockets} CoresPerSocket={host.cores // host.sockets} "
        f"ThreadsPerCore={host.threads} RealMemory={host.real_memory} Gres=gpu:{kind}:{gpus} State=UNKNOWN",
        f"PartitionName=gpu Nodes={nodes} Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP",
    ]
    return "\n".join(conf) + "\n"


def _cgroup(title: str, sharing: Sharing) -> str:
    isolated = sharing.isolation != "none"
    yes = "yes" if isolated else "no"
    lines = [
        _head(title),
        "# A job sees the GPUs it was given and no other"
        + ("; its cores and memory are walls." if isolated else "; memory is not a wall (isolation: none)."),
        "ConstrainDevices=yes",
        "ConstrainCores=yes",
        f"ConstrainRAMSpace={yes}",
        f"ConstrainSwapSpace={yes}",
    ]
    return "\n".join(lines) + "\n"


def _enroot(folder: str) -> dict[str, str]:
    """Pyxis (srun --container-image) and the folders Enroot unpacks into."""
    return {
        f"{folder}/plugstack.conf": "# Pyxis: srun --container-image=…\n"
        "required /usr/local/lib/slurm/spank_pyxis.so runtime_path=/run/pyxis\n",
        "enroot/enroot.conf": "\n".join(
            [
                "# /etc/enroot/enroot.conf: layers shared on the host, everything else per user",
                "ENROOT_RUNTIME_PATH        /run/enroot/user-$(id -u)",
                "ENROOT_CACHE_PATH          /var/cache/enroot/group-$(id -g)",
                "ENROOT_DATA_PATH           /var/lib/enroot/user-$(id -u)",
                "ENROOT_MOUNT_HOME          no",
                "ENROOT_REMAP_ROOT          no",
                "# RDMA devices and MPI into every container (enroot hooks 50-slurm-pmi.sh, 99-mellanox.sh)",
                "MELLANOX_VISIBLE_DEVICES   all",
            ]
        )
        + "\n",
    }


def _head(title: str) -> str:
    return f"# {title}: written by railwright deploy"


def _name(title: str) -> str:
    """A cluster name: small letters, digits and hyphens, at most 40 of them."""
    text = "".join(c if c.isalnum() and c.isascii() else "-" for c in title.lower())
    return "-".join(part for part in text.split("-") if part)[:40].strip("-") or "cluster"
