"""The growth path in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from railwright.growth.fitting import answer_tokens
from railwright.growth.networks import slowest_enough
from railwright.growth.parts import constant
from railwright.growth.result import Growth, NetworkRow, Rung
from railwright.units import DAY, HOUR, HOURS_OF_YEAR, show_count, show_time

WEEK = 7 * DAY
FAR = 10.0
"""Years beyond which a date says nothing."""


def answered(growth: Growth) -> Growth:
    """The same, with its answer and its notes in words."""
    return replace(growth, words=tuple(_words(growth)), notes=tuple(_notes(growth)))


def _words(growth: Growth) -> Iterator[str]:
    ask, rung = growth.ask, growth.rungs[growth.now]
    fit = rung.fit
    assert fit is not None
    if ask.rate is None:
        people = f"{ask.users} {'person' if ask.users == 1 else 'people'}"
        yield (
            f"Now: a {rung.title}{machines_words(rung)}. {people} at {ask.gpu_hours:g} GPU-hours a week keep "
            f"{gpus_words(rung.load)} of its {rung.gpus:,} GPUs busy; a job takes {fit.gpus:,}, and waits "
            f"{wait_words(rung.wait)} of its own length on average."
        )
    else:
        assert rung.pace is not None
        yield (
            f"Now: a {rung.title}{machines_words(rung)}. {requests_words(ask.rate)} of {ask.sequence:,} "
            f"tokens, {answer_tokens(ask):,} of them answers, keep {gpus_words(rung.load)} of its "
            f"{rung.gpus:,} GPUs busy; a replica takes {fit.group:,}, of {rung.pace.rate.middle:,.0f} "
            "tokens a second each."
        )
    for small in growth.rungs[: growth.now]:
        yield f"A {small.title} is too small: {too_small(small, ask.rate is not None)}."
    yield _next(growth)
    yield from _money(growth)
    yield _network(growth)


def _next(growth: Growth) -> str:
    """What makes them move on, and when."""
    rung = growth.rungs[growth.now]
    ask = growth.ask
    if ask.rate is None:
        reason = f"jobs wait {percent(constant('wait_share'))} of their own length"
    else:
        reason = f"replicas are {percent(constant('service_share'))} busy"
    reason += f", at {gpus_words(rung.most)} GPUs busy"
    after = next((r for r in growth.rungs[growth.now + 1 :] if r.fit is not None), None)
    to = f"a {after.title}{machines_words(after)}" if after else "more servers in the same cluster"
    if math.isinf(rung.outgrown):
        change = "does not grow" if ask.growth == 0 else "shrinks"
        return f"Next: {to}, once {reason}; the load {change}, so nothing makes you move."
    if ask.rate is None:
        whose = f"about {math.ceil(ask.users * rung.most / rung.load):,} people"
    else:
        whose = requests_words(ask.rate * rung.most / rung.load)
    return f"Next: {to}, {years_words(rung.outgrown)}, with {whose}: by then {reason}."


def _money(growth: Growth) -> Iterator[str]:
    """The step owned against the same GPU-hours rented."""
    rung = growth.rungs[growth.now]
    if rung.monthly is None:
        return
    owned = f"owned it costs {dollars(rung.monthly)} a month over {constant('owned'):g} years (nobody's time)"
    if rung.rent is None:
        yield f"Money: {owned}; no cloud of the price book has {rung.gpu}."
        return
    rented = rung.rent.price * rung.used * HOURS_OF_YEAR / 12
    pays = rung.rent.pays
    yield (
        f"Money: {owned}, the same GPU-hours rented {dollars(rented)} ({dollars(rung.rent.price)} each, "
        f"{rung.rent.cloud} on demand). "
        + (
            "Owning never pays against that."
            if math.isinf(pays)
            else f"Owning pays above {gpus_words(pays)} GPUs in use on average; {gpus_words(rung.used)} are, "
            "so " + ("owning is cheaper today." if rung.used > pays else "renting is cheaper today.")
        )
    )


def _network(growth: Growth) -> str:
    """Which network, and what asks for it."""
    rung = growth.rungs[growth.now]
    data = (
        f"{rung.data_network} to storage carries "
        f"{'the weights' if growth.ask.task in ('inference', 'lora') else 'an hourly checkpoint'} within "
        f"{constant('network_share') * constant('save_interval') / 60:g} minutes"
    )
    gpus, servers = growth.across
    fastest = growth.networks[-1] if growth.networks else None
    enough = slowest_enough(growth.networks)
    if fastest is None:
        return f"Network: {data}; {growth.no_network}."
    share = percent(constant("network_share"))
    if growth.ask.task == "inference" and not growth.spans:
        return f"Network: {data}; a replica stays inside one server, so no request crosses the network."
    if enough is None:
        table = f"not even {fastest.name} keeps what that costs within {share} ({_cost(fastest)} there)"
    else:
        table = f"{enough.name} is the slowest that keeps what that costs within {share} ({_cost(enough)})"
    if growth.spans:
        return (
            f"Network: a job spans {servers} servers ({gpus:,} GPUs), which wait for traffic between them; "
            f"{table}; {data}."
        )
    return (
        f"Network: {data}, and no job leaves its server; if one takes {servers} servers ({gpus} GPUs), GPUs "
        f"wait for traffic between them; {table}."
    )


def _cost(row: NetworkRow) -> str:
    """What a network costs against the fastest, waits or the layout it forces."""
    return percent(max(row.exposed, 1.0 - row.relative))


def _notes(growth: Growth) -> Iterator[str]:
    ask = growth.ask
    if ask.rate is None:
        yield (
            "GPU-hours count as stated on every step; faster GPUs of a later step do the same work in fewer."
        )
        yield (
            "Waits are those of jobs sent at random around the clock (Erlang C); people who send all of "
            "theirs in office hours wait longer."
        )
    else:
        yield (
            "The rate is taken to last; whether a promise of latency is kept at it, a study says "
            "(railwright search STUDY --serving)."
        )
    yield (
        "Reserved and spot machines, colocation, and owned machines for the base with rented ones for the "
        "peaks: railwright cost, of a study with this step."
    )
    rung = growth.rungs[growth.now]
    fit = rung.fit
    if growth.positions and ask.sequence > growth.positions:
        yield (
            f"{ask.model} was made for {growth.positions:,} tokens; sequences of {ask.sequence:,} are beyond."
        )
    if fit is not None and fit.gpus > ask.job_gpus:
        yield (
            f"A job asks for {ask.job_gpus:,} GPU{'s' if ask.job_gpus > 1 else ''}, but takes {fit.gpus:,} "
            f"on a {rung.title} (memory, or whole servers)."
        )
    if rung.run_time is not None and fit is not None and ask.tokens is not None:
        weekly = ask.users * ask.gpu_hours
        needed = rung.run_time.middle * fit.gpus / HOUR
        if needed > weekly * 4:
            yield (
                f"One run takes {show_count(needed)} GPU-hours, {show_count(needed / weekly)} weeks of all "
                f"that these people ask for: either the runs are rarer, or the GPU-hours are more."
            )
        if rung.run_time.middle > 13 * WEEK:
            lasts = show_time(rung.run_time.middle)
            yield f"One run lasts {lasts} on {fit.gpus:,} GPUs: give jobs more GPUs."
    if any(r.unread for r in growth.rungs):
        yield "Prices of some parts were read in no source (cost/data/prices.yaml): ask for quotes."
    if any(r.pace is None and r.fit is not None for r in growth.rungs):
        yield "No throughput is known where none is shown: neither published nor modelled for that GPU."


def machines_words(rung: Rung) -> str:
    return f" of {rung.machines:,} {rung.server}" if rung.machines > 1 else f" ({rung.server})"


def too_small(rung: Rung, of_rate: bool) -> str:
    """Why a step does not do today.  of_rate: whether the load is a rate of requests"""
    if rung.fit is None:
        return rung.refused
    if of_rate:
        return (
            f"{gpus_words(rung.load)} GPUs would be busy, and its {rung.gpus:,} carry {gpus_words(rung.most)}"
        )
    if math.isinf(rung.wait):
        return f"the load is more than its {rung.gpus:,} GPUs give, and the line grows without end"
    return f"jobs wait {wait_words(rung.wait)} of their own length"


def wait_words(share: float) -> str:
    if math.isinf(share):
        return "without end"
    return percent(share)


def requests_words(rate: float) -> str:
    """'5 requests a second'."""
    return f"{rate:.3g} request{'' if rate == 1 else 's'} a second"


def gpus_words(number: float) -> str:
    """'0.714', '14.3', '8,930': GPUs on average."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def dollars(value: float) -> str:
    """'$0.42', '$24 k', '$1.2 M': two digits."""
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"${float(f'{value / size:.2g}'):g}{suffix}"
    return f"${value:.2f}" if value < 10 else f"${value:.0f}"


def percent(share: float) -> str:
    """'25 %'; 'less than 1 %' below."""
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def years_words(years: float) -> str:
    """'now', 'in about 14 months', 'in about 3 years', 'never'."""
    if years == 0:
        return "now"
    if math.isinf(years):
        return "never"
    if years > FAR:
        return f"in more than {FAR:g} years"
    months = max(1, round(years * 12))
    if months < 24:
        return f"in about {months} month{'s' if months > 1 else ''}"
    return f"in about {years:.1f} years"
