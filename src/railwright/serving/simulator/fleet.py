"""What serves: pools of like replicas, each an engine with its step table and scheduler; routing; losses.

Legend: V replicas, numbered pool by pool; L links that transfers may be held up by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.serving.clients.client import Workload
from railwright.serving.engine.table import StepTable

Policy = Literal["mixed", "prefill-first", "static"]
Router = Literal["round-robin", "least-loaded", "prefix-aware"]
Role = Literal["both", "prefill", "decode"]


@dataclass(frozen=True)
class Scheduler:
    """How an engine fills its steps.

    policy         'mixed': decoders and parts of prompts in one step (vLLM v1, TensorRT-LLM in flight);
                   'prefill-first': waiting prompts in steps of their own, before decodes (SGLang, vLLM v0);
                   'static': a batch starts together, and the next when its longest answer has ended
    token_budget   tokens of one step; a static batch has none
    max_requests   requests that run at once
    whole_prompts  prompts are not cut: one longer than the budget has a step to itself
    reserves       room for the whole answer is kept from the start, so that nobody is preempted
    prefix_cache   keys and values of prefixes stay for others until the room is needed
    hold_steps     while others decode, new prompts wait so many of their steps at most, until with the
                   decoders they are `hold_tokens` (TensorRT-LLM: batch_wait_timeout_iters); 'mixed' alone
    ahead          what is in a step is settled when the step before begins: a request that comes later than
                   that misses it, while others are computed (asynchronous, overlapping schedulers)
    """

    policy: Policy = "mixed"
    token_budget: int = 8192
    max_requests: int = 256
    whole_prompts: bool = False
    reserves: bool = False
    prefix_cache: bool = False
    hold_steps: int = 0
    hold_tokens: int = 0
    ahead: bool = False


@dataclass(frozen=True)
class Speculation:
    """Tokens drafted ahead.

    drafted     for every step
    acceptance  chance that one is accepted, given that those before it were
    """

    drafted: int
    acceptance: float

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a step: 1 + a + a^2 + … + a^drafted.

        Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), eq. 1.
        """
        return float(sum(self.acceptance**k for k in range(self.drafted + 1)))


@dataclass(frozen=True)
class Pool:
    """Like replicas of one engine.

    role  'both', or under disaggregation 'prefill' and 'decode'
    """

    table: StepTable
    scheduler: Scheduler
    replicas: int = 1
    role: Role = "both"
    speculation: Speculation | None = None


@dataclass(frozen=True, eq=False)
class Transfers:
    """What keys and values cross from prefill to decode replicas (`cluster.transfers`).

    ptr, link, weight  CSR: row i * (decode replicas) + j is the way from prefill replica i to decoder j,
                       the rows after that other jobs' standing traffic; a byte of the transfer puts `weight`
                       bytes on the link
    capacity     (L,) bytes/s
    latency      from the last byte sent to its arrival [s]
    token_bytes  keys and values of one token [byte]
    names        (L,) one link of each class of links that no transfer tells apart
    """

    ptr: NDArray[np.int64]
    link: NDArray[np.int64]
    weight: NDArray[np.float64]
    capacity: NDArray[np.float64]
    latency: float
    token_bytes: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outage:
    """A replica is lost at `at` seconds and back, empty, at `until`."""

    replica: int
    at: float
    until: float

    def back(self) -> Outage:
        """Its return, as an event."""
        return replace(self, at=self.until)


@dataclass(frozen=True)
class Fleet:
    """All replicas behind one router; a prefill pool comes before the decode pool."""

    pools: tuple[Pool, ...]
    router: Router = "round-robin"
    transfers: Transfers | None = None
    outages: tuple[Outage, ...] = ()

    @property
    def num_replicas(self) -> int:
        return sum(pool.replicas for pool in self.pools)


def check(work: Workload, fleet: Fleet) -> None:
    """Raise PlanError, with all that cannot work."""
    flaws = list(_flaws(work, fleet))
    if flaws:
        raise PlanError("\n".join(flaws))


def _flaws(work: Workload, fleet: Fleet) -> Iterator[str]:
    roles = tuple(pool.role for pool in fleet.pools)
    if roles not in (("both",), ("prefill", "decode")):
        yield f"A fleet is one pool of role 'both', or a 'prefill' and a 'decode' pool; this one is {roles}."
    longest = int((work.prompt + work.output).max())
    for pool in fleet.pools:
        held = pool.table.kv_tokens // pool.table.block * pool.table.block
        need = int(work.prompt.max()) + pool.table.block if pool.role == "prefill" else longest
        if need > held:
            yield (
                f"A request needs {need:,} tokens of keys and values and a replica for '{pool.role}' holds "
                f"{held:,} beside the weights; use more GPUs per replica, fp8 keys and values, or shorter "
                "requests."
            )
        plan = pool.scheduler
        queries = pool.speculation.drafted + 1 if pool.speculation else 1
        if plan.policy == "mixed" and plan.token_budget < min(plan.max_requests, len(work)) * queries:
            yield (
                f"A step of {plan.token_budget} tokens cannot hold one decode of each of {plan.max_requests} "
                f"requests ({queries} tokens each); raise max_batched_tokens or lower max_requests."
            )
        if plan.policy == "static" and (pool.table.stages > 1 or pool.role != "both"):
            yield "A static batch runs on one pipeline stage and without disaggregation."
    for outage in fleet.outages:
        if not 0 <= outage.replica < fleet.num_replicas:
            yield f"Replica {outage.replica} is lost, but they run from 0 to {fleet.num_replicas - 1}."
        if not 0 <= outage.at < outage.until:
            yield f"Replica {outage.replica} is lost from {outage.at} s to {outage.until} s: not an interval."
    if work.concurrency and work.waves and work.arrival.max() > 0:
        yield "Waves of requests are sent as soon as the wave before has ended; their arrivals must be 0."
