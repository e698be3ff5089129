"""What drafts tokens ahead of a served model: another model, or one more layer of its own."""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.hf_config import load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.serving import ServingJob


def draft_of(job: ServingJob, arch: Transformer) -> Transformer | None:
    """The job's draft model, or one more layer of the model (MTP, EAGLE); None without speculative decoding.

    Raises RailwrightError for a draft that cannot be read.
    """
    if job.speculative is None:
        return None
    return load_model(job.speculative.draft) if job.speculative.draft else own_layer(arch)


def own_layer(arch: Transformer) -> Transformer:
    """One more layer, with experts where the model has them; embeddings and LM head are the model's."""
    whole = min(arch.full_every + len(arch.whole_layers), 1)
    return replace(arch, layers=1, dense_layers=0, expert_layers=(), full_every=whole, whole_layers=())
