"""The answer in words, for whoever has to decide."""

from __future__ import annotations

from railwright.reliability.result import Goodput
from railwright.units import show_count, show_time


def answer(g: Goodput) -> tuple[str, ...]:
    """Four or five sentences: how often, what it costs, until when, and what would help."""
    run, saved = g.forecast, g.checkpoint
    words = [
        f"{g.job} on {g.gpus:,} GPUs is interrupted every {show_time(g.mtti)} "
        f"({g.per_1000_node_days:.2f} per 1,000 node-days; {show_time(g.mtti_low)} to "
        f"{show_time(g.mtti_high)} over the range of the rates), and takes "
        f"{show_time(g.recovery.mean)} to train again.",
        f"It trains {100 * g.ettr:.1f} % of the time with a checkpoint every {show_time(saved.interval)}; "
        + (
            f"goodput is {100 * g.goodput:.1f} %."
            if g.ettr - g.goodput < 5e-4
            else f"goodput, less what missing servers, a degraded fabric and link flaps take, is "
            f"{100 * g.goodput:.1f} %."
        ),
    ]
    if run.finished > 0.5:
        p10, p50, p90, _, _ = run.wall
        words.append(
            f"The run ends after {show_time(p50)} ({show_time(p10)} to {show_time(p90)} in eight of ten "
            f"cases) instead of {show_time(run.ideal)}, and takes "
            f"{show_count(run.gpu_hours[1])} GPU-hours."
        )
    else:
        words.append("The run does not end: it loses work faster than it saves it.")
    wanted, longest = g.target
    if g.ettr >= wanted:
        words.append(f"{100 * wanted:.0f} % is reached, with recoveries of up to {show_time(longest)}.")
    elif longest > 0:
        words.append(
            f"For {100 * wanted:.0f} %, recovery would have to take {show_time(longest)} or less with these "
            "checkpoints."
        )
    else:
        words.append(
            f"{100 * wanted:.0f} % is out of reach with checkpoints that block for {show_time(saved.block)}, "
            "however quick the recovery."
        )
    first = max(g.components, key=lambda c: c.share)
    words.append(
        f"The largest cause is {first.name} ({100 * first.share:.0f} % of the interruptions); "
        f"spare servers kept: {g.spares} ({100 * g.spares / g.servers:.1f} %); nodes that keep the job "
        f"whole: {g.wanted[0].replayed} for 99 % and {g.wanted[1].replayed} for 99.9 % of the time."
    )
    return tuple(words)
