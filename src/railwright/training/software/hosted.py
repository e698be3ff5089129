"""What of a job lies in host memory, as its layout asks."""

from __future__ import annotations

from railwright.catalog.parts import Server
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.sizes import domain_of
from railwright.training.software.eras import era_of


def updates_on_host(job: TrainingJob) -> bool:
    """Whether the host's cores run the optimizer, on states that are there."""
    return "optimizer" in job.layout.offload or weights_on_host(job)


def weights_on_host(job: TrainingJob) -> bool:
    """Whether a GPU's shard of the weights, its gradients and its states are on the host."""
    return "weights" in job.layout.offload


def ranks_together(job: TrainingJob, fabric: Fabric, server: Server, ranks: int) -> int:
    """Ranks of a job that share the cores of a host, at most.

    ranks  of the job
    """
    return min(domain_of(job, fabric), max(fabric.gpus_per_server // server.hosts, 1), ranks)


NONE: dict[str, str] = {
    "megatron": "Transformer Engine does nothing any more where Megatron-LM asks it to "
    "(--cpu-offloading-weights)",
    "llm-foundry": "Composer refuses FSDP's cpu_offload",
    "jax": "of JAX's host memory for parameters no step is known",
}
"""Why a framework keeps no weights on the host.  Sources: Transformer Engine d0067d0d, pytorch/
cpu_offload.py, get_cpu_offload_context (offload_weights is deprecated and without effect); Composer, 'FSDP
CPU Offload not supported yet.' (its FSDP set-up)."""


def check_offload(job: TrainingJob) -> None:
    """Refuse weights in host memory where no software keeps them there (PlanError)."""
    if not weights_on_host(job):
        return
    layout, framework = job.layout, era_of(job).framework
    if framework in NONE:
        raise PlanError(
            f"{job.name}: layout.offload weights has no effect with software {job.software}: "
            f"{NONE[framework]}. Set software to fsdp-2026 (or fsdp-2024), whose CPUOffloadPolicy does it, "
            "or to deepspeed-2026 (offload_param), or offload optimizer and activations."
        )
    if layout.zero != 3:
        raise PlanError(
            f"{job.name}: layout.offload weights keeps a rank's shard of the weights on its host, and zero: "
            f"{layout.zero} shards none; set zero to 3."
        )
    if "activations" in layout.offload:
        raise PlanError(
            f"{job.name}: layout.offload names weights and activations, which no software of "
            f"{job.software} offloads together; leave activations out and recompute instead."
        )


def unoffered(framework: str, layout: Layout, copies: int) -> list[str]:
    """What a layout asks to be offloaded that a framework does not offload so, in words.

    framework  as an era names it; copies  ranks with the same weights
    Sources: Megatron-LM, core/transformer/transformer_config.py, __post_init__ (cpu_offloading: no pipeline,
    no recomputation), training/arguments.py (optimizer_cpu_offload wants the precision-aware optimizer, which
    is distributed); torchtitan, config/job_config.py (enable_cpu_offload: FSDP's CPUOffloadPolicy, which
    takes parameters, gradients and states) and models/llama3/infra/parallelize.py (one rank has no FSDP, and
    its weights would stay on the host, where nothing multiplies them).
    """
    away, found = layout.offload, []
    if framework == "megatron":
        if "activations" in away and (layout.pipeline > 1 or layout.recompute != "none"):
            found.append("activations offloaded beside a pipeline or recomputation")
        if "optimizer" in away and layout.zero == 0 and copies > 1:
            found.append("offloaded optimizer states that are not sharded")
    if framework == "deepspeed" and "activations" in away:
        found.append("activations offloaded")
    if framework == "torchtitan":
        if "activations" in away:
            found.append("activations offloaded")
        if "weights" in away and (layout.zero != 3 or copies == 1):
            found.append("weights offloaded that are not sharded")
        if away == ("optimizer",):
            found.append("optimizer offloaded without its weights")
    return found
