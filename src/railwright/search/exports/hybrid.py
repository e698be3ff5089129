"""Models whose layers are not all attention with an MLP, as Megatron-LM's pretrain_hybrid.py takes them.

A pattern has one letter for each block, and every block is a layer there: a layer of two is two letters.
Pipeline stages are told by | between them, multi-token prediction behind a /.
Source: Megatron-LM d98e8a6, core/models/hybrid/hybrid_layer_allocation.py and megatron/training/arguments.py
(hybrid_layer_pattern), read 2026-11-25.
"""

from __future__ import annotations

from railwright.model.shape.architecture import Layer, Transformer
from railwright.model.shape.pattern import PARTS, is_hybrid, layer_kinds
from railwright.spec.training import TrainingJob
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layout.schedule import FOLDED, schedule_name

MIXERS = {"mamba2": "M", "gated_deltanet": "G"}
"""Letters of linear mixers; Megatron-LM has no others."""

ATTENTION = {"gqa": "*", "mla": "+"}
MLPS = {"dense": "-", "moe": "E", "": ""}


def hybrid_pattern(job: TrainingJob, arch: Transformer) -> str:
    """The value of --hybrid-layer-pattern; '' for a model that needs none, or has blocks it cannot say."""
    if not is_hybrid(arch) or (arch.linear and arch.linear.kind not in MIXERS):
        return ""
    layout, kinds = job.layout, layer_kinds(arch)
    pieces = 1 if schedule_name(layout) in FOLDED else layout.pipeline * layout.virtual_pipeline
    sizes = layers_per_piece(arch.layers, pieces, layout, arch.mtp_layers) if pieces > 1 else (arch.layers,)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = ["".join(_letters(arch, k) for k in kinds[e - n : e]) for n, e in zip(sizes, ends, strict=True)]
    extra = "".join(f"/{_letters(arch, kind)}" for kind in kinds[arch.layers :])
    return "|".join(parts) + extra


def said_of_hybrids(job: TrainingJob, arch: Transformer) -> list[str]:
    """What a reader of an export must know of such a model."""
    if not is_hybrid(arch):
        return []
    if not hybrid_pattern(job, arch):
        kind = arch.linear.kind if arch.linear else ""
        return [f"layers with {kind}: Megatron-LM has none; without them this layout trains another model"]
    found = [
        f"a model of pretrain_hybrid.py: --hybrid-layer-pattern '{hybrid_pattern(job, arch)}', one letter "
        "for each block (hybrid_override_pattern in NeMo 2, MambaModel's configuration, without | and G)"
    ]
    doubled = any(all(PARTS[kind]) for kind in arch.pattern)
    if doubled and job.layout.recompute == "full":
        found.append("full recomputation of a layer of two blocks: Megatron keeps the input of each of them")
    return found


def _letters(arch: Transformer, kind: Layer) -> str:
    mixer, mlp = PARTS[kind]
    own = MIXERS[arch.linear.kind] if arch.linear and mixer == "linear" else ""
    return {"attention": ATTENTION[arch.attention], "linear": own, "": ""}[mixer] + MLPS[mlp]
