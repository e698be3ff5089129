"""The space of a serving search: how replicas are cut, what engines are told, whether prompts go elsewhere.

A setting is one replica's layout and its engine's limits; a plan is how many replicas of which settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from railwright.errors import Mistake, PlanError, SpecError, nearest
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.profiles import Engine
from railwright.serving.engine.step import check_layout
from railwright.spec.serving import PrefillPool, ServingJob, ServingLayout, Weights

SIZES = ("tensor", "pipeline", "attention_data", "expert", "context")
LIMITS = ("max_batched_tokens", "max_requests", "chunked_prefill")
TYPES = ("weights", "kv")
AXES = (*SIZES, *LIMITS, "disaggregated", *TYPES)

PIPELINES = (1, 2, 4, 8)
"""Default stages: each adds a pass over a link to every token, so deep pipelines answer late."""
LONG_PROMPT = 16384
"""Tokens of a prompt from which context parallelism is tried by default: below, attention is too small a part
of a prefill step for its exchange to pay."""
CONTEXTS = (1, 2, 4, 8)
BUDGETS = (None, 2048, 16384)
"""Default tokens of a step: the engine's, fewer for steadier tokens, more for long prompts."""


@dataclass(frozen=True)
class Setting:
    """One replica: its layout, and what its engine is told; None: as the job says, or the engine does.

    chunked  whether prompts are cut to the token budget
    """

    layout: ServingLayout
    max_batched_tokens: int | None
    max_requests: int | None
    chunked: bool | None
    weights: Weights
    kv: str

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.layout.gpus


@dataclass(frozen=True)
class Plan:
    """Replicas of a setting, behind replicas of another that prefill where `prefill` is given."""

    setting: Setting
    replicas: int
    prefill: Setting | None = None
    prefill_replicas: int = 0

    @property
    def gpus(self) -> int:
        """Of all replicas, those that prefill among them."""
        ahead = self.prefill.gpus * self.prefill_replicas if self.prefill else 0
        return ahead + self.setting.gpus * self.replicas

    def job(self, job: ServingJob) -> ServingJob:
        """The job on this plan; whether prompts are cut is the engine's, not the job's."""
        one = self.setting
        ahead = None
        if self.prefill is not None:
            written = job.prefill.max_tokens if job.prefill else None
            most = self.prefill.max_batched_tokens or written
            ahead = PrefillPool(replicas=self.prefill_replicas, layout=self.prefill.layout, max_tokens=most)
        given = {
            "layout": one.layout,
            "replicas": self.replicas,
            "prefill": ahead,
            "weights": one.weights,
            "kv": one.kv,
            "max_batched_tokens": one.max_batched_tokens or job.max_batched_tokens,
            "max_requests": one.max_requests or job.max_requests,
        }
        return job.model_copy(update=given)

    def fits(self, per_server: int, available: int) -> bool:
        """Whether the replicas have room: one that fits a server does not cross its edge (`places`)."""
        at = 0
        ahead = [self.prefill.gpus] * self.prefill_replicas if self.prefill else []
        for size in [*ahead, *[self.setting.gpus] * self.replicas]:
            if at % per_server and at % per_server + size > per_server:
                at += per_server - at % per_server
            at += size
        return at <= available


@dataclass(frozen=True)
class ServingSpace:
    """Axes and their values; an axis that is not named has its default (docs/serving/search.md)."""

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any, name: str = "<memory>") -> ServingSpace:
        """A space from {axis: values}, as a YAML file holds it.

        Raises SpecError naming every axis that is not known, empty, or has a value that cannot be.
        """
        if not isinstance(given, Mapping):
            raise SpecError(
                [Mistake(name, 0, 0, "", "a space is a set of axes, like 'tensor: [1, 2, 4, 8]'")]
            )
        mistakes: list[Mistake] = []
        values: dict[str, tuple[Any, ...]] = {}
        for axis, raw in given.items():
            if axis not in AXES:
                hint = nearest(str(axis), AXES) or f"; axes are {', '.join(AXES)}"
                mistakes.append(Mistake(name, 0, 0, str(axis), f"there is no such axis{hint}"))
                continue
            found = tuple(raw) if isinstance(raw, list | tuple) else (raw,)
            if not found:
                mistakes.append(Mistake(name, 0, 0, axis, "the axis is empty; name a value, or leave it out"))
            mistakes += [Mistake(name, 0, 0, axis, said) for x in found if (said := _refusal(axis, x))]
            values[axis] = found
        if mistakes:
            raise SpecError(mistakes)
        return cls(values)

    def disaggregated(self) -> tuple[bool, ...]:
        """Whether prompts are computed on replicas of their own: no, and yes, by default."""
        return self.values.get("disaggregated", (False, True))


