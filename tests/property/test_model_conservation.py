"""Laws that hold for every way of cutting a model."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from model_configs import kept_bytes
from railwright.model import (
    Cut,
    Transformer,
    count_parameters,
    flops_per_token,
    head_operators,
    layer_operators,
    layer_parameters,
)
from railwright.model.operators.ends import padded_vocabulary
from railwright.model.operators.sparse import PROJECTIONS
from railwright.model.shape.pattern import layer_kinds

POWERS = (1, 2, 4, 8)


@st.composite
def transformers(draw):
    """Small models of every kind whose heads, experts and widths divide by 8."""
    kv = draw(st.sampled_from((8, 16)))
    moe = draw(st.booleans())
    shared = draw(st.sampled_from((0, 64))) if moe else 0
    arch = Transformer(
        name="drawn",
        layers=draw(st.integers(2, 5)),
        hidden=draw(st.sampled_from((64, 192))),
        vocab=draw(st.sampled_from((512, 1000))),
        heads=kv * draw(st.sampled_from((1, 4))),
        kv_heads=kv,
        head_dim=draw(st.sampled_from((16, 24))),
        ffn=draw(st.sampled_from((256, 320))),
        gated=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        qk_norm_gains=draw(st.sampled_from(("head", "all", "none"))),
        attention_gate=draw(st.sampled_from(("", "head", "element"))),
        attention_gate_bias=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        sliding_window=draw(st.sampled_from((0, 100))),
        full_every=draw(st.sampled_from((0, 1, 2, 3))),
        window_chunked=draw(st.booleans()),
        norms_per_layer=draw(st.sampled_from((1, 2, 4))),
        experts=16 if moe else 0,
        experts_per_token=draw(st.integers(1, 4)) if moe else 0,
        expert_ffn=draw(st.sampled_from((64, 128))) if moe else 0,
        expert_latent=draw(st.sampled_from((0, 48))) if moe else 0,
        shared_ffn=shared,
        shared_gate=shared > 0 and draw(st.booleans()),
        shared_norm=shared > 0 and draw(st.booleans()),
        experts_norm=moe and draw(st.booleans()),
        branch_norms=shared > 0 and draw(st.booleans()),
        dense_layers=draw(st.integers(0, 2)) if moe else 0,
        expert_every=draw(st.integers(1, 3)) if moe else 1,
        expert_layers=draw(st.sampled_from(((), (0,), (1,)))) if moe else (),
        whole_layers=draw(st.sampled_from(((), (0,), (0, 1)))),
        alibi=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
    )
    if draw(st.booleans()):
        arch = replace(
            arch,
            attention="mla",
            attention_gate="",
            q_lora=draw(st.sampled_from((0, 48))),
            kv_lora=32,
            rope_dim=8,
            v_head_dim=16,
        )
    return arch


@st.composite
def choosers(draw):
    """The same with latent attention to keys that an indexer chooses."""
    drawn = draw(transformers())
    own = draw(st.lists(st.booleans(), min_size=drawn.layers, max_size=drawn.layers))
    kinds = zip(layer_kinds(drawn), own, strict=True)
    return replace(
        drawn,
        pattern=tuple(k if has else f"sharing {k}" for k, has in kinds),
        attention="mla",
        attention_gate="",
        q_lora=draw(st.sampled_from((32, 48))),
        kv_lora=32,
        rope_dim=8,
        v_head_dim=draw(st.sampled_from((16, 24))),
        sliding_window=0,
        index_topk=draw(st.sampled_from((16, 100, 256, 1000))),
        index_heads=draw(st.sampled_from((2, 4))),
        index_dim=draw(st.sampled_from((16, 32))),
    )


def kinds(arch):
    """(layer, how many) of a model."""
    held = layer_kinds(arch)
    return [(k, held.count(k)) for k in dict.fromkeys(held)]


def gemm_flops(operators):
    return sum(op.flops for op in operators if op.kind != "memory")


@settings(max_examples=60)
@given(
    transformers(),
    st.sampled_from(POWERS),
    st.sampled_from(POWERS),
    st.sampled_from(POWERS),
    st.integers(1, 3),
)
def test_operators_of_all_gpus_add_up_to_the_closed_form(arch, tp, ep, expert_tp, sequences):
    """tp GPUs together run flops_per_token for the tokens they hold, whatever tp, ep and expert tp."""
    sequence = 256
    rows = sequences * sequence
    expert_tp = min(expert_tp, tp)
    forward = gemm_flops(head_operators(arch, rows).forward)
    backward = gemm_flops(
        [*head_operators(arch, rows).backward_input, *head_operators(arch, rows).backward_weight]
    )
    attention = 0.0
    for layer, count in kinds(arch):
        ops = layer_operators(
            arch, layer, rows, sequence, Cut(tp=tp, sequence_parallel=True, ep=ep, expert_tp=expert_tp)
        )
        forward += count * tp * gemm_flops(ops.forward)
        backward += count * tp * gemm_flops([*ops.backward_input, *ops.backward_weight])
        attention += count * tp * gemm_flops(ops.recomputed)
    padded = replace(arch, vocab=padded_vocabulary(arch.vocab, 1))
    closed = flops_per_token(padded, sequence, "causal")
    assert abs(forward - rows * closed.forward) <= 1e-9 * forward
    # attention's backward kernel runs 2.5 forwards, where the closed form counts 2
    assert abs(backward - rows * closed.backward - 0.5 * attention) <= 1e-9 * backward


@st.composite
def with_heads_of_their_own(draw):
    """Models whose windowed layers have other heads than the rest."""
    arch = replace(
        draw(transformers()),
        attention="gqa",
        q_lora=0,
        kv_lora=0,
        rope_dim=0,
        sliding_window=draw(st.sampled_from((64, 100))),
    )
    sees = draw(st.lists(st.booleans(), min_size=arch.layers, max_size=arch.layers))
    pattern = [k if whole else f"windowed {k}" for k, whole in zip(layer_kinds(arch), sees, strict=True)]
    shared = draw(st.sampled_from((0, 8, 16)))
    heads = (shared or arch.kv_heads) * draw(st.sampled_from((1, 2, 3)))
    marks = {"pattern": tuple(pattern), "window_heads": heads, "window_kv_heads": shared}
    marks |= {"window_head_dim": draw(st.sampled_from((0, 40))), "shared_values": draw(st.booleans())}
    marks |= {"value_norm": draw(st.booleans())}
    marks |= {"window_sinks": draw(st.booleans()), "v_head_dim": draw(st.sampled_from((0, 16, 32)))}
    return replace(arch, whole_layers=tuple(i for i, whole in enumerate(sees) if whole), **marks)


@settings(max_examples=60)
@given(with_heads_of_their_own(), st.sampled_from(POWERS), st.integers(1, 3))
def test_layers_with_heads_of_their_own_add_up_to_the_closed_form(arch, tp, sequences):
    sequence = 256
    rows = sequences * sequence
    found = gemm_flops(head_operators(arch, rows).forward)
    for layer in layer_kinds(arch):
        ops = layer_operators(arch, layer, rows, sequence, Cut(tp=tp, sequence_parallel=True))
        found += tp * gemm_flops(ops.forward)
    closed = flops_per_token(replace(arch, vocab=padded_vocabulary(arch.vocab, 1)), sequence, "causal")
    assert abs(found - rows * closed.forward) <= 1e-9 * found
    count = count_parameters(arch)
    whole = sum(layer_parameters(arch, layer).total for layer in layer_kinds(arch))
    assert whole + count.embedding + count.head + arch.hidden * (1 + arch.embedding_norm) == count.total
    assert all(kept_bytes(arch, layer, rows, sequence, Cut(tp=tp)) > 0 for layer in layer_kinds(arch))


def named(operators, *names):
    return [op for op in operators if op.name.rsplit(", ", 1)[0] in names]


@settings(max_examples=60)
@given(choosers(), st.sampled_from(POWERS), st.sampled_from(POWERS), st.integers(1, 3))
def test_operators_of_an_indexer_add_up_once_and_run_on_every_tensor_rank(arch, tp, ep, sequences):
    """tp GPUs together run flops_per_token, the indexer tp - 1 times more, and its loss."""
    sequence = 256
    rows = sequences * sequence
    head = head_operators(arch, rows)
    forward = gemm_flops(head.forward)
    backward = gemm_flops([*head.backward_input, *head.backward_weight])
    for layer, count in kinds(arch):
        ops = layer_operators(arch, layer, rows, sequence, Cut(tp=tp, sequence_parallel=True, ep=ep))
        back = [*ops.backward_input, *ops.backward_weight]
        everywhere = (*PROJECTIONS, "index scores")
        loss = gemm_flops(named(ops.forward, "index loss"))
        forward += count * (tp * (gemm_flops(ops.forward) - loss))
        forward -= count * (tp - 1) * gemm_flops(named(ops.forward, *everywhere))
        backward += count * tp * gemm_flops(back)
        backward -= count * (tp - 1) * gemm_flops(named(back, *everywhere))
        # both kernels repeat scores: attention half a forward, the indexer one product of three
        backward -= count * tp * 0.5 * gemm_flops(named(ops.forward, "core attention"))
        backward -= count * gemm_flops(named(back, "index scores")) / 3
        if not layer.startswith("sharing"):
            assert {op.name for op in ops.recomputed} >= {*everywhere, "index loss", "core attention"}
    closed = flops_per_token(replace(arch, vocab=padded_vocabulary(arch.vocab, 1)), sequence, "causal")
    assert abs(forward - rows * closed.forward) <= 1e-9 * forward
    assert abs(backward - rows * closed.backward) <= 1e-9 * backward


@settings(max_examples=60)
@given(st.one_of(transformers(), choosers()), st.sampled_from(POWERS), st.sampled_from(POWERS))
def test_layers_of_one_gpu_add_up_to_the_model(arch, tp, ep):
    """Uncut layers hold all parameters; cutting never leaves a GPU less than its share, nor more than all."""
    count = count_parameters(arch)
    whole = sum(n * layer_parameters(arch, layer).total for layer, n in kinds(arch))
    ends = count.embedding + count.head + arch.hidden * (1 + arch.embedding_norm)
    assert whole + ends == count.total
    for layer, _ in kinds(arch):
        one = layer_parameters(arch, layer)
        cut = layer_parameters(arch, layer, Cut(tp=tp, ep=ep))
        assert one.dense / tp <= cut.dense * (1 + 1e-12)
        assert cut.dense <= one.dense * (1 + 1e-12)
        assert cut.expert * tp * ep == one.expert


@settings(max_examples=40)
@given(st.one_of(transformers(), choosers()), st.sampled_from(POWERS), st.booleans())
def test_more_tensor_parallelism_never_means_more_per_gpu(arch, tp, spread):
    layer = kinds(arch)[0][0]
    one, two = (
        layer_operators(arch, layer, 512, 256, Cut(tp=t, sequence_parallel=spread))
        for t in (tp, min(2 * tp, 8))
    )
    for part in ("forward", "backward_input", "backward_weight"):
        assert gemm_flops(getattr(two, part)) <= gemm_flops(getattr(one, part)) * (1 + 1e-12)
    memory = [
        kept_bytes(arch, layer, 512, 256, Cut(tp=t, sequence_parallel=spread)) for t in (tp, min(2 * tp, 8))
    ]
    assert memory[1] <= memory[0] * (1 + 1e-12)


@settings(max_examples=40)
@given(transformers(), st.sampled_from(POWERS), st.booleans(), st.sampled_from(("flash", "unfused")))
def test_recompute_never_keeps_more(arch, tp, spread, attention):
    layer = kinds(arch)[0][0]
    none, selective, full = (
        kept_bytes(
            arch, layer, 512, 256, Cut(tp=tp, sequence_parallel=spread, attention=attention), recompute=r
        )
        for r in ("none", "selective", "full")
    )
    assert full < selective < none


PARTS = ("rotary", "router", "norm", "activation")


@settings(max_examples=60)
@given(
    transformers(),
    st.sampled_from(POWERS),
    st.sampled_from(("none", "selective")),
    st.sampled_from(("core_attn", "mlp", "moe", "moe_act", "layernorm")),
    st.sets(st.sampled_from(PARTS)),
    st.sampled_from(PARTS),
)
def test_no_part_moves_launches_or_keeps_less_one_kernel_per_operation(arch, tp, how, again, parts, more):
    for layer in (kind for kind, _ in kinds(arch)):
        less, all_of_it = sorted(parts - {more}), sorted(parts | {more})
        fused, split = (
            layer_operators(arch, layer, 256, 256, Cut(tp=tp, unfused=tuple(u))) for u in (less, all_of_it)
        )
        for phase in ("forward", "backward_input", "recomputed"):
            for one, other in zip(getattr(fused, phase), getattr(split, phase), strict=True):
                assert other.bytes >= one.bytes
                assert other.launches >= one.launches
        kept = [
            kept_bytes(arch, layer, 256, 256, Cut(tp=tp, unfused=tuple(u)), recompute=how, modules=(again,))
            for u in (less, all_of_it)
        ]
        assert kept[1] >= kept[0]


@settings(max_examples=40)
@given(st.one_of(transformers(), choosers()), st.integers(1, 4))
def test_memory_and_work_grow_with_rows(arch, times):
    layer = kinds(arch)[0][0]
    one, many = (layer_operators(arch, layer, 256 * n, 256) for n in (1, times))
    assert abs(gemm_flops(many.forward) - times * gemm_flops(one.forward)) <= 1e-9 * gemm_flops(many.forward)
    one_bytes, many_bytes = (kept_bytes(arch, layer, 256 * n, 256) for n in (1, times))
    assert many_bytes == times * one_bytes
