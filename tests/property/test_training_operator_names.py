"""What training says of operators and kept tensors by their names is of names that layers have.

`model` makes the names, and tables of `training` look them up: one that no layer has would be passed over in
silence, and what was fused, launched, cast or kept would be counted as if it were not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from railwright.model import Cut, layer_activations, layer_operators, load_model
from railwright.model.operators.eager import Part
from railwright.model.operators.narrow import Scaling
from railwright.model.operators.recompute import CORE, MODULES, UNNEEDED
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, kinds_present
from railwright.model.tensors.activations import DROPPED
from railwright.training.layers import casts, costs, fused, lora_kept, recompute
from railwright.training.memory import activations
from railwright.training.software import host, lora
from railwright.training.software.eras import eras
from training_cases import BLOCKS, DELTA, DENSE, KIMI, LATENTS, LIGHTNING, MOE

UNFUSED: tuple[tuple[Part, ...], ...] = ((), ("rotary", "router", "norm", "activation"), ("experts",))
FORMATS: tuple[tuple[str, Scaling], ...] = (
    ("bf16", ""),
    ("fp8", ""),
    ("fp8", "delayed"),
    ("fp8", "current"),
    ("mxfp8", "mxfp8"),
)
"""Formats of products, and how attention scales what it multiplies in them."""
PARTS = ("layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")


def architectures() -> Iterator[Transformer]:
    """One of every kind of layer."""
    yield from (DENSE, MOE, LATENTS, BLOCKS, DELTA, KIMI, LIGHTNING)
    yield replace(LATENTS, shared_norm=True)
    yield replace(MOE, shared_experts=1, shared_ffn=MOE.ffn, shared_norm=True, branch_norms=True)
    yield from (load_model(name) for name in ("deepseek-v3.2", "gpt-oss-20b", "glm-5", "gemma-3-27b"))


def ways(arch: Transformer) -> Iterator[tuple[Layer, Cut, str]]:
    """Every kind of layer of a model, and however it runs; the format of its products."""
    attentions = ("flash",) if arch.index_topk else ("flash", "unfused")
    for kind, (dtype, scaling), attention, unfused, stored in product(
        kinds_present(arch), FORMATS, attentions, UNFUSED, (False, True)
    ):
        if "experts" in unfused and (arch.mlp_bias or arch.expert_latent):
            continue
        narrow = scaling if attention == "flash" and not arch.index_topk else ""
        yield kind, Cut(narrow=narrow, stored=stored, attention=attention, unfused=unfused), dtype
        if attention == "unfused":
            yield kind, Cut(attention=attention, attention_dropout=True, biased=True), dtype
        yield (
            kind,
            Cut(narrow=narrow, attention=attention, unfused=unfused, rotation="complex", dispatch="eager"),
            dtype,
        )


@cache
def operators() -> frozenset[str]:
    """Names of the operators of all layers, however they run."""
    found: set[str] = set()
    for arch in architectures():
        for kind, cut, dtype in ways(arch):
            layer = layer_operators(arch, kind, 256, 256, cut, dtype=dtype, modules=PARTS)
            every = (layer.forward, layer.backward_input, layer.backward_weight, layer.recomputed)
            found |= {op.name for some in every for op in some}
    return frozenset(found)


@cache
def forward() -> frozenset[str]:
    """The same without what gradients are called behind a comma."""
    return frozenset(name.rsplit(", ", 1)[0] for name in operators())


@cache
def kept_tensors() -> frozenset[str]:
    """Names of what layers keep."""
    return frozenset(
        name
        for arch in architectures()
        for kind, cut, dtype in ways(arch)
        for name in layer_activations(arch, kind, 256, 256, cut, dtype=dtype)
    )


def test_operators_that_training_names_are_in_layers() -> None:
    named = {
        *casts.GATHERED_INPUT,
        *casts.GATHERED_GRADIENT,
        *casts.JOINED,
        "attention output cast",
        *costs.STAYING,
        costs.ROTARY_KEYS,
        *(name for names in lora.PRODUCTS.values() for name in names),
        *(name for names in MODULES.values() for name in names),
        *CORE,
        *UNNEEDED,
        *host.ROUTER,
        *host.EAGER,
    }
    assert not named - forward() - operators()
    assert not (fused.DISPATCH | fused.EXPERTS) - operators()
    assert not [begin for begin in costs.MIXING if not any(name.startswith(begin) for name in forward())]


def test_tensors_that_training_names_are_kept_by_layers() -> None:
    saved = {name for era in eras().values() for name in era.saves}
    dropped = {name for names in DROPPED.values() for name in names}
    assert not {*lora_kept.FROZEN, *lora_kept.ROUTED, *activations.MLP, *saved, *dropped} - kept_tensors()
    assert {*DROPPED} == {*MODULES}


def test_parts_of_recomputation_are_all_known() -> None:
    """Of a part that is not known nobody could tell whether a model has it."""
    assert all(isinstance(recompute.has_part(MOE, module), bool) for module in MODULES)
