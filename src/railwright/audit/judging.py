"""What of an audit is worth telling: findings, the serious ones first."""

from __future__ import annotations

from railwright.audit.result import MANY, Audit, FaultDomain, Ports
from railwright.fabric.finding import SERIOUS_FIRST, Finding

UNBALANCED = 1.01
"""Largest over smallest oversubscription of one tier from which a tier is called unbalanced: above what
rounding of rates makes."""


def findings(audit: Audit) -> list[Finding]:
    """Oversubscribed and unbalanced tiers, uneven bundles, single points of failure, stranded ports, pairs
    that no way joins; faults first, then warnings, then notes."""
    found = [
        *_tiers(audit),
        *_bundles(audit),
        *(_single_point(domain) for domain in audit.fault_domains if _is_single_point(domain)),
        *(_stranded(tier) for tier in audit.ports if tier.unused),
        *(_dead(tier) for tier in audit.ports if tier.dead),
        *_bare(audit),
        *_unjoined(audit),
    ]
    return sorted(found, key=lambda f: SERIOUS_FIRST[f.severity])


def _tiers(audit: Audit) -> list[Finding]:
    found = []
    for tier in audit.oversubscription:
        for name in tier.cut:
            found.append(
                Finding(
                    "cut off", "fault", name, ((name, 0),), "a live cable to the tier above", "none",
                    "it has live cables below and none above: what hangs on it reaches nothing else over it",
                    1.0, "repair a cable to the tier above",
                )
            )  # fmt: skip
        if tier.most > 1 + 1e-9:
            found.append(
                Finding(
                    "oversubscribed tier", "warning", tier.worst, ((tier.worst, 0),),
                    "as much bandwidth up as down", f"{tier.most:.3g} : 1",
                    f"{MANY[tier.tier]} carry {tier.least:.3g} to {tier.most:.3g} times as much below as "
                    f"above (mean {tier.mean:.3g})",
                    1.0, "fine where traffic stays below this tier; else add uplinks",
                )
            )  # fmt: skip
        if tier.switches > 1 and tier.most > UNBALANCED * tier.least:
            found.append(
                Finding(
                    "unbalanced tier", "warning", tier.worst, ((tier.worst, 0),),
                    f"{tier.least:.3g} : 1 as on the best {tier.tier}", f"{tier.most:.3g} : 1",
                    f"oversubscription spreads from {tier.least:.3g} to {tier.most:.3g} over the "
                    f"{MANY[tier.tier]}: a job waits for the worst of them",
                    1.0, "compare the cables of the two switches",
                )
            )  # fmt: skip
    return found


def _bundles(audit: Audit) -> list[Finding]:
    return [
        Finding(
            "uneven bundle", "warning", b.first_uneven, tuple((n, 0) for n in b.first_uneven.split(" - ")),
            f"{b.usual} live cables", f"{b.fewest} to {b.most}",
            f"{b.uneven} of {b.bundles} {b.tier} bundles do not have {b.usual} live cables: hashing and "
            "forwarding tables spread evenly over ports, so the thin bundles fill first",
            1.0, "compare with the cable schedule",
        )
        for b in audit.bundles
        if b.uneven
    ]  # fmt: skip


def _is_single_point(domain: FaultDomain) -> bool:
    """Whether something shared fails servers: that a server, or a group, takes its own with it is no news."""
    return domain.fatal > 0 and domain.what != "group"


def _single_point(domain: FaultDomain) -> Finding:
    worst = domain.worst
    lost = []
    if worst.gpus_cut:
        lost.append(f"{worst.gpus_cut} GPUs on {worst.servers_cut} servers lose all network")
    if worst.servers_apart:
        lost.append(f"{worst.servers_apart} servers are cut off from the rest")
    return Finding(
        "single point of failure",
        "warning" if domain.what in ("leaf", "spine", "core", "server") else "note",
        worst.element,
        tuple((name, 0) for name in worst.element.split(" - ")),
        f"no {domain.what} whose loss costs a server its network",
        f"{domain.fatal} of {domain.members}",
        f"without {worst.element}, {' and '.join(lost) or 'servers are cut off'}",
        1.0,
        "a second way: another NIC, leaf or spine, or a spare at hand",
    )


def _stranded(tier: Ports) -> Finding:
    sure = "" if tier.radix_known else "at least, by the highest port in use; "
    return Finding(
        "stranded port", "note", tier.emptiest, ((tier.emptiest, 0),), "every port in use or reserved",
        f"{tier.unused} of {tier.switches * tier.radix} {tier.tier} ports unused",
        f"{sure}{tier.emptiest} has {tier.emptiest_unused} of {tier.radix} ports without a cable",
        1.0 if tier.radix_known else 0.8, "room for growth, or a missing cable: compare with the design",
    )  # fmt: skip


def _dead(tier: Ports) -> Finding:
    return Finding(
        "dead port", "fault", f"{tier.tier} tier", (), "every cable carries",
        f"{tier.dead} cabled {tier.tier} ports carry nothing",
        f"{tier.used} of {tier.used + tier.dead} cabled ports of the {MANY[tier.tier]} are live",
        1.0, "check the links that are down",
    )  # fmt: skip


def _bare(audit: Audit) -> list[Finding]:
    if not audit.nic_ports_bare:
        return []
    return [
        Finding(
            "NIC port without a cable", "fault", audit.first_bare_nic, ((audit.first_bare_nic, 0),),
            "every NIC port on a leaf", f"{audit.nic_ports_bare} without a live cable",
            f"{audit.first_bare_nic} is the first of them", 1.0, "plug or repair its cable",
        )
    ]  # fmt: skip


def _unjoined(audit: Audit) -> list[Finding]:
    if not audit.pairs_unjoined:
        return []
    pairs = audit.gpus * (audit.gpus - 1) // 2
    return [
        Finding(
            "unreachable pairs", "note" if audit.family == "rail-only" else "warning", audit.name, (),
            "a way between the NICs of all pairs of GPUs",
            f"{audit.pairs_unjoined:,} of {pairs:,} pairs have none",
            "they reach each other only where PXN finds a relay in the job's communicator, or not at all",
            1.0, "give the job's communicators to `reachability`",
        )
    ]  # fmt: skip
