"""Activation memory: what one GPU keeps from a microbatch's forward pass until its backward pass."""

from __future__ import annotations

from typing import Literal

from railwright.model.operators.cut import WHOLE, Cut, check_cut
from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.logits import LOGIT_BYTES, KeptLoss
from railwright.model.operators.mixer_operators import mixer_keeps
from railwright.model.operators.narrow import NARROW, Scaling
from railwright.model.operators.norms import more_by_norm
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import gate_width, value_width
from railwright.model.shape.mixers import mixer_of
from railwright.model.shape.pattern import PARTS, Layer, additions, is_routed, made_as
from railwright.model.tensors.eager_kept import GATES, operation_by_operation
from railwright.model.tensors.every_second import every_second
from railwright.model.tensors.sparse_kept import sparse_kept
from railwright.model.tensors.tensor_lists import (
    NARROW_OUTPUT,
    NARROW_QKV,
    PROJECTED_INPUT,
    QKV,
    STORED,
    Kept,
)

Recompute = Literal["none", "selective", "full"]

KEPT_INPUT = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "fp8_block": 1.0 + 4 / 128, "nvfp4": 0.5 + 1 / 16}
"""Bytes of one element of a linear layer's kept input, its block scales in; other dtypes keep ELEMENT.
Transformer Engine keeps one quantised copy, the one the weight gradient multiplies (pytorch/module/linear.py,
layernorm_linear.py: after the forward product only the column-wise usage of the input is kept).  Scales: one
byte per 32 elements in MXFP8 and per 16 in NVFP4, four bytes per 128 in block-wise fp8."""

STORED_BYTES = 1.0
"""Bytes of an element of what a gated activation reads, where that is kept in fp8: cast without a scale
(Megatron-LM, core/fusions/fused_bias_swiglu.py, fp8_input_store)."""

SCORE_BYTES, DROPPED_BYTES = ELEMENT, 1.0 + ELEMENT
"""Bytes per score in memory: of the softmax; of the mask that drops some, and of what is left (Korthikanti et
al. 2022, section 4.1)."""

DROPPED: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention scores", "index inputs", "index query, key", "index choice"),
    "layernorm": ("attention norm output", "mlp norm output"),
    "mla_up_proj": ("query, key, value", "query up output"),
    "mlp": ("mlp norm output", "mlp up output", f"mlp up output{STORED}", "mlp product"),
    "moe": (
        "router",
        "latents' input",
        "expert latents",
        "shared input",
        "expert input",
        "expert up output",
        f"expert up output{STORED}",
        "expert product",
        "expert output",
        "expert output, weighted",
        "shared up output",
        f"shared up output{STORED}",
        "shared product",
    ),
    "moe_act": ("expert product",),
    "shared_experts": ("shared up output", f"shared up output{STORED}", "shared product"),
    "ops": (),
}
"""What recomputing one part of a layer no longer keeps; of 'ops' `every_second` says what stays.
Source: Megatron-LM, core/transformer/transformer_config.py, `recompute_modules`, and the modules themselves
(CheckpointWithoutOutput)."""


