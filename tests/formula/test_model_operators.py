"""What one GPU runs: shapes, bytes and order by hand."""

from dataclasses import replace
from itertools import groupby

import pytest

from model_configs import SMALL, read
from railwright.errors import PlanError
from railwright.model import (
    Cut,
    bundled_models,
    embedding_operators,
    head_operators,
    layer_operators,
    load_model,
)

LLAMA = load_model("llama-3-8b")
MIXTRAL = load_model("mixtral-8x7b")


def by_name(operators):
    return {op.name: op for op in operators}


def shape(op):
    return (op.m, op.n, op.k)


def test_gemms_of_a_llama_layer_under_tp_2():
    # qkv: (32 + 2*8) heads of 128 over 2 GPUs = 3072 columns; gate and up together 2*14336/2 columns
    ops = by_name(layer_operators(LLAMA, "dense", 8192, 8192, Cut(tp=2)).forward)
    assert shape(ops["qkv projection"]) == (8192, 3072, 4096)
    assert shape(ops["output projection"]) == (8192, 4096, 2048)
    assert shape(ops["mlp up"]) == (8192, 14336, 4096)
    assert shape(ops["mlp down"]) == (8192, 4096, 7168)


def test_both_gradients_of_a_gemm_have_its_flops():
    layer = layer_operators(LLAMA, "dense", 8192, 8192)
    forward, back, weight = (by_name(x) for x in (layer.forward, layer.backward_input, layer.backward_weight))
    up = forward["mlp up"]
    assert shape(back["mlp up, input gradient"]) == (8192, 4096, 28672)
    assert shape(weight["mlp up, weight gradient"]) == (28672, 4096, 8192)
    assert back["mlp up, input gradient"].flops == weight["mlp up, weight gradient"].flops == up.flops


def test_bytes_of_a_gemm():
    # 16-bit x, W and y once each; the weight gradient reads x and dy and adds into fp32 main gradients
    layer = layer_operators(LLAMA, "dense", 8192, 8192)
    x, w, y = 8192 * 4096, 4096 * 28672, 8192 * 28672
    assert by_name(layer.forward)["mlp up"].bytes == 2 * (x + w + y)
    assert by_name(layer.backward_weight)["mlp up, weight gradient"].bytes == 2 * (x + y) + 8 * w


def test_causal_attention():
    # half of 4*s*heads*width per row; backward 2.5 times that
    layer = layer_operators(LLAMA, "dense", 16384, 8192, Cut(tp=4))
    core = by_name(layer.forward)["core attention"]
    assert core.flops == 16384 * (4 * 8192 / 2 * 32 * 128) / 4
    assert by_name(layer.backward_input)["core attention, backward"].flops == 2.5 * core.flops
    assert core.batch == 2 * 8
    assert layer.recomputed == (core,)


def test_experts_of_mixtral():
    # 4,096 rows, top 2, 8 experts over ep 4: two experts of 4,096 rows each on a GPU
    layer = layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=4))
    up = by_name(layer.forward)["experts up"]
    assert (up.kind, up.batch) == ("grouped_gemm", 2)
    assert shape(up) == (4096, 28672, 4096)
    assert layer.dispatched == 8192
    assert up.bytes == 2 * (8192 * 4096 + 2 * 4096 * 28672 + 8192 * 28672)


def test_one_expert_on_a_gpu_is_a_plain_gemm():
    assert (
        by_name(layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=8)).forward)["experts up"].kind == "gemm"
    )


def test_whole_experts_under_tensor_parallelism():
    # expert_tp 1 under tp 2: each GPU dispatches its half of the rows to whole experts
    cut = layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(tp=2, ep=8, expert_tp=1))
    assert cut.dispatched == 4096
    assert shape(by_name(cut.forward)["experts up"]) == (4096, 28672, 4096)


def test_imbalance_lengthens_the_experts_only():
    even = by_name(layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=8)).forward)
    worst = by_name(layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=8, imbalance=1.25)).forward)
    assert worst["experts up"].flops == 1.25 * even["experts up"].flops
    assert worst["qkv projection"] == even["qkv projection"]


