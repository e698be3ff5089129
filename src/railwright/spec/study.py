"""The study file as typed, frozen values in base units.

One class per section of the YAML; field descriptions become the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from railwright.spec.lora import Lora
from railwright.spec.money import Money
from railwright.spec.nccl import Nccl
from railwright.spec.quantity import Bandwidth, Length
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.reliability import Reliability
from railwright.spec.section import Section, not_bool
from railwright.spec.serving import ServingJob
from railwright.spec.sharing import Sharing
from railwright.spec.site import Site
from railwright.spec.sweep import Sweep


class CableLengths(Section):
    """How long the cables of each tier are."""

    node_leaf: Length = Field(default=10.0, description="server to leaf, e.g. '10 m'")
    leaf_spine: Length = Field(default=30.0, description="leaf to spine, e.g. '30 m'")
    spine_core: Length = Field(default=100.0, description="spine to core, e.g. '100 m'")


class SwitchedNetwork(Section):
    """What every network of the cluster is asked for: how its switches are sized and joined."""

    switch: str = Field(description="catalogue name of the switch, e.g. 'qm9700'")
    tiers: Annotated[Literal["auto", 1, 2, 3], BeforeValidator(not_bool)] = Field(
        default="auto", description="switch tiers; auto takes the fewest"
    )
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
    spine_switch: str | None = Field(
        default=None, description="catalogue name of the spine switch; default: the same as `switch`"
    )
    core_switch: str | None = Field(
        default=None, description="catalogue name of the core switch; default: the same as the spine"
    )
    spines: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="spines per pod and plane before spares; default: the fewest that fit"
    )
    groups_per_pod: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="server groups that share one pod of spines, with 3 tiers; default: chosen"
    )
    core_oversubscription: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="spine down-link over up-link bandwidth, with 3 tiers"
    )
    cores: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="cores per core set, with 3 tiers; default: the fewest that fit"
    )
    breakout: Annotated[int, Field(gt=0)] = Field(
        default=1, description="server cables per leaf port, by breakout cables; each runs at that share"
    )
    expand_directors: bool = Field(
        default=False,
        description="draw a director of the top tier as its modules; it is still bought and counted as one",
    )
    lengths: CableLengths = CableLengths()


class ComputeNetwork(SwitchedNetwork):
    """The network the GPUs talk over."""

    family: Literal[
        "single-switch", "fat-tree", "clos", "rail-optimised", "rail-only", "rack-rails", "dual-plane"
    ] = Field(
        description="single-switch: one for all; fat-tree: a leaf (ToR) per server group; clos: the same; "
        "rail-optimised: leaf i joins GPU i of every server; rail-only: the same without spines; "
        "rack-rails: leaf i joins NIC i of every tray of a rack; "
        "dual-plane: port p of every NIC goes to plane p, which has leaves and spines of its own"
    )
    nic_ports: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="ports each NIC is split into, its rate shared by them; default: as catalogued "
        "(dual-plane: 2)",
    )
    nics_per_tray: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="rails: NICs of one compute tray of a rack-scale server; default: every NIC is a rail "
        "(rack-rails: 4)",
    )
    routing: Literal["adaptive", "ecmp", "static"] = Field(
        default="adaptive",
        description="adaptive: per-packet spread; ecmp: one hashed path per flow; static: destination tables",
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of the ECMP hash")


class ServiceNetwork(SwitchedNetwork):
    """A network beside the compute network: storage, in-band or out-of-band management."""

    family: Literal["single-switch", "fat-tree", "clos", "rail-optimised", "dual-plane"] = Field(
        description="single-switch: one for all; fat-tree: a leaf (ToR) per server group; clos: the same; "
        "rail-optimised: port i of every server on leaf i of its group; "
        "dual-plane: the same, each with spines of its own"
    )
    ports_per_server: Annotated[int, Field(gt=0)] = Field(
        default=1, description="ports of every server on this network, e.g. 2"
    )
    rate: Bandwidth | None = Field(
        default=None, description="of a server's port, e.g. '25 Gb/s'; default: that of the switch port"
    )
    hosts: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="machines on it beside the GPU servers (storage, management), with as many ports each",
    )


class Fault(Section):
    """One thing that is broken or slow: a device, a port (with its cable), by its name in the drawing."""

    element: str = Field(
        description="'leaf-03', 'spine-01', 'server-07/nic-2', 'server-07', or 'leaf-03 port 37'"
    )
    state: Literal["failed", "slow"] = Field(
        default="failed", description="failed: carries nothing; slow: carries `rate`"
    )
    rate: Bandwidth | None = Field(default=None, description="what a slow element still carries per port")


class Cluster(Section):
    """The machines and their network."""

    servers: Annotated[int, Field(gt=0)] = Field(description="how many servers, e.g. 30")
    server: str = Field(description="catalogue name of the server, e.g. 'dgx-h100'")
    compute: ComputeNetwork = Field(description="the network the GPUs talk over")
    storage: ServiceNetwork | None = Field(default=None, description="the network to the storage, if any")
    inband: ServiceNetwork | None = Field(
        default=None, description="the in-band management network (logins, scheduler, provisioning), if any"
    )
    oob: ServiceNetwork | None = Field(
        default=None, description="the out-of-band management network (BMCs), if any"
    )
    faults: tuple[Fault, ...] = Field(
        default=(), description="what is broken or slow; empty is a sound cluster"
    )


RecomputeModule = Literal[
    "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts", "ops"
]


class Layout(Section):
    """How the model is cut over GPUs; data parallelism takes what is left."""

    tensor: Annotated[int, Field(gt=0)] = Field(
        default=1, description="tensor-parallel size; its ranks should stay inside one server"
    )
    pipeline: Annotated[int, Field(gt=0)] = Field(default=1, description="pipeline stages")
    virtual_pipeline: Annotated[int, Field(gt=0)] = Field(
        default=1, description="model chunks per stage (interleaved 1F1B when above 1)"
    )
    schedule: Literal["auto", "1f1b", "interleaved", "gpipe", "zb-h1", "dualpipe"] = Field(
        default="auto",
        description="order of passes; auto: 1f1b, or interleaved when virtual_pipeline is above 1",
    )
    layers_per_stage: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None,
        description="layers of each piece of the model, in its order (pipeline x virtual_pipeline numbers); "
        "default: as even as can be, the last and the first pieces lighter",
    )
    ends_as_layers: Literal["none", "embedding", "head", "both"] = Field(
        default="none",
        description="embedding and head that count as a layer when the model is cut into pieces",
    )
    context: Annotated[int, Field(gt=0)] = Field(
        default=1, description="context-parallel size: ranks that share the tokens of one sequence"
    )
    context_kind: Literal["ring", "all-to-all", "all-gather"] = Field(
        default="ring",
        description="how context-parallel ranks meet in attention: keys and values passed round a ring, "
        "heads swapped for tokens (Ulysses), or keys and values gathered before",
    )
    expert: Annotated[int, Field(gt=0)] = Field(default=1, description="expert-parallel size (within DP)")
    expert_tensor: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="tensor-parallel size inside an expert; default: as layout.tensor"
    )
    sequence_parallel: bool = Field(default=False, description="shard norms and residuals over TP ranks")
    zero: Annotated[Literal[0, 1, 2, 3], BeforeValidator(not_bool)] = Field(
        default=1,
        description="what is sharded over DP: 1 optimizer states, 2 gradients too, 3 parameters too (FSDP)",
    )
    shard: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="zero 3: neighbouring data-parallel ranks that share one copy of the parameters (HSDP); "
        "default: all",
    )
    reshard: bool = Field(
        default=True,
        description="zero 3: parameters are dropped after a forward pass and gathered again for the backward",
    )
    reduce_each: bool = Field(
        default=True,
        description="zero 2 and 3: gradients are reduced after every microbatch; "
        "false: only after the last (no_sync)",
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none",
        description="what the backward pass computes again: nothing, `recompute_modules`, or whole layers",
    )
    recompute_modules: tuple[RecomputeModule, ...] = Field(
        default=("core_attn",),
        description="recompute selective: the parts of a layer that are computed again (Megatron's names; "
        "ops: torchtitan's every second product)",
    )
    offload: tuple[Literal["optimizer", "activations"], ...] = Field(
        default=(), description="what lies in host memory and crosses PCIe: optimizer, activations"
    )
    offload_layers: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="offload of activations: layers of a stage whose activations go; default: all",
    )
    placement: Literal["packed", "expert-across", "spread"] = Field(
        default="packed",
        description="packed: ranks fill servers in order tp, cp, dp/ep, pp; "
        "expert-across: the ranks of one expert group sit on different servers, on one rail; "
        "spread: consecutive servers of the job lie under different leaves",
    )


class Overlap(Section):
    """What the framework hides behind compute."""

    dp: bool = Field(default=True, description="gradient reduce-scatter and parameter all-gather, in buckets")
    tp: bool = Field(default=False, description="tensor-parallel collectives behind chunked GEMMs")
    ep: bool = Field(default=False, description="expert all-to-all behind other microbatches' compute")
    shared: bool = Field(
        default=False,
        description="expert all-to-all (NCCL's) behind shared experts (Megatron's moe_shared_expert_overlap)",
    )
    pp: bool = Field(default=True, description="pipeline sends behind compute")
    cp: bool = Field(default=True, description="blocks of keys and values on the ring behind attention")
    prefetch: Annotated[int, Field(ge=0)] = Field(
        default=1, description="zero 3: layers whose parameters are gathered ahead of the one that computes"
    )


class TrainingJob(Section):
    """One training job over all GPUs of the cluster (or the first `gpus`)."""

    name: str = Field(description="what to call the job, e.g. 'finetune'")
    model: str = Field(description="bundled name ('mixtral-8x7b') or path of a Hugging Face config.json")
    gpus: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="GPUs it takes, from the first; default: all"
    )
    servers: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None,
        description="numbers of the servers it runs on, in the order ranks fill them; default: from 0 on",
    )
    gpus_per_server: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="GPUs it uses of each server, e.g. 64 of an NVL72 rack; default: all of them",
    )
    sequence: Annotated[int, Field(gt=0)] = Field(description="sequence length in tokens")
    sample_length: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="tokens of the samples packed into a sequence, each of which attends to itself alone "
        "(cu_seqlens), in the mean; default: a sequence is one sample",
    )
    global_batch: Annotated[int, Field(gt=0)] = Field(description="sequences per step")
    micro_batch: Annotated[int, Field(gt=0)] = Field(
        default=1, description="sequences that one data-parallel rank computes at once"
    )
    tokens: Annotated[float, Field(gt=0)] = Field(description="token budget, e.g. 2e9")
    dtype: Literal["bf16", "fp16", "fp8", "fp8_rowwise", "mxfp8", "nvfp4"] = Field(
        default="bf16",
        description="type the matrices are multiplied in (fp8: a scale per tensor; fp8_rowwise: per row, "
        "torchao's; mxfp8, nvfp4: per block)",
    )
    moment_dtype: Literal["fp32", "bf16", "fp8"] = Field(
        default="fp32", description="type of Adam's two moments (precision-aware optimizers: bf16 or fp8)"
    )
    master: Literal["fp32", "remainder"] = Field(
        default="fp32",
        description="master weights: in fp32, or of them only the 16 bits beyond the bf16 weight",
    )
    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = Field(
        default=None, description="type gradients are reduced in; default: fp32, or fp16 in fp16 training"
    )
    lora: Lora | None = Field(default=None, description="fine-tuning of adapters; default: all weights train")
    layout: Layout = Layout()
    overlap: Overlap = Overlap()
    expert_imbalance: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="tokens of the busiest expert over the mean"
    )
    expert_capacity: Annotated[float, Field(ge=1.0)] | None = Field(
        default=None,
        description="tokens every expert computes, over the mean: others are dropped, missing ones padded, "
        "and the host learns no counts (moe_pad_expert_input_to_capacity); default: none is dropped",
    )
    expert_nodes: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="servers that one token's experts may lie on; one copy goes to each, and is passed on "
        "inside it (DeepEP); default: any, and every expert's copy crosses the network (NCCL)",
    )
    cuda_graphs: tuple[Literal["attention", "mlp", "router", "step"], ...] = Field(
        default=(),
        description="what is launched as CUDA graphs, which costs the host nothing: attention, mlp (of a "
        "dense layer), router (with what prepares the dispatch), or the whole step",
    )
    unfused: tuple[Literal["rotary", "router", "loss"], ...] = Field(
        default=(),
        description="what runs one kernel per operation instead of fused ones: rotary positions (Megatron's "
        "--no-rope-fusion), router (without --moe-router-fusion), loss (without --cross-entropy-loss-fusion)",
    )
    launch_blocking: bool = Field(
        default=False,
        description="CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel before it launches the next, so "
        "launching hides behind nothing",
    )
    amax_over: Literal["stage", "tensor", "none"] | None = Field(
        default=None,
        description="fp8: ranks that agree on the maxima of all tensors after every pass: all of a pipeline "
        "stage (delayed scaling), the tensor-parallel ones (Megatron's tp_only_amax_red), or none (current "
        "scaling); default: as the software era does",
    )
    software: str = Field(
        default="megatron-2025",
        description="software era: kernels and overheads of a framework of that time (docs/training.md)",
    )

    @property
    def attended(self) -> int:
        """Tokens that attend to each other: a packed sample, or the whole sequence."""
        return min(self.sample_length or self.sequence, self.sequence)

    @property
    def expert_load(self) -> float:
        """Tokens of the busiest expert over the mean: its capacity where tokens are dropped and padded."""
        return self.expert_capacity or self.expert_imbalance


class Variant(Section):
    """The study with some fields changed, put beside the study as written."""

    name: str = Field(description="what to call it, e.g. 'Fat tree'")
    why: str = Field(default="", description="what it is there to show")
    set: dict[str, Any] = Field(description="dotted field -> value, e.g. {nccl.pxn: false}")


class Study(Section):
    """One question about one cluster."""

    railwright: Annotated[Literal[1], BeforeValidator(not_bool)] = Field(
        description="1, the version of this file format"
    )
    name: str = Field(description="what to call the study")
    question: str = Field(
        default="", description="what you want to know, in words; the report begins with it"
    )
    as_written: str = Field(
        default="As written", description="what to call the study itself beside its variants"
    )
    catalog: str | None = Field(
        default=None, description="your own parts (YAML, relative to this file), merged over the shipped ones"
    )
    calibration: str | None = Field(
        default=None,
        description="a profile of `railwright calibrate` (YAML, relative to this file): "
        "collectives are predicted with the constants measured there",
    )
    cluster: Cluster = Field(description="the machines and their network")
    nccl: Nccl = Nccl()
    jobs: tuple[TrainingJob, ...] = Field(default=(), description="training jobs to predict")
    recommendations: tuple[RecommendationJob, ...] = Field(
        default=(), description="training jobs of recommendation models to predict"
    )
    serving: tuple[ServingJob, ...] = Field(default=(), description="models served to users, to predict")
    sweeps: tuple[Sweep, ...] = Field(default=(), description="collectives to predict over message sizes")
    money: Money | None = Field(default=None, description="prices, use over time, place, years")
    sharing: Sharing | None = Field(default=None, description="the people who share the machines")
    site: Site | None = Field(default=None, description="the room the cluster stands in")
    reliability: Reliability | None = Field(
        default=None, description="failures, recovery and checkpoints, for `railwright goodput`"
    )
    variants: tuple[Variant, ...] = Field(default=(), description="designs beside the study as written")
    sensitivity: tuple[Variant, ...] = Field(
        default=(), description="assumptions to change one at a time; the first job is predicted under each"
    )