@dataclass(frozen=True)
class Settings:
    """Settings that the model can be cut into; `refused`: reason -> how many it cannot, with an example."""

    shared: tuple[Setting, ...]
    apart: tuple[Setting, ...]
    refused: Mapping[str, int]


def settings(
    job: ServingJob, arch: Transformer, engine: Engine, per_server: int, gpus: int, space: ServingSpace
) -> Settings:
    """Every setting of the space of at most `gpus` GPUs.

    shared  for replicas that do both
    apart   for those of disaggregation, whose token budgets are the job's: no decode waits for a prompt there
    """
    refused: Counter[str] = Counter()
    layouts: list[ServingLayout] = []
    for sizes in _sizes(job, arch, engine, per_server, gpus, space):
        layout = ServingLayout(**sizes, expert_exchange=job.layout.expert_exchange)
        try:
            check_layout(job, arch, layout)
        except PlanError as error:
            refused[str(error)] += 1
            continue
        layouts.append(layout)
    kinds = [
        (weights, kv)
        for weights in space.values.get("weights", (job.weights,))
        for kv in space.values.get("kv", (job.kv,))
    ]
    budgets = space.values.get("max_batched_tokens") or _budgets(job, engine)
    most = space.values.get("max_requests", (None,))
    chunked = space.values.get("chunked_prefill", (None,))
    shared = tuple(
        Setting(layout, tokens, requests, cut, *kind)
        for layout in layouts
        for tokens in budgets
        for requests in most
        for cut in chunked
        for kind in kinds
    )
    apart = tuple(
        Setting(layout, None, requests, None, *kind)
        for layout in layouts
        for requests in most
        for kind in kinds
    )
    return Settings(
        shared if False in space.disaggregated() else (),
        apart if True in space.disaggregated() and engine.scheduler != "static" else (),
        dict(refused),
    )


def _budgets(job: ServingJob, engine: Engine) -> tuple[int | None, ...]:
    """A budget the job names is kept; a static batch has none."""
    if job.max_batched_tokens is not None or engine.scheduler == "static":
        return (None,)
    return tuple(b for b in BUDGETS if b != engine.token_budget)


def _sizes(
    job: ServingJob, arch: Transformer, engine: Engine, per_server: int, gpus: int, space: ServingSpace
) -> Iterator[dict[str, int]]:
    tensors = space.values.get("tensor") or [
        t for t in range(1, gpus + 1) if arch.heads % t == 0 and (per_server % t == 0 or t % per_server == 0)
    ]
    pipelines = space.values.get("pipeline") or [p for p in PIPELINES if p <= arch.layers]
    if engine.scheduler == "static":
        pipelines = [p for p in pipelines if p == 1]
    contexts = space.values.get("context") or (CONTEXTS if job.client.input >= LONG_PROMPT else (1,))
    attention = space.values.get("attention_data") or [
        d for d in range(1, gpus + 1) if d & (d - 1) == 0 and (arch.is_moe or d == 1)
    ]
    for tensor in tensors:
        for pipeline in pipelines:
            for data in attention:
                for context in contexts:
                    if tensor * pipeline * data * context > gpus:
                        continue
                    if engine.kernels == "trtllm" and data > 1 < tensor:
                        # Its attention data parallelism leaves every rank a whole attention.
                        continue
                    group = tensor * data
                    for expert in space.values.get("expert") or _experts(arch, engine, group):
                        if group % expert == 0:
                            yield {
                                "tensor": tensor,
                                "pipeline": pipeline,
                                "attention_data": data,
                                "context": context,
                                "expert": expert,
                            }


def _experts(arch: Transformer, engine: Engine, group: int) -> Iterable[int]:
    """Sizes an engine can run: vLLM and SGLang one or all GPUs of a stage, TensorRT-LLM any."""
    if not arch.is_moe or group == 1:
        return (1,)
    sizes = range(1, group + 1) if engine.kernels == "trtllm" else (1, group)
    return [e for e in sizes if group % e == 0 and arch.experts % e == 0]


def _refusal(axis: str, value: Any) -> str | None:
    """Why a value cannot be; None where it can."""
    if axis in ("chunked_prefill", "disaggregated"):
        return None if isinstance(value, bool) else f"{value!r} is not true or false"
    if axis == "weights":
        known = get_args(Weights)
        return None if value in known else f"{value!r} is not one of {', '.join(known)}"
    if axis == "kv":
        return None if value in ("bf16", "fp8") else f"{value!r} is not one of bf16, fp8"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return None
    return f"{value!r} is not a whole number above 0"
