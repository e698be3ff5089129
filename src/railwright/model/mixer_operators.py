"""A linear mixer as a block of a layer: norm, product in front, its kernels, product behind, and the sum.

Tensor parallelism cuts it as Megatron-LM does: heads and heads of keys over ranks, the product in front by
columns and the one behind by rows, so that the same two collectives end it as attention.
"""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.model.delta import delta_blocks, delta_kept, delta_working
from railwright.model.kernels import CAST_DTYPES, ELEMENT, Block, elementwise, half, linear, residual
from railwright.model.mamba import mamba_blocks, mamba_working
from railwright.model.mixers import mixer_of, projected


def mixer_blocks(arch: Transformer, rows: int, local: int, sequence: int, tp: int, dtype: str) -> list[Block]:
    """Blocks of one mixer on one GPU.

    rows   tokens of the microbatch; local  those of the norm (rows/tp under sequence parallelism)
    """
    mixer, h = mixer_of(arch), arch.hidden
    values = mixer.values // tp
    blocks = [
        elementwise("mixer norm", local, reads=h, writes=h, back=3 * h),
        linear("mixer projection", rows, projected(mixer) // tp, h, dtype),
        *_between(arch, rows, sequence, tp, half(dtype)),
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
    kept = {"mixer projected": ELEMENT * projected(mixer) / tp, "mixer scanned": ELEMENT * mixer.values / tp}
    if mixer.kind == "gated_deltanet":
        kept["mixer rule"] = delta_kept(mixer, tp)
        # a norm's output beside its gate
        kept["mixer normed"] = ELEMENT * mixer.values / tp
    return kept


def mixer_working(arch: Transformer, tp: int) -> tuple[float, float]:
    """Bytes per token that a mixer's kernels need for themselves at most, forward and backward."""
    mixer = mixer_of(arch)
    return (delta_working if mixer.kind == "gated_deltanet" else mamba_working)(mixer, tp)


def _between(arch: Transformer, rows: int, sequence: int, tp: int, dtype: str) -> list[Block]:
    mixer = mixer_of(arch)
    if mixer.kind == "mamba2":
        return mamba_blocks(mixer, rows, tp, dtype)
    if mixer.kind == "gated_deltanet":
        return delta_blocks(mixer, rows, sequence, tp, dtype)
    raise PlanError(f"{arch.name}: the kernels of its linear layers ({mixer.kind}) are not modelled.")
