"""How frameworks are told to exchange tokens among experts: by NCCL's all-to-all, or by kernels that send one
copy to each server (`expert_nodes`), and which of those.

Sources, read 2026-11-24: Megatron-LM d98e8a6, core/transformer/transformer_config.py
(moe_token_dispatcher_type, moe_flex_dispatcher_backend, moe_router_num_groups), core/transformer/moe/
token_dispatcher.py (MoEFlexTokenDispatcher) and moe_utils.py (group_limited_topk); Megatron-Bridge 067f987,
training/flex_dispatcher_backend.py; deepseek-ai/DeepEP dd758ca, csrc/kernels/legacy/internode.cu.
"""

from __future__ import annotations

from dataclasses import dataclass

from railwright.collectives.machine import Machine
from railwright.collectives.moe_routing import nodes_kept
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.experts import in_unequal_parts
from railwright.training.layout.placement import place
from railwright.training.layout.sizes import data_parallel
from railwright.training.software.eras import era_of

PEERS = 8
"""GPUs of one server in DeepEP's kernels: rank r of a group is on its server r // 8 (NUM_MAX_NVL_PEERS)."""

RACKS = ("gb200", "gb300")
"""GPUs whose NVLink spans racks: DeepEP is refused on them (validate_flex_dispatcher_backend)."""


@dataclass(frozen=True)
class Hosts:
    """What an export must know of where a layout was predicted.

    data     data-parallel size of the layout
    servers  servers that the most spread expert group lies on
    gpu      name of the GPUs in the catalogue
    even     whether every expert group has as many ranks on each of so many servers
    apart    whether some group has more ranks on one of its servers than on another
    fused    whether experts are predicted as one fused MLP there
    node     GPUs that one operating system has: an NVL72's are 18 trays of 4; 0 where nobody says
    """

    data: int
    servers: int = 1
    gpu: str = ""
    even: bool = True
    node: int = 0
    apart: bool = False
    fused: bool = False

    @classmethod
    def of(cls, job: TrainingJob, machine: Machine) -> Hosts:
        """Those of a job that was simulated on a machine."""
        fabric = machine.network.fabric
        groups = place(job, fabric)
        servers = groups.servers("ep")
        parts = groups.parts("ep")
        even = {n for part in parts for n in part} == {job.layout.expert // max(servers, 1)}
        apart = bool(in_unequal_parts(parts))
        node = machine.server.gpus // machine.server.hosts
        fused = era_of(job).fuses_experts(machine.gpu, job.dtype)
        return cls(data_parallel(job, fabric), servers, machine.gpu.name, even, node, apart, fused)


def sends_one_copy(job: TrainingJob, arch: Transformer) -> bool:
    """Whether tokens go to each server of their experts once; else every expert's copy goes by NCCL."""
    return arch.is_moe and job.layout.expert > 1 and job.expert_nodes is not None


def backend(job: TrainingJob, hosts: Hosts) -> str:
    """Megatron's name of the kernels that send one copy: DeepEP's, or HybridEP's where those do not run.

    DeepEP's take eight ranks in a row as one server's, run neither on racks of NVLink nor with experts padded
    to their capacity.
    """
    each = ranks_per_server(job, hosts)
    fits = each == PEERS or (each <= PEERS and hosts.servers == 1)
    racks = hosts.gpu.startswith(RACKS)
    return "deepep" if fits and not racks and job.expert_capacity is None else "hybridep"


def ranks_per_server(job: TrainingJob, hosts: Hosts) -> int:
    """Ranks that exchange tokens, tensor-parallel ones inside an expert too, on one server."""
    return max(job.layout.expert * job.layout.expert_cut // max(hosts.servers, 1), 1)


def router_groups(job: TrainingJob, arch: Transformer, hosts: Hosts) -> tuple[int, int] | None:
    """Groups of experts, one for each server of an expert group, and to how many of them a token may go.

    None where every one may be reached, or where servers hold different numbers of experts: a router's groups
    are equal.
    """
    if not limits(job, arch, hosts) or not hosts.even:
        return None
    return hosts.servers, job.expert_nodes or hosts.servers


def limits(job: TrainingJob, arch: Transformer, hosts: Hosts) -> bool:
    """Whether a token may go to fewer servers than its experts could lie on."""
    kept = nodes_kept(hosts.servers, arch.experts_per_token, job.expert_nodes)
    return sends_one_copy(job, arch) and kept < hosts.servers


def unequal(job: TrainingJob, arch: Transformer, hosts: Hosts) -> str:
    """What unequal parts of expert groups keep a framework from, as a sentence; '' where nothing is."""
    if not sends_one_copy(job, arch):
        return ""
    group = f"an expert group of {job.layout.expert} ranks lies unevenly on up to {hosts.servers}"
    if hosts.apart:
        return f"one copy to each server: {group}, where neither DeepEP nor HybridEP runs"
    if not limits(job, arch, hosts) or router_groups(job, arch, hosts):
        return ""
    return (
        f"a token's experts on at most {job.expert_nodes} servers: {group}, and a router's groups are equal"
    )
