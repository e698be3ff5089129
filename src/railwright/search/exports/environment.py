"""Variables of the environment that a layout wants: settings where a framework's configuration has a place
for them, comments with the line to run where it has none.

Sources, read 2026-11-25: Megatron-LM d98e8a6, megatron/training/arguments.py (validate_args) and
core/transformer/moe/README.md (EP A2A Overlap); torchtitan, run_train.sh; Megatron-Bridge 067f987,
training/config.py (ConfigContainer.env_vars), and nemo_run's executors, whose field has the same name.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.model.shape.architecture import Transformer
from railwright.search.exports.one_mlp import VARIABLE
from railwright.spec.training import TrainingJob
from railwright.training.layers.graphs import graphed
from railwright.training.layers.unhidden import exposed_turns


class Connections(NamedTuple):
    """CUDA_DEVICE_MAX_CONNECTIONS: queues of a GPU that kernels and copies are launched into.

    older  whether only GPUs before Blackwell ask for it
    """

    number: int
    older: bool


def connections(job: TrainingJob, arch: Transformer) -> Connections | None:
    """What Megatron asks for: more than one beside FSDP and hidden expert all-to-alls, one beside tensor and
    context parallelism, whose kernels run in the order they are launched in; None where it does not care."""
    layout = job.layout
    turns = arch.is_moe and layout.expert > 1 and job.overlap.ep and not exposed_turns(job, arch)
    if layout.zero >= 2 or turns:
        return Connections(32, False)
    return Connections(1, True) if layout.tensor > 1 or layout.context > 1 else None


def environment(
    job: TrainingJob, arch: Transformer, form: str, growing: bool, fused: bool = False
) -> list[str]:
    """Lines for what a form's configuration holds, or relies on.

    growing  whether PyTorch's segments must grow.  Megatron takes CUDA graphs with such segments only where
             NCCL does not register them (arguments.py; Megatron-Bridge, docs/training/cuda-graphs.md)
    fused    whether experts are one fused MLP (`one_mlp`)

    Queues are NeMo's alone here: Megatron-LM's export says what its script wants itself.
    """
    needed: dict[str, str] = {}
    if growing:
        needed["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if form != "torchtitan" and graphed(job, arch):
            needed["NCCL_GRAPH_REGISTER"] = "0"
    if fused and form in ("megatron", "nemo"):
        needed[VARIABLE] = "1"
    if form == "nemo":
        return _settings(needed, connections(job, arch))
    words = " ".join(f"{name}={value}" for name, value in needed.items())
    runs = " (run_train.sh does)" if form == "torchtitan" else ""
    return [f"# it relies on: export {words}{runs}"] if words else []


def _settings(needed: dict[str, str], queues: Connections | None) -> list[str]:
    """The field of NeMo's executor and of Megatron-Bridge's configuration."""
    named = [f"    {name}={value!r}," for name, value in needed.items()]
    if queues:
        older = "  # before Blackwell" if queues.older else ""
        named.append(f"    CUDA_DEVICE_MAX_CONNECTIONS={str(queues.number)!r},{older}")
    if not named:
        return []
    return ["# of the executor, or of Megatron-Bridge's ConfigContainer", "env_vars = dict(", *named, ")"]
