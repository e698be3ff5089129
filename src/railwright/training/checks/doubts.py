"""Settings of a job that do nothing, or that say something else than was probably meant."""

from __future__ import annotations

from railwright.model.operators.mlp_kernels import splits_square
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import has_dense
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Muon, Overlap, TrainingJob
from railwright.training.checks.ships import of_schedule
from railwright.training.checks.starved import of_stages
from railwright.training.layers.graphs import of_graphs
from railwright.training.layers.recompute import has_part
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.sparse_attention import of_chosen_keys
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layers.unhidden import gathers_late, of_megatron
from railwright.training.layout.schedule import TOGETHER, in_pairs, order_name, route_of, schedule_name
from railwright.training.layout.sizes import Sizes
from railwright.training.optimizer.adam import runs_listed
from railwright.training.optimizer.packed import fills_buckets
from railwright.training.passes.offload import overlaps_update
from railwright.training.software.eras import can_unfuse_loss, eager_parts, era_of
from railwright.training.software.formats import has_fp32_shards
from railwright.training.software.hosted import unoffered, updates_on_host
from railwright.training.software.lora import targets_of
from railwright.training.software.lora_checks import inputs_stay
from railwright.training.software.mixers import of_mixers
from railwright.training.software.narrow import of_narrow
from railwright.training.software.narrow_weights import of_weights
from railwright.training.software.nf4 import is_nf4


def doubts(job: TrainingJob, arch: Transformer, count: int) -> list[str]:
    """A sentence for each setting of a job that changes nothing here, and for each that reads doubtful.

    count  microbatches of a replica
    """
    idle = [
        *_idle_experts(job, arch),
        *_idle_unfused(job, arch),
        *_idle_overlap(job, arch),
        *_idle_layout(job, arch),
    ]
    if in_pairs(job) and count == 1:
        idle.append(
            "overlap.ep hides nothing: all-to-alls of a microbatch hide behind the compute of another, and a "
            "replica runs only one; make global_batch larger, or micro_batch smaller."
        )
    idle += [*of_stages(job, count), *of_megatron(job, arch), *of_graphs(job, arch)]
    data = job.global_batch // (job.micro_batch * count)
    copies = Sizes.under(job.layout, data).copies
    idle += [*_unoffered(job, copies), *of_weights(job, copies)]
    if job.amax_over not in (None, "none") and job.dtype != "fp8":
        idle.append("amax_over does nothing: only dtype fp8 has one scale per tensor.")
    idle += [*of_schedule(job), *_idle_muon(job), *of_chosen_keys(job, arch), *of_mixers(arch)]
    idle += [*of_narrow(job), *_of_modules(job)]
    if job.master == "remainder" and has_fp32_shards(job):
        idle.append(
            f"master remainder does nothing with software {job.software} and zero: 3, whose shards are the "
            "fp32 weights themselves."
        )
    if job.ddp_bucket is not None and not fills_buckets(job):
        idle.append(
            "ddp_bucket does nothing: only Megatron-LM's data parallelism (software megatron-… or nemo-2024, "
            "zero 0 or 1, overlap.dp) closes buckets at a size."
        )
    idle += _idle_states(job)
    step = job.global_batch * job.sequence
    if step > job.tokens:
        idle.append(
            f"one step takes {step:,} tokens, more than the whole budget of {job.tokens:,.0f}; "
            "global_batch counts sequences, not tokens."
        )
    if job.lora:
        idle += _idle_targets(job.lora, arch)
        if job.lora.frozen_dtype in ("fp32", "bf16") and not has_fp32_shards(job):
            idle.append(
                "lora.frozen_dtype does nothing: only FSDP's shards (zero: 3, software fsdp-…) have a type "
                "of their own, other frozen weights that of their products; nf4 is another matter."
            )
        if job.lora.inputs_stay and not inputs_stay(job):
            idle.append(
                "lora.inputs_stay does nothing: FSDP of version 1 (zero: 3, software fsdp-…) keeps inputs of "
                "layers that are computed again (recompute: full)."
            )
        if is_nf4(job) and arch.is_moe:
            # bitsandbytes' issue 1849 (January 2026), pull requests 1720 and 1965; torchao, quantize_base
            idle.append(
                "lora.frozen_dtype nf4 is counted for routed experts too, each matrix a linear layer of its "
                "own; transformers 5 and torchtitan hold them as one tensor, which bitsandbytes and torchao "
                "leave in 16 bits (Unsloth's patches do not)."
            )
    return idle


