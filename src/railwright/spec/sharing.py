"""The part of a study file about the people who share the machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Size
from railwright.spec.section import Section

Scheduler = Literal["masks", "queue", "slurm-node", "slurm", "kubernetes"]


class Sharing(Section):
    """Who works on the cluster, and how well they must be kept apart."""

    users: Annotated[int, Field(gt=0)] = Field(description="people who start jobs, e.g. 12")
    names: tuple[str, ...] = Field(
        default=(), description="their login names, for masks; default: user-01, user-02, …"
    )
    isolation: Literal["none", "jobs", "tenants"] = Field(
        default="none",
        description="none: people agree among themselves; jobs: a job cannot touch another's GPUs, memory or "
        "cores; tenants: parties that do not trust each other",
    )
    services: bool = Field(
        default=False, description="whether long-lived services run beside jobs (inference, web)"
    )
    scheduler: Literal["auto", "masks", "queue", "slurm-node", "slurm", "kubernetes"] = Field(
        default="auto",
        description="masks: CUDA_VISIBLE_DEVICES per person; queue: task-spooler on one machine; slurm-node: "
        "Slurm on one machine; slurm: a Slurm cluster; kubernetes: Kubernetes with Kueue; "
        "auto: recommended from users, servers and isolation",
    )
    containers: Literal["none", "enroot", "toolkit"] = Field(
        default="none", description="enroot: Enroot and Pyxis under Slurm; toolkit: NVIDIA Container Toolkit"
    )
    notebooks: bool = Field(default=False, description="whether people work in Jupyter")
    sockets: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="CPU sockets of one host; default: what is known of the server"
    )
    cores: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="CPU cores of one host, all sockets; default: what is known of the server"
    )
    threads: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="threads per core; default: what is known of the server"
    )
    memory: Size | None = Field(
        default=None, description="memory of one host, e.g. '2 TB'; default: what is known of the server"
    )
    interface: str | None = Field(
        default=None,
        description="Linux name of the Ethernet interface NCCL opens its sockets on, e.g. 'bond0'; "
        "default: any but loopback and Docker's",
    )
    controller: str = Field(default="head-01", description="host name of the Slurm controller")
