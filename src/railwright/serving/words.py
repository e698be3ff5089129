"""The answer in sentences: are promises kept, how fast, what is in the way, is it the network."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

from railwright.serving.result import Parts, ServingResult
from railwright.serving.simulator.simulate import Run
from railwright.spec.serving import ServingJob
from railwright.units import number, show_time

CHAT_TTFT, CHAT_TPOT = 1.0, 0.050
"""What most users ask who promise nothing: a first token within 1 s, then one in 50 ms."""

WORTH_SAYING = 1.05
"""Output tokens while the load lasts over those of the whole run, from which both are said."""

FULL = 0.99
"""Share of blocks in use from which keys and values count as full."""


def answer(result: ServingResult, notes: tuple[str, ...] = ()) -> ServingResult:
    """The result with its words; `notes` on the model come last."""
    kept = _chat(result) if result.slo is None else _verdict(result)
    words = [kept, _pace(result), result.bottleneck, *_memory(result), *notes]
    return replace(result, words=tuple(words))


def _chat(result: ServingResult) -> str:
    """The answer where nothing is promised."""
    # An answer of one token has no time per token, and so keeps any.
    more = not isnan(result.tpot.mean)
    token = f" and a token takes {show_time(result.tpot.p99)}" if more else ""
    said = f"TTFT is {show_time(result.ttft.p99)}{token} at p99"
    missed = [
        text
        for text, latency, bound in (
            ("1 s to the first token", result.ttft, CHAT_TTFT),
            ("50 ms per token", result.tpot, CHAT_TPOT),
        )
        if latency.p99 > bound
    ]
    if not missed:
        return f"Yes: within 1 s to the first token and 50 ms per token for 99 % of requests ({said})."
    in_mean = result.ttft.mean > CHAT_TTFT or result.tpot.mean > CHAT_TPOT
    mean = "in the mean too" if in_mean else "in the mean it keeps both"
    return f"No: it misses {' and '.join(missed)} for 99 % of requests ({said}); {mean}."


def _pace(result: ServingResult) -> str:
    replicas = f"{result.replicas} replica{'s' if result.replicas > 1 else ''}"
    if result.prefill_replicas:
        replicas += (
            f" behind {result.prefill_replicas} that prefill{'s' if result.prefill_replicas == 1 else ''}"
        )
    return (
        f"{replicas} on {result.gpus} {result.gpu} give {result.tokens_per_second:,.0f} output tokens/s, "
        f"{result.tokens_per_second_per_gpu:,.0f} per GPU, from {result.throughput.requests:.3g} requests/s"
        f"{_while_it_lasts(result)}."
    )


def _while_it_lasts(result: ServingResult) -> str:
    """Where the ends of a finite run are in its mean, what it gives between them."""
    done = result.throughput
    if done.lasting < WORTH_SAYING * done.output_tokens:
        return ""
    return (
        f" over {result.requests:,} requests, from the first sent to the last answered; while the load lasts "
        f"{done.lasting:,.0f} output tokens/s, {done.lasting / result.gpus:,.0f} per GPU"
    )


def _verdict(result: ServingResult) -> str:
    """Whether the study's own promises are kept."""
    missed = [p for p in result.promises if not p.kept]
    # Answers of one token have no time per token; the promise of it is kept and has no figure.
    told = ", ".join(
        f"{p.what} is {show_time(p.value)} at p{p.percentile:g} of {show_time(p.bound)} promised"
        for p in missed or result.promises
        if p.value > 0.0
    )
    meet = f"{100 * (result.good or 0):.1f} % of requests meet all of it"
    if missed:
        return f"No, the SLO is missed: {told}; {meet}, {result.goodput or 0:.3g} a second."
    return f"Yes, the SLO is kept: {f'{told}; ' if told else ''}{meet}."


def _memory(result: ServingResult) -> list[str]:
    if result.cache.preemptions and result.run.fleet.outages and result.cache.peak < FULL:
        return [f"{number(result.cache.preemptions, 'request')} lost with a replica computed again."]
    if result.cache.preemptions:
        return [
            f"Keys and values do not fit: {result.cache.preemptions} times a request was preempted and "
            "computed again. Fewer requests at once (max_requests), fp8 keys and values or more GPUs help."
        ]
    if result.cache.peak >= FULL:
        return ["Keys and values fill all their memory at times: requests wait for room."]
    return []


def bottleneck(job: ServingJob, first: Parts, each: Parts, run: Run, across: bool) -> str:
    """One sentence: the largest parts of TTFT and TPOT, and whether they are the network's."""
    said = []
    if each.parts:
        name, seconds = max(each.parts.items(), key=lambda part: part[1])
        said.append(f"a token's largest part is {name} ({100 * seconds / each.total:.0f} %)")
    name, seconds = max(first.parts.items(), key=lambda part: part[1])
    said.append(f"TTFT's is {name} ({100 * seconds / first.total:.0f} %)")
    sentence = " and ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}. {_network(first, each, across)}"


def _network(first: Parts, each: Parts, across: bool) -> str:
    token = each.network / each.total if each.parts else 0.0
    moved = first.network / first.total if first.total else 0.0
    where = "over the fabric between servers" if across else "over NVLink inside a server"
    if moved >= 0.3:
        return (
            "The network is a bottleneck: moving keys and values between replicas takes "
            f"{100 * moved:.0f} % of TTFT."
        )
    if token >= 0.3:
        what = (
            "The network is a bottleneck" if across else "NVLink, not the cluster's network, is a bottleneck"
        )
        return f"{what}: collectives {where} take {100 * token:.0f} % of a token's time."
    if token == 0.0 and moved == 0.0:
        return "The network plays no part: each replica is one GPU."
    parts = [f"collectives {where} take {100 * token:.0f} % of a token's time"]
    if moved:
        parts.append(f"moving keys and values {100 * moved:.0f} % of TTFT")
    return f"The network is not the bottleneck: {', '.join(parts)}."
