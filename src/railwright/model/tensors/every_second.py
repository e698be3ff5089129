"""What torchtitan's checkpoint by operators keeps of a layer (`recompute_modules: [ops]`)."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.operators.cut import Cut
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.recompute import linear_layers
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.model.tensors.tensor_lists import Kept

UNREAD = ("mlp down output", "mlp's scattered output")
"""Of these, what no backward pass reads: a checkpoint keeps it all the same, but where a layer is compiled
(tests/oracle/test_training_ops_pytorch.py)."""


def check_every_second(arch: Transformer, layer: Layer) -> None:
    """Raise PlanError where it is not known which products every second one is: torchtitan has no such layers
    or counts other products in them."""
    grouped = arch.attention == "gqa" and not arch.v_head_dim
    latent = arch.attention == "mla" and not arch.index_topk
    experts = not arch.mlp_bias and not arch.expert_latent and not arch.shared_gate
    known = (grouped or latent) and arch.gated and not arch.attention_gate
    if not known or layer not in ("dense", "moe") or (layer == "moe" and not experts):
        raise PlanError(
            f"{arch.name}: recompute_modules 'ops' is torchtitan's for layers with grouped queries or latent "
            "attention without gates, and a gated MLP or gated experts without biases; choose parts of the "
            "layer instead."
        )


def every_second(arch: Transformer, layer: Layer, cut: Cut, scores: Kept) -> list[Kept]:
    """What PyTorch's selective checkpoint by operators keeps of a layer: its input, what every second linear
    layer makes (`linear_layers`), what is scattered over tensor ranks or has travelled between expert ranks,
    and what attention keeps.

    scores  what the latter is beside its output
    Source: torchtitan, distributed/activation_checkpoint.py (before, parallelisms/parallelize_llama.py),
    _op_sac_save_list: all-to-alls since September 2025 (c4e22911).
    Raises PlanError for other layers.
    """
    check_every_second(arch, layer)
    tp = cut.tp
    heads = arch.heads / tp
    names = ("attention's scattered output", "mlp's scattered output") if cut.split > 1 else ()
    found = [Kept(name, ELEMENT * arch.hidden, spread=True) for name in names]
    found.append(Kept("layer input", ELEMENT * arch.hidden, spread=True))
    made = _columns(arch, tp)
    for name, share, saved in linear_layers(arch, layer):
        if saved:
            of, columns = made[name]
            found.append(Kept(of if share == 1.0 else f"{of}, part", ELEMENT * columns * share))
    value = arch.v_head_dim or arch.head_dim
    found += [Kept("attention output", ELEMENT * value * heads), scores]
    if layer == "moe" and cut.ep > 1:
        etp, width = cut.expert_tp or tp, ELEMENT * arch.experts_per_token * arch.hidden
        found.append(Kept("dispatched rows", width * etp / tp * cut.imbalance))
        found.append(Kept("returned rows", width, spread=True))
    return _together(found)


def _columns(arch: Transformer, tp: int) -> dict[str, tuple[str, float]]:
    """Product -> name of what it makes, and its columns on a tensor rank."""
    heads, keys = arch.heads / tp, max(arch.kv_heads / tp, 1.0)
    query = heads * (arch.head_dim + arch.rope_dim)
    return {
        "qkv projection": ("query, key, value output", arch.head_dim * (heads + 2 * keys)),
        "query projection": ("query output", query),
        "query down": ("query down output", arch.q_lora),
        "query up": ("query up output", query),
        "key/value down": ("key/value down output", arch.kv_lora + arch.rope_dim),
        "key/value up": ("key/value up output", heads * (arch.head_dim + arch.v_head_dim)),
        "output projection": ("output projection output", arch.hidden),
        "mlp up": ("mlp up output", 2 * arch.ffn / tp),
        "mlp down": ("mlp down output", arch.hidden),
        "shared expert up": ("shared up output", 2 * arch.shared_ffn / tp),
        "shared expert down": ("shared down output", arch.hidden),
    }


def _together(found: list[Kept]) -> list[Kept]:
    """Parts of one tensor added up."""
    sizes: dict[str, Kept] = {}
    for one in found:
        size = sizes[one.name].bytes if one.name in sizes else 0.0
        sizes[one.name] = Kept(one.name, size + one.bytes, one.spread)
    return list(sizes.values())
