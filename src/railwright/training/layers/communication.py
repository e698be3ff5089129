"""What a step sends: the size of every collective it makes, priced once each by the network.

Sizes are nccl-tests' S: the total buffer (all_gather, reduce_scatter: ranks times the per-rank part).
Legend: b sequences per microbatch, s tokens each, h hidden width; t tensor-, c context-parallel size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import value_width
from railwright.model.shape.mixers import FORMS, mixer_of, projected
from railwright.spec.training import TrainingJob
from railwright.traffic.demand import Communicator
from railwright.training.lanes.contention import NICS, Uses, on_links
from railwright.training.lanes.timeline import Lane
from railwright.training.layout.placement import GroupKind, Groups
from railwright.training.layout.sizes import tokens_of
from railwright.training.software.eras import era_of
from railwright.training.software.formats import has_masters, updates_wide_on_host
from railwright.training.software.narrow_weights import FORMATS, refuses_narrow

Predict = Callable[[Machine, Op, float, Sequence[Communicator]], CollectivePrediction]

ACTIVATION_BYTES = 2.0
"""Bytes of one activation on the wire: bf16 or fp16 (`gathers`: what is gathered in less)."""

WEIGHT_BYTES = 2.0
"""Bytes of one gathered parameter: 16-bit weights (of layers kept in fp8 less: `weight_bytes`)."""


class Comm(NamedTuple):
    """One collective as a pass uses it.

    seconds  alone [s]; size  nccl-tests' S [byte]
    wire     the part of `seconds` bound by links that others may use [s]; uses  which those are
    """

    lane: Lane
    purpose: str
    op: str
    seconds: float
    size: float
    wire: float = 0.0
    uses: Uses = NICS


NOTHING = Comm("tp", "", "", 0.0, 0.0)
"""A collective that the layout does without."""


@dataclass(frozen=True)
class Priced:
    """One collective of the step: its lane, its purpose, its groups and what the network says about it."""

    lane: Lane
    purpose: str
    groups: GroupKind
    prediction: CollectivePrediction


@dataclass
class Prices:
    """The network's prices for one job; each collective is asked for once.

    predict  how one collective is priced (`collectives.predict`)
    known    (purpose, op, size) -> what was priced, in order of first use
    """

    machine: Machine
    groups: Groups
    predict: Predict
    known: dict[tuple[str, str, float], Priced] = field(default_factory=dict)
    _asked: dict[tuple[Op, float, GroupKind], CollectivePrediction] = field(default_factory=dict)
    _links: dict[tuple[Op, float, GroupKind], tuple[float, Uses]] = field(default_factory=dict)

    @classmethod
    def shared(cls, machine: Machine, groups: Groups, predict: Predict) -> Prices:
        """Prices that remember what earlier jobs placed alike on the same machine asked for.

        `predict` must be the same function every time: a job's answers are the next one's.
        """
        kept = _SHARED.setdefault(machine, WeakKeyDictionary()).setdefault(groups, {})
        if len(kept) > _MOST_ASKED:
            kept.clear()
        return cls(machine, groups, predict, {}, kept)

    def comm(self, lane: Lane, purpose: str, op: Op, size: float, kind: GroupKind) -> Comm:
        """One collective that all groups of `kind` run at the same time."""
        seconds = self.time(lane, purpose, op, size, kind)
        return Comm(lane, purpose, op, seconds, size, *self.on_links(op, size, kind))

    def time(self, lane: Lane, purpose: str, op: Op, size: float, kind: GroupKind) -> float:
        """Seconds of one collective that all groups of `kind` run at the same time; 0 for groups of one."""
        key = (purpose, op, size)
        if key in self.known:
            return self.known[key].prediction.time
        groups = self.groups.of(kind)
        if not groups or len(groups[0]) == 1 or size <= 0:
            return 0.0
        asked = (op, size, kind)
        if asked not in self._asked:
            self._asked[asked] = self.predict(self.machine, op, size, groups)
        self.known[key] = Priced(lane, purpose, kind, self._asked[asked])
        return self.known[key].prediction.time

    def on_links(self, op: Op, size: float, kind: GroupKind) -> tuple[float, Uses]:
        """The part of a priced collective bound by links that others may use [s], and which those are."""
        asked = op, size, kind
        if asked not in self._links:
            priced = self._asked.get(asked)
            if priced is None:
                return 0.0, NICS
            self._links[asked] = on_links(priced, self.crosses_servers(kind))
        return self._links[asked]

    def crosses_servers(self, kind: GroupKind) -> bool:
        """Whether any group of a kind has ranks on several servers."""
        return self.groups.servers(kind) > 1


Asked = dict[tuple[Op, float, GroupKind], CollectivePrediction]
"""What jobs placed alike have asked the network."""
_SHARED: WeakKeyDictionary[Machine, WeakKeyDictionary[Groups, Asked]] = WeakKeyDictionary()
_MOST_ASKED = 20_000
"""Answers kept for one placement: a search over sizes must not fill the memory."""


def gradient_type(job: TrainingJob) -> Literal["fp32", "bf16", "fp16"]:
    """The type gradients are summed and reduced in.

    Source: Megatron-LM, arguments.py: bf16 accumulates and all-reduces gradients in fp32, fp16 does not; docs
    'dist_optimizer' for the same rows of memory.  DeepSpeed's ZeRO engine has that of the weights
    (runtime/engine.py, get_data_types), and so has FSDP of weights in 16 bits that is not told otherwise
    (_fully_shard/_fsdp_param_group.py, _init_mp_dtypes).
    """
    narrow = era_of(job).zero_engine or not has_masters(job)
    wide: Literal["fp32", "bf16"] = "bf16" if narrow else "fp32"
    return job.gradient_dtype or ("fp16" if job.dtype == "fp16" else wide)


def gradient_bytes(job: TrainingJob) -> float:
    """Bytes of one gradient on the wire."""
    return 4.0 if gradient_type(job) == "fp32" else 2.0


def keeps_narrow_weights(job: TrainingJob) -> bool:
    """Whether weights of a job's layers are kept in fp8 with a scale per tensor, and cast before a gather.

    MXFP8 casts behind it, both ways, from 16 bits in the gradients' buffer; fp8 with a scale per block and
    NVFP4 keep 16 bits, and so does every format beside an optimizer on the host whose scales are not delayed.
    Adapters, which alone train beside frozen weights, are never narrow.
    Source: Megatron-Bridge, training/mixed_precision.py (fp8_param_gather,
    reuse_grad_buf_for_mxfp8_param_ag); Megatron-LM d98e8a64, core/distributed/param_and_grad_buffer.py,
    group_params_for_buffers (torch.uint8).
    """
    narrow = job.dtype == "fp8" and job.lora is None and not updates_wide_on_host(job)
    return narrow and era_of(job).framework == "megatron" and not refuses_narrow(job)


def shards_narrow(job: TrainingJob) -> bool:
    """Whether ZeRO-3 gathers weights of a job's layers in 8 bits: Megatron-FSDP's of fp8 and MXFP8, of which
    backward passes gather the copy along the columns.

    Source: Megatron-LM d98e8a64, core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py
    (model_weight_buffer and transpose_weight_buffer, torch.uint8); scales stay whole.
    """
    narrow = job.layout.zero == 3 and job.dtype in FORMATS and job.lora is None
    return narrow and era_of(job).framework == "megatron" and not updates_wide_on_host(job)


def weight_bytes(job: TrainingJob) -> float:
    """Bytes of one weight of a layer as a distributed optimizer gathers it."""
    return 1.0 if keeps_narrow_weights(job) else WEIGHT_BYTES


def activation_size(job: TrainingJob, arch: Transformer) -> float:
    """One layer's hidden states of one microbatch in a tensor-parallel group: b s h / c elements. [byte]"""
    return tokens_of(job) * arch.hidden * ACTIVATION_BYTES


