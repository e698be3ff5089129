"""How many parameters a transformer has, and how many of them lie on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from railwright.model.operators.cut import WHOLE, Cut, check_cut
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import attention_macs, index_macs, value_columns
from railwright.model.shape.mixers import mixer_parameters, replicated
from railwright.model.shape.pattern import PARTS, Layer, layer_kinds, made_as, num_layers, num_norms


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of one model.

    total      all of them, without extra multi-token-prediction layers
    active     total less the experts a token does not visit (Mixtral's and DeepSeek's convention)
    active_without_embedding   active less the input table where it is not also the output
                 matrix: it is looked up, not multiplied (gpt-oss's convention)
    embedding  input table; head  output matrix, 0 when tied; positions  learned positions
    attention, linear, mlp_dense, mlp_moe   of one layer, biases in; 0 where there is no such layer
    expert     one routed expert; router (with products to latents and back), shared   of one MoE layer,
               inside mlp_moe
    norms      all norms, the final one too
    mtp        the extra layers' own parameters, not in total
    """

    total: int
    active: int
    embedding: int
    head: int
    positions: int
    attention: int
    mlp_dense: int
    mlp_moe: int
    expert: int
    router: int
    shared: int
    norms: int
    mtp: int
    linear: int = 0

    @property
    def active_without_embedding(self) -> int:
        return self.active - self.embedding if self.head else self.active


@dataclass(frozen=True)
class GpuParameters:
    """Parameters of one layer on one GPU: experts are replicated over fewer ranks than the rest."""

    dense: float
    expert: float

    @property
    def total(self) -> float:
        return self.dense + self.expert


@lru_cache(maxsize=256)
def count_parameters(arch: Transformer) -> ParameterCount:
    """Count the parameters of a model exactly, biases and norms included."""
    moe, dense = num_layers(arch, mlp="moe"), num_layers(arch, mlp="dense")
    kinds = [kind for kind in layer_kinds(arch) if PARTS[kind].mixer == "attention"]
    of_kind = {kind: _attention(made_as(arch, kind)) for kind in {*kinds}}
    each = [of_kind[kind] for kind in kinds]
    embedding = arch.vocab * arch.hidden
    head = 0 if arch.tied_embeddings else embedding + arch.vocab * arch.head_bias
    positions = arch.position_embeddings * arch.hidden
    attention = _attention(made_as(arch, "dense")) if each else 0
    linear = mixer_parameters(arch) if arch.linear else 0
    mlp_dense = _mlp(arch, arch.ffn) if dense else 0
    expert = _expert(arch) if moe else 0
    router = _router(arch) if moe else 0
    shared = _shared(arch) if moe else 0
    mlp_moe = arch.experts * expert + router + shared
    norm = norm_parameters(arch)
    own = norms_of_experts(arch)
    inside = sum(num_norms(arch, kind) for kind in layer_kinds(arch)[: arch.layers]) + own * moe
    norms = (inside + 1 + arch.embedding_norm) * norm
    total = embedding + head + positions + norms + dense * mlp_dense + moe * mlp_moe
    total += num_layers(arch, mixer="linear") * linear + sum(each[: len(each) - arch.mtp_layers])
    idle = moe * (arch.experts - arch.experts_per_token) * expert
    mlp_extra = mlp_moe + own * norm if moe and not arch.mtp_dense else _mlp(arch, arch.ffn)
    extra = (
        (each[-1] if each else 0) + mlp_extra + arch.norms_per_layer * norm + 2 * arch.hidden**2 + 3 * norm
    )
    return ParameterCount(
        total=total,
        active=total - idle,
        embedding=embedding,
        head=head,
        positions=positions,
        attention=attention,
        mlp_dense=mlp_dense,
        mlp_moe=mlp_moe,
        expert=expert,
        router=router,
        shared=shared,
        norms=norms,
        mtp=arch.mtp_layers * extra,
        linear=linear,
    )


