"""Sparse attention, to keys that an indexer chooses: jobs that no framework runs, and doubts about others."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import layer_kinds, takes_keys
from railwright.spec.training import TrainingJob
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layout.schedule import route_of
from railwright.training.software.eras import era_of


def check_chosen(job: TrainingJob, arch: Transformer) -> None:
    """Attention to keys that an indexer chooses: what no framework has of it.

    Source: Megatron-LM d98e8a6, TransformerConfig.__post_init__ (experimental_attention_variant dsa).
    """
    if not arch.index_topk:
        return
    if era_of(job).attention != "flash":
        raise PlanError(
            f"{job.name}: {arch.name} attends to keys that an indexer chooses, which software {job.software} "
            "has no kernels for; name newer software."
        )
    sharing = [takes_keys(kind) for kind in layer_kinds(arch)]
    if job.layout.context > 1 and any(sharing):
        raise PlanError(
            f"{job.name}: context parallelism of {arch.name} is not modelled, some of whose layers take the "
            "keys that others chose; set layout.context to 1."
        )
    if any(sharing):
        _check_sharing(job, arch, sharing)
    if job.layout.context > 1 and job.layout.context_kind != "all-gather":
        raise PlanError(
            f"{job.name}: {arch.name} attends to keys that an indexer chooses out of all of them, so context "
            f"parallelism gathers them; set layout.context_kind to all-gather (it is "
            f"{job.layout.context_kind})."
        )
    if "attention" in job.dtype_also:
        raise PlanError(
            f"{job.name}: attention of {arch.name} runs in 16 bits, since it meets keys that an indexer "
            "chooses; leave attention out of dtype_also."
        )


def _check_sharing(job: TrainingJob, arch: Transformer, sharing: list[bool]) -> None:
    """Chosen keys do not go from stage to stage (dsa.py, DSAttention.forward)."""
    sizes = layers_per_piece(arch.layers, route_of(job.layout).model_pieces, job.layout, arch.mtp_layers)
    firsts = [sum(sizes[:i]) for i in range(len(sizes)) if sizes[i]]
    if wrong := [first for first in firsts if sharing[first]]:
        raise PlanError(
            f"{job.name}: a piece of the pipeline begins with layer {wrong[0]} (counted from 0) of "
            f"{arch.name}, which takes the keys that a layer before it chose, and those stay on their stage; "
            "give layers_per_stage so that every piece begins with a layer that has an indexer."
        )


def of_chosen_keys(job: TrainingJob, arch: Transformer) -> list[str]:
    """What is not known of attention to keys that an indexer chooses, and where it chooses all of them."""
    if not arch.index_topk:
        return []
    found = [
        f"no published step is of a model like {arch.name}, whose attention meets keys that an indexer "
        "chooses; its range is that of others, its kernels are Megatron-LM's."
    ]
    if job.attended <= arch.index_topk:
        found.append(
            f"a sequence of {job.attended:,} tokens has no more keys than the {arch.index_topk:,} that "
            f"{arch.name} chooses: all of them are met, and scored beside."
        )
    return found
