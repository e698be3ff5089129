"""The weight matrices of a layer, one by one: what an optimizer sees that works on whole matrices (Muon)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.model.operators.recompute import LATENT
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import gate_width, value_width
from railwright.model.shape.mixers import mixer_of, projected
from railwright.model.shape.pattern import PARTS, Layer, layer_kinds, made_as


@dataclass(frozen=True)
class Matrix:
    """Weights of one product of a layer, rows (outputs) times columns (inputs), before tensor parallelism.

    cut     which side tensor-parallel ranks share; '' where every rank has all of it
    count   of the same kind in a layer: experts
    expert  whether expert-parallel ranks share them
    """

    name: str
    rows: int
    columns: int
    cut: Literal["rows", "columns", ""]
    count: int = 1
    expert: bool = False

    @property
    def size(self) -> int:
        """Weights of one of them."""
        return self.rows * self.columns


def layer_matrices(arch: Transformer, layer: Layer) -> tuple[Matrix, ...]:
    """Every matrix of a layer.  Norms, biases and attention sinks are none; embedding and head no layer's.

    Queries, keys and values are three, gate and up projection one, as Megatron-LM's Muon takes them
    (core/optimizer/emerging_optimizers.py, split_qkv; core/transformer/mlp.py, linear_fc1).
    """
    arch = made_as(arch, layer)
    mixer, mlp = PARTS[layer]
    attention = _attention(arch) if mixer == "attention" else _mixer(arch) if mixer else ()
    if mlp != "moe":
        return (*attention, *(_mlp(arch.hidden, arch, "mlp", arch.ffn) if mlp else ()))
    routed = (Matrix("router", arch.experts, arch.hidden, ""), *_latents(arch))
    experts = _mlp(arch.expert_width, arch, "expert", arch.expert_ffn, count=arch.experts, expert=True)
    shared = _mlp(arch.hidden, arch, "shared expert", arch.shared_ffn) if arch.shared_ffn else ()
    gate = (Matrix("shared gate", 1, arch.hidden, ""),) if arch.shared_ffn and arch.shared_gate else ()
    return (*attention, *routed, *experts, *shared, *gate)


def whole_matrices(arch: Transformer) -> int:
    """Weights of all matrices of all layers, without extra multi-token-prediction layers."""
    kinds = layer_kinds(arch)[: arch.layers]
    return sum(m.size * m.count for kind in kinds for m in layer_matrices(arch, kind))


def prediction_matrices(arch: Transformer) -> tuple[Matrix, ...]:
    """Multi-token prediction's joining products, beside its layers."""
    if not arch.mtp_layers:
        return ()
    return (Matrix("prediction joint", arch.hidden, 2 * arch.hidden, "rows", count=arch.mtp_layers),)


def _attention(arch: Transformer) -> tuple[Matrix, ...]:
    h, heads = arch.hidden, arch.heads
    if arch.attention == "mla":
        query = heads * (arch.head_dim + arch.rope_dim)
        down = (Matrix("query down", arch.q_lora, h, ""),) if arch.q_lora else ()
        return (
            *down,
            Matrix("query up", query, arch.q_lora or h, "rows"),
            Matrix("key/value down", arch.kv_lora + arch.rope_dim, h, ""),
            Matrix("key/value up", heads * (arch.head_dim + arch.v_head_dim), arch.kv_lora, "rows"),
            Matrix("output projection", h, heads * arch.v_head_dim, "columns"),
            *(_indexer(arch) if arch.index_heads else ()),
        )
    queries, keys = heads * arch.head_dim, arch.kv_heads * arch.head_dim
    return (
        Matrix("query", queries, h, "rows"),
        Matrix("key", keys, h, "rows"),
        *(() if arch.shared_values else (Matrix("value", arch.kv_heads * value_width(arch), h, "rows"),)),
        *((Matrix("gate", gate_width(arch), h, "rows"),) if arch.attention_gate else ()),
        Matrix("output projection", h, heads * value_width(arch), "columns"),
    )


def _indexer(arch: Transformer) -> tuple[Matrix, ...]:
    return (
        Matrix("index query", arch.index_heads * arch.index_dim, arch.q_lora, ""),
        Matrix("index key", arch.index_dim, arch.hidden, ""),
        Matrix("index weights", arch.index_heads, arch.hidden, ""),
    )


def _mixer(arch: Transformer) -> tuple[Matrix, ...]:
    """The products in front of a state, one matrix, and behind it; Megatron-LM leaves Mamba's in front to
    Adam (core/ssm/mamba_mixer.py, use_muon = False)."""
    mixer = mixer_of(arch)
    behind = Matrix("mixer output projection", arch.hidden, mixer.values, "columns")
    if mixer.kind == "mamba2":
        return (behind,)
    return (Matrix("mixer projection", projected(mixer), arch.hidden, "rows"), behind)


def _latents(arch: Transformer) -> tuple[Matrix, ...]:
    if not arch.expert_latent:
        return ()
    down, up = LATENT
    return Matrix(down, arch.expert_latent, arch.hidden, ""), Matrix(up, arch.hidden, arch.expert_latent, "")


def _mlp(
    outside: int, arch: Transformer, name: str, width: int, count: int = 1, expert: bool = False
) -> tuple[Matrix, ...]:
    up = width * (2 if arch.gated else 1)
    return (
        Matrix(f"{name} up", up, outside, "rows", count, expert),
        Matrix(f"{name} down", outside, width, "columns", count, expert),
    )
