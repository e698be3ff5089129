"""What a compiled layer keeps under torchtitan's checkpoint by operators, by autograd's own hooks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from railwright.model.tensors.activations import layer_activations
from training_cases import DENSE

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

SEQUENCE = 64
ARCH = replace(DENSE, hidden=128, heads=4, kv_heads=2, head_dim=32, ffn=448)


def kept_by_autograd() -> float:
    """Bytes that a layer with grouped queries and SwiGLU keeps between its passes, weights left out."""
    import torch.nn.functional as F
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    aten = torch.ops.aten

    def contexts() -> Any:
        """Attention is saved, and of all products the first, the third and so on."""
        products = {False: count(), True: count()}

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            saved = op == aten._scaled_dot_product_flash_attention_for_cpu.default
            if op == aten.mm.default:
                saved = next(products[ctx.is_recompute]) % 2 == 0
            return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    keys = ARCH.kv_heads * ARCH.head_dim
    widths = {"q": ARCH.hidden, "k": keys, "v": keys, "out": ARCH.hidden, "gate": ARCH.ffn, "up": ARCH.ffn}
    shapes = {name: (width, ARCH.hidden) for name, width in widths.items()}
    shapes["down"] = (ARCH.hidden, ARCH.ffn)
    weights = {
        name: torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True) for name, shape in shapes.items()
    }
    gains = torch.ones(ARCH.hidden, dtype=torch.bfloat16, requires_grad=True)

    def heads(x: Any) -> Any:
        return x.view(1, SEQUENCE, -1, ARCH.head_dim).transpose(1, 2)

    def layer(x: Any) -> Any:
        def product(name: str, x: Any) -> Any:
            return F.linear(x, weights[name])

        normed = F.rms_norm(x, (ARCH.hidden,), gains)
        q, k, v = (heads(product(name, normed)) for name in "qkv")
        k, v = (one.repeat_interleave(ARCH.heads // ARCH.kv_heads, 1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + product("out", mixed.transpose(1, 2).reshape(1, SEQUENCE, -1))
        normed = F.rms_norm(x, (ARCH.hidden,), gains)
        return x + product("down", F.silu(product("gate", normed)) * product("up", normed))

    own = {one.untyped_storage().data_ptr() for one in (*weights.values(), gains)}
    kept: dict[int, int] = {}

    def seen(tensor: Any) -> Any:
        if (place := tensor.untyped_storage().data_ptr()) not in own:
            kept[place] = tensor.numel() * tensor.element_size()
        return tensor

    compiled = torch.compile(
        lambda x: checkpoint(layer, x, use_reentrant=False, context_fn=contexts, preserve_rng_state=False),
        backend="aot_eager_decomp_partition",
        fullgraph=True,
    )
    x = torch.randn(1, SEQUENCE, ARCH.hidden, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        out = compiled(x)
    out.sum().backward()
    return float(sum(kept.values()))


def test_all_that_is_counted_but_the_down_projections_output() -> None:
    """That is counted as runs of 2024 and of the first half of 2025 held as much more (docs/training/
    memory.md)."""
    counted = layer_activations(ARCH, "dense", SEQUENCE, SEQUENCE, recompute="selective", modules=("ops",))
    without = sum(counted.values()) - counted["mlp down output"]
    assert kept_by_autograd() == pytest.approx(without, rel=1e-9)