def layer_activations(
    arch: Transformer,
    layer: Layer,
    rows: float,
    sequence: int,
    cut: Cut = WHOLE,
    *,
    recompute: Recompute = "none",
    modules: tuple[str, ...] = ("core_attn",),
    dtype: str = "bf16",
) -> dict[str, float]:
    """Bytes one layer keeps for one microbatch on one GPU, tensor by tensor. [byte]

    rows       tokens of the microbatch in the tensor-parallel group (micro_batch * sequence, over the
               context-parallel size)
    cut        attention 'flash' keeps the output and one fp32 log-sum-exp per head and row, 'unfused' the
               softmax of the scores, and what dropping them keeps (DROPPED_BYTES); dropped hidden states a
               mask of one byte an element; `narrow` attention keeps
               copies of its own, which computing the 16-bit ones again does not free (`narrow.NARROW`);
               `unfused` parts keep more (`eager_kept`)
    recompute  'selective' drops what `modules` compute again (DROPPED; 'ops' keeps the outputs of attention
               and of every second product, and the layer's input); 'full' keeps the layer's input only
    dtype      of the linear layers' products; their inputs are kept in it (KEPT_INPUT), all else in 16 bits

    Kept is the input of every operator whose backward needs it.  For GPT with dropout in 16 bits this is
    Korthikanti et al. 2022 (arXiv 2205.05198), section 4: rows*hidden*(34 + 5*heads*sequence/hidden) split as
    10 + 24/tp, or all over tp with sequence parallelism.  The same counting gives grouped-query, latent and
    gated variants and narrow formats; docs/training/memory.md lists the terms.
    Router probabilities are multiplied in the experts' activation, so that expert outputs are not kept
    (Megatron-LM since core 0.11), unless operations of PyTorch do that behind them.
    Raises PlanError where the layer cannot be cut so.
    """
    check_cut(arch, layer, cut)
    arch = made_as(arch, layer)
    tp, split = cut.tp, cut.split
    if recompute == "full":
        return {"layer input": rows * ELEMENT * arch.hidden / split}
    mixer, mlp = PARTS[layer]
    again = modules if recompute == "selective" else ()
    narrow = "" if "core_attn" in again else cut.narrow
    kept = _attention(arch, sequence, cut, dtype, narrow) if mixer == "attention" else []
    if mixer == "linear":
        kept = _mixer(arch, tp, dtype)
    if mlp == "dense":
        kept += _mlp(arch, tp, dtype)
    elif mlp == "moe":
        etp = cut.expert_tp or tp
        kept += _experts(arch, tp, etp, cut.imbalance, dtype)
        if cut.by_pytorch:
            made = ELEMENT * arch.experts_per_token * etp / tp * cut.imbalance * arch.expert_width
            kept += [Kept("expert output", made), Kept("expert output, weighted", made)]
    if arch.norms_per_layer == 1:
        # one norm serves attention and MLP: its input and output are kept once
        kept = [k for k in kept if k.name not in ("mlp norm input", "mlp norm output")]
    if cut.hidden_dropout:
        kept += [Kept("dropout masks", 1.0 * arch.hidden * additions(arch, layer), spread=True)]
    normed = max(arch.norms_per_layer - 2, 0) + 2 * (arch.branch_norms and mlp == "moe")
    if normed:
        kept += [Kept("output norm inputs", normed * ELEMENT * arch.hidden, spread=True)]
    gone = _dropped(arch, layer, modules) if recompute == "selective" else frozenset[str]()
    kept = operation_by_operation(kept, arch, cut.unfused, gone)
    if narrow:
        kept = [_in_narrow(k, narrow) for k in kept]
    if cut.stored:
        kept = [_stored(k, again) for k in kept]
    if recompute == "selective" and "ops" in modules:
        kept = every_second(arch, layer, cut, _scores(cut, sequence, arch.heads / tp))
    return {k.name: rows * k.bytes / (split if k.spread else 1) for k in kept if k.name not in gone}


def layer_gradient_bytes(
    arch: Transformer,
    layer: Layer,
    rows: float,
    cut: Cut = WHOLE,
    *,
    dtype: str = "bf16",
    trains: bool = True,
) -> float:
    """Activation gradients alive at once, at most, in one layer's backward pass. [byte]

    That is behind the activation of the widest MLP: the gradients of its input and output and of the layer's
    output, less the second product's kept input, freed by its weight gradient just before.  Of narrow experts
    it is before their products, where rows are sorted by expert again: their gradients are there twice
    (Megatron-LM, core/transformer/moe/token_dispatcher.py, combine_preprocess).  Where they run one after the
    other it is one expert's, or zeros as large as the gradient of all hidden states, beside that one.

    cut     `stored`: the activation's input was kept in 8 bits and is there in 16 again
    trains  whether the second product has a weight gradient; a frozen one keeps no input
    """
    keep = KEPT_INPUT.get(dtype, ELEMENT) if trains else 0.0
    up = 2 if arch.gated else 1
    tp = cut.tp

    def behind(width: float, received: float) -> float:
        return received * (ELEMENT * (up + 1 + up * cut.stored) - keep) * width

    flowing = ELEMENT * arch.hidden / cut.split
    mlp = PARTS[layer].mlp
    if mlp != "moe":
        return rows * (flowing + (behind(arch.ffn / tp, 1.0) if mlp else 0.0))
    if "experts" in cut.unfused:
        one = behind(arch.expert_ffn, arch.experts_per_token / arch.experts)
        return rows * (2 * flowing + max(one, flowing))
    etp = cut.expert_tp or tp
    received = arch.experts_per_token * etp / tp * cut.imbalance
    sorted_rows = received * ELEMENT * arch.expert_width
    return rows * (flowing + sorted_rows + max(behind(arch.expert_ffn / etp, received), sorted_rows))


