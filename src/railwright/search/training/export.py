"""A layout as the arguments of real frameworks: Megatron-LM, NeMo, torchtitan, and a study of our own.

What a framework has no setting for is said in a comment rather than left out.
tests/formula/test_search_exports.py holds every name to the frameworks' own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from railwright.errors import RailwrightError
from railwright.export.yamltext import scalar
from railwright.fabric.graph import server_name
from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.environment import environment
from railwright.search.exports.megatron import megatron
from railwright.search.exports.nemo import nemo
from railwright.search.exports.one_mlp import one_mlp
from railwright.search.exports.torchtitan import torchtitan
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.search.training.result import Candidate
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training.memory.cached import crowded, relies_on_growth
from railwright.training.software.eras import era_of
from railwright.units import GIB


def export(candidate: Candidate, arch: Transformer, hosts: Hosts, form: str, told: str = "") -> str:
    """The candidate's layout in one of `FORMS`.

    hosts  where its layout was predicted
    told   what a reader should know of the search (`SearchResult.priced`)
    Raises RailwrightError for a form that is not known.
    """
    if form not in FORMS:
        raise RailwrightError(f"there is no export '{form}'; choose one of {', '.join(FORMS)}")
    what, write = FORMS[form]
    job, needs = candidate.job, f"{candidate.memory / GIB:.1f} GiB on the fullest GPU"
    head = [
        f"# {what}; written by railwright search",
        f"# predicted: {candidate.time:.4g} s a step, {needs}, as {job.software} runs",
    ]
    if form in FRAMEWORKS and (lacks := FRAMEWORKS[form].lacks(job, arch, hosts.data)):
        head.append(
            f"# {FRAMEWORKS[form].title} does not run this: {'; '.join(lacks)}; the step and the memory "
            "above are not those of this file"
        )
    if told:
        head.append(f"# {told}")
    if form in FRAMEWORKS and not FRAMEWORKS[form].runs_era_of(job):
        head.append(f"# its software is not {FRAMEWORKS[form].title}'s: search with --framework {form}")
    capacity = candidate.step.memory.capacity
    if candidate.held and (warning := crowded(candidate.held, capacity)):
        head.append(f"# {warning}")
    grows = candidate.held and (
        era_of(job).allocator == "growing" or relies_on_growth(candidate.held, capacity)
    )
    head += [f"# {WARNED}{sentence}" for sentence in candidate.step.warnings]
    if job.data != Data():
        head.append("# predicted without waiting for data")
    if form in FRAMEWORKS:
        head += [f"# {sentence}" for sentence in _outside(job, arch, hosts)]
    if form in UNSHAPED:
        head.append(f"# to add: the shape of {arch.name}, by {UNSHAPED[form]}")
    around = environment(job, arch, form, growing=bool(grows), fused=bool(one_mlp(job, arch, hosts)))
    return "\n".join([*head, *around, *write(job, arch, hosts)]) + "\n"


WARNED = "warning of the prediction: "
"""What stands before each warning that the layout's step carries, as `railwright run` gives them."""

UNSHAPED = {
    "nemo": "the model's own configuration (its provider or recipe)",
    "torchtitan": "name and flavor in [model]",
}
"""Frameworks that take a model by its name rather than by its sizes, and where."""


def _outside(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """What is set, or was assumed, outside any framework's configuration."""
    found = []
    if job.gpus is not None:
        found.append(f"on the first {job.gpus} GPUs")
    if job.servers is not None:
        first = f"{job.servers[0]} is {server_name(job.servers[0])}"
        found.append(f"on servers {', '.join(map(str, job.servers))} ({first}): list the hosts in this order")
    if job.gpus_per_server is not None:
        found.append(
            f"on {job.gpus_per_server} GPUs of each server: {_launched(job.gpus_per_server, hosts.node)}"
        )
    if job.launch_blocking:
        found.append("the host waits for every kernel: export CUDA_LAUNCH_BLOCKING=1")
    if job.expert_imbalance > 1 and arch.is_moe:
        found.append(f"predicted with {job.expert_load:g} times the mean tokens at the busiest GPU's experts")
    return found


def _launched(gpus: int, node: int) -> str:
    """How torchrun, which runs once per operating system, takes so many GPUs of a server."""
    if not node or gpus <= node:
        return f"--nproc-per-node {gpus}"
    if gpus % node:
        return f"its operating systems have {node} each, so that one of them runs {gpus % node} processes"
    return f"--nproc-per-node {node} on {gpus // node} of its operating systems (trays)"


WRITTEN = {
    "name", "model", "gpus", "sequence", "global_batch", "micro_batch", "tokens", "dtype", "software",
    "layout", "overlap",
}  # fmt: skip
"""Fields of a job that `study` writes by itself; all others follow where they are not the default."""


def study(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """The job of a study, with this layout."""
    return job_lines(job)


def job_lines(job: TrainingJob) -> list[str]:
    """A job as the section `jobs` of a study: what it must say, and what is not its default."""
    lines = [
        "jobs:",
        f"  - name: {scalar(job.name)}",
        f"    model: {scalar(job.model)}",
    ]
    if job.gpus is not None:
        lines.append(f"    gpus: {job.gpus}")
    lines += [
        f"    sequence: {job.sequence}",
        f"    global_batch: {job.global_batch}",
        f"    micro_batch: {job.micro_batch}",
        f"    tokens: {_number(job.tokens)}",
        f"    dtype: {job.dtype}",
        f"    software: {job.software}",
    ]
    for name, part in (("layout", job.layout), ("overlap", job.overlap)):
        changed = part.model_dump(exclude_defaults=True)
        if changed:
            lines += [f"    {name}:", *(f"      {key}: {_yaml(value)}" for key, value in changed.items())]
    rest = job.model_dump(exclude_defaults=True, exclude=WRITTEN)
    return [*lines, *(f"    {key}: {_yaml(value)}" for key, value in sorted(rest.items()))]


FORMS: dict[str, tuple[str, Callable[[TrainingJob, Transformer, Hosts], list[str]]]] = {
    "megatron": (
        "Megatron-LM core 0.19, arguments of pretrain_gpt.py (megatron/training/arguments.py)",
        megatron,
    ),
    "nemo": ("NeMo 2", nemo),
    "torchtitan": ("torchtitan 0.2.1 and 0.2.2, TOML (torchtitan/config/job_config.py)", torchtitan),
    "study": ("railwright", study),
}


def _number(value: float) -> str:
    """As short as it can be: 1.48e+13."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_yaml(v) for v in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}: {_yaml(v)}' for k, v in value.items())}}}"
    return str(value)
