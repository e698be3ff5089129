"""When a layer's tensors come and go: what stays is what `layer_activations` counts, and nothing leaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import layer_activations, load_model
from railwright.model.operators.cut import CoreAttention, Cut
from railwright.model.operators.eager import Part
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.model.tensors.layer import layer_tensors
from railwright.model.tensors.tensor_lists import INPUT, RECEIVED, with_received
from railwright.training.memory.allocator import Requests, play
from railwright.training.memory.tape import LayerPlan, backward, forward

ROWS, SEQUENCE = 8192.0, 4096

LAYERS: list[tuple[str, Layer]] = [
    ("llama-3.1-70b", "dense"),
    ("gpt-3-175b", "dense"),
    ("qwen3-30b-a3b", "moe"),
    ("deepseek-v3", "dense"),
    ("deepseek-v3", "moe"),
    ("mixtral-8x7b", "moe"),
    ("gemma-3-27b", "dense"),
    ("falcon-180b", "dense"),
    ("falcon-180b with one norm", "dense"),
    ("trinity-large", "dense"),
    ("trinity-large", "moe"),
    ("llama-3.1-70b with gates per head", "dense"),
    ("deepseek-v3 with norms in the layers with experts", "moe"),
    ("grok-2", "moe"),
    ("grok-2 with branches normed", "moe"),
    ("trinity-large with branches normed", "moe"),
    ("qwen3-30b-a3b with narrow values", "moe"),
    ("grok-2 with latents", "moe"),
    ("gemma-3-27b with normed values", "dense"),
    ("gemma-3-27b with keys for values", "dense"),
    ("deepseek-v3.2", "dense"),
    ("glm-5", "moe"),
]


def named(model: str) -> Transformer:
    """A bundled model, or one whose attention and MLP share a norm (Cohere), with gates (Laguna), with
    norms that layers with experts have more (Arctic, A.X K1, Gemma 4), or latents (Nemotron 3 Super)."""
    if model.endswith(" with norms in the layers with experts"):
        return replace(load_model(model.split(" with ")[0]), shared_norm=True, experts_norm=True)
    if model.endswith(" with branches normed"):
        return replace(load_model(model.split(" with ")[0]), shared_norm=True, branch_norms=True)
    if model.endswith((" with normed values", " with keys for values")):
        shared = model.endswith(" with keys for values")
        return replace(load_model(model.split(" with ")[0]), value_norm=True, shared_values=shared)
    if model.endswith(" with latents"):
        return replace(load_model(model.split(" with ")[0]), expert_latent=1024)
    if model.endswith(" with narrow values"):
        return replace(load_model(model.split(" with ")[0]), v_head_dim=64)
    if model.endswith(" with gates per head"):
        return replace(load_model(model.removesuffix(" with gates per head")), attention_gate="head")
    arch = load_model(model.removesuffix(" with one norm"))
    return replace(arch, norms_per_layer=1) if model.endswith(" with one norm") else arch


def plan(
    arch: Transformer,
    layer: Layer,
    tp: int = 1,
    recompute: str = "none",
    modules: tuple[str, ...] = ("core_attn",),
    attention: CoreAttention = "flash",
    dropped: bool = False,
    dtype: str = "bf16",
    unfused: tuple[Part, ...] = (),
) -> LayerPlan:
    cut = Cut(tp, tp > 1, ep=4 if layer == "moe" else 1, attention=attention, unfused=unfused)
    cut = replace(cut, attention_dropout=dropped, hidden_dropout="fused" if dropped else "")
    more = {"dtype": dtype}
    whole = layer_activations(arch, layer, ROWS, SEQUENCE, cut, **more)  # type: ignore[arg-type]
    again = {"recompute": recompute, "modules": modules}
    kept = layer_activations(arch, layer, ROWS, SEQUENCE, cut, **again, **more)  # type: ignore[arg-type]
    tensors = layer_tensors(arch, layer, ROWS, SEQUENCE, whole, cut)
    return LayerPlan(tensors, kept, recompute == "full", 0.0)


@pytest.mark.parametrize(("unfused", "dropped"), [((), False), (("norm", "activation"), False), ((), True)])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(("model", "layer"), LAYERS)
def test_what_stays_is_what_is_counted(
    model: str, layer: Layer, tp: int, dtype: str, unfused: tuple[Part, ...], dropped: bool
) -> None:
    arch = named(model)
    one = plan(arch, layer, tp, dtype=dtype, unfused=unfused, dropped=dropped and not arch.index_topk)
    asked = Requests()
    entry = asked.take(one.tensors.gradients[INPUT])
    done, output = forward(asked, one, entry)
    sizes = {INPUT: one.tensors.gradients[INPUT], **one.sizes, **one.others}
    assert sum(sizes[name] for name in done.held) == pytest.approx(sum(one.kept.values()), rel=1e-9)
    asked.give(output)
    played = play(asked)
    assert sum(played.blocks[tensor] for tensor in done.held.values()) == played.end.allocated


@pytest.mark.parametrize(
    ("recompute", "modules"),
    [
        ("none", ("core_attn",)),
        ("full", ("core_attn",)),
        ("selective", ("layernorm", "mla_up_proj", "moe_act", "mlp")),
        ("selective", ("moe",)),
    ],
)
@pytest.mark.parametrize("unfused", [(), ("norm", "activation")])
@pytest.mark.parametrize(("model", "layer"), LAYERS)
def test_nothing_is_left_but_the_gradient_of_the_input(
    model: str, layer: Layer, recompute: str, modules: tuple[str, ...], unfused: tuple[Part, ...]
) -> None:
    one = plan(named(model), layer, 2, recompute, modules, unfused=unfused)
    asked = Requests()
    size = one.tensors.gradients[INPUT]
    done, output = forward(asked, one, asked.take(size))
    gradient = backward(asked, done, asked.take(size), None)
    asked.give(output)
    asked.mark()
    asked.give(gradient)
    played = play(asked)
    assert [moment.allocated for moment in played.moments] == [played.blocks[gradient], 0]


def test_attention_that_writes_its_scores_keeps_softmax_mask_and_dropped_softmax() -> None:
    """5 bytes a score (Korthikanti et al. 2022, 4.1), and two masks of the hidden state."""
    arch = load_model("gpt-3-175b")
    one = plan(arch, "dense", 8, attention="unfused", dropped=True)
    scores = ROWS * SEQUENCE * arch.heads / 8
    sizes = {name: one.sizes[name] for name in ("softmax", "dropped softmax", "attention mask")}
    assert sizes == {"softmax": 2 * scores, "dropped softmax": 2 * scores, "attention mask": scores}
    assert set(sizes) <= one.stays
    asked = Requests()
    done, _ = forward(asked, one, asked.take(one.tensors.gradients[INPUT]))
    sizes = {INPUT: one.tensors.gradients[INPUT], **one.sizes}
    assert sum(sizes[name] for name in done.held) == pytest.approx(sum(one.kept.values()))


def test_a_compiled_layer_frees_tensors_that_pythons_variables_still_name() -> None:
    arch = load_model("llama-3.1-8b")
    eager = plan(arch, "dense", recompute="full")
    compiled = LayerPlan(eager.tensors, eager.kept, again=True, gradient=0.0, eager=False)
    peaks = []
    for one in (eager, compiled):
        asked = Requests()
        forward(asked, one, asked.take(one.tensors.gradients[INPUT]))
        peaks.append(play(asked).most_allocated)
    hidden = 2 * ROWS * arch.hidden
    assert peaks[0] - peaks[1] >= hidden


def test_experts_that_receive_more_rows_have_larger_tensors() -> None:
    one = plan(load_model("mixtral-8x7b"), "moe").tensors
    more = with_received(one, 1.5)
    for op, other in zip(one.operators, more.operators, strict=True):
        for name, size in op.makes.items():
            assert other.makes[name] == pytest.approx(size * (1.5 if name in RECEIVED else 1.0))
    assert more.gradients["expert input"] == pytest.approx(1.5 * one.gradients["expert input"])
    assert more.gradients[INPUT] == one.gradients[INPUT]
