"""Model FLOPs of a job: those that its training needs, whatever weights of the model it trains."""

from __future__ import annotations

from railwright.model import flops_per_token
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import Scores, product_macs
from railwright.model.shape.pattern import layer_kinds
from railwright.spec.training import Layout, TrainingJob
from railwright.training.software.eras import era_of
from railwright.training.software.lora import adapter_parameters


def job_flops_per_token(job: TrainingJob, arch: Transformer, scores: Scores = "full") -> float:
    """Model FLOPs of one token of a job; utilisation (MFU) and demand are made with them. [flop]

    scores  as `flops_per_token` counts them; with 'causal' no step that computes its gradients does with less

    All weights train: 6 per weight that a token meets, and attention's scores (`flops_per_token`).
    Adapters beside frozen weights: a frozen weight has no gradient, so its product runs forward and for the
    gradient of its input alone, 4; an adapter's weights count 6; scores count as ever.
    That is the rule of PaLM (arXiv 2204.02311, appendix B: the FLOPs that forward and backward passes need,
    without recomputation) for what does train.  With 6 for frozen weights a job would seem to use its GPUs
    half as well again as it does, and could pass their peak.
    """
    whole = flops_per_token(arch, job.attended, scores).total
    if job.lora is None:
        return whole
    lora, apart = job.lora, era_of(job).adapts_apart
    kinds = layer_kinds(arch)[: arch.layers]
    trained = sum(adapter_parameters(arch, kind, Layout(), lora, apart) for kind in kinds)
    return whole - 2.0 * product_macs(arch) + 6.0 * trained
