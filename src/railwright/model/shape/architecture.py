"""The decoder transformer as a value: what a Hugging Face config.json says, under one set of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layer = Literal[
    "dense",
    "moe",
    "attention",
    "windowed dense",
    "windowed moe",
    "sharing dense",
    "sharing moe",
    "linear",
    "linear dense",
    "linear moe",
    "mlp",
    "experts",
]
"""Kinds of layers; `pattern.PARTS` says what each is made of."""


@dataclass(frozen=True)
class LinearMixer:
    """A block that mixes tokens by a state whose size does not grow with the sequence.

    kind        'mamba2', 'gated_deltanet', 'kda' (Kimi Delta Attention) or 'lightning' (linear attention with
                a fixed decay for every head)
    heads, value_dim     heads of the state, and how wide the values of one are (Mamba's x)
    key_heads, key_dim   heads of keys and queries, which the heads share, and their width (Mamba's groups and
                its state size, of B and C)
    conv        tokens that a causal convolution in front of the state sees, 0 = none
    conv_bias   it has biases
    chunk       tokens of one chunk, in which its kernels work
    """

    kind: Literal["mamba2", "gated_deltanet", "kda", "lightning"]
    heads: int
    value_dim: int
    key_heads: int
    key_dim: int
    conv: int = 4
    conv_bias: bool = False
    chunk: int = 64

    @property
    def values(self) -> int:
        """Width of the values of all heads."""
        return self.heads * self.value_dim

    @property
    def keys(self) -> int:
        """Width of all keys, or of all queries."""
        return self.key_heads * self.key_dim


@dataclass(frozen=True)
class Details:
    """What a model computes beside its shape: nothing of it changes time or memory here, and a framework has
    to be told.  Empty where neither its file nor its family says it.

    activation   of MLPs and experts, as config.json names it
    gate_offset  added to what a gate's activation is multiplied by, gate_limit both are clamped to; 0 is none
    norm         'LayerNorm' where norms subtract the mean, biases or not, 'RMSNorm' where not
    norm_epsilon added to the mean square that norms divide by; 0 where it is not said
    rotary_base  wavelengths of rotary positions grow up to 2 pi times this; 0 where it is not said, or layers
                 have several
    unturned     layers, counted from 0, without rotary positions among others that have them
    scales       multipliers and caps of embeddings, attention, residuals and logits: 'key value'
    """

    activation: str = ""
    gate_offset: float = 0.0
    gate_limit: float = 0.0
    norm: Literal["", "LayerNorm", "RMSNorm"] = ""
    norm_epsilon: float = 0.0
    rotary_base: float = 0.0
    unturned: tuple[int, ...] = ()
    scales: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer.

    layers, hidden, vocab
    vocab_multiple  each tensor-parallel rank holds a multiple of so many rows of the vocabulary, by padding
                  (Megatron-LM's make_vocab_size_divisible_by); 1 is no padding
    heads, kv_heads, head_dim   attention; kv_heads < heads is GQA, 1 is MQA
    attention     'gqa' (also plain multi-head) or 'mla'
    q_lora, kv_lora, rope_dim, v_head_dim   MLA ranks and head parts (0 otherwise); head_dim is then the
                  non-rotary part of a query/key head.  Of 'gqa' v_head_dim is the width of values where that
                  is not that of keys (MiMo-V2-Flash), else 0
    index_topk    keys that a query of latent attention meets at most, chosen by an indexer (DeepSeek-V3.2);
                  0 is all of them
    index_heads, index_dim   the indexer's heads and their width (0 otherwise); `pattern` may say which layers
                  have none and take the keys that one before them chose (GLM's indexer_types)
    ffn           inner width of a dense MLP
    gated         SwiGLU-style MLP with three matrices instead of two
    experts, experts_per_token, expert_ffn   routed experts (0 when dense)
    expert_latent  width that one product brings tokens to before they travel to their experts, and another
                  back from behind them (Nemotron 3 Super; LatentMoE); 0 is none: experts read hidden states
    shared_experts, shared_ffn   always-on experts: how many, and their total inner width
    expert_groups  groups of experts, of which the best are chosen before experts are (DeepSeek's n_group)
    dense_layers  layers before the first one with experts, in a MoE model: they have a dense MLP
    expert_every  from there on one layer in so many has experts, the first included; the others are dense
                  (`pattern.layer_kinds` says which)
    expert_layers the layers with experts, counted from 0, where those two numbers do not say it; else empty
    pattern       what every layer is, in order, of a model whose layers are not all attention with an MLP;
                  empty where `dense_layers` and `expert_every` say it
    linear        the mixer of the layers whose kind says so (`pattern.PARTS`); None without any
    rotary        queries and keys of the attention are turned by their positions; False where nothing tells
                  them, since other layers do (Nemotron-H, Jamba)
    tied_embeddings  the LM head shares the token embedding's weights
    attention_bias, output_bias   a bias on the query/key/value projections; on the output projection
    attention_sinks  one learned logit per head (gpt-oss)
    qk_norm       queries and keys are normed; qk_norm_gains says with which learned gains: those of one
                  'head', shared by all of them, those of 'all' heads (OLMo 2), or 'none' (Llama 4);
                  qk_norm_bias says that they have biases too (Persimmon)
    value_norm    values are normed too, without gains (Gemma 4)
    shared_values the keys' product makes the values too (Gemma 4's layers without a window)
    attention_gate  the attention output is multiplied by gates, which one product more makes of the block's
                  input: one for each 'head' (Laguna) or 'element' (Trinity); '' is none;
                  attention_gate_bias adds a bias per head to them (Beam)
    mlp_bias, router_bias, norm_bias, head_bias   biases of the MLP or experts, of the router, of the norms,
                  of an LM head that is not tied
    norm_gain     the norms have learned gains; without, they have no parameters at all (OLMo of 2024)
    parallel_blocks  attention and MLP of a layer read the same input and their outputs are added at once, so
                  that tensor parallelism sums them in one all-reduce (GPT-NeoX, Falcon)
    norms_per_layer  norms of width `hidden` in one layer: 2, 4 where outputs are normed too, or 1 where
                  attention and MLP share one (Cohere)
    shared_gate   the shared expert has its own sigmoid gate (one row of width `hidden`)
    shared_norm   it reads the sum behind attention by a norm of its own (Arctic's MLP beside the experts)
    experts_norm  what experts and shared expert give together is normed, in the layers with experts (A.X K1)
    branch_norms  the router reads by a norm of its own, and what routed experts give and what the shared one
                  gives are normed apart before they are added; every expert has a scale (Gemma 4 26B-A4B)
    position_embeddings  learned absolute positions (rows), 0 with rotary ones
    yarn          rotary positions scaled as YaRN does (arXiv 2309.00071)
    alibi         neither, but a bias on the scores inside their kernel (BLOOM, MPT)
    embedding_norm  a norm behind the embedding (BLOOM)
    sliding_window       attention window in tokens, 0 = none
    full_every           of the layers of a windowed model the last of so many sees the whole sequence, the
                         others the window; 0 = all are windowed
    full_first           it is the first of so many, not the last (CWM, GPT-Neo)
    whole_layers         the layers that see the whole sequence, counted from 0, where those two do not say
                         it; else empty
    window_heads, window_kv_heads, window_head_dim   heads of the layers with a window, and their width, where
                         those have others (Step 3.5, Laguna, MiMo-V2-Flash, Gemma 4); `pattern` then says
                         which layers those are.  0 where all layers have the same
    window_sinks         of these layers the windowed ones have attention sinks, and the others not
    window_chunked       the windowed layers cut the sequence into blocks of `sliding_window` tokens that do
                         not see each other (Llama 4's chunked attention), instead of looking so far back
    mtp_layers    extra multi-token-prediction layers
    mtp_dense     they have a dense MLP in a model with experts too (ERNIE 4.5, K-EXAONE)
    max_positions context the model was made for
    details       what it computes beside its shape
    source        where the figures come from
    notes         what the file says that is not read and that a user should know, in sentences
    """

    name: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool = True
    attention: Literal["gqa", "mla"] = "gqa"
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    v_head_dim: int = 0
    index_topk: int = 0
    index_heads: int = 0
    index_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    expert_latent: int = 0
    shared_experts: int = 0
    shared_ffn: int = 0
    expert_groups: int = 1
    dense_layers: int = 0
    expert_every: int = 1
    expert_layers: tuple[int, ...] = ()
    pattern: tuple[Layer, ...] = ()
    linear: LinearMixer | None = None
    rotary: bool = True
    tied_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    attention_sinks: bool = False
    qk_norm: bool = False
    qk_norm_gains: Literal["head", "all", "none"] = "head"
    qk_norm_bias: bool = False
    value_norm: bool = False
    shared_values: bool = False
    attention_gate: Literal["", "head", "element"] = ""
    attention_gate_bias: bool = False
    mlp_bias: bool = False
    router_bias: bool = False
    norm_bias: bool = False
    head_bias: bool = False
    norm_gain: bool = True
    parallel_blocks: bool = False
    norms_per_layer: int = 2
    shared_gate: bool = False
    shared_norm: bool = False
    experts_norm: bool = False
    branch_norms: bool = False
    position_embeddings: int = 0
    yarn: bool = False
    alibi: bool = False
    embedding_norm: bool = False
    sliding_window: int = 0
    full_every: int = 0
    full_first: bool = False
    whole_layers: tuple[int, ...] = ()
    window_heads: int = 0
    window_kv_heads: int = 0
    window_head_dim: int = 0
    window_sinks: bool = False
    window_chunked: bool = False
    mtp_layers: int = 0
    mtp_dense: bool = False
    max_positions: int = 0
    vocab_multiple: int = 128
    details: Details = Details()
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_moe(self) -> bool:
        return self.experts > 0

    @property
    def expert_width(self) -> int:
        """Width of the rows that travel to routed experts, and of what these give back."""
        return self.expert_latent or self.hidden


Phase = Literal["forward", "backward_input", "backward_weight", "optimizer"]


@dataclass(frozen=True)
class Operator:
    """One GPU operator of a layer, already divided by the layout (what one GPU runs once).

    kind      'gemm' | 'grouped_gemm' | 'attention' | 'scan' (products of chunks, in kernels that are no
              library's) | 'memory' (element-wise, norm, softmax, optimiser …)
    m, n, k   GEMM shape (rows of activations, columns, inner); `batch` independent GEMMs (experts)
    flops     [flop]; bytes  HBM traffic [byte]
    dtype     of the multiplication: 'bf16', 'fp8', …
    phase     which pass runs it; attention kernels have their own speed in each
    launches  kernels the host launches for it; each of them pays a kernel's fixed time
    steps     scan: rounds of `batch` products of the shape that follow one another, as a state passes from
              chunk to chunk; grouped_gemm: `batch` where its products do
    tuned     those of its launches that go through Triton's autotuner
    masked    attention: a causal mask cuts its tiles
    dropped   attention: its kernel draws a random number for every score, which drops it or not
    """

    name: str
    kind: Literal["gemm", "grouped_gemm", "attention", "scan", "memory"]
    flops: float
    bytes: float
    dtype: str
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    phase: Phase = "forward"
    launches: int = 1
    steps: int = 1
    tuned: int = 0
    masked: bool = True
    dropped: bool = False