def _of_modules(job: TrainingJob) -> list[str]:
    """What software is given to run that has no layers of its own."""
    told = {"norm", "activation", "rotary"} & set(job.unfused)
    given = told or job.chunked_loss == "liger"
    if given or era_of(job).framework not in ("deepspeed", "pytorch"):
        return []
    return [
        f"software {job.software} runs the modules it is given, whose norms, activations and rotary "
        "positions are predicted as fused kernels (Liger's); Hugging Face's own are not: write unfused: "
        "[rotary, norm, activation] for them."
    ]


def _unoffered(job: TrainingJob, copies: int) -> list[str]:
    """What a job's software does not offload as it is asked; DeepSpeed's engine is not Megatron's."""
    missing = [] if era_of(job).deepspeed else unoffered(era_of(job).framework, job.layout, copies)
    if not missing:
        return []
    return [
        f"layout.offload is predicted as asked, but software {job.software} has no "
        f"{' and no '.join(missing)}."
    ]


def _idle_states(job: TrainingJob) -> list[str]:
    """Types of states that an update on the host does not have: its masters and moments are those of
    torch.optim.AdamW or DeepSpeed's CPU Adam, in fp32 (`host_memory`)."""
    if not updates_on_host(job):
        return []
    fsdp = has_fp32_shards(job)
    asked = [f"moment_dtype {job.moment_dtype}"] if job.moment_dtype != "fp32" else []
    asked += ["master remainder"] if job.master == "remainder" and not fsdp else []
    where = "weights" if "weights" in job.layout.offload else "optimizer"
    return [
        f"{name} does nothing beside layout.offload {where}: Adam on the host keeps its states in fp32."
        for name in asked
    ]


def _idle_muon(job: TrainingJob) -> list[str]:
    if job.optimizer == "adam":
        return [] if job.muon == Muon() else ["muon does nothing: optimizer is adam."]
    if era_of(job).framework == "megatron":
        return []
    return [f"optimizer muon is priced as Megatron-LM runs it; software {job.software} has none."]


def _idle_experts(job: TrainingJob, arch: Transformer) -> list[str]:
    found = []
    if not arch.is_moe:
        given = {
            "expert_capacity": job.expert_capacity is not None,
            "expert_nodes": job.expert_nodes is not None,
            "expert_imbalance": job.expert_imbalance > 1,
            "unfused router": "router" in job.unfused,
            "unfused experts": "experts" in job.unfused,
            "overlap.ep": job.overlap.ep,
            "cuda_graphs router": "router" in job.cuda_graphs,
        }
        found += [f"{name} does nothing: {arch.name} is a dense model." for name, on in given.items() if on]
    if job.dispatch_dtype == "fp8" and (not arch.is_moe or job.layout.expert == 1):
        found.append("dispatch_dtype does nothing: no token travels to an expert (layout.expert is 1).")
    if job.overlap.shared and not hides_behind_shared(job, arch):
        found.append(
            "overlap.shared does nothing: it wants shared experts, expert parallelism, NCCL's all-to-all (no "
            "expert_nodes), and neither passes that take turns (overlap.ep, dualpipe, dualpipe-v) nor "
            "launch_blocking."
        )
    if job.expert_capacity is not None:
        if job.expert_imbalance > 1:
            found.append("expert_imbalance does nothing beside expert_capacity, which cuts it off.")
    elif arch.is_moe:
        found += _idle_imbalance(job)
    if arch.is_moe and job.expert_nodes is not None and job.layout.expert == 1:
        found.append(
            "expert_nodes does nothing while layout.expert is 1: no token leaves its GPU for an expert."
        )
    if job.layout.placement == "expert-across" and job.layout.expert == 1:
        found.append("placement expert-across does nothing while layout.expert is 1.")
    return found


