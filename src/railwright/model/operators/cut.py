"""How a layer is cut over GPUs, and whether it can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.errors import PlanError
from railwright.model.operators.eager import Part, Rotation
from railwright.model.operators.kernels import HiddenDropout
from railwright.model.operators.narrow import Scaling
from railwright.model.operators.sparse import check_sparse
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.mixers import check_mixer
from railwright.model.shape.pattern import PARTS, Layer, made_as

Dispatch = Literal["fused", "eager"]
CoreAttention = Literal["flash", "unfused"]


@dataclass(frozen=True)
class Cut:
    """How one layer is cut over GPUs, and which of its parts run in ways of their own.

    tp         tensor-parallel size; divides heads and MLP width
    sequence_parallel  norms and residuals on rows/tp of the rows
    ep         expert-parallel size: experts/ep live on one GPU
    expert_tp  tensor-parallel size inside an expert; None means tp, as in Megatron
    imbalance  tokens of the busiest GPU's experts over the mean, >= 1
    attention  'flash' computes the core attention in one kernel, 'unfused' writes the scores to memory
    attention_dropout  scores are dropped at random
    hidden_dropout  so is what attention and MLP add to the hidden states: in the kernel that adds it,
               'fused', or by one of its own, 'apart'; '' not at all
    biased     linear layers have biases whose gradients are kernels of their own, by autograd (Megatron's of
               2021 and 2022)
    unfused    parts that run one kernel per operation (`eager`)
    rotation   whose code turns queries and keys where their rotation is one of these
    dispatch   what moves rows to a rank's own experts and back: 'fused' kernels (Transformer Engine's), or
               operations of PyTorch (`grouped_rows`), 'eager'
    narrow     how attention scales operands in 8 bits; '' in 16 bits
    stored     what a gated activation reads is kept in 8 bits
    """

    tp: int = 1
    sequence_parallel: bool = False
    ep: int = 1
    expert_tp: int | None = None
    imbalance: float = 1.0
    attention: CoreAttention = "flash"
    attention_dropout: bool = False
    hidden_dropout: HiddenDropout = ""
    biased: bool = False
    unfused: tuple[Part, ...] = ()
    rotation: Rotation = "megatron"
    dispatch: Dispatch = "fused"
    narrow: Scaling = ""
    stored: bool = False

    @property
    def by_pytorch(self) -> bool:
        """Whether operations of PyTorch move rows to experts, and weight what these make, which then stays:
        not in their activation, as fused ones do."""
        return self.dispatch == "eager" or "experts" in self.unfused

    @property
    def split(self) -> int:
        """Tensor ranks that share the rows of norms and residuals."""
        return self.tp if self.sequence_parallel else 1


WHOLE = Cut()
"""A layer on one GPU."""


def check_cut(arch: Transformer, layer: Layer, cut: Cut) -> None:
    """Raise PlanError, with what would work, where a layer cannot be cut so."""
    arch = made_as(arch, layer)
    mixer, mlp = PARTS[layer]
    if mixer == "attention":
        _check_heads(arch, cut)
    elif mixer == "linear":
        check_mixer(arch, cut.tp)
    if mlp == "dense":
        _check_width(arch, "MLP width", arch.ffn, cut.tp)
    elif mlp == "moe":
        _check_experts(arch, cut)


def _check_heads(arch: Transformer, cut: Cut) -> None:
    heads, kv = arch.heads, arch.kv_heads
    if heads % cut.tp:
        raise PlanError(
            f"{arch.name}: tensor parallel {cut.tp} does not divide its {heads} attention heads; "
            f"sizes that do: {_divisors(heads)}."
        )
    if arch.attention == "gqa" and kv % cut.tp and cut.tp % kv:
        raise PlanError(
            f"{arch.name}: tensor parallel {cut.tp} neither divides nor is a multiple of its {kv} "
            f"key/value heads; choose one of {_divisors(kv)} or a multiple of {kv}."
        )
    check_sparse(arch, cut.attention, bool(cut.narrow))
    if arch.attention == "mla" and arch.attention_gate:
        raise PlanError(f"{arch.name}: gates on the outputs of latent attention are not modelled.")


def _check_experts(arch: Transformer, cut: Cut) -> None:
    if not arch.is_moe:
        raise PlanError(f"{arch.name} has no experts: ask for its 'dense' layer.")
    if arch.experts % cut.ep:
        raise PlanError(
            f"{arch.name}: expert parallel {cut.ep} does not divide its {arch.experts} experts; "
            f"sizes that do: {_divisors(arch.experts)}."
        )
    _check_width(arch, "expert width", arch.expert_ffn, cut.expert_tp or cut.tp)
    if cut.imbalance < 1.0:
        raise PlanError(f"expert imbalance {cut.imbalance:g} is below 1: it is busiest over mean.")


def _check_width(arch: Transformer, what: str, width: int, parts: int) -> None:
    if width % parts:
        raise PlanError(
            f"{arch.name}: tensor parallel {parts} does not divide its {what} of {width}; "
            f"the largest size below it that does is {max(d for d in range(1, parts) if width % d == 0)}."
        )


def _divisors(n: int) -> str:
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)
