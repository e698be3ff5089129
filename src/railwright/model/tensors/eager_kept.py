"""What a layer keeps of norms and gated activations that run one kernel per operation.

The other parts of `eager.Part` keep nothing more: a rotation's products read cosine and sine alone, which all
layers share, and Megatron's router keeps its input in 16 bits, cast again in the backward pass
(core/transformer/moe/moe_utils.py, RouterGatingLinearFunction); probabilities are counted either way.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.mlp_kernels import splits_gate
from railwright.model.operators.norms import kept_by_norm, more_by_norm, splits_norms
from railwright.model.shape.architecture import Transformer
from railwright.model.tensors.tensor_lists import Kept

NORMS = {
    "attention norm input": "attention norm",
    "mlp norm input": "mlp norm",
    "mixer norm input": "mixer norm",
    "output norm inputs": "output norms",
    "query and key before norm": "query and key norm",
}
"""Input of a norm in 16 bits -> the norm."""

BESIDE = ("shared norm", "router norm")
"""Norms of what another one reads too, whose input is counted there."""

GATES = {
    "mlp up output": ("mlp product", "mlp activated"),
    "expert up output": ("expert product", "expert activated"),
    "shared up output": ("shared product", "shared activated"),
}
"""What an activation reads -> what it makes, and silu of the gates, which the product with up reads: kept too
where each is a kernel.  Source: torch.autograd.graph.saved_tensors_hooks around silu(gate) * up."""


def operation_by_operation(
    kept: Sequence[Kept], arch: Transformer, unfused: tuple[Part, ...], gone: frozenset[str]
) -> list[Kept]:
    """What is kept where some parts run one kernel per operation.

    kept  where all is fused
    gone  of that, what recomputation drops; a norm or an activation whose result is computed again keeps
          nothing more
    """
    norms, gates = splits_norms(arch, unfused), splits_gate(arch, unfused)
    found: list[Kept] = []
    for one in kept:
        norm = NORMS.get(one.name, "")
        if norms and norm and f"{norm} output" not in gone:
            gains = arch.qk_norm_gains != "none" if norm == "query and key norm" else arch.norm_gain
            found += [
                Kept(f"{norm}{end}", times * one.bytes, one.spread)
                for end, times in kept_by_norm(gains).items()
            ]
            continue
        found.append(one)
        beside = one.name.removesuffix(" output")
        if norms and beside in BESIDE:
            found += [
                Kept(f"{beside}{end}", times * ELEMENT * arch.hidden, spread=True)
                for end, times in kept_by_norm(arch.norm_gain).items()
            ]
        if norms and one.name == "latents":
            more = more_by_norm(arch, unfused) * ELEMENT * (arch.q_lora + arch.kv_lora)
            found[-1] = Kept(one.name, one.bytes + more, one.spread)
        if gates and one.name in GATES:
            made, activated = GATES[one.name]
            found += [Kept(activated, one.bytes / 2)] if made not in gone else []
    return found
