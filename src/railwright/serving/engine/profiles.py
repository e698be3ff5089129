"""Engine profiles: what an inference engine of some time runs, how it schedules, what its host costs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from railwright.catalog.parts import Gpu
from railwright.errors import Mistake, PlanError, SpecError, nearest
from railwright.shipped import read_data
from railwright.spec.serving import ServingJob

Scheduler = Literal["mixed", "prefill-first", "static"]
AllReduce = Literal["custom", "nccl"]

LARGE = 70 * 2.0**30
"""Memory from which vLLM takes its larger defaults, except on A100 (vllm/engine/arg_utils.py) [byte]."""


@dataclass(frozen=True)
class Engine:
    """One engine at one time; data/engines.yaml says where each value comes from.

    kernels         whose measured kernels: 'vllm', 'trtllm' or 'sglang'
    first_release, last_release  of the engine that the profile is of, '' for open
    scheduler       mixed: prefill chunks ride with decodes; prefill-first: new prompts before decodes, in
                    steps of their own; static: a batch starts and ends together
    whole_prompts   prompts are not cut to the token budget
    reserves        a request is admitted only when its whole answer has room, so none is preempted
    token_budget, max_requests   of one step;  small_* on GPUs below LARGE memory and on A100, 0: the same
    memory_fraction  of the GPU's memory, or of what weights and activations leave free (`of_free`)
    reserve         CUDA context, communication buffers, graphs, beyond weights and activations [byte]
    reserve_group   more of it where a replica has several GPUs [byte]
    logit           bytes of memory for each logit while a step samples, all copies together
    block           tokens of one block of keys and values
    prefix_cache    finished prompts' keys and values are kept for others
    windowed_cache  layers with a sliding window keep only their window
    hold_steps      decode steps that new prompts wait for others at most, until they and the decoders are
                    `hold_share` of the token budget
    all_reduce      custom: the engine's own kernel inside one NVLink domain; nccl: always NCCL
    fused_norms     norms run inside the all-reduce or the products next to them, while the
                    all-reduce's bytes times its GPUs are at most `fused_bytes`
    reduces         whose all-reduce an engine runs up to that size ('trtllm'), '': its own
    static_scales   activations are quantised by the checkpoint's scales, which need not be found
    quantise_apart  activations that no norm in an all-reduce gives are quantised by kernels of their own
    graphs          most requests of a decode step that is one replayed CUDA graph, 0: launched one by one
    mixed_graphs    the same for tokens of a step with prefill
    launches        kernels of one layer that the host launches where there is no graph
    launch          host time of one such launch [s];  launch_collective  of one collective;  prompt_launch
                    of a layer's attention of prompts, beyond that of decodes
    collective_wait  what each collective waits for the latest of the ranks' processes, outside graphs: times
                    H(n) - 1 over n ranks, the mean maximum of n exponential delays [s]
    attention_pace  time of decode attention over that of the kernels measured
    splits_context  decode attention splits one request's context over multiprocessors (flash decoding)
    plans           prefill runs at the pace of a TensorRT plan of 2024 (data/plans.yaml)
    eager           prefill is that of eager PyTorch of 2023: its pace (data/eager.yaml), collectives that
                    wait for launches only, and hold their buffers until they have run (engine/held.py)
    narrow_prefill  attention of prompts works in fp8 where keys and values are cached so
    host_step, host_request   host time of a step and of each request in it: schedule, inputs, sampled tokens
                    [s];  overlaps  the host prepares a step while the GPU runs the one before
    schedules_ahead  a step is put together when the one before begins, so that later requests miss it
    step            GPU time of a step outside the model's layers: sampling, copies of inputs [s]
    request         tokenizer, HTTP, queues, of a request before its first step and after [s]
    intake          how long each request holds the frontend's one process, which they pass one by one [s]
    balances        prompts wait until all attention-data groups have some, so that these are dealt evenly
    expert_exchange  how tokens meet experts of other GPUs under attention data parallelism
    decode_time, prefill_time  GPU time of decode steps and of steps with prefill over what measured kernels
                    say; 1 but in a calibrated profile (`railwright calibrate`)
    sources         field name -> where its value comes from; '*' for the rest
    """

    name: str
    what: str
    kernels: str
    scheduler: Scheduler
    token_budget: int
    max_requests: int
    memory_fraction: float
    host_step: float
    host_request: float
    overlaps: bool
    request: float
    graphs: int
    launches: int
    launch: float
    launch_collective: float
    first_release: str = ""
    last_release: str = ""
    prompt_launch: float = 0.0
    whole_prompts: bool = False
    reserves: bool = False
    small_token_budget: int = 0
    small_max_requests: int = 0
    of_free: bool = False
    reserve: float = 1.5e9
    reserve_group: float = 0.0
    logit: float = 8.0
    block: int = 16
    prefix_cache: bool = True
    windowed_cache: bool = True
    hold_steps: int = 0
    hold_share: float = 1.0
    all_reduce: AllReduce = "custom"
    fused_norms: bool = False
    fused_bytes: float = 1e18
    reduces: str = ""
    quantise_apart: bool = False
    static_scales: bool = False
    mixed_graphs: int = 0
    step: float = 50e-6
    collective_wait: float = 0.0
    attention_pace: float = 1.0
    splits_context: bool = True
    intake: float = 0.0
    schedules_ahead: bool = False
    narrow_prefill: bool = True
    plans: bool = False
    eager: bool = False
    balances: bool = False
    expert_exchange: Literal["all-to-all", "low-latency", "all-gather"] = "all-gather"
    decode_time: float = 1.0
    prefill_time: float = 1.0
    sources: dict[str, str] = field(default_factory=dict, compare=False, hash=False)

    def limits(self, job: ServingJob, gpu: Gpu) -> tuple[int, int]:
        """Tokens and requests of one step at most: the job's, else the engine's defaults on this GPU."""
        small = gpu.hbm_bytes < LARGE or gpu.name.startswith("a100")
        tokens = self.small_token_budget if small and self.small_token_budget else self.token_budget
        requests = self.small_max_requests if small and self.small_max_requests else self.max_requests
        return job.max_batched_tokens or tokens, job.max_requests or requests


def engine_of(job: ServingJob) -> Engine:
    """The profile a job names: a shipped one, or a YAML file with some of its fields over a shipped `base`.

    Raises PlanError for an unknown name, with the nearest; SpecError for a file that is not a profile.
    """
    known = engines()
    if job.engine in known:
        return known[job.engine]
    path = Path(job.engine)
    if path.suffix in (".yaml", ".yml"):
        return read_profile(path)
    raise PlanError(
        f"{job.name}: engine '{job.engine}' is not a known profile{nearest(job.engine, known)}; "
        f"choose one of {', '.join(known)}, or the path of a YAML profile."
    )


def read_profile(path: Path) -> Engine:
    """A profile from a user's file: `base` names a shipped profile, the other fields replace its own.

    Raises SpecError naming file and field for whatever is wrong in it.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        plain = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"cannot be read ({error.strerror}); an engine is a shipped profile's name or such a file."
        raise SpecError([Mistake(str(path), 0, 0, "", reason)]) from None
    except (YAMLError, UnicodeDecodeError):
        raise SpecError(
            [Mistake(str(path), 0, 0, "", "is not YAML; write one 'field: value' a line.")]
        ) from None
    base = plain.get("base") if isinstance(plain, dict) else None
    if base not in engines():
        said = f"missing or unknown; write one of {', '.join(engines())}"
        raise SpecError([Mistake(str(path), 0, 0, "base", said)])
    given = {name: value for name, value in plain.items() if name != "base"}
    return _engine(path.stem, {**_rows()[base], **given}, str(path))