def routed_size(job: TrainingJob, arch: Transformer) -> float:
    """Send buffer of one rank's expert all-to-all: its tokens, each to its top-k experts. [byte]

    (b s / t c) k h elements, or k latents, times the imbalance of the busiest GPU's experts, which finish
    last.
    Under tensor parallelism each rank routes 1/t of the tokens (Megatron-LM, moe/token_dispatcher.py).
    """
    tokens = job.micro_batch * job.sequence / job.layout.tensor / job.layout.context
    return tokens * arch.experts_per_token * arch.expert_width * ACTIVATION_BYTES * job.expert_load


def block_sizes(job: TrainingJob, arch: Transformer) -> tuple[float, float, float]:
    """Queries, keys with values, and attention outputs of one context-parallel rank. [byte]

    Rows b s / c of this GPU's heads; latent attention sends the keys and values it has expanded.
    """
    tensor = job.layout.tensor
    rows = tokens_of(job) * ACTIVATION_BYTES
    heads = arch.heads / tensor
    if arch.index_topk:
        # one latent key for all heads, and the indexer's
        key = arch.kv_lora + arch.rope_dim
        return rows * heads * key, rows * (key + arch.index_dim), rows * heads * arch.kv_lora
    if arch.attention == "mla":
        query = arch.head_dim + arch.rope_dim
        return rows * heads * query, rows * heads * (query + arch.v_head_dim), rows * heads * arch.v_head_dim
    kv_heads = max(arch.kv_heads // tensor, 1)
    value = value_width(arch)
    keys = rows * kv_heads * (arch.head_dim + value)
    return rows * heads * arch.head_dim, keys, rows * heads * value


def mixer_sizes(job: TrainingJob, arch: Transformer) -> tuple[float, float]:
    """A linear mixer's projected rows and its outputs of one context-parallel rank. [byte]

    Where there are fewer heads of keys than ranks, each of them goes to several.
    """
    mixer, layout = mixer_of(arch), job.layout
    rows = tokens_of(job) * ACTIVATION_BYTES / layout.tensor
    copies = max(layout.context * layout.tensor / mixer.key_heads, 1.0)
    repeated = FORMS[mixer.kind].projected[1] * mixer.keys * (copies - 1)
    return rows * (projected(mixer) + repeated), rows * mixer.values


def stage_size(job: TrainingJob, arch: Transformer) -> float:
    """What one rank sends to the next stage: b s h elements, 1/t of them where ranks share the work. [byte]

    They do under sequence parallelism, and in eras that cut the send over the tensor ranks and gather it
    again behind it.  Source: Narayanan et al., SC'21, section 4.1 (scatter/gather of pipeline sends).
    """
    shared = job.layout.sequence_parallel or era_of(job).scatter_gather
    return activation_size(job, arch) / (job.layout.tensor if shared else 1)
