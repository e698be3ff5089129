"""A profile in words: each constant with its error, shipped value and logs; residuals; what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from railwright.measure.fitting.profile import CONSTANTS, ConstantRecord, FamilyRecord, ProfileFile
from railwright.units import show_size, show_time

WIDTH = 80


def profile_lines(profile: ProfileFile) -> list[str]:
    """The whole profile as text of 80 columns."""
    lines = [
        f"railwright {profile.version}: calibrated on {profile.study}",
        f"machine: {profile.server}, {profile.gpu}, {profile.nic}",
        "logs:",
    ]
    lines += [f"  {log.file}  {log.date}  sha256 {log.sha256[:16]}" for log in profile.logs]
    for name, record in profile.families.items():
        lines += ["", *_family(name, record)]
    if profile.refused:
        lines += ["", "What these logs cannot tell, and what to measure next:"]
        for sentence in profile.refused:
            lines += _wrapped(sentence, "- ")
    return lines


def shown(constant: str, value: float) -> str:
    """A constant's value with its unit."""
    return show_time(value) if constant == "launch" else f"{value:.3f}"


def source(record: ConstantRecord, family: FamilyRecord, profile: ProfileFile) -> str:
    """Where one constant came from, in a line."""
    sizes = [s for c in family.curves for s in c.sizes]
    what = ", ".join(dict.fromkeys(f"{c.op} over {c.ranks} ranks" for c in family.curves))
    logs = ", ".join(
        f"{log.file} ({log.date}, sha256 {log.sha256[:12]})" for log in map(profile.log, record.logs)
    )
    return f"{logs}: {what}, {show_size(min(sizes))} to {show_size(max(sizes))}"


def _family(name: str, record: FamilyRecord) -> list[str]:
    lines = [
        name,
        f"  {'constant':<9}{'value':>12}{'std. error':>12}{'80 % interval':>24}{'shipped':>12}",
    ]
    held = {h.constant: h for h in record.held}
    for constant in CONSTANTS:
        measured = record.measured().get(constant)
        if measured is None:
            at = shown(constant, held[constant].shipped) if constant in held else "-"
            lines.append(f"  {constant:<9}{at:>12}{'held':>12}{'':>24}{at:>12}")
            continue
        interval = f"{shown(constant, measured.low)} - {shown(constant, measured.high)}"
        lines.append(
            f"  {constant:<9}{shown(constant, measured.value):>12}"
            f"{shown(constant, measured.standard_error):>12}{interval:>24}"
            f"{shown(constant, measured.shipped):>12}"
        )
    first = next(iter(record.measured().values()))
    lines += _wrapped(f"from {', '.join(first.logs)}", "  ")
    lines += _wrapped(
        f"median error {record.median_error_in_sample:.1%} in the sample, {record.median_error_left_out:.1%} "
        f"on each {record.left_out_in_turn} left out in turn; {record.median_error_shipped:.1%} as shipped",
        "  ",
    )
    bands = ", ".join(f"{low:.2f}-{high:.2f}" for low, high in record.bands)
    lines += _wrapped(f"80 % band of measured/predicted time up to 256 KiB, 128 MiB, above: {bands}", "  ")
    for curve in record.curves:
        lines.append(f"  {curve.log}:{curve.line} {curve.op}, {curve.ranks} ranks in {curve.nodes} node(s):")
        pairs = zip(curve.sizes, curve.measured_over_predicted, strict=True)
        told = "  ".join(
            f"{show_size(size).replace(' ', '')} {round(100 * (ratio - 1), 1) + 0.0:+.1f}%"
            for size, ratio in pairs
        )
        lines += wrap(told, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return lines


def _wrapped(text: str, first: str) -> Iterator[str]:
    return iter(wrap(text, WIDTH, initial_indent=first, subsequent_indent="  ", break_on_hyphens=False))
