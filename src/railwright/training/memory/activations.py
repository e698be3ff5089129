"""Activations of one pipeline stage: what a pass of each chunk keeps, and what its backward needs beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from railwright.model import layer_activations, layer_gradient_bytes
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.mixer_operators import mixer_working
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, Layer, is_routed, made_as
from railwright.model.tensors.activations import Recompute
from railwright.model.tensors.every_second import UNREAD
from railwright.model.tensors.sparse_kept import index_logits
from railwright.model.tensors.tensor_lists import BEFORE_EXCHANGE, NARROW_OUTPUT, STORED
from railwright.spec.training import TrainingJob
from railwright.training.layers.cut import cut_in_memory
from railwright.training.layers.gathers import gathered_whole
from railwright.training.layers.lora_kept import adapters_keep, is_needed, of_mlp
from railwright.training.layers.recompute import layers_again
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import TOGETHER, in_pairs, order_name, route_of
from railwright.training.layout.sizes import sequence_ranks, tokens_of
from railwright.training.memory.chunk_activations import AGAIN, OUTPUT_AGAIN, Kept, chunk_kept, layer_at_work
from railwright.training.memory.chunked_kept import OF_HEAD
from railwright.training.memory.end_activations import (
    embedding_kept,
    head_backward,
    head_waiting,
    joined_kept,
    output_of_stage,
)
from railwright.training.memory.stage_weights import largest_weight, placeholders, widened
from railwright.training.memory.units import Beside, beside, copies_out
from railwright.training.software.constants import constant
from railwright.training.software.deepspeed import (
    OUTPUTS,
    gradient_on_its_way,
    mask_kept,
    outputs_kept,
    received_kept,
    sent_kept,
)
from railwright.training.software.eras import era_of
from railwright.training.software.lora_checks import inputs_stay

SCORE_BYTES = 4.0
"""Bytes per score of the layer at work: scores and softmax in 16 bits."""

FLOWING, ON_ITS_WAY = "activation gradients", "layer on its way to the host"
"""Of the parts that a layer's backward pass needs beside what is kept, these two."""

MLP = (
    *("mlp norm output", "mlp up output", "mlp product", "mlp activated"),
    *("mlp norm in 32 bits", "mlp norm, normalised", "expert activated", "shared activated"),
    *("router", "latents' input", "expert input", "expert up output", "expert product", "expert latents"),
    *("expert output", "expert output, weighted"),
    *("shared input", "shared norm output", "shared up output", "shared product", "router norm output"),
    *(f"{part} up output{STORED}" for part in ("mlp", "expert", "shared")),
)
"""Kept tensors of an MLP, or of experts, that its backward pass frees."""

RUNS_AGAIN = {"attention": "core_attn", "dense": "mlp", "moe": "moe"}
"""Block of a layer -> the one of `recompute_modules` that runs it again, but for its first products."""


@dataclass(frozen=True)
class StageActivations:
    """Bytes on one GPU of a stage. [byte]

    chunks              kept by one forward pass of each chunk
    first               of those, what the first layer of a chunk keeps, at most
    embedded            of those, what the embedding keeps, tensor by tensor
    waiting             what the head and its loss keep of a pass between their forward and backward pass
    output              what stays of every pass until the next step, on a last stage
    of_head             gradient of the head's weight, where a pass makes it
    always              tensors of fixed size that stay
    layer_backward, head_backward, embedding_backward  what these need beside what is kept; empty where the
                        stage has no such part
    """

    chunks: tuple[float, ...]
    first: float
    embedded: tuple[float, ...]
    waiting: float
    output: float
    of_head: float
    always: dict[str, float]
    layer_backward: dict[str, float]
    head_backward: dict[str, float]
    embedding_backward: dict[str, float]


