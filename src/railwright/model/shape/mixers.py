"""Mixers whose state does not grow with the sequence: the widths of their products, parameters and FLOPs.

Legend: V width of the values of all heads, K of all keys, H heads.
Sources: huggingface/transformers 5.23 (models/nemotron_h, qwen3_next, minimax, kimi_linear); Megatron-LM
d98e8a64, core/ssm/mamba_mixer.py and core/ssm/gated_delta_net.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.errors import PlanError
from railwright.model.shape.architecture import LinearMixer, Transformer


class Form(NamedTuple):
    """What one kind of mixer is made of.

    projected  (V, K, H) columns of the product in front, in so many times each
    convolved  (V, K) columns that the convolution sees
    learned    parameters of each head beside the products: decays, biases of their step, skips
    head_gain  the norm behind the state has one head's gains for all of them; else those of all values
    low_rank   two more products in front of (K, V) columns, each through as few as one head's values has
    state      FLOPs of an element of the state and a token
    """

    projected: tuple[int, int, int]
    convolved: tuple[int, int]
    learned: int
    head_gain: bool
    low_rank: tuple[int, int]
    state: int


FORMS: dict[str, Form] = {
    # z, x, B, C, dt; A, dt's bias, D; decay, outer product, its product with C
    "mamba2": Form((2, 2, 1), (1, 2), 3, False, (0, 0), 7),
    # q, k, v, z, beta, alpha; A, dt's bias; KK', VK', the state's update and its product with q
    "gated_deltanet": Form((2, 2, 2), (1, 2), 2, True, (0, 0), 8),
    # q, k, v, beta; A; decays of every key and gates of every value are products of low rank
    "kda": Form((1, 2, 1), (1, 2), 1, True, (1, 1), 8),
    # q, k, v, gate; its decays are no parameters; outer product and product with q
    "lightning": Form((2, 2, 0), (0, 0), 0, False, (0, 0), 4),
}
"""FLOPs of the state of Mamba-2 and of a gated delta net as Megatron-LM counts them (megatron/training/
training.py, mamba_layer_flops and gdn_layer_flops); KDA has a decay for every key in place of one per head,
and the same products."""


def mixer_of(arch: Transformer) -> LinearMixer:
    """The model's mixer. Raises PlanError for a model without."""
    if arch.linear is None:
        raise PlanError(f"{arch.name} has no layers with a linear mixer: ask for its 'dense' or 'moe' ones.")
    return arch.linear


def projected(mixer: LinearMixer) -> int:
    """Columns of the products in front of the state, of low rank aside."""
    v, k, h = FORMS[mixer.kind].projected
    return v * mixer.values + k * mixer.keys + h * mixer.heads


def convolved(mixer: LinearMixer) -> int:
    """Columns that the convolution sees."""
    v, k = FORMS[mixer.kind].convolved
    return (v * mixer.values + k * mixer.keys) if mixer.conv else 0


def low_rank(mixer: LinearMixer) -> tuple[int, int]:
    """(columns in the middle, columns behind) of all products of low rank together."""
    k, v = FORMS[mixer.kind].low_rank
    return (k + v) * mixer.value_dim, k * mixer.keys + v * mixer.values


def mixer_macs(arch: Transformer) -> int:
    """Multiply-adds of one token in the products in front of the state and behind it = their weights."""
    mixer = mixer_of(arch)
    middle, behind = low_rank(mixer)
    thin = arch.hidden * middle + (mixer.value_dim * behind if middle else 0)
    return arch.hidden * (projected(mixer) + mixer.values) + thin


def state_flops(mixer: LinearMixer) -> int:
    """Forward FLOPs of one token with the states of all heads, however kernels go about it. [flop]"""
    return FORMS[mixer.kind].state * mixer.values * mixer.key_dim


def mixer_parameters(arch: Transformer) -> int:
    """All parameters of one mixer, without the norm in front of it."""
    mixer = mixer_of(arch)
    form = FORMS[mixer.kind]
    convolution = convolved(mixer) * (mixer.conv + mixer.conv_bias)
    # KDA's step has a bias for every key
    biases = mixer.keys if mixer.kind == "kda" else 0
    gains = mixer.value_dim if form.head_gain else mixer.values
    return mixer_macs(arch) + convolution + form.learned * mixer.heads + biases + gains


def replicated(arch: Transformer) -> int:
    """Parameters of one mixer that every tensor-parallel rank holds."""
    mixer = mixer_of(arch)
    middle = low_rank(mixer)[0]
    return arch.hidden * middle + (mixer.value_dim if FORMS[mixer.kind].head_gain else 0)


WHOLE = ("kda", "lightning")
"""Mixers that no published module cuts over tensor-parallel ranks (Megatron-LM has Mamba-2 and gated delta
nets only; lightning attention's norm is over all heads)."""


def check_mixer(arch: Transformer, tp: int, asked: str = "") -> None:
    """Raise PlanError where tensor parallelism cannot cut a mixer: whole heads, and whole heads of keys.

    asked  whose tensor parallelism and by what setting, as the message names it; default: the model's

    Source: Megatron-LM, core/ssm/mamba_mixer.py (nheads and ngroups divisible by the tensor-parallel size),
    gated_delta_net/common.py.
    """
    mixer = mixer_of(arch)
    setting = f"{asked or f'{arch.name}: tensor parallel'} {tp}"
    if tp > 1 and mixer.kind in WHOLE:
        raise PlanError(
            f"{setting} cannot cut the linear layers of {arch.name} ({mixer.kind}), which no framework that "
            "is known here cuts; use 1, with pipeline, expert or data parallelism."
        )
    for what, count in (("heads", mixer.heads), ("heads of keys (groups)", mixer.key_heads)):
        if count % tp:
            sizes = ", ".join(str(d) for d in range(1, count + 1) if count % d == 0)
            raise PlanError(
                f"{setting} does not divide the {count} {what} of the linear layers of {arch.name}; "
                f"sizes that do: {sizes}."
            )