def test_latent_attention_of_deepseek():
    ops = by_name(layer_operators(load_model("deepseek-v3"), "moe", 4096, 4096, Cut(tp=2, ep=64)).forward)
    assert shape(ops["query up"]) == (4096, 64 * 192, 1536)
    assert shape(ops["key/value up"]) == (4096, 64 * 256, 512)
    assert shape(ops["output projection"]) == (4096, 7168, 64 * 128)
    assert ops["experts up"].batch == 4


def test_sequence_parallelism_shrinks_norms_only():
    # a norm reads and writes 4,096 elements of 2 bytes per row
    plain = by_name(layer_operators(LLAMA, "dense", 8192, 8192, Cut(tp=8)).forward)
    spread = by_name(layer_operators(LLAMA, "dense", 8192, 8192, Cut(tp=8, sequence_parallel=True)).forward)
    assert plain["input norm"].bytes == 8192 * 4096 * 4 == 8 * spread["input norm"].bytes
    assert plain["mlp up"] == spread["mlp up"]


def test_fp8_halves_inputs_and_casts_gradients():
    half = layer_operators(LLAMA, "dense", 8192, 8192)
    eighth = layer_operators(LLAMA, "dense", 8192, 8192, dtype="fp8")
    up, x, w, y = by_name(eighth.forward)["mlp up"], 8192 * 4096, 4096 * 28672, 8192 * 28672
    assert (up.dtype, up.bytes) == ("fp8", x + w + 2 * y)
    assert by_name(eighth.forward)["core attention"].dtype == "bf16"
    names = [op.name for op in eighth.backward_input if op.name.endswith("cast")]
    assert len(names) == 4
    assert not [op for op in half.backward_input if op.name.endswith("cast")]


def test_backward_runs_in_reverse():
    names = [op.name for op in layer_operators(LLAMA, "dense", 8192, 8192).backward_weight]
    assert [n.split(",")[0] for n in names] == ["mlp down", "mlp up", "output projection", "qkv projection"]


def test_head_is_one_gemm_over_the_padded_vocabulary():
    # 128,256 words over 4 ranks in multiples of 128: 250.5 of them, so 251
    head = head_operators(LLAMA, 8192, tp=4)
    gemm = by_name(head.forward)["lm head"]
    assert shape(gemm) == (8192, 251 * 128, 4096)
    assert sum(op.flops for op in head.forward) == 2 * 8192 * 4096 * 251 * 128


def test_a_vocabulary_without_padding_is_cut_as_it_is():
    # GPT-2's 50,257 words: 50,304 with Megatron's padding
    bare = replace(LLAMA, vocab=50257, vocab_multiple=1)
    assert shape(by_name(head_operators(bare, 8192).forward)["lm head"]) == (8192, 50257, 4096)
    padded = replace(bare, vocab_multiple=128)
    assert shape(by_name(head_operators(padded, 8192).forward)["lm head"]) == (8192, 50304, 4096)


def test_attention_before_flash_attention_writes_every_score():
    # 8,192 rows of sequences of 2,048 with 32 heads of 128 over 4: 8 heads, 2,048 scores per row and head
    flash, plain = (
        layer_operators(LLAMA, "dense", 8192, 2048, Cut(tp=4, attention=a, attention_dropout=True))
        for a in ("flash", "unfused")
    )
    scores = 8192 * 8 * 2048
    ops = by_name(plain.forward)
    assert shape(ops["attention scores"]) == (2048, 2048, 128)
    assert shape(ops["attention values"]) == (2048, 128, 2048)
    assert ops["attention scores"].flops == ops["attention values"].flops == 2 * 128 * scores
    assert ops["attention softmax"].bytes == 3 * scores  # reads up to the diagonal, writes all
    assert ops["attention dropout"].bytes == 5 * scores
    assert sum(op.flops for op in plain.recomputed) == 2 * sum(op.flops for op in flash.recomputed)
    back = [op for op in plain.backward_input if op.name.startswith("attention scores")]
    assert sum(op.flops for op in back) == 2 * ops["attention scores"].flops


