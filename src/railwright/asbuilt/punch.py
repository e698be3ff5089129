"""The punch list: what is wrong with a machine, from its dump alone or against its design."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from railwright.asbuilt.compare_design import compare
from railwright.asbuilt.compare_diff import diff
from railwright.asbuilt.compare_plan import label, listed, mode, natural, unnamed
from railwright.asbuilt.compare_words import MISSING_TEST
from railwright.asbuilt.infer_machine import Inferred, infer
from railwright.asbuilt.wiring import Wiring
from railwright.fabric.finding import Finding

SEVERITIES = ("fault", "warning", "note")

NAME_TEST = "log in to the host behind this port and set its node description (rdma-ndd, or the subnet agent)"


def punch_list(machine: Inferred | Wiring, design: Wiring | None = None) -> list[Finding]:
    """Everything wrong with a machine, faults first, then by device.

    design  what the machine was to be (`to_wiring` of a study's fabric); without one, only what the
            regularity of the machine itself proves is reported, and what it cannot tell is said in notes
    Raises PlanError when a design is given that no name of the dump and no structure can be matched to.
    """
    inferred = infer(machine) if isinstance(machine, Wiring) else machine
    wiring = inferred.wiring
    if design is not None:
        return in_order([*_named_twice(compare(inferred, design), _names(wiring)), *_undescribed(wiring)])
    found = [*diff(wiring, inferred.design), *_loose(inferred), *_names(wiring), *_undescribed(wiring)]
    return in_order([*_recurring(found), *_turned(inferred), *_bundles(inferred, found), *_unused(inferred)])


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Faults, warnings, notes; within each, grouped by the first device named, in natural order of names."""
    return sorted(
        findings,
        key=lambda f: (
            SEVERITIES.index(f.severity), natural(_device(f)), f.kind, natural(f.element), f.evidence
        ),
    )  # fmt: skip


def as_text(findings: Sequence[Finding]) -> list[str]:
    """The punch list as plain lines: one per finding, its evidence and next test indented below."""
    lines: list[str] = []
    for f in findings:
        lines.append(f"{f.severity:<7} {f.kind}: {f.element}")
        if f.expected or f.found:
            lines.append(f"        should be: {f.expected or 'not there'}; is: {f.found or 'not there'}")
        lines.append(f"        {f.evidence} (confidence {f.confidence:.0%})")
        if f.next_test:
            lines.append(f"        next: {f.next_test}")
    return lines


def tally(findings: Sequence[Finding]) -> str:
    """'3 faults (2 degraded link, 1 missing link), 1 warning (1 unnamed host), no notes'."""
    parts: list[str] = []
    for severity in SEVERITIES:
        kinds = Counter(f.kind for f in findings if f.severity == severity)
        total = sum(kinds.values())
        each = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda i: (-i[1], i[0])))
        word = severity if total == 1 else severity + "s"
        parts.append(f"{total} {word} ({each})" if total else f"no {word}")
    return ", ".join(parts)


def is_wrong(findings: Sequence[Finding]) -> bool:
    """Whether anything but notes was found."""
    return any(f.severity != "note" for f in findings)


def _device(finding: Finding) -> str:
    """The device a finding is filed under: a cable's upper end, where several of one switch come together."""
    return finding.ends[-1][0] if finding.ends else finding.element


