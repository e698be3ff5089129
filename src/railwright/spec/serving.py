"""The part of a study file about serving: an engine on its GPUs, its clients, what they are promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Duration
from railwright.spec.section import Name, Section

Weights = Literal["bf16", "fp16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4"]
Count = Annotated[int, Field(gt=0)]


class ServingLayout(Section):
    """How one replica is cut over its GPUs: tensor x attention_data x context x pipeline of them."""

    tensor: Count = Field(default=1, description="tensor-parallel size of attention and dense layers, e.g. 8")
    pipeline: Count = Field(default=1, description="pipeline stages, one batch in flight for each")
    attention_data: Count = Field(
        default=1,
        description="attention data parallelism: groups of `tensor` GPUs that each hold their own requests "
        "and keys and values, while experts are spread over all of them",
    )
    expert: Count = Field(
        default=1,
        description="expert-parallel size: experts are dealt to so many parts of the tensor x attention_data "
        "GPUs of a stage, each part cut by tensor parallelism",
    )
    context: Count = Field(
        default=1, description="context-parallel size: ranks that share the tokens of one long prompt"
    )
    expert_exchange: Literal["auto", "all-to-all", "low-latency", "all-gather"] = Field(
        default="auto",
        description="how tokens meet experts of other GPUs: all-to-all (DeepEP normal kernels), low-latency "
        "(DeepEP low-latency kernels), all-gather with reduce-scatter; auto: as the engine does",
    )

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.attention_data * self.context * self.pipeline


class Client(Section):
    """Who sends requests, and when: one of the load generators' ways."""

    kind: Literal["closed-loop", "poisson", "constant", "batch", "trace"] = Field(
        default="closed-loop",
        description="closed-loop: `concurrency` requests are always in flight; poisson: requests arrive at "
        "random, `rate` a second; constant: evenly, `rate` a second; batch: `concurrency` requests at once, "
        "the next when all are done; trace: as a file says",
    )
    concurrency: Count | None = Field(
        default=None,
        description="closed-loop and batch: requests in flight; poisson, constant: at most so many; "
        "default: no bound",
    )
    rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="requests per second over all replicas, e.g. 12.5"
    )
    burstiness: Annotated[float, Field(gt=0)] = Field(
        default=1.0,
        description="poisson: shape of gamma-distributed gaps; 1 is Poisson, below 1 burstier",
    )
    requests: Count | None = Field(
        default=None, description="requests sent in all; default: ten for every one in flight, or the trace's"
    )
    input: Count = Field(default=1024, description="tokens of a prompt (the longest, with `spread`)")
    output: Count = Field(default=1024, description="tokens of an answer (the longest, with `spread`)")
    spread: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="lengths are uniform from (1 - spread) x to 1 x the above, e.g. 0.2 for [0.8, 1]",
    )
    trace: str | None = Field(
        default=None,
        description="file of requests (CSV or JSON lines, relative to this file): Azure, Mooncake, …",
    )
    speed: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description="trace: replayed so many times faster than it was recorded"
    )
    warmup: Annotated[int, Field(ge=0)] = Field(
        default=0, description="first requests that count in no statistic"
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of gaps and lengths")

    @property
    def open_rate(self) -> float | None:
        """At which requests come whether or not others are answered [1/s]; None where they wait."""
        return self.rate if self.kind in ("poisson", "constant") and self.concurrency is None else None


class Slo(Section):
    """What users are promised; a request that misses any of it is no goodput."""

    ttft: Duration | None = Field(default=None, description="time to the first token, e.g. '1 s'")
    tpot: Duration | None = Field(
        default=None, description="mean time per further token of one request, e.g. '50 ms'"
    )
    end_to_end: Duration | None = Field(default=None, description="time to the last token, e.g. '30 s'")
    percentile: Annotated[float, Field(gt=0, le=100)] = Field(
        default=99.0, description="share of requests that must meet each, in per cent"
    )


class Speculative(Section):
    """Tokens drafted ahead and checked by the model in one step."""

    tokens: Count = Field(description="tokens drafted for every step, e.g. 3")
    acceptance: Annotated[float, Field(ge=0, le=1)] = Field(
        description="chance that a drafted token is accepted, given that those before it were, e.g. 0.8"
    )
    draft: str | None = Field(
        default=None,
        description="model that drafts (bundled name or path); default: one more layer of the model itself "
        "for each token (MTP, EAGLE)",
    )


class SharedPrefix(Section):
    """Prompts that begin alike: system prompts, documents, turns of one conversation."""

    tokens: Count = Field(description="tokens that prompts of one group begin with, of `client.input`")
    groups: Count = Field(default=1, description="different beginnings; requests are spread over them")


class PrefillPool(Section):
    """Replicas that only compute prompts; keys and values then go to the others over the fabric."""

    replicas: Count = Field(default=1, description="replicas that prefill")
    layout: ServingLayout = ServingLayout()
    max_tokens: Count | None = Field(
        default=None, description="tokens of one prefill step at most; default: the engine's"
    )


class ServingJob(Section):
    """One model served by replicas of one engine, from the first server of the cluster on."""

    name: Name = Field(description="what to call the job, e.g. 'chat'")
    model: str = Field(description="bundled name ('llama-3.1-70b') or path of a Hugging Face config.json")
    engine: str = Field(
        default="vllm-2025",
        description="engine profile: its kernels, scheduler and overheads (docs/serving/engine.md), "
        "or path of a calibrated one (YAML)",
    )
    kernels: str | None = Field(
        default=None,
        description="file of kernels measured on this GPU, of `railwright kernels` (JSON, relative to this "
        "file); default: the shipped fits",
    )
    weights: Weights = Field(
        default="bf16",
        description="type of the weights and of products (fp8: a scale per tensor or channel; fp8_block: per "
        "128 x 128 block; nvfp4; mxfp4, int4, int8: weights only, products in bf16 where the GPU has no fp4)",
    )
    kv: Literal["bf16", "fp8"] = Field(default="bf16", description="type of keys and values in the cache")
    layout: ServingLayout = ServingLayout()
    replicas: Count = Field(default=1, description="copies of the engine (with `prefill`: those that decode)")
    router: Literal["round-robin", "least-loaded", "prefix-aware"] = Field(
        default="round-robin", description="which replica a request goes to"
    )
    prefill: PrefillPool | None = Field(
        default=None, description="disaggregation: prompts on replicas of their own; default: none"
    )
    servers: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None,
        description="numbers of the servers it runs on, in order; the first is 0, which is server-01 of the "
        "drawing and the output; default: from 0 on",
    )
    client: Client = Client()
    slo: Slo | None = Field(default=None, description="what users are promised; default: nothing")
    speculative: Speculative | None = Field(default=None, description="speculative decoding; default: none")
    shared_prefix: SharedPrefix | None = Field(
        default=None, description="prompts that begin alike; default: none"
    )
    prefix_cache: bool | None = Field(
        default=None,
        description="keep keys and values of finished prompts for others that begin alike; "
        "default: as the engine does",
    )
    max_batched_tokens: Count | None = Field(
        default=None,
        description="tokens of one step at most (vLLM max_num_batched_tokens, TensorRT-LLM max_num_tokens, "
        "SGLang chunked_prefill_size); default: the engine's",
    )
    max_requests: Count | None = Field(
        default=None,
        description="requests of one step at most (vLLM max_num_seqs, TensorRT-LLM max_batch_size, SGLang "
        "max_running_requests); default: the engine's",
    )
    max_length: Count | None = Field(
        default=None, description="longest request in tokens, prompt and answer; default: as the model allows"
    )
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="GPU memory the engine may use (vLLM gpu_memory_utilization); default: the engine's",
    )
    expert_imbalance: Annotated[float, Field(ge=1)] | None = Field(
        default=None,
        description="tokens of the busiest expert-parallel GPU over the mean, beyond chance; default: the "
        "engine's assumption",
    )

    def expert_load(self, ranks: int) -> float:
        """Tokens of the busiest of `ranks` expert-parallel GPUs over the mean: at most all of them."""
        return min(self.expert_imbalance or 1.0, float(ranks))