def stage_activations(
    job: TrainingJob, arch: Transformer, shape: StageShape, unit_waits: bool | None = None
) -> StageActivations:
    """Activations of one stage of a job that passed `plan.check`.

    unit_waits  gradients of embedding and head are among those of one unit that wait to be reduced
                (`states.state_parts`); default: under ZeRO-3, but for FSDP2
    """
    if unit_waits is None:
        unit_waits = job.layout.zero == 3 and not copies_out(job)
    end = 0.0 if unit_waits or job.lora else ELEMENT * arch.vocab * arch.hidden / job.layout.tensor
    kinds: list[Layer] = sorted({k for chunk in shape.chunks for k in chunk.layers})
    kept, whole = each_kept(job, arch, kinds)
    layers = [chunk_kept(job, arch, chunk, kept, whole) for chunk in shape.chunks]
    chunks = tuple(
        sum(each[layers_away(job, len(each)) :])
        + (joined_kept(job, arch) if chunk.head else sent_kept(job, arch))
        + (sum(embedding_kept(job, arch)) + mask_kept(job) if chunk.embedding else received_kept(job, arch))
        for chunk, each in zip(shape.chunks, layers, strict=True)
    )
    flowing = {kind: _gradients(job, arch, kind) for kind in kinds}
    output = _output(job, arch)
    # what is over when a layer is at work: layers behind it, unless they went to the host or `at_work` has it
    over = layers
    if "activations" in job.layout.offload and order_name(job) not in TOGETHER:
        at_work = _sent_at_work(job, arch, shape.chunks, layers, whole, flowing, output)
        over = [[0.0] * len(each) for each in layers]
    else:
        if inputs_stay(job):
            over = [[0.0] * len(each) for each in layers]
        at_work = {
            **layer_at_work(job, arch, shape.chunks, kept, whole, output),
            FLOWING: max(flowing.values(), default=0.0),
            ON_ITS_WAY: max(_layer_on_its_way(job, each) for each in layers),
        }
    head = any(chunk.head for chunk in shape.chunks)
    embedding = any(chunk.embedding for chunk in shape.chunks)
    at = beside(job, shape, over)
    return StageActivations(
        chunks=chunks,
        first=max((each[0] for each in layers if each), default=0.0),
        embedded=embedding_kept(job, arch),
        waiting=head_waiting(job, arch) if head else 0.0,
        output=output_of_stage(job, arch) if head else 0.0,
        of_head=end if head else 0.0,
        always={
            "workspaces": constant("workspace_bytes"),
            "gradient placeholders": placeholders(job, arch, kinds),
            **gradient_on_its_way(job, largest_weight(job, arch, shape)),
            "buffers of what a stage receives": _neighbours(shape) * sent_kept(job, arch),
            OUTPUTS: outputs_kept(job, arch) if head else 0.0,
        },
        layer_backward={
            **at_work,
            "weight in 16 bits again": max((widened(job, arch, kind) for kind in kinds), default=0.0),
            **at.layer,
        },
        head_backward=_of_head(head_backward(job, arch, end), end, at) if head else {},
        embedding_backward={"gradient of the embedding": end, **at.embedding} if end and embedding else {},
    )


def _of_head(parts: dict[str, float], end: float, at: Beside) -> dict[str, float]:
    """The head's backward pass, or what gathers its weights before or reduces its gradient when that is over,
    whichever is fullest."""
    copying, reducing = {"logits": 0.0, **at.copying}, {"logits": 0.0, OF_HEAD: end, **at.reducing}
    return max(parts | at.head, copying, reducing, key=lambda moment: sum(moment.values()))


def stays_of_head(job: TrainingJob, tensors: StageActivations) -> dict[str, float]:
    """The gradient of a stage's head, where it is an empty one that stays as those of its layers do. [byte]

    Source: Megatron-LM (core 0.14), core/tensor_parallel/layers.py (get_dummy_wgrad).
    """
    size = tensors.head_backward.get(OF_HEAD, 0.0)
    stays = era_of(job).head_placeholder and job.layout.zero < 3 and size
    return {OF_HEAD: size} if stays else {}


def layer_kept(job: TrainingJob, arch: Transformer, kind: Layer) -> float:
    """What one layer of one microbatch keeps for its backward pass, on one GPU, where `layout.recompute` is
    for it. [byte]"""
    return sum(layer_kept_parts(job, arch, kind, job.layout.recompute).values())


def each_kept(job: TrainingJob, arch: Transformer, kinds: Sequence[Layer]) -> tuple[Kept, Kept]:
    """What a layer of each kind keeps where `layout.recompute` is for it, and where nothing is computed
    again. [byte]"""
    kept = {kind: layer_kept(job, arch, kind) for kind in kinds}
    if job.layout.recompute == "none":
        return kept, kept
    return kept, {kind: sum(layer_kept_parts(job, arch, kind, "none").values()) for kind in kinds}