def _names(wiring: Wiring) -> list[Finding]:
    """Adapters without a server's name, and adapters of two hosts under one name."""
    where = _attached(wiring)
    findings: list[Finding] = []
    by_name: dict[tuple[str, str], list[int]] = {}
    for i, node in enumerate(wiring.nodes):
        if node.kind != "host":
            continue
        if unnamed(node):
            at = where.get(i, [])
            place = f" at {at[0][0]} port {at[0][1]}" if at else ""
            findings.append(
                Finding(
                    "unnamed host", "warning", f"'{node.name}' ({node.key}){place}",
                    ((label(node), 0), *at), "a server's name", node.name or "no name",
                    "The adapter's description names no server, so it cannot be told which one it is in", 1.0,
                    NAME_TEST,
                )
            )  # fmt: skip
        elif node.adapter:
            by_name.setdefault((node.host, node.adapter), []).append(i)
    twice: dict[str, list[tuple[str, list[int]]]] = {}
    for (host, adapter), same in by_name.items():
        if len(same) > 1:
            twice.setdefault(host, []).append((adapter, same))
    for host, rows in twice.items():
        ends = tuple(end for _, same in rows for i in same for end in where.get(i, []))
        adapters = listed(adapter for adapter, _ in rows)
        findings.append(
            Finding(
                "two hosts of one name", "warning", host, ((host, 0), *ends), "one host of this name",
                f"{len(rows[0][1])} adapters called {host}/{rows[0][0]}"
                + (f" and as many of {len(rows) - 1} other names" if len(rows) > 1 else ""),
                f"Different adapters of the dump have the same names ({adapters} of {host})", 1.0, NAME_TEST,
            )
        )  # fmt: skip
    return findings


def _named_twice(differences: Sequence[Finding], names: Sequence[Finding]) -> list[Finding]:
    """Where one of two hosts of one name was told by its cables, say so once, with its right name."""
    told: list[Finding] = []
    merged: set[int] = set()
    for finding in names:
        if finding.kind == "two hosts of one name":
            for other in differences:
                if other.kind == "renamed device" and other.element.split("/")[0] == finding.element:
                    merged.add(id(other))
                    evidence = f"{finding.evidence}; one of them is cabled as {other.expected} should be"
                    finding = replace(finding, evidence=evidence)
        told.append(finding)
    return [f for f in differences if id(f) not in merged] + told


def _loose(inferred: Inferred) -> list[Finding]:
    """Adapters that are listed without any cable, and of which nothing tells where they belong."""
    told = {n for k in inferred.wiring.links for n in (k.a, k.b)}
    told |= {n for p in inferred.design.links for n in (p.a, p.b)}
    return [
        Finding(
            "missing link", "fault", label(node), ((label(node), 0),), "a cable", "none",
            "The adapter is listed without any cable, and no rule of this machine tells where it goes", 0.7,
            MISSING_TEST,
        )
        for i, node in enumerate(inferred.wiring.nodes)
        if node.kind == "host" and i not in told
    ]  # fmt: skip


def _attached(wiring: Wiring) -> dict[int, list[tuple[str, int]]]:
    """(switch, port) that each adapter is plugged into."""
    where: dict[int, list[tuple[str, int]]] = {}
    for k in wiring.links:
        for a, b, port in ((k.a, k.b, k.b_port), (k.b, k.a, k.a_port)):
            if wiring.nodes[a].kind == "host":
                where.setdefault(a, []).append((label(wiring.nodes[b]), port))
    return where


def _undescribed(wiring: Wiring) -> list[Finding]:
    """Switches that only others' stanzas mention."""
    switches = [n for n in wiring.nodes if n.kind == "switch"]
    if sum(n.ports > 0 for n in switches) * 2 <= len(switches):
        return []
    return [
        Finding(
            "device described nowhere", "warning", label(n), ((label(n), 0),), "a description of its own",
            "named only as the other end of cables",
            "The dump lists every other switch with its ports; it may be cut off, or this one did not answer",
            0.7, "take the dump again, and read this switch directly (smpquery nodeinfo)",
        )
        for n in switches
        if n.ports == 0
    ]  # fmt: skip


def _recurring(findings: Sequence[Finding]) -> list[Finding]:
    """Where several servers have the same lanes exchanged, a naming order is likelier than as many swaps."""
    patterns = [_lanes_of(f) for f in findings]
    count = Counter(p for p in patterns if p)
    done: list[Finding] = []
    for f, pattern in zip(findings, patterns, strict=True):
        if pattern and count[pattern] > 1:
            more = (
                f"{f.evidence}; {count[pattern]} servers have the same adapters exchanged, which looks more "
                "like a naming order than like as many swaps"
            )
            f = replace(f, evidence=more, severity="warning")
        done.append(f)
    return done


