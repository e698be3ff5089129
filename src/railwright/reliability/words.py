"""The answer in words, for whoever has to decide."""

from __future__ import annotations

from railwright.reliability.result import Goodput, NetworkFault
from railwright.units import number, show_amount, show_share, show_time


def answer(g: Goodput) -> tuple[str, ...]:
    """A few sentences: how often, what it costs, until when, and what would help."""
    every = show_time(g.mtti)
    low, high = show_time(g.mtti_low), show_time(g.mtti_high)
    words = [
        f"{g.job} on {number(g.gpus, 'GPU')} is interrupted every {every} ({g.per_1000_node_days:.2f} per "
        f"1,000 node-days; {low} to {high} over the range of the rates), and takes "
        f"{show_time(g.recovery.mean)} to train again.",
        f"With servers at hand it trains {show_share(g.ettr)} of the time, with a checkpoint every "
        f"{show_time(g.checkpoint.interval)}; {_goodput(g)}.",
        _end(g),
    ]
    servers, better = g.enough
    if better > g.goodput + 0.005:
        words.append(
            f"With {servers} spare servers instead of {g.spares} goodput would be {show_share(better)} on "
            "average."
        )
    words.append(_target(g))
    first = max(g.components, key=lambda c: c.share)
    words.append(
        f"The largest cause is {first.name} ({100 * first.share:.0f} % of the interruptions); spare servers "
        f"kept: {g.spares:,} ({_beside(g.spares, g.servers)}); nodes that keep the job whole: "
        f"{g.wanted[0].replayed} for 99 % and {g.wanted[1].replayed} for 99.9 % of the time."
    )
    return tuple(words)


def _goodput(g: Goodput) -> str:
    if g.ettr - g.goodput < 5e-4:
        return f"goodput is {show_share(g.goodput)} on average"
    taken = "missing servers, a degraded fabric and link flaps"
    return f"goodput, less what {taken} take, is {show_share(g.goodput)} on average"


def _end(g: Goodput) -> str:
    run = g.forecast
    if run.finished <= 0.5:
        return "The run does not end: most simulated ones lose work, or wait, faster than they get on."
    p10, p50, p90, _, mean = (show_time(wall) for wall in run.wall)
    early, late = show_time(run.wall_measured[0]), show_time(run.wall_measured[2])
    low, high = run.band
    of = "on average" if run.finished == 1 else f"on average of the {show_share(run.finished)} that end"
    spare = f" with {number(g.spares, 'spare server')}" if g.spares else ""
    return (
        f"The run ends after {mean} {of} (median {p50}; {p10} to {p90} in eight of ten cases by failures "
        f"alone, {early} to {late} with the range of the predicted step too, {low:.2f} to {high:.2f} times "
        f"it), instead of {show_time(run.ideal)} without failures, and takes "
        f"{show_amount(run.gpu_hours[-1])} GPU-hours on average{spare}."
    )


def _target(g: Goodput) -> str:
    wanted, longest = g.target
    share = f"{100 * wanted:.0f} %, servers at hand,"
    if g.ettr >= wanted:
        return f"{share} is reached with recoveries of up to {show_time(longest)}."
    if longest > 0:
        return f"{share} asks for recoveries of {show_time(longest)} or less with these checkpoints."
    saved = g.checkpoint
    costs = f"block for {show_time(saved.block)}"
    costs += f" and are whole {show_time(saved.lag)} later" if saved.lag else ""
    return (
        f"{share} is out of reach with checkpoints every {show_time(saved.interval)} that {costs}, however "
        "quick the recovery."
    )


def fate(fault: NetworkFault) -> str:
    """What becomes of the step under a failed network element: '1.026 x', 'restarts' or 'stands still'."""
    if fault.slowdown is None:
        return "stands still" if fault.expected else "restarts"
    return f"{fault.slowdown:.3f} x"


def _beside(spares: int, servers: float) -> str:
    """How many spare servers there are for those of the job."""
    share = spares / servers
    return show_share(share) if share <= 1 else f"{show_amount(share)} times the job's own"