def head_activation_bytes(
    arch: Transformer,
    rows: float,
    *,
    tp: int = 1,
    sequence_parallel: bool = False,
    loss: KeptLoss = "unfused",
    unfused: tuple[Part, ...] = (),
) -> float:
    """Bytes the final norm, LM head and loss keep on one GPU of the last stage. [byte]

    The norm's and the head's inputs, and for this GPU's columns of the vocabulary
    LOGIT_BYTES each.  With 'unfused' that is Korthikanti et al. 2022, section 4.3:
    4*rows*hidden/tp*(1 + vocab/hidden).  A norm that runs one kernel per operation keeps more.
    """
    split = tp if sequence_parallel else 1
    inputs = (2 + more_by_norm(arch, unfused)) * ELEMENT * arch.hidden / split
    return rows * (inputs + LOGIT_BYTES[loss] * arch.vocab / tp)


def _attention(arch: Transformer, sequence: int, cut: Cut, dtype: str, scaling: Scaling) -> list[Kept]:
    """What attention keeps a row; `scaling` in 8 bits, if they are not computed again."""
    tp = cut.tp
    keep = KEPT_INPUT.get(dtype, ELEMENT)
    narrow = dtype in KEPT_INPUT
    heads = arch.heads / tp
    kept = [Kept("attention norm input", ELEMENT * arch.hidden, spread=True)]
    if arch.attention == "mla":
        # two down-projections: in narrow formats each quantises its own copy of the norm's output
        copies = 2 if narrow else 1
        kept += [Kept("attention norm output", copies * keep * arch.hidden, spread=True)]
        if arch.index_topk:
            found = sparse_kept(arch, sequence, tp, cut.split, keep)
            return [*kept, *(Kept(*one) for one in found), _scores(cut, sequence, heads)]
        latent = arch.q_lora + arch.kv_lora
        kept += [
            Kept("latents", ELEMENT * (latent + arch.rope_dim) + keep * latent, spread=True),
            Kept(
                "query, key, value",
                ELEMENT * heads * (2 * (arch.head_dim + arch.rope_dim) + arch.v_head_dim),
            ),
        ]
        output = heads * arch.v_head_dim
    else:
        keys = max(arch.kv_heads / tp, 1.0)
        kept += [
            Kept("attention norm output", keep * arch.hidden, spread=True),
            Kept("query, key, value", ELEMENT * (arch.head_dim * (heads + keys) + value_width(arch) * keys)),
        ]
        if arch.qk_norm:
            values = value_width(arch) * keys * (arch.value_norm and not arch.shared_values)
            before = arch.head_dim * (heads + keys) + values
            kept.append(Kept("query and key before norm", ELEMENT * before))
        output = heads * value_width(arch)
    own = NARROW[scaling].keeps_output if scaling else 0.0
    if own:
        kept.append(Kept(NARROW_OUTPUT, own * output))
    # attention keeps its own 16-bit output; in 16 bits the projection's input is the same tensor
    if arch.attention_gate:
        kept.append(Kept("attention gates", ELEMENT * gate_width(arch) / tp))
        kept.append(Kept("attention output", ELEMENT * output))
        kept.append(Kept("gated output", keep * output))
    elif own:
        kept.append(Kept(PROJECTED_INPUT, keep * output))
    else:
        kept.append(Kept("attention output", (ELEMENT + keep if narrow else ELEMENT) * output))
    kept.append(_scores(cut, sequence, heads))
    return kept


def _mixer(arch: Transformer, tp: int, dtype: str) -> list[Kept]:
    """The norm's input and output, what the mixer's kernels keep, and the input of the product behind."""
    keep = KEPT_INPUT.get(dtype, ELEMENT)
    return [
        Kept("mixer norm input", ELEMENT * arch.hidden, spread=True),
        Kept("mixer norm output", keep * arch.hidden, spread=True),
        *(Kept(name, size) for name, size in mixer_keeps(arch, tp).items()),
        Kept("mixer output", keep * mixer_of(arch).values / tp),
    ]