def _lanes_of(finding: Finding) -> tuple[str, ...]:
    """Adapters that one server has exchanged; () when the finding is of another sort."""
    hosts = [end[0] for end in finding.ends[::2]]
    if finding.kind != "rail mismatch" or len(hosts) < 2 or len({h.rpartition("/")[0] for h in hosts}) != 1:
        return ()
    return tuple(sorted(h.rpartition("/")[2] for h in hosts))


def _turned(inferred: Inferred) -> list[Finding]:
    """Leaves that meet the spines of another rail: their unit numbers its adapters in another order."""
    nodes = inferred.wiring.nodes
    return [
        Finding(
            "rail mismatch", "warning", label(nodes[leaf]), ((label(nodes[leaf]), 0),),
            f"a leaf of {usual[0]}, as the others under its spines", f"a leaf of {lane[0]}",
            f"All servers of scalable unit {inferred.unit[leaf] + 1} have {lane[0]} here, where the other "
            f"units under the same spines have {usual[0]}",
            0.8,
            "compare the adapters' PCI addresses between a server of this unit and one of another; if they "
            "agree, the leaves' uplinks are exchanged",
        )
        for leaf, lane, usual in inferred.turned
    ]  # fmt: skip


def _bundles(inferred: Inferred, found: Sequence[Finding]) -> list[Finding]:
    """Bundles that are scattered over a switch's ports where nearly all others are contiguous.

    Cables with a finding of their own are not told again.
    """
    told = {end for f in found for end in f.ends}
    nodes = inferred.wiring.nodes
    runs: dict[tuple[int, int], list[int]] = {}
    for k in inferred.wiring.links:
        for a, port, b in ((k.a, k.a_port, k.b), (k.b, k.b_port, k.a)):
            if inferred.tier[a] >= 1 and inferred.tier[b] >= 1 and port:
                runs.setdefault((a, b), []).append(port)
    full = {
        pair: sorted(ports)
        for pair, ports in runs.items()
        if len(ports) in inferred.bundle and len(ports) > 1
    }
    loose = {pair: ports for pair, ports in full.items() if ports[-1] - ports[0] != len(ports) - 1}
    if len(loose) > 0.25 * len(full):
        return []
    return [
        Finding(
            "uneven bundle", "warning", f"{label(nodes[a])} to {label(nodes[b])}",
            tuple((label(nodes[a]), p) for p in ports), f"{len(ports)} neighbouring ports",
            f"ports {', '.join(map(str, ports))}",
            f"{len(full) - len(loose)} of {len(full)} bundles of this machine are on neighbouring ports", 0.8,
            "harmless by itself; make sure that the labels and the drawing say the same",
        )
        for (a, b), ports in loose.items()
        if not any((label(nodes[a]), p) in told for p in ports)
    ]  # fmt: skip


def _unused(inferred: Inferred) -> list[Finding]:
    """Tiers whose switches all leave ports free: all that shows of a spine or a unit missing whole."""
    busy = Counter(n for k in inferred.wiring.links for n in (k.a, k.b))
    findings: list[Finding] = []
    names = {1: "leaf", 2: "spine", 3: "core"}
    for tier in range(1, inferred.tiers + 1):
        switches = inferred.switches(tier)
        radix = mode([inferred.wiring.nodes[i].ports for i in switches])
        used = mode([busy[i] for i in switches])
        if 0 < used < radix:
            word = names.get(tier, f"tier-{tier} switch")
            lost = "a spine, or a server's adapters," if tier == 1 else "a whole scalable unit, or a leaf,"
            findings.append(
                Finding(
                    "unused ports", "note", f"every {word}", (), f"{radix} ports", f"{used} of them cabled",
                    f"Spare ports by design, or {lost} missing throughout, look the same in a dump", 0.5,
                    "compare with the design: railwright fabric check DUMP --design STUDY",
                )
            )  # fmt: skip
    return findings