def _idle_unfused(job: TrainingJob, arch: Transformer) -> list[str]:
    """Parts that are to run one kernel per operation, and do not; those of experts are `_idle_experts`'s."""
    found = []
    if "rotary" in job.unfused and (arch.position_embeddings or arch.alibi or not arch.rotary):
        learned = "learned positions" if arch.position_embeddings else "no positions in its attention"
        positions = "ALiBi" if arch.alibi else learned
        found.append(f"unfused rotary does nothing: {arch.name} has {positions}.")
    if "loss" in job.unfused and not can_unfuse_loss(era_of(job)):
        found.append(
            f"unfused loss does nothing with software {job.software}, which has no fused cross-entropy "
            "(cross_entropy_loss_fusion, flash-attn's) to leave out."
        )
    if job.loss_chunks is not None and job.chunked_loss in (None, "liger"):
        why = (
            "Liger's follow from vocabulary and hidden size"
            if job.chunked_loss
            else "chunked_loss is not set"
        )
        found.append(f"loss_chunks does nothing: {why}.")
    if "optimizer" in job.unfused and not runs_listed(job):
        found.append(
            "unfused optimizer does nothing: only PyTorch's AdamW (software fsdp-… or deepspeed-…), on "
            "the GPU and with moments in the type of its weights, has no kernel of its own for all of it."
        )
    compiled = [part for part in job.unfused if part not in (*eager_parts(job), "optimizer")]
    found += [
        f"unfused {part} does nothing with software {job.software}, whose layers are compiled."
        for part in compiled
    ]
    if "norm" in job.unfused and arch.norm_bias:
        found.append(
            f"unfused norm does nothing: {arch.name} has norms with biases, LayerNorm, one kernel anyway."
        )
    if "activation" in job.unfused and not arch.gated and not splits_square(arch, eager_parts(job)):
        found.append(
            f"unfused activation does nothing: {arch.name}'s MLPs have no gates, and an activation without "
            "one, squared ReLU (relu2) apart, is one kernel."
        )
    return found


def _idle_targets(lora: Lora, arch: Transformer) -> list[str]:
    """Products named to get adapters that no layer has; the default names all that there may be."""
    if set(lora.targets) == set(Lora(rank=lora.rank).targets):
        return []
    present = targets_of(arch)
    absent = [target for target in lora.targets if target not in present]
    routed = "; routed experts get no adapters" if arch.is_moe else ""
    return [f"lora.targets: {arch.name} has no '{target}' to adapt{routed}." for target in absent]


def _idle_imbalance(job: TrainingJob) -> list[str]:
    """Where no GPU's experts can be as unevenly loaded as is asked."""
    ranks, asked = job.layout.expert, job.expert_imbalance
    if asked == job.expert_load:
        return []
    if ranks == 1:
        return [
            "expert_imbalance does nothing while layout.expert is 1: every GPU holds all experts and "
            "computes all choices of its tokens, however they fall."
        ]
    return [
        f"expert_imbalance {asked:g} counts as {ranks}: where layout.expert is {ranks}, a GPU gets at most "
        f"all tokens, {ranks} times the mean."
    ]