@pytest.mark.parametrize(
    ("tp", "rows", "sequence", "kernels"),
    [
        (4, 2048, 2048, 1),  # 8 heads of one sequence: a multiple of 4
        (16, 2048, 2048, 5),  # 2 heads: not
        (16, 4096, 2048, 1),  # 2 heads of two sequences
        (4, 8192, 8192, 5),  # more keys than the fused kernel takes
    ],
)
def test_softmax_is_fused_where_megatrons_kernel_takes_the_shape(tp, rows, sequence, kernels):
    ops = layer_operators(LLAMA, "dense", rows, sequence, Cut(tp=tp, attention="unfused"))
    softmax = by_name(ops.forward)["attention softmax"]
    scores = rows * sequence * (32 // tp)
    assert softmax.launches == kernels
    # cast to fp32, scale, mask, softmax, cast back: each reads and writes every score
    assert softmax.bytes == (3 if kernels == 1 else 6 + 8 + 8 + 8 + 6) * scores


def test_dropout_and_biases_have_kernels_and_bytes_of_their_own():
    rows, h = 4096, 4096
    bare, biased = (
        layer_operators(LLAMA, "dense", rows, 2048, Cut(attention="unfused", biased=b, hidden_dropout=d))
        for b, d in ((False, ""), (True, "fused"))
    )
    before, after = (by_name(x.forward)["mlp residual"] for x in (bare, biased))
    assert before.bytes == 2 * rows * 3 * h
    assert after.bytes - before.bytes == rows * h  # the mask of one byte
    backs = [
        next(op for op in x.backward_input if op.name == "mlp residual, backward") for x in (bare, biased)
    ]
    # dropout reads gradient and mask and writes, the bias's gradient is read once more
    assert backs[1].bytes - backs[0].bytes == 2 * rows * 3.5 * h
    assert [op.launches for op in backs] == [1, 3]
    assert "attention layout" in by_name(biased.forward)
    assert "attention layout" not in by_name(bare.forward)


@pytest.mark.parametrize(("job", "head"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "bf16")])
def test_head_attention_and_router_run_in_the_16_bit_format_of_the_job(job, head):
    assert by_name(head_operators(LLAMA, 8192, dtype=job).forward)["lm head"].dtype == head
    ops = by_name(layer_operators(MIXTRAL, "moe", 4096, 4096, dtype=job).forward)
    assert (ops["core attention"].dtype, ops["router"].dtype, ops["experts up"].dtype) == (head, head, job)


@pytest.mark.parametrize("name", bundled_models())
def test_gradients_are_named_after_forward_operators(name):
    arch = load_model(name)
    for layer in ("dense", "moe") if arch.is_moe else ("dense",):
        ops = layer_operators(arch, layer, 4096, 4096, dtype="fp8")
        # windowed and full layers' attention stand side by side under one name
        forward = [name for name, _ in groupby(op.name for op in ops.forward)]
        assert len(set(forward)) == len(forward)
        gradients = [op.name.rsplit(", ", 1)[0] for op in (*ops.backward_input, *ops.backward_weight)]
        assert set(gradients) <= set(forward)
        assert {op.name for op in ops.forward if op.flops} <= set(gradients)


def test_embedding_moves_rows_and_multiplies_nothing():
    ops = embedding_operators(LLAMA, 8192)
    assert sum(op.flops for op in (*ops.forward, *ops.backward_weight)) == 0
    assert ops.forward[0].bytes == 2 * 2 * 8192 * 4096
    assert ops.backward_input == ()


def test_the_gradient_of_an_embedding_is_a_whole_table():
    # 128,256 words, zeroed in 16 bits; a row is read, summed up in fp32 there and back, and written
    (dense,) = embedding_operators(LLAMA, 8192).backward_weight
    assert dense.bytes == 2 * 128256 * 4096 + 8192 * 4096 * (2 + 4 + 4 + 2)
    # added to a buffer in fp32: 2 bytes read, 4 read, 4 written of every word
    first, added = embedding_operators(LLAMA, 8192, added=2 + 2 * 4).backward_weight
    assert (first, added.bytes) == (dense, 10 * 128256 * 4096)
    # not a row more for tokens that are more than words
    tenfold = embedding_operators(LLAMA, 81920, added=10).backward_weight
    assert tenfold[1].bytes == added.bytes