@lru_cache(maxsize=4096)
def layer_parameters(arch: Transformer, layer: Layer, cut: Cut = WHOLE) -> GpuParameters:
    """Parameters of one layer that one GPU holds under tensor and expert parallelism.

    Matrices are cut tp ways; norms, the router, MLA's down-projections and key/value heads beyond the
    cut are replicated.  Experts: experts/ep of them, each cut expert_tp ways.
    Raises PlanError where the layer cannot be cut so.
    """
    check_cut(arch, layer, cut)
    arch, tp = made_as(arch, layer), cut.tp
    mixer, mlp = PARTS[layer]
    held: float = num_norms(arch, layer) * norm_parameters(arch)
    if mixer == "attention":
        held += _replicated_attention(arch, tp)
        held += (_attention(arch) - _replicated_attention(arch, 1)) / tp
    elif mixer == "linear":
        held += replicated(arch) + (mixer_parameters(arch) - replicated(arch)) / tp
    if mlp != "moe":
        return GpuParameters(held + (_mlp(arch, arch.ffn) / tp if mlp else 0.0), 0.0)
    experts = arch.experts / cut.ep * _expert(arch) / (cut.expert_tp or tp)
    held += norms_of_experts(arch) * norm_parameters(arch)
    return GpuParameters(held + _router(arch) + _shared(arch) / tp, experts)


def mtp_end_parameters(arch: Transformer, *, tp: int = 1) -> float:
    """Parameters of multi-token prediction on one GPU beside its layers: a joining product, three norms."""
    return arch.mtp_layers * (2 * arch.hidden**2 / tp + 3 * norm_parameters(arch))


def norm_parameters(arch: Transformer) -> int:
    """Gains and biases of one norm of width `hidden`."""
    return arch.hidden * (arch.norm_gain + arch.norm_bias)


def norms_of_experts(arch: Transformer) -> int:
    """Norms of width `hidden` that layers with experts have more than others."""
    return int(arch.shared_norm and arch.shared_ffn > 0) + arch.experts_norm + 3 * arch.branch_norms


def _attention(arch: Transformer) -> int:
    heads, width = arch.heads, arch.head_dim
    count = attention_macs(arch)
    if arch.attention == "mla":
        return count + arch.q_lora + arch.kv_lora + _indexer(arch)
    if arch.attention_bias:
        count += (heads + arch.kv_heads) * width + value_columns(arch, arch.kv_heads)
    if arch.output_bias:
        count += arch.hidden
    return count + _qk_gains(arch) + heads * (arch.attention_sinks + arch.attention_gate_bias)


def _replicated_attention(arch: Transformer, tp: int) -> float:
    """The part of attention every tensor-parallel rank holds, as if added to an even cut of the rest."""
    if arch.attention == "mla":
        down = arch.q_lora + arch.kv_lora + arch.rope_dim
        return arch.hidden * down + arch.q_lora + arch.kv_lora + _indexer(arch)
    both = arch.head_dim + value_columns(arch, 1)
    key_value = both * arch.hidden * max(1.0 - arch.kv_heads / tp, 0.0)
    return key_value + (_qk_gains(arch) if arch.qk_norm_gains == "head" else 0)


def _indexer(arch: Transformer) -> int:
    """Weights of an indexer, and the norm of its key with gains and biases."""
    return index_macs(arch) + 2 * arch.index_dim if arch.index_heads else 0


def _qk_gains(arch: Transformer) -> int:
    """Learned gains and biases of the norms of queries and keys in one layer."""
    if not arch.qk_norm or arch.qk_norm_gains == "none":
        return 0
    heads = 2 if arch.qk_norm_gains == "head" else arch.heads + arch.kv_heads
    return arch.head_dim * heads * (1 + arch.qk_norm_bias)


def _mlp(arch: Transformer, width: int) -> int:
    return _matrices(arch, width, arch.hidden)


def _matrices(arch: Transformer, width: int, outside: int) -> int:
    matrices = 3 if arch.gated else 2
    biases = (matrices - 1) * width + outside if arch.mlp_bias else 0
    return matrices * outside * width + biases


def _expert(arch: Transformer) -> int:
    return _matrices(arch, arch.expert_ffn, arch.expert_width)


def _router(arch: Transformer) -> int:
    """The router, with biases and scales of experts, and the products to latents and back."""
    each = arch.router_bias + arch.branch_norms
    return arch.hidden * (arch.experts + 2 * arch.expert_latent) + arch.experts * each


def _shared(arch: Transformer) -> int:
    if not arch.shared_ffn:
        return 0
    return _mlp(arch, arch.shared_ffn) + arch.hidden * arch.shared_gate
