"""Clients: who sends requests of which lengths, and when; the load generators' ways, as their sources say.

Legend: N requests in the order they are sent; H different parts of prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.serving.clients.trace_files import read_trace
from railwright.spec.serving import Client, SharedPrefix

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

OPEN_LOOP_REQUESTS = 1000
"""Requests of an open-loop run where nobody says how many. Source: vLLM `bench serve`, --num-prompts."""
PER_SLOT = 10
"""Requests of a closed-loop run for each in flight. Source: InferenceX, num_prompts = conc * 10."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests as a client sends them.

    arrival      (N,) seconds from the start at which each would be sent, rising
    prompt       (N,) tokens
    output       (N,) tokens
    concurrency  requests in flight at most, 0: no bound; one that would be more waits for another to end
    waves        `concurrency` are sent at once, and the next when all of them have ended
    warmup       first requests that count in no statistic
    part_ptr     (N + 1,) CSR of the prefix of each prompt: parts of `part_tokens` tokens others may share
    parts        ids from 0 to H - 1
    part_tokens  tokens of one part
    """

    arrival: Floats
    prompt: Longs
    output: Longs
    concurrency: int
    waves: bool
    warmup: int
    part_ptr: Longs
    parts: Longs
    part_tokens: int

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def rate(self) -> float:
        """Requests a second as they would be sent; infinite where all would be at once."""
        span = float(self.arrival[-1] - self.arrival[0]) if len(self) > 1 else 0.0
        return (len(self) - 1) / span if span > 0 else float("inf")


def workload(client: Client, shared: SharedPrefix | None = None, folder: Path | None = None) -> Workload:
    """The requests of a client; the same for the same seed.

    folder  where a relative path of a trace starts; default: the working directory

    Raises RailwrightError where a trace cannot be read.
    """
    made = _replayed(client, folder) if client.kind == "trace" else _generated(client)
    if client.warmup >= len(made):
        raise PlanError(
            f"All {len(made)} requests are warm-up (client.warmup: {client.warmup}); none is left to count"
        )
    if shared is not None and made.part_tokens == 0:
        made = _sharing(made, shared, client.seed)
    return made


def lengths(client: Client, num: int) -> tuple[Longs, Longs]:
    """Tokens of prompts and answers, uniform from (1 - spread) x to 1 x what is asked, ends included.

    The same numbers as benchmark_serving.py draws with the same seed: numpy's legacy generator, all prompts
    first. Source: SemiAnalysisAI/InferenceX, utils/bench_serving/benchmark_serving.py, sample_random_requests
    (range ratio r there is 1 - spread; int(len * r) to len).
    """
    draw = np.random.RandomState(client.seed)
    low = tuple(max(int(n * (1.0 - client.spread) + 1e-9), 1) for n in (client.input, client.output))
    return (
        draw.randint(low[0], client.input + 1, size=num).astype(np.int64),
        draw.randint(low[1], client.output + 1, size=num).astype(np.int64),
    )


def arrivals(client: Client, num: int) -> Floats:
    """(N,) when an open-loop client sends [s]: the first at once, then gaps of mean 1 / rate.

    Source: vLLM benchmarks/benchmark_serving.py, get_request: gaps are gamma-distributed with shape
    `burstiness`, which at 1 is a Poisson process.
    """
    if client.kind == "constant":
        assert client.rate is not None
        return np.arange(num) / client.rate
    if client.kind != "poisson":
        return np.zeros(num)
    assert client.rate is not None
    draw = np.random.default_rng(client.seed)
    gaps = draw.gamma(client.burstiness, 1.0 / (client.rate * client.burstiness), size=num - 1)
    return np.concatenate([[0.0], np.cumsum(gaps)])


def no_parts(num: int) -> tuple[Longs, Longs]:
    """CSR of requests that share nothing."""
    return np.zeros(num + 1, np.int64), np.zeros(0, np.int64)


def _generated(client: Client) -> Workload:
    in_flight = client.concurrency or 0
    if client.requests is not None:
        num = client.requests
    elif client.kind == "batch":
        num = in_flight
    elif client.kind == "closed-loop":
        num = PER_SLOT * in_flight
    else:
        num = OPEN_LOOP_REQUESTS
    prompt, output = lengths(client, num)
    return Workload(
        arrivals(client, num),
        prompt,
        output,
        in_flight,
        client.kind == "batch",
        client.warmup,
        *no_parts(num),
        0,
    )


def _replayed(client: Client, folder: Path | None) -> Workload:
    assert client.trace is not None
    path = Path(client.trace)
    if folder is not None and not path.is_absolute():
        path = folder / path
    trace = read_trace(path, client.requests)
    return Workload(
        trace.arrival / client.speed,
        trace.prompt,
        trace.output,
        client.concurrency or 0,
        False,
        client.warmup,
        trace.part_ptr,
        trace.parts,
        trace.part_tokens,
    )


def _sharing(made: Workload, shared: SharedPrefix, seed: int) -> Workload:
    """Each prompt begins with that of its group, drawn evenly; shorter prompts share nothing."""
    group = np.random.default_rng([seed, 1]).integers(0, shared.groups, size=len(made))
    shares = made.prompt >= shared.tokens
    ptr = np.concatenate([[0], np.cumsum(shares)]).astype(np.int64)
    return replace(made, part_ptr=ptr, parts=group[shares].astype(np.int64), part_tokens=shared.tokens)
