"""Training jobs of a study: the model, its layout over the GPUs, and what the framework hides and fuses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from railwright.spec.dataset import Data
from railwright.spec.lora import Lora
from railwright.spec.quantity import Size
from railwright.spec.section import Name, Section, not_bool

Graph = Literal["attention", "mixer", "mlp", "router", "step"]

Software = Literal[
    "megatron-2021",
    "megatron-2021-traced",
    "megatron-2022",
    "fsdp-2023",
    "deepspeed-2024",
    "fsdp-2024-eager",
    "fsdp-2024",
    "xla-2024",
    "nemo-2024",
    "xla-2025",
    "fsdp-2025",
    "megatron-2025",
    "deepspeed-2026",
    "fsdp-2026-eager",
    "fsdp-2026",
    "megatron-2026",
    "megatron-2026-06-01",
    "megatron-2025-unfused",
]
"""Software eras (training/data/eras.yaml; a test holds the two equal)."""

Unfused = Literal["rotary", "router", "loss", "norm", "activation", "experts", "optimizer"]

RecomputeModule = Literal[
    "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts", "ops"
]


class Layout(Section):
    """How the model is cut over GPUs; data parallelism takes what is left."""

    tensor: Annotated[int, Field(gt=0)] = Field(
        default=1, description="tensor-parallel size; its ranks should stay inside one server"
    )
    pipeline: Annotated[int, Field(gt=0)] = Field(default=1, description="pipeline stages")
    virtual_pipeline: Annotated[int, Field(gt=0)] = Field(
        default=1, description="model chunks per stage (interleaved 1F1B, or zb-h1, when above 1)"
    )
    schedule: Literal["auto", "1f1b", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"] = (
        Field(
            default="auto",
            description="order of passes; auto: 1f1b, or interleaved when virtual_pipeline is above 1; zb-v "
            "and dualpipe-v fold the model: a stage has one piece from its front and one from its back",
        )
    )
    layers_per_stage: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None,
        description="layers of each piece of the model, in its order (pipeline x virtual_pipeline numbers, "
        "twice the stages where the schedule folds it); "
        "default: as even as can be, the last and the first pieces lighter",
    )
    ends_as_layers: Literal["none", "embedding", "head", "both"] = Field(
        default="none",
        description="embedding and head that count as a layer when the model is cut into pieces",
    )
    context: Annotated[int, Field(gt=0)] = Field(
        default=1, description="context-parallel size: ranks that share the tokens of one sequence"
    )
    context_kind: Literal["ring", "all-to-all", "all-gather"] = Field(
        default="ring",
        description="how context-parallel ranks meet in attention: keys and values passed round a ring, "
        "heads swapped for tokens (Ulysses), or keys and values gathered before",
    )
    expert: Annotated[int, Field(gt=0)] = Field(default=1, description="expert-parallel size (within DP)")
    expert_tensor: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="tensor-parallel size inside an expert, smaller or larger; default: as layout.tensor",
    )
    sequence_parallel: bool = Field(default=False, description="shard norms and residuals over TP ranks")
    zero: Annotated[Literal[0, 1, 2, 3], BeforeValidator(not_bool)] = Field(
        default=1,
        description="what is sharded over DP: 1 optimizer states, 2 gradients too, 3 parameters too (FSDP)",
    )
    shard: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="zero 1 to 3: neighbouring data-parallel ranks that share one copy of what is sharded "
        "(HSDP; zero 1: Megatron's distributed optimizer instances); default: all",
    )
    reshard: bool = Field(
        default=True,
        description="zero 3: parameters are dropped after a forward pass and gathered again for the "
        "backward; false: kept until the backward pass, in a pipeline until the step's last",
    )
    reduce_each: bool = Field(
        default=True,
        description="zero 2 and 3: gradients are reduced after every microbatch; "
        "false: only after the last (no_sync)",
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none",
        description="what the backward pass computes again: nothing, `recompute_modules`, or whole layers",
    )
    recompute_modules: tuple[RecomputeModule, ...] = Field(
        default=("core_attn",),
        description="recompute selective: the parts of a layer that are computed again (Megatron's names; "
        "ops: torchtitan's every second product)",
    )
    recompute_layers: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="recompute full: layers at the front of every stage, or virtual stage, that are computed "
        "again, while the others keep all (Megatron's --recompute-method block); default: all layers",
    )
    offload: tuple[Literal["optimizer", "activations", "weights"], ...] = Field(
        default=(),
        description="what lies in host memory and crosses PCIe: optimizer; activations; or weights with "
        "their gradients and states, sharded (zero 3; FSDP2's CPUOffloadPolicy)",
    )
    offload_layers: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="offload of activations: layers of a stage whose activations go; default: all",
    )
    placement: Literal["packed", "expert-across", "spread"] = Field(
        default="packed",
        description="packed: ranks fill servers in order tp, cp, dp/ep, pp; "
        "expert-across: the ranks of one expert group sit on different servers, on one rail; "
        "spread: consecutive servers of the job lie under different leaves",
    )

    @property
    def expert_cut(self) -> int:
        """Tensor-parallel size inside an expert: `expert_tensor`, or as the rest is cut."""
        return self.expert_tensor or self.tensor

    @property
    def gathers_once(self) -> bool:
        """Whether parameters (zero 3) are gathered once a step: a pipeline that does not drop them between a
        forward pass and its backward pass keeps them between microbatches too.

        Source: PyTorch, distributed/pipelining/stage.py, backward_maybe_with_nosync
        (`set_reshard_after_backward(False)` before every backward pass; the last drops them itself).
        Weights on the host are gathered for every microbatch all the same: nothing published says otherwise.
        """
        kept = self.zero == 3 and not self.reshard and self.pipeline > 1
        return kept and "weights" not in self.offload


class Overlap(Section):
    """What the framework hides behind compute."""

    dp: bool = Field(default=True, description="gradient reduce-scatter and parameter all-gather, in buckets")
    gather: bool = Field(
        default=True,
        description="zero 1 and 2: of what dp hides, the parameters too, beside the next step's first passes "
        "(Megatron's --overlap-param-gather); else they are gathered behind the optimizer",
    )
    aligned: bool = Field(
        default=True,
        description="zero 1 and 2 with a pipeline: of what gather hides, all stages gather from the start of "
        "the step on (Megatron's default with virtual stages); false: those of a chunk are gathered when its "
        "first forward pass gets to them, which waits (--no-align-param-gather)",
    )
    tp: bool = Field(default=False, description="tensor-parallel collectives behind chunked GEMMs")
    ep: bool = Field(default=False, description="expert all-to-all behind other microbatches' compute")
    shared: bool = Field(
        default=False,
        description="expert all-to-all (NCCL's) behind shared experts (Megatron's moe_shared_expert_overlap)",
    )
    pp: bool = Field(default=True, description="pipeline sends behind compute")
    offload: bool = Field(
        default=False,
        description="copies of an offloaded optimizer beside its update, weight by weight "
        "(Megatron's --overlap-cpu-optimizer-d2h-h2d)",
    )
    cp: bool = Field(default=True, description="blocks of keys and values on the ring behind attention")
    prefetch: Annotated[int, Field(ge=0)] = Field(
        default=1, description="zero 3: layers whose parameters are gathered ahead of the one that computes"
    )


class Muon(Section):
    """How `optimizer: muon` makes a momentum orthogonal."""

    steps: Annotated[int, Field(gt=0)] = Field(
        default=5, description="Newton-Schulz steps (Megatron's --muon-num-ns-steps)"
    )
    tp_mode: Literal["duplicated", "blockwise", "distributed"] = Field(
        default="duplicated",
        description="what tensor-parallel ranks make orthogonal: each the whole matrix, gathered before; "
        "their own block alone; or their block, while they sum up its squares (Megatron's --muon-tp-mode)",
    )


class TrainingJob(Section):
    """One training job over all GPUs of the cluster (or the first `gpus`)."""

    name: Name = Field(description="what to call the job, e.g. 'finetune'")
    model: str = Field(description="bundled name ('mixtral-8x7b') or path of a Hugging Face config.json")
    gpus: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="GPUs it takes, from the first; default: all"
    )
    servers: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = Field(
        default=None,
        description="numbers of the servers it runs on, in the order ranks fill them; the first is 0, which "
        "is server-01 of the drawing and the output; default: from 0 on",
    )
    gpus_per_server: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="GPUs it uses of each server, e.g. 64 of an NVL72 rack; default: all of them",
    )
    sequence: Annotated[int, Field(gt=0)] = Field(description="sequence length in tokens")
    sample_length: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="tokens of the samples packed into a sequence, each of which attends to itself alone "
        "(cu_seqlens), in the mean; default: a sequence is one sample",
    )
    global_batch: Annotated[int, Field(gt=0)] = Field(description="sequences per step")
    micro_batch: Annotated[int, Field(gt=0)] = Field(
        default=1, description="sequences that one data-parallel rank computes at once"
    )
    tokens: Annotated[float, Field(gt=0)] = Field(description="token budget, e.g. 2e9")
    dtype: Literal["bf16", "fp16", "fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4"] = Field(
        default="bf16",
        description="type the matrices are multiplied in (fp8: a scale per tensor; fp8_rowwise: per row, "
        "torchao's; fp8_block: per 1 x 128 and 128 x 128, DeepSeek-V3's; mxfp8, nvfp4: per block)",
    )
    dtype_also: tuple[Literal["attention", "head"], ...] = Field(
        default=(),
        description="what is multiplied in 8 bits beside the layers' linear parts, instead of in 16: "
        "attention, with dtype fp8 or mxfp8 (Megatron's fp8_dot_product_attention, MLPerf's FP8_DPA); head, "
        "with mxfp8 (fp8_output_proj)",
    )
    activation_input_dtype: Literal["bf16", "fp8"] = Field(
        default="bf16",
        description="type in which the input of SwiGLU is kept for its backward pass; fp8: cast for that, "
        "and back (Megatron's activation_func_fp8_input_store, MLPerf's FP8_ACT)",
    )
    optimizer: Literal["adam", "muon"] = Field(
        default="adam",
        description="what updates the weights: Adam; or Muon the matrices of the layers, whose momentum it "
        "makes orthogonal, and Adam embedding, head, norms and biases (Megatron's --optimizer muon)",
    )
    muon: Muon = Muon()
    moment_dtype: Literal["fp32", "bf16", "fp8"] = Field(
        default="fp32",
        description="type of Adam's two moments (precision-aware optimizers: bf16 or fp8); beside master "
        "none fp32 is that of the weights, bf16",
    )
    master: Literal["fp32", "remainder", "none"] = Field(
        default="fp32",
        description="master weights: in fp32, of them only the 16 bits beyond the bf16 weight, or none: "
        "weights, gradients and moments have 16 bits alone (PyTorch, sharded or not: torchtune's dtype: "
        "bf16, torchtitan's training.dtype: bfloat16)",
    )
    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = Field(
        default=None,
        description="type gradients are reduced in; default: fp32, fp16 in fp16 training, bf16 without "
        "master weights",
    )
    apex_bucket: Annotated[Size, Field(gt=0)] | None = Field(
        default=None,
        description="size of the buckets of Apex's distributed optimizer, e.g. '125 MiB': NeMo up to 24.12, "
        "optim.name distributed_fused_adam, bucket_cap_mb; default: Megatron's distributed optimizer",
    )
    ddp_bucket: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="parameters of a GPU at which Megatron-LM closes a bucket of gradients that it hides "
        "(--ddp-bucket-size), e.g. 768e6; default: 40e6, or 1e6 for each rank that shares them",
    )
    fp8_param_gather: bool | None = Field(
        default=None,
        description="whether weights of layers are kept, and gathered, in the 8 bits of dtype fp8 or mxfp8 "
        "alone (Megatron-LM's --fp8-param-gather, NeMo's fp8_params); false: 16 bits lie beside; default: as "
        "recipes of Megatron-Bridge have it, true wherever the layout lets them",
    )
    lora: Lora | None = Field(default=None, description="fine-tuning of adapters; default: all weights train")
    layout: Layout = Layout()
    overlap: Overlap = Overlap()
    data: Data = Data()
    expert_imbalance: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0,
        description="tokens that the busiest expert-parallel GPU gets for all of its experts together, over "
        "the mean of the GPUs (one busy expert among many counts less); does nothing while layout.expert "
        "is 1",
    )
    expert_capacity: Annotated[float, Field(ge=1.0)] | None = Field(
        default=None,
        description="tokens every expert computes, over the mean: others are dropped, missing ones padded, "
        "and the host learns no counts (moe_pad_expert_input_to_capacity); default: none is dropped",
    )
    expert_nodes: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="servers that one token's experts may lie on; one copy goes to each, and is passed on "
        "inside it (DeepEP); default: any, and every expert's copy crosses the network (NCCL)",
    )
    dispatch_dtype: Literal["bf16", "fp8"] = Field(
        default="bf16",
        description="type in which tokens, and gradients of what experts return, travel to experts; what "
        "comes back stays in 16 bits (DeepSeek-V3)",
    )
    cuda_graphs: tuple[Graph, ...] = Field(
        default=(),
        description="what is launched as CUDA graphs, which costs the host nothing: attention, mixer (linear "
        "layers, such as Mamba's), mlp (of a dense layer), router (with what prepares the dispatch), or the "
        "whole step",
    )
    unfused: tuple[Unfused, ...] = Field(
        default=(),
        description="what runs one kernel per operation instead of fused ones: rotary positions (Megatron's "
        "--no-rope-fusion; torchtitan's Llama and DeepSeek, compiled or not), router (without "
        "--moe-router-fusion), loss (without --cross-entropy-loss-fusion; PyTorch's in fsdp-2023, as "
        "Hugging Face's models call it), norm (RMSNorm as in those), activation (gated, as there; "
        "Megatron's --no-bias-swiglu-fusion; squared ReLU as in NeMo 2), experts (one after the other, as "
        "Hugging Face's models loop over them before transformers 5), optimizer (PyTorch's AdamW without "
        "fused=True, operation by operation over all weights, of which it holds a copy: Hugging Face's "
        "adamw_torch)",
    )
    hidden_dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="share of hidden states dropped at random, behind the embedding and in what attention "
        "and MLPs add (Megatron's --hidden-dropout; resid_pdrop of GPT-2's config); how large it is changes "
        "nothing; default: 0, with software of 2021 and 2022 0.1 (Megatron's own default is 0.1)",
    )
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="the same of attention's scores (Megatron's --attention-dropout, attn_pdrop)",
    )
    attention_backend: Literal["fused", "flash"] | None = Field(
        default=None,
        description="whose fused kernel runs attention: fused, cuDNN's (Megatron: --attention-backend fused, "
        "NVTE_FLASH_ATTN=0), or flash, FlashAttention 2 (--attention-backend flash, NVTE_FUSED_ATTN=0); "
        "default: what the software chooses on such a GPU",
    )
    chunked_loss: Literal["torchtune", "torchtitan", "liger"] | None = Field(
        default=None,
        description="whose loss takes the head's product too, in chunks of tokens, so that never all logits "
        "are there: torchtune (LinearCrossEntropyLoss, whose chunks keep theirs for the backward pass), "
        "torchtitan (ChunkedLossWrapper, its default since April 2026; a chunk runs forward and backward at "
        "once) or liger (Liger Kernel's FusedLinearCrossEntropy: use_liger_kernel in Hugging Face's Trainer, "
        "LLaMA-Factory and Axolotl; so too); default: all logits at once",
    )
    loss_chunks: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="chunked_loss torchtune and torchtitan: how many chunks (num_output_chunks, num_chunks); "
        "default: 8. Liger's follow from vocabulary and hidden size",
    )
    launch_blocking: bool = Field(
        default=False,
        description="CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel before it launches the next, so "
        "launching hides behind nothing",
    )
    amax_over: Literal["stage", "tensor", "none"] | None = Field(
        default=None,
        description="fp8: ranks that agree on the maxima of all tensors after every pass: all of a pipeline "
        "stage (delayed scaling), the tensor-parallel ones (Megatron's tp_only_amax_red), or none (current "
        "scaling); default: as the software era does",
    )
    software: Software = Field(
        default="megatron-2025",
        description="software era: kernels and overheads of a framework of that time; with another one steps "
        "take a few to tens of percent more or less (`railwright catalog list software`, "
        "docs/training/eras.md)",
    )

    @property
    def attended(self) -> int:
        """Tokens that attend to each other: a packed sample, or the whole sequence."""
        return min(self.sample_length or self.sequence, self.sequence)

    @property
    def expert_load(self) -> float:
        """Tokens of the busiest GPU's experts over the mean: their capacity where tokens are dropped and
        padded.

        Without, at most `layout.expert`: n GPUs that hold different experts cannot get more than all choices
        of all their tokens, n times the mean, and one that holds all experts gets neither more nor less.
        """
        return self.expert_capacity or min(self.expert_imbalance, float(self.layout.expert))
