"""An audit and a reachability proof as plain text for 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from railwright.audit.result import MANY, Audit, FaultDomain, GroupReach, Reach
from railwright.audit.settings import Setting
from railwright.units import show_bit_rate

WIDTH = 80
LABEL = 31
"""Width of the first column: the widest class of a 131,072-GPU fabric, and a space."""

SHOWN = 8
"""Groups listed one by one; what is not shown is counted."""


def lines(audit: Audit) -> list[str]:
    """The audit, one figure a line, at most 80 columns."""
    text = [*_folded(f"{audit.name}: {audit.servers:,} servers, {audit.gpus:,} GPUs", ""), ""]
    if not audit.oversubscription:
        text += _row("oversubscription", "none: a single tier of switches")
    for tier in audit.oversubscription:
        spread = f"{tier.least:.3g} least, {tier.mean:.3g} mean, {tier.most:.3g} most"
        worst = f" ({tier.worst})" if tier.most > tier.least else ""
        cut = f"; {len(tier.cut)} cut off" if tier.cut else ""
        if not tier.switches:
            spread = "none has live cables both ways"
        text += _row(f"oversubscription, {MANY[tier.tier]}", spread + worst + cut)
    text += _row(
        "bisection",
        f"{show_bit_rate(audit.bisection)}, {_percent(audit.bisection_share)} of the NICs of half",
    )
    text += _row("", audit.bisection_note)
    pairs = max(audit.gpus * (audit.gpus - 1) // 2, 1)
    for switches, number in audit.hops:
        where = "in a scale-up domain" if switches == 0 else f"over {_plural(switches, 'switch', 'switches')}"
        text += _row("pairs of GPUs", f"{number:,} {where} ({_percent(number / pairs)})")
    if audit.pairs_unjoined:
        share = _percent(audit.pairs_unjoined / pairs)
        text += _row("pairs of GPUs", f"{audit.pairs_unjoined:,} joined by no way ({share})")
    d = audit.diversity
    if d.joined:
        kind = "" if d.disjoint_exact else " (sampled by like pairs)"
        text += _row(
            "shortest ways, leaf to leaf", f"{d.shortest_least:,.0f} least, {d.shortest_median:,.0f} median"
        )
        text += _row("cable-disjoint ways", f"{d.disjoint_least} least, {d.disjoint_median} median{kind}")
    r = audit.rails
    if r.pairs:
        text += _row(
            "same-rail NIC pairs",
            f"{_percent(r.one_leaf)} meet in one leaf, {_percent(r.within_rail)} within their rail",
        )
    for p in audit.ports:
        sure = "" if p.radix_known else " or more"
        dead = f", {p.dead:,} dead" if p.dead else ""
        reserved = f", {p.reserved:,} reserved" if p.reserved else ""
        text += _row(
            f"ports, {MANY[p.tier]}",
            f"{p.used:,} of {p.switches * p.radix:,}{sure} in use{dead}{reserved}, {p.unused:,} unused",
        )
    for b in audit.bundles:
        odd = f"; {b.uneven:,} of {b.bundles:,} uneven ({b.fewest} to {b.most})" if b.uneven else ""
        text += _row(f"bundles, {b.tier}", f"{_plural(b.usual, 'cable', 'cables')} each{odd}")
    if audit.nic_ports_bare:
        text += _row("NIC ports without a cable", f"{audit.nic_ports_bare:,}, first {audit.first_bare_nic}")
    text += ["", "what a loss costs, the costliest member of each class:"]
    for domain in audit.fault_domains:
        text += _row(f"  {class_in_words(domain)}", loss_in_words(domain))
    return text


def reach_lines(reach: Reach, settings: Sequence[Setting] = ()) -> list[str]:
    """Who reaches whom, group by group, and the settings that follow; at most 80 columns.

    Groups with unreachable pairs come first, then those that need relays.
    """
    total = {way: reach.total(way) for way in ("inside", "direct", "relayed", "unreachable")}
    networks = _plural(reach.networks, "network", "networks that nothing joins")
    text = _folded(f"{_plural(len(reach.groups), 'group', 'groups')} on {networks}", "")
    for way, label in (
        ("inside", "inside a scale-up domain"),
        ("direct", "directly over the fabric"),
        ("relayed", "through a PXN relay"),
        ("unreachable", "not at all"),
    ):
        text += _row(label, f"{total[way]:,} ordered pairs of ranks")
    ranked = sorted(reach.groups, key=lambda g: (g.unreachable == 0, g.relayed == 0))
    telling = [group for group in ranked if group.unreachable or group.relayed]
    for group in telling[:SHOWN]:
        text += _group(group)
    if len(telling) > SHOWN:
        text.append(f"and {len(telling) - SHOWN:,} more groups with relayed or unreachable pairs")
    if settings:
        text += ["", "NCCL settings that follow:"]
        for variable, value, why in settings:
            text += _folded(
                f"  {variable}={value}" if value != "unset" else f"  {variable}: leave unset", "    "
            )
            text += _folded(f"    {why}", "    ")
    return text


def class_in_words(domain: FaultDomain) -> str:
    """'leaf (of 8)'."""
    return f"{domain.what} (of {domain.members:,})"


def loss_in_words(domain: FaultDomain) -> str:
    """The costliest member of a class and what goes with it: 'leaf-03, 30 GPUs on another NIC, …'."""
    worst = domain.worst
    lost = [worst.element]
    if worst.gpus_cut:
        lost.append(f"{_plural(worst.gpus_cut, 'GPU', 'GPUs')} cut off")
    if worst.servers_apart:
        lost.append(f"{_plural(worst.servers_apart, 'server', 'servers')} apart")
    if worst.gpus_moved:
        lost.append(f"{_plural(worst.gpus_moved, 'GPU', 'GPUs')} on another NIC")
    if worst.gpus_slowed:
        lost.append(f"{_plural(worst.gpus_slowed, 'GPU', 'GPUs')} on part of their NIC")
    lost += [f"{_percent(share)} of {tier} bandwidth" for tier, share in worst.bandwidth_lost if share > 0]
    return ", ".join(lost)


def _group(group: GroupReach) -> list[str]:
    text = _folded(
        f"{group.name}: {group.ranks} ranks in {group.domains} domains, {group.relayed:,} pairs relayed, "
        f"{group.unreachable:,} unreachable",
        "  ",
    )
    for way, pair in group.examples:
        if way == "relayed":
            text += _folded(f"  {pair.source} to {pair.destination} through {pair.relay}", "    ")
        if way == "unreachable":
            text += _folded(f"  {pair.source} cannot reach {pair.destination}", "    ")
    return text


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _percent(share: float) -> str:
    """A share in per cent, three digits; small ones are not rounded to nothing."""
    return f"{100 * share:.3g} %"


def _row(label: str, value: str) -> list[str]:
    return _folded(f"{label:<{LABEL - 1}} {value}", " " * LABEL)


def _folded(text: str, indent: str) -> list[str]:
    start = text[: len(text) - len(text.lstrip())]
    if len(text) <= WIDTH:
        return [text]
    parts = wrap(
        text, WIDTH, initial_indent="", subsequent_indent=indent, drop_whitespace=True,
        replace_whitespace=False, break_on_hyphens=False,
    )  # fmt: skip
    return [start + parts[0].lstrip(), *parts[1:]] if start else parts
