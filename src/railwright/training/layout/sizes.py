"""How many GPUs a job takes, the sizes of its groups, and of its microbatches; `placement` says which GPUs.

Legend: T, C, D, P tensor-, context-, data- and pipeline-parallel sizes; E, F expert-parallel size and
tensor-parallel size inside an expert.
"""

from __future__ import annotations

from dataclasses import dataclass

from railwright.fabric.graph import Fabric
from railwright.model.operators.cut import Cut
from railwright.model.shape.pattern import Layer, is_routed
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.divisors import divisors


@dataclass(frozen=True)
class Sizes:
    """Sizes of the groups: T, C, D, P, E, F as in the legend; shard: ranks that share one copy of what ZeRO
    shards of dense parameters."""

    tensor: int
    context: int
    data: int
    pipeline: int
    expert: int
    expert_tensor: int
    shard: int

    @property
    def replicas(self) -> int:
        """Ranks that hold the same dense parameters: D C."""
        return self.data * self.context

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.replicas * self.tensor // (self.expert * self.expert_tensor)

    @property
    def copies(self) -> int:
        """Ranks that hold the same parameters, the more of dense ones and experts."""
        return max(self.replicas, self.expert_replicas)

    @property
    def instances(self) -> int:
        """Groups of ranks that each hold one copy of what ZeRO shards (HSDP)."""
        return self.replicas // self.shard

    @property
    def expert_shard(self) -> int:
        """Ranks of such a group that hold the same experts: it has a copy of all experts too."""
        return self.expert_replicas // self.instances

    def shardings(self) -> list[int]:
        """Sizes that groups with one copy each can have: those that divide all ranks that hold the same dense
        parameters, and into as many groups all that hold the same experts."""
        every = divisors(self.replicas)
        return [size for size in every if self.expert_replicas % (self.replicas // size) == 0]

    def degrees(self) -> dict[str, int]:
        """Sizes of the parallelisms by their names in `overlap`.

        What `overlap.dp` hides is between ranks that hold the same parameters: context-parallel ones too,
        and tensor-parallel ones where experts are cut less than the rest.
        """
        return {
            "tp": self.tensor,
            "ep": self.expert,
            "pp": self.pipeline,
            "cp": self.context,
            "dp": self.copies,
        }

    def over(self, zero: int) -> tuple[int, int]:
        """Ranks among which gradients and states of a GPU's dense and expert parameters are divided."""
        return (1, 1) if zero == 0 else (self.shard, self.expert_shard)

    @classmethod
    def of(cls, job: TrainingJob, fabric: Fabric) -> Sizes:
        """Sizes of a job that passed `plan.check`."""
        return cls.under(job.layout, data_parallel(job, fabric))

    @classmethod
    def under(cls, layout: Layout, data: int) -> Sizes:
        """Sizes of a layout with so many data-parallel ranks."""
        return cls(
            tensor=layout.tensor,
            context=layout.context,
            data=data,
            pipeline=layout.pipeline,
            expert=layout.expert,
            expert_tensor=layout.expert_cut,
            shard=layout.shard or data * layout.context,
        )


def job_gpus(job: TrainingJob, fabric: Fabric) -> int:
    """GPUs of a job: what it asks for, else all of its servers, else all of the cluster."""
    if job.gpus is not None:
        return job.gpus
    servers = fabric.num_servers if job.servers is None else len(job.servers)
    return servers * domain_of(job, fabric)


def domain_of(job: TrainingJob, fabric: Fabric) -> int:
    """GPUs of one server that a job uses."""
    return job.gpus_per_server or fabric.gpus_per_server


def data_parallel(job: TrainingJob, fabric: Fabric) -> int:
    """Data-parallel size: what tensor, context and pipeline parallelism leave.

    Dense parameters are replicated over this times `layout.context` ranks (`Sizes.replicas`).
    """
    layout = job.layout
    return job_gpus(job, fabric) // (layout.tensor * layout.context * layout.pipeline)


def tokens_of(job: TrainingJob) -> float:
    """Tokens of a microbatch in one tensor-parallel group: micro_batch x sequence over context ranks."""
    return job.micro_batch * job.sequence / job.layout.context


def sequence_ranks(job: TrainingJob) -> int:
    """Tensor ranks that share the tokens of what lies between products: all under sequence parallelism."""
    return job.layout.tensor if job.layout.sequence_parallel else 1


def rows_of(job: TrainingJob) -> int:
    """The same as rows of a kernel's matrix, of which there are no parts."""
    return -(-job.micro_batch * job.sequence // job.layout.context)


def microbatches(job: TrainingJob, data: int) -> int:
    """Microbatches of one step on one data-parallel rank."""
    return job.global_batch // (data * job.micro_batch)


def weights_cut(layout: Layout, kind: Layer) -> Cut:
    """How the weights of one layer of a kind are cut; how they run is nothing to them."""
    if not is_routed(kind):
        return Cut(tp=layout.tensor)
    return Cut(tp=layout.tensor, ep=layout.expert, expert_tp=layout.expert_tensor)