def _scores(cut: Cut, sequence: int, heads: float) -> Kept:
    """Scores of a row with all of its sequence, or the log-sum-exp of a fused attention, which draws again
    what it drops."""
    each = SCORE_BYTES + DROPPED_BYTES * cut.attention_dropout
    return Kept("attention scores", (4.0 if cut.attention == "flash" else each * sequence) * heads)


def _in_narrow(kept: Kept, scaling: Scaling) -> Kept:
    """A kept tensor where attention multiplies in 8 bits."""
    if kept.name != QKV:
        return kept
    return Kept(NARROW_QKV, kept.bytes / ELEMENT * NARROW[scaling].keeps)


def _stored(kept: Kept, again: tuple[str, ...]) -> Kept:
    """A kept tensor where gated activations keep what they read in 8 bits.

    again  parts that selective recomputation runs again: experts' activations read what is kept for them
    """
    if kept.name not in GATES or (kept.name == "expert up output" and "moe_act" in again):
        return kept
    return Kept(f"{kept.name}{STORED}", kept.bytes / ELEMENT * STORED_BYTES)


def _mlp(arch: Transformer, tp: int, dtype: str) -> list[Kept]:
    keep = KEPT_INPUT.get(dtype, ELEMENT)
    up = 2 if arch.gated else 1
    return [
        Kept("mlp norm input", ELEMENT * arch.hidden, spread=True),
        Kept("mlp norm output", keep * arch.hidden, spread=True),
        Kept("mlp up output", ELEMENT * up * arch.ffn / tp),
        Kept("mlp product", keep * arch.ffn / tp),
    ]


def _experts(arch: Transformer, tp: int, expert_tp: int, imbalance: float, dtype: str) -> list[Kept]:
    """A GPU receives experts_per_token * expert_tp/tp rows per row on average, `imbalance` times that at
    worst.  The norm's output stays in 16 bits for the router; the shared expert quantises a copy, unless it
    has a norm of its own."""
    keep = KEPT_INPUT.get(dtype, ELEMENT)
    up = 2 if arch.gated else 1
    received = arch.experts_per_token * expert_tp / tp * imbalance
    inner = received * arch.expert_ffn / expert_tp
    kept = [
        Kept("mlp norm input", ELEMENT * arch.hidden, spread=True),
        Kept("mlp norm output", ELEMENT * arch.hidden, spread=True),
        Kept("router", 2 * 4.0 * arch.experts, spread=True),
        Kept("expert input", keep * received * arch.expert_width),
        Kept("expert up output", ELEMENT * up * inner),
        Kept("expert product", keep * inner),
    ]
    if arch.branch_norms:
        kept.append(Kept("router norm output", ELEMENT * arch.hidden, spread=True))
    if arch.experts_norm and arch.norms_per_layer < 4:
        kept.append(Kept("output norm inputs", ELEMENT * arch.hidden, spread=True))
    if arch.expert_latent:
        kept.append(Kept("expert latents", keep * arch.expert_latent, spread=True))
        if dtype in KEPT_INPUT:
            kept.append(Kept("latents' input", keep * arch.hidden, spread=True))
    if arch.shared_ffn:
        if arch.shared_norm:
            kept.append(Kept("shared norm output", keep * arch.hidden, spread=True))
        elif dtype in KEPT_INPUT:
            kept.append(Kept("shared input", keep * arch.hidden, spread=True))
        kept.append(Kept("shared up output", ELEMENT * up * arch.shared_ffn / tp))
        kept.append(Kept("shared product", keep * arch.shared_ffn / tp))
    return kept


def _dropped(arch: Transformer, layer: Layer, modules: tuple[str, ...]) -> frozenset[str]:
    """Names of the tensors that the recomputed modules no longer keep.

    A norm fused with the product behind it is no module of its own: `layernorm` drops the outputs of those
    in front of latent attention and of experts only.  `mla_up_proj` is nothing without latent attention.
    """
    gone: set[str] = set()
    for module in modules:
        names = set(DROPPED[module])
        if module == "layernorm":
            names -= set() if arch.attention == "mla" else {"attention norm output"}
            names -= set() if is_routed(layer) else {"mlp norm output"}
        if (module == "mla_up_proj" and arch.attention != "mla") or (module == "mlp" and is_routed(layer)):
            names = set()
        gone |= names
    return frozenset(gone)