@cache
def engines() -> dict[str, Engine]:
    """All shipped profiles by name, oldest first in each family."""
    return {name: _engine(name, row, "engines.yaml") for name, row in _rows().items()}


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = read_data("serving", "engines.yaml")["engines"]
    found: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        like = found.get(row.get("like", ""), {})
        own = {key: value for key, value in row.items() if key != "like"}
        found[name] = {**like, **own, "sources": {**like.get("sources", {}), **own.get("sources", {})}}
    return found


def _engine(name: str, row: dict[str, Any], file: str) -> Engine:
    types, known = get_type_hints(Engine), [f.name for f in fields(Engine)]
    mistakes: list[Mistake] = []
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in known or key == "name":
            mistakes.append(
                Mistake(file, 0, 0, key, "not a field of an engine profile" + nearest(key, known))
            )
            continue
        wanted = types[key]
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        choices = get_args(wanted) if getattr(wanted, "__origin__", None) is Literal else ()
        plain = dict if key == "sources" else str if choices else wanted
        if not isinstance(value, plain) or (plain is int and isinstance(value, bool)):
            mistakes.append(Mistake(file, 0, 0, key, f"{value!r} is not allowed; write a {plain.__name__}"))
        elif choices and value not in choices:
            mistakes.append(Mistake(file, 0, 0, key, f"'{value}' is not one of {', '.join(choices)}"))
        elif isinstance(value, int | float) and value < 0:
            mistakes.append(Mistake(file, 0, 0, key, f"{value} is negative"))
        values[key] = value
    if mistakes:
        raise SpecError(mistakes)
    return Engine(name=name, **values)
