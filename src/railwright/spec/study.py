"""The study file as typed, frozen values in base units.

One class per section of the YAML; field descriptions become the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from railwright.spec.quantity import Bandwidth, Length, Size


class Section(BaseModel):
    """A part of the study: strict, frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CableLengths(Section):
    """How long the cables of each tier are."""

    node_leaf: Length = Field(default=10.0, description="server to leaf, e.g. '10 m'")
    leaf_spine: Length = Field(default=30.0, description="leaf to spine, e.g. '30 m'")
    spine_core: Length = Field(default=100.0, description="spine to core, e.g. '100 m'")


class ComputeNetwork(Section):
    """The network the GPUs talk over."""

    family: Literal["single-switch", "fat-tree", "rail-optimised", "rail-only"]
    switch: str = Field(description="catalogue name of the switch, e.g. 'qm9700'")
    tiers: Literal["auto", 1, 2, 3] = Field(default="auto", description="switch tiers; auto takes the fewest")
    oversubscription: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="leaf down-link over up-link bandwidth; 1 is non-blocking"
    )
    servers_per_group: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="servers that share one set of leaves (scalable unit); default: as many as fit",
    )
    spare_spines: Annotated[int, Field(ge=0)] = Field(
        default=0, description="spines beyond the need (per plane)"
    )
    reserved_ports: Annotated[int, Field(ge=0)] = Field(
        default=0, description="leaf ports kept for the subnet manager, storage, …, over the whole fabric"
    )
    routing: Literal["adaptive", "ecmp", "static"] = Field(
        default="adaptive",
        description="adaptive: per-packet spread; ecmp: one hashed path per flow; static: destination tables",
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of the ECMP hash")
    lengths: CableLengths = CableLengths()


class Fault(Section):
    """One thing that is broken or slow: a device, a port (with its cable), by its name in the drawing."""

    element: str = Field(
        description="'leaf-03', 'spine-01', 'server-07/nic-2', 'server-07', or 'leaf-03 port 37'"
    )
    state: Literal["failed", "slow"] = "failed"
    rate: Bandwidth | None = Field(default=None, description="what a slow element still carries per port")


class Cluster(Section):
    """The machines and their network."""

    servers: Annotated[int, Field(gt=0)]
    server: str = Field(description="catalogue name of the server, e.g. 'dgx-h100'")
    compute: ComputeNetwork
    faults: tuple[Fault, ...] = ()


class Nccl(Section):
    """NCCL's settings, by what they do."""

    pxn: bool = Field(default=True, description="relay over NVLink to the GPU on the destination's rail")
    algorithm: Literal["auto", "ring", "tree", "nvls", "nvlstree", "collnet"] = "auto"
    protocol: Literal["auto", "ll", "ll128", "simple"] = "auto"
    sharp: bool = Field(default=False, description="in-network reduction, where the switch has it")


class Layout(Section):
    """How the model is cut over GPUs; data parallelism takes what is left."""

    tensor: Annotated[int, Field(gt=0)] = 1
    pipeline: Annotated[int, Field(gt=0)] = 1
    virtual_pipeline: Annotated[int, Field(gt=0)] = Field(
        default=1, description="model chunks per stage (interleaved 1F1B when above 1)"
    )
    expert: Annotated[int, Field(gt=0)] = Field(default=1, description="expert-parallel size (within DP)")
    sequence_parallel: bool = Field(default=False, description="shard norms and residuals over TP ranks")
    zero: Literal[0, 1] = Field(default=1, description="1: optimizer states sharded over DP")
    recompute: Literal["none", "selective", "full"] = "none"
    placement: Literal["packed", "expert-across"] = Field(
        default="packed",
        description="packed: ranks fill servers in order tp, dp/ep, pp; "
        "expert-across: the ranks of one expert group sit on different servers, on one rail",
    )


class Overlap(Section):
    """What the framework hides behind compute."""

    dp: bool = Field(default=True, description="gradient reduce-scatter and parameter all-gather, in buckets")
    tp: bool = Field(default=False, description="tensor-parallel collectives behind chunked GEMMs")
    ep: bool = Field(default=False, description="expert all-to-all behind other microbatches' compute")
    pp: bool = Field(default=True, description="pipeline sends behind compute")


class TrainingJob(Section):
    """One training job over all GPUs of the cluster (or the first `gpus`)."""

    name: str
    model: str = Field(description="bundled name ('mixtral-8x7b') or path of a Hugging Face config.json")
    gpus: Annotated[int, Field(gt=0)] | None = None
    sequence: Annotated[int, Field(gt=0)] = Field(description="sequence length in tokens")
    global_batch: Annotated[int, Field(gt=0)] = Field(description="sequences per step")
    micro_batch: Annotated[int, Field(gt=0)] = 1
    tokens: Annotated[float, Field(gt=0)] = Field(description="token budget, e.g. 2e9")
    dtype: Literal["bf16", "fp16", "fp8"] = "bf16"
    layout: Layout = Layout()
    overlap: Overlap = Overlap()
    expert_imbalance: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="tokens of the busiest expert over the mean"
    )


class Sweep(Section):
    """One nccl-tests-style sweep over all GPUs: sizes from `begin` to `end`, times `factor`."""

    op: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"]
    begin: Size = Field(default=1024.0, description="smallest total size, e.g. '1 KiB'")
    end: Size = Field(default=float(2**30), description="largest total size, e.g. '1 GiB'")
    factor: Annotated[int, Field(ge=2)] = 2


class Variant(Section):
    """The study with some fields changed, put beside the study as written."""

    name: str
    why: str = ""
    set: dict[str, Any] = Field(description="dotted field -> value, e.g. {nccl.pxn: false}")


class Study(Section):
    """One question about one cluster."""

    railwright: Literal[1] = Field(description="version of this file format")
    name: str
    question: str = ""
    catalog: str | None = Field(default=None, description="path of your own parts, merged over the shipped")
    cluster: Cluster
    nccl: Nccl = Nccl()
    jobs: tuple[TrainingJob, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    variants: tuple[Variant, ...] = ()
    sensitivity: tuple[Variant, ...] = ()