def test_tensor_ranks_have_shares_of_the_table_and_all_rows():
    # Megatron-LM, VocabParallelEmbedding: rows of others' words are zeroed, and their gradients in a copy
    ops = embedding_operators(LLAMA, 8192, tp=2, added=10)
    row = 8192 * 4096
    assert ops.forward[0].bytes == 2 * (2 + 2) * row
    assert [op.bytes for op in ops.backward_input] == [2 * 4 * row]
    # 128,256 words are a multiple of 2 x 128, so nothing pads them
    dense, added = ops.backward_weight
    assert dense.bytes == 2 * 64128 * 4096 + row * 12
    assert added.bytes == 10 * 64128 * 4096


@pytest.mark.parametrize(
    ("arch", "layer", "cut", "says"),
    [
        (LLAMA, "dense", {"tp": 3}, "does not divide its 32 attention heads"),
        (LLAMA, "dense", {"tp": 64}, "does not divide its 32 attention heads"),
        (MIXTRAL, "moe", {"ep": 3}, "sizes that do: 1, 2, 4, 8"),
        (LLAMA, "moe", {}, "has no experts"),
        (MIXTRAL, "moe", {"imbalance": 0.5}, "below 1"),
        (MIXTRAL, "moe", {"tp": 2, "expert_tp": 3}, "3 does not divide its expert width of 14336"),
        (load_model("llama-2-13b"), "dense", {"tp": 5}, "does not divide its MLP width of 13824"),
    ],
)
def test_a_cut_that_cannot_be_is_refused(arch, layer, cut, says):
    with pytest.raises(PlanError, match=says):
        layer_operators(arch, layer, 4096, 4096, Cut(**cut))


def test_experts_cast_their_inputs_in_fp8():
    # 2 bytes read, 1 written straight and 1 transposed, for the input of each product
    eighth = layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=4), dtype="fp8")
    ops = by_name(eighth.forward)
    assert ops["experts up, cast"].bytes == 4 * 8192 * 4096
    assert ops["experts down, cast"].bytes == 4 * 8192 * 14336
    half = by_name(layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=4)).forward)
    assert not [name for name in half if name.endswith(", cast")]


def test_permutations_only_move_rows():
    # probabilities are multiplied in the activation: back through a permutation is one permutation
    layer = layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=4))
    there, back = by_name(layer.forward)["unpermute"], by_name(layer.backward_input)["unpermute, backward"]
    assert there.bytes == back.bytes == 2 * 4096 * (2 + 1) * 4096


def test_biases_of_experts_are_added_by_kernels_of_their_own():
    # Megatron-LM, TEGroupedMLP._apply_bias: bias times probability, sum, join; gpt-oss has such biases
    oss = load_model("gpt-oss-120b")
    layer = layer_operators(oss, "moe", 4096, 4096, Cut(ep=64))
    forward, back = by_name(layer.forward), by_name(layer.backward_input)
    rows = 4096 * 4  # 4 experts per token, 2 experts here
    assert forward["experts bias"].bytes == rows * oss.hidden * 2 * 6
    assert back["experts bias, backward"].bytes == rows * oss.hidden * 2 * 8
    assert (forward["experts bias"].launches, back["experts bias, backward"].launches) == (5, 9)
    assert "experts bias" not in by_name(layer_operators(MIXTRAL, "moe", 4096, 4096).forward)


def test_a_norm_that_serves_attention_and_mlp_runs_once():
    names = [
        op.name for op in layer_operators(read({**SMALL, "model_type": "cohere"}), "dense", 64, 64).forward
    ]
    assert "input norm" in names
    assert "mlp norm" not in names


def test_alibi_has_no_rotary_kernel_and_blooms_embedding_a_norm():
    bloom = read({"model_type": "bloom", "hidden_size": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1000})
    names = [op.name for op in layer_operators(bloom, "dense", 64, 64).forward]
    assert "rotary" not in names
    assert [op.name for op in embedding_operators(bloom, 64).forward] == ["embedding", "embedding norm"]
    assert [op.name for op in embedding_operators(bloom, 64).backward_input] == ["embedding norm, backward"]