def layers_away(job: TrainingJob, layers: int) -> int:
    """Layers at the front of a chunk whose activations go to the host; its last one is needed at once.

    layers  of the chunk
    """
    if "activations" not in job.layout.offload:
        return 0
    asked = job.layout.offload_layers
    share = layers if asked is None else -(-asked // route_of(job.layout).chunks)
    return max(min(share, layers - 1), 0)


def _sent_at_work(
    job: TrainingJob,
    arch: Transformer,
    chunks: Sequence[Chunk],
    layers: Sequence[Sequence[float]],
    whole: Kept,
    flowing: Kept,
    output: float,
) -> dict[str, float]:
    """What the layer at work holds at most, beside all layers that stay of its pass, where others go to the
    host and passes run one after another. [byte]

    A layer comes back beside the one behind it; by then those behind that one are over, and what stayed of
    them counts against it.  So the widest layers to come back, the layer with most computed again and the one
    with the largest gradients count together only where they are the same.

    layers   what a pass keeps of every layer of each chunk; whole: of one that keeps all
    flowing  gradients of a layer at work
    output   as in `layer_at_work`
    """
    found = [{FLOWING: 0.0, ON_ITS_WAY: 0.0}]
    for chunk, each in zip(chunks, layers, strict=True):
        away, again = layers_away(job, len(each)), layers_again(job, arch, chunk)
        for i, kind in reversed([*enumerate(chunk.layers)]):
            parts = {
                AGAIN: whole[kind] - each[i],
                OUTPUT_AGAIN: output if i < again else 0.0,
                FLOWING: flowing[kind],
                ON_ITS_WAY: sum(each[max(i - 1, 0) : min(i + 1, away)]),
            }
            found.append(_less(parts, sum(each[max(i + 1, away) :])))
    return max(found, key=lambda parts: sum(parts.values()))


def _less(parts: Mapping[str, float], gone: float) -> dict[str, float]:
    """The parts without so much of them, from the first one on."""
    left = {}
    for name, size in parts.items():
        taken = min(size, gone)
        left[name], gone = size - taken, gone - taken
    return left


def _layer_on_its_way(job: TrainingJob, sizes: list[float]) -> float:
    """What two passes that run together hold beyond what is counted of them, the layers that stay (of a
    forward pass under `paired` one layer); nothing of passes without offload. [byte]

    Of a pass one layer goes while the next computes, or comes back beside the one behind it, so the two
    largest neighbours are there at most: of two passes together four, or three that take turns in two layers.
    """
    away = layers_away(job, len(sizes))
    if not away:
        return 0.0
    counted, pair = sum(sizes[away:]), max(a + b for a, b in pairwise(sizes))
    if in_pairs(job):
        return max((2 * pair if len(sizes) > 2 else pair + max(sizes)) - counted - sizes[away - 1], 0.0)
    return max(2 * (pair - counted), 0.0)


def layer_kept_parts(
    job: TrainingJob, arch: Transformer, kind: Layer, recompute: Recompute
) -> dict[str, float]:
    """What one layer keeps, tensor by tensor. [byte]"""
    layout = job.layout
    kept = layer_activations(
        arch,
        kind,
        tokens_of(job),
        job.sequence,
        cut_in_memory(job, kind),
        recompute=recompute,
        modules=layout.recompute_modules,
        dtype="bf16" if job.lora else job.dtype,
    )
    if recompute == "full":
        return kept
    whole = (name for name in gathered_whole(job, arch, kind) if name in kept)
    kept = kept | {name: kept[name] * layout.tensor for name in whole} | _shared_input(job, arch, kept)
    era = era_of(job)
    if recompute == "selective" and "ops" in layout.recompute_modules and era.launcher == "inductor":
        kept = {name: size for name, size in kept.items() if name not in UNREAD}
    saves = era.saves
    if recompute == "selective" and saves and _all_again(kind, layout.recompute_modules):
        # JAX computes the rest again from the layer's input: PaXML saves the output projection too
        # (SAVE_QKV_OUT_PROJ), MaxText does not (save_qkv_proj).  Source: NVIDIA/dgxc-benchmarking
        return {name: size for name, size in kept.items() if name in saves}
    swapped = layout.context > 1 and layout.context_kind == "all-to-all"
    if swapped and "attention output" in kept and NARROW_OUTPUT not in kept:
        # the output before heads are swapped back for tokens is kept beside the projection's input
        kept[BEFORE_EXCHANGE] = kept["attention output"]
    needed = {name: size for name, size in kept.items() if is_needed(job, arch, kind, name)}
    return needed | adapters_keep(job, arch, kind, tokens_of(job))


def _all_again(kind: Layer, modules: Sequence[str]) -> bool:
    """Whether attention and MLP of a layer run again, so that a framework which names what it saves keeps no
    more of it than that; what does not run again keeps all that its backward pass reads."""
    return all(RUNS_AGAIN.get(block) in modules for block in PARTS[kind] if block)


def _shared_input(job: TrainingJob, arch: Transformer, kept: Mapping[str, float]) -> dict[str, float]:
    """What shared experts keep of their input where all-to-alls run beside them (`shared`): they gather it
    over tensor ranks themselves, and their first product keeps what it reads. [byte]

    Source: Megatron-LM, core/transformer/moe/shared_experts.py (pre_forward_comm; linear_fc1.parallel_mode).
    """
    cut = job.layout.sequence_parallel and job.layout.tensor > 1
    if not cut or "shared up output" not in kept or arch.shared_norm or not hides_behind_shared(job, arch):
        return {}
    share = kept.get("shared input", ELEMENT * tokens_of(job) * arch.hidden / job.layout.tensor)
    return {"shared input": share * job.layout.tensor}


def _output(job: TrainingJob, arch: Transformer) -> float:
    """A layer that runs again whole holds its output until its backward pass ends (CheckpointFunction)."""
    return _hidden_states(job, arch) if job.layout.recompute == "full" else 0.0


def _hidden_states(job: TrainingJob, arch: Transformer) -> float:
    """One layer's output on one GPU. [byte]"""
    return tokens_of(job) * ELEMENT * arch.hidden / sequence_ranks(job)


def _gradients(job: TrainingJob, arch: Transformer, kind: Layer) -> float:
    """Activation gradients alive at once, at most, [byte]: behind the MLP, or where the mixer works, when
    the MLP's tensors are gone."""
    behind = layer_gradient_bytes(
        arch,
        kind,
        tokens_of(job),
        cut_in_memory(job, kind),
        dtype="bf16" if job.lora else job.dtype,
        trains=job.lora is None or (not is_routed(kind) and "mlp down" in job.lora.targets),
    )
    working = _mixing(job, arch, kind)
    if not working:
        return behind
    kept = layer_kept_parts(job, arch, kind, "none")
    freed = sum(size for name, size in kept.items() if name in MLP or of_mlp(name))
    return max(behind, _hidden_states(job, arch) + working - freed)


def _mixing(job: TrainingJob, arch: Transformer, kind: Layer) -> float:
    """What the mixer of the layer at work needs beside what is kept, at most. [byte]"""
    mixer, tensor = PARTS[kind].mixer, job.layout.tensor
    if not mixer:
        return 0.0
    if mixer == "linear":
        return tokens_of(job) * mixer_working(arch, tensor)[1]
    if cut_in_memory(job, kind).attention != "flash":
        # the gradient of the softmax or of its dropped output, which has gone when the other comes
        return ELEMENT * tokens_of(job) * job.sequence * made_as(arch, kind).heads / tensor
    return scores_once(job, arch) or index_logits(made_as(arch, kind), tokens_of(job), job.sequence)


def scores_once(job: TrainingJob, arch: Transformer) -> float:
    """Scores that only the layer at work has, where attention is not fused and they cannot have been kept:
    those of gpt-oss 120B at 4 sequences of 4,096 tokens take 794 GiB, and it ran so on GPUs of 185 and 278
    GiB. [byte]"""
    if not era_of(job).scores_once:
        return 0.0
    heads = max(arch.heads, arch.window_heads)
    return SCORE_BYTES * tokens_of(job) * job.sequence * heads / job.layout.tensor


def _neighbours(shape: StageShape) -> int:
    """Stages that a stage receives activations or gradients from."""
    ends = any(c.embedding for c in shape.chunks) + any(c.head for c in shape.chunks)
    return 2 - ends