def _idle_overlap(job: TrainingJob, arch: Transformer) -> list[str]:
    """What hides or launches something that the layout, or the model, does not have."""
    layout, overlap = job.layout, job.overlap
    found = []
    if overlap.tp and layout.tensor == 1:
        found.append("overlap.tp does nothing while layout.tensor is 1.")
    if overlap.ep and arch.is_moe and layout.expert == 1:
        found.append("overlap.ep does nothing while layout.expert is 1.")
    elif overlap.ep and arch.is_moe and order_name(job) not in TOGETHER:
        where = "zero: 3" if layout.zero == 3 else f"schedule {schedule_name(layout)} over several stages"
        found.append(
            f"overlap.ep hides nothing with {where}: all-to-alls of a microbatch are predicted behind the "
            "compute of another with schedule interleaved (virtual_pipeline), dualpipe or dualpipe-v, or "
            "without a pipeline, and with zero: 0, 1 or 2."
        )
    if overlap.prefetch != Overlap().prefetch and layout.zero < 3:
        found.append(
            f"overlap.prefetch does nothing with zero: {layout.zero}; only zero: 3 gathers parameters ahead."
        )
    if not overlap.gather and layout.zero not in (1, 2):
        found.append(
            f"overlap.gather does nothing with zero: {layout.zero}; only zero: 1 and 2 gather parameters "
            "once a step."
        )
    if not overlap.aligned and not gathers_late(job):
        found.append(
            "overlap.aligned does nothing here: it is of parameters that arrive beside the first passes of a "
            "pipeline (zero: 1 and 2)."
        )
    if overlap.offload and not overlaps_update(job):
        found.append(
            "overlap.offload does nothing here: it is of layout.offload optimizer with Megatron-LM's "
            "software from 2025 on."
        )
    if "mixer" in job.cuda_graphs and arch.linear is None:
        found.append(f"cuda_graphs mixer does nothing: {arch.name} has no linear layers.")
    if "mlp" in job.cuda_graphs and not has_dense(arch):
        found.append(f"cuda_graphs mlp does nothing: every layer of {arch.name} has experts instead.")
    return found


def _idle_layout(job: TrainingJob, arch: Transformer) -> list[str]:
    """Fields of the layout that do nothing beside its others."""
    layout, plain, pieces = job.layout, Layout(), route_of(job.layout).model_pieces
    ends = layout.ends_as_layers != plain.ends_as_layers
    says = layout.layers_per_stage is not None
    held = _layers_of_a_stage(layout, arch) if layout.offload_layers is not None else 0
    rules = (
        (
            layout.context_kind != plain.context_kind and layout.context == 1,
            f"context_kind {layout.context_kind} does nothing while layout.context is 1.",
        ),
        (ends and pieces == 1, "ends_as_layers does nothing while the model is in one piece."),
        (
            ends and pieces > 1 and says,
            "ends_as_layers does nothing beside layers_per_stage, which says what each has.",
        ),
        (
            layout.sequence_parallel and layout.tensor == 1,
            "sequence_parallel does nothing while layout.tensor is 1.",
        ),
        (
            layout.offload_layers is not None and "activations" not in layout.offload,
            "offload_layers does nothing while layout.offload does not name activations.",
        ),
        (
            (layout.offload_layers or 0) > held,
            f"offload_layers {layout.offload_layers} counts as {held}, all layers of a stage.",
        ),
        (
            layout.recompute_layers is not None and layout.recompute != "full",
            f"recompute_layers does nothing while layout.recompute is {layout.recompute}.",
        ),
        (
            {"optimizer", "weights"} <= set(layout.offload),
            "offload of optimizer does nothing beside weights, which take their states along.",
        ),
        (
            not layout.reshard and layout.zero < 3,
            f"reshard does nothing with zero: {layout.zero}; only zero: 3 drops parameters.",
        ),
        (
            not layout.reduce_each and layout.zero < 2,
            f"reduce_each does nothing with zero: {layout.zero}, which reduces once per step.",
        ),
    )
    return [words for holds, words in rules if holds] + _idle_modules(layout, arch)


def _idle_modules(layout: Layout, arch: Transformer) -> list[str]:
    """Parts named to be computed again that are not, or that the model has not."""
    modules = layout.recompute_modules
    if layout.recompute != "selective":
        if modules == Layout().recompute_modules:
            return []
        return [f"recompute_modules does nothing while layout.recompute is {layout.recompute}."]
    if not modules:
        return ["recompute selective does nothing while layout.recompute_modules names no part."]
    absent = [name for name in modules if not has_part(arch, name)]
    return [f"recompute_modules: {arch.name} has nothing of '{name}' to compute again." for name in absent]


def _layers_of_a_stage(layout: Layout, arch: Transformer) -> int:
    """Layers of the stage that has most."""
    route = route_of(layout)
    return route.chunks * max(layers_per_piece(arch.layers, route.model_pieces, layout))