def serving_flaws(job: ServingJob) -> Iterator[tuple[tuple[str, ...], str]]:
    """What no single field of a serving job shows: (path within the job, what is wrong and what to write)."""
    client = job.client
    wanted = {"closed-loop": "concurrency", "batch": "concurrency", "poisson": "rate", "constant": "rate"}
    needed = wanted.get(client.kind, "trace")
    if getattr(client, needed) is None:
        yield ("client", needed), f"missing; a client of kind '{client.kind}' needs {_EXAMPLES[needed]}"
    for field, kinds in _READ_BY.items():
        # A null, and a default that a tool has written out, say nothing.
        given = getattr(client, field) != Client.model_fields[field].default
        if given and client.kind not in kinds:
            yield (
                ("client", field),
                f"is not read by a client of kind '{client.kind}'; write kind: {kinds[0]}",
            )
    if job.shared_prefix is not None and client.kind != "trace" and job.shared_prefix.tokens > client.input:
        said = f"{job.shared_prefix.tokens} is more than the prompt; client.input is {client.input}"
        yield ("shared_prefix", "tokens"), said
    for path, layout in (
        (("layout",), job.layout),
        (("prefill", "layout"), job.prefill and job.prefill.layout),
    ):
        if layout and (layout.tensor * layout.attention_data) % layout.expert:
            ranks = layout.tensor * layout.attention_data
            said = f"{layout.expert} does not divide tensor x attention_data = {ranks}"
            yield (*path, "expert"), said
    if job.slo is not None and job.slo.ttft is job.slo.tpot is job.slo.end_to_end is None:
        yield ("slo", "ttft"), "missing; an SLO needs one of ttft, tpot, end_to_end, e.g. ttft: '1 s'"


_READ_BY = {
    "trace": ("trace",),
    "rate": ("poisson", "constant"),
    "burstiness": ("poisson",),
    "speed": ("trace",),
}
"""Fields of a client that only some kinds read."""

_EXAMPLES = {
    "concurrency": "one, e.g. concurrency: 64",
    "rate": "one, e.g. rate: 12.5 (requests a second)",
    "trace": "a file, e.g. trace: requests.csv",
}
