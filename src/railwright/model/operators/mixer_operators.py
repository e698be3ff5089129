"""A linear mixer as a block of a layer: norm, product in front, its kernels, product behind, and the sum.

Tensor parallelism cuts it as Megatron-LM does: heads and heads of keys over ranks, the product in front by
columns and the one behind by rows, so that the same two collectives end it as attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from railwright.model.operators.delta import delta_blocks, delta_kept, delta_working
from railwright.model.operators.eager import Part
from railwright.model.operators.kda import kda_blocks, kda_kept, kda_working
from railwright.model.operators.kernels import (
    CAST_DTYPES,
    ELEMENT,
    Block,
    elementwise,
    half,
    linear,
    residual,
)
from railwright.model.operators.lightning import lightning_blocks, lightning_kept, lightning_working
from railwright.model.operators.mamba import mamba_blocks, mamba_kept, mamba_working
from railwright.model.operators.norms import layer_norm
from railwright.model.shape.architecture import LinearMixer, Transformer
from railwright.model.shape.mixers import low_rank, mixer_of, projected


def mixer_blocks(
    arch: Transformer,
    rows: int,
    local: int,
    sequence: int,
    tp: int,
    dtype: str,
    unfused: tuple[Part, ...] = (),
) -> list[Block]:
    """Blocks of one mixer on one GPU.

    rows   tokens of the microbatch; local  those of the norm (rows/tp under sequence parallelism)
    unfused  parts that run one kernel per operation; the norm inside a mixer's kernels is none of them
    """
    mixer, h = mixer_of(arch), arch.hidden
    values = mixer.values // tp
    blocks = [
        layer_norm("mixer norm", arch, local, unfused),
        linear("mixer projection", rows, projected(mixer) // tp, h, dtype),
        *_low_rank(arch, rows, tp, dtype),
        *KERNELS[mixer.kind].blocks(mixer, rows, sequence, tp, half(dtype)),
    ]
    if dtype in CAST_DTYPES:
        blocks.append(elementwise("mixer output cast", rows, values, values, 0))
    return [
        *blocks,
        linear("mixer output projection", rows, h, values, dtype),
        residual("mixer residual", local, h, False),
    ]


def mixer_keeps(arch: Transformer, tp: int) -> dict[str, float]:
    """Bytes per token that a mixer keeps between its products, tensor by tensor."""
    mixer = mixer_of(arch)
    return {"mixer projected": ELEMENT * projected(mixer) / tp, **KERNELS[mixer.kind].kept(mixer, tp)}


def mixer_working(arch: Transformer, tp: int) -> tuple[float, float]:
    """Bytes per token that a mixer's kernels need for themselves at most, forward and backward."""
    mixer = mixer_of(arch)
    return KERNELS[mixer.kind].working(mixer, tp)


class Kernels(NamedTuple):
    """What lies between the products of one kind of mixer: its blocks of (mixer, rows, sequence, tp, 16-bit
    format), what they keep beside the projected row and what they need, per token of (mixer, tp)."""

    blocks: Callable[[LinearMixer, float, int, int, str], list[Block]]
    kept: Callable[[LinearMixer, int], dict[str, float]]
    working: Callable[[LinearMixer, int], tuple[float, float]]


KERNELS: dict[str, Kernels] = {
    "mamba2": Kernels(mamba_blocks, mamba_kept, mamba_working),
    "gated_deltanet": Kernels(delta_blocks, delta_kept, delta_working),
    "kda": Kernels(kda_blocks, kda_kept, kda_working),
    "lightning": Kernels(lightning_blocks, lightning_kept, lightning_working),
}


def _low_rank(arch: Transformer, rows: int, tp: int, dtype: str) -> list[Block]:
    """The two products through a few columns that make decays of keys and gates of values (KDA)."""
    mixer = mixer_of(arch)
    middle, behind = low_rank(mixer)
    if not middle:
        return []
    return [
        linear("mixer gates down", rows, middle, arch.hidden, dtype),
        linear("mixer gates up", rows, behind // tp, mixer.value_dim, dtype),
    ]
