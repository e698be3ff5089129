"""A dump against its design: which device is which, then the exact difference, cable by cable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.asbuilt.compare_diff import diff
from railwright.asbuilt.compare_match import match_devices
from railwright.asbuilt.compare_plan import Blueprint, Planned, label, listed, unnamed
from railwright.asbuilt.infer_machine import Inferred, infer
from railwright.asbuilt.wiring import Wiring
from railwright.errors import PlanError
from railwright.fabric.finding import Finding


def compare(machine: Inferred | Wiring, design: Wiring) -> list[Finding]:
    """What differs between a machine and its design, unsorted.

    Devices are matched by name, those left over by the devices they are cabled to.
    Raises PlanError when not one device of the dump can be told to be one of the design.
    """
    inferred = infer(machine) if isinstance(machine, Wiring) else machine
    wiring = inferred.wiring
    drawn = infer(design)
    twin = match_devices(inferred, drawn)
    if not twin and wiring.nodes:
        raise PlanError(
            f"the dump ({len(wiring.nodes)} devices, first '{label(wiring.nodes[0])}') and the design "
            f"({len(design.nodes)} devices, first '{label(design.nodes[0])}') have no device name in common "
            "and no structure that tells which is which; give a node-name map that renames the dump's devices"
        )
    plan = _blueprint(inferred, drawn, twin)
    extra = [i for i, n in enumerate(wiring.nodes) if i not in twin and n.kind in ("switch", "host")]
    strangers = [i for i, n in enumerate(wiring.nodes) if n.kind not in ("switch", "host")]
    return [
        *diff(wiring, plan, (*extra, *strangers)),
        *_extra_devices(wiring, extra),
        *_renamed(wiring, design, twin),
    ]


def _blueprint(inferred: Inferred, drawn: Inferred, twin: Mapping[int, int]) -> Blueprint:
    """The design over the dump's nodes; what the dump lacks comes after them."""
    wiring, design = inferred.wiring, drawn.wiring
    place = {d: f for f, d in twin.items()}
    nodes = list(wiring.nodes)
    tier = [drawn.tier[twin[i]] if i in twin else inferred.tier[i] for i in range(len(nodes))]
    rail = [drawn.rail[twin[i]] if i in twin else inferred.rail[i] for i in range(len(nodes))]
    for d, node in enumerate(design.nodes):
        if d not in place:
            place[d] = len(nodes)
            nodes.append(node)
            tier.append(drawn.tier[d])
            rail.append(drawn.rail[d])
    links = tuple(
        Planned(
            place[k.a], k.a_port, place[k.b], k.b_port, k.width, k.speed, k.rate, "the design says so", 1.0
        )
        for k in design.links
    )
    return Blueprint(tuple(nodes), links, tuple(tier), tuple(rail))


def _extra_devices(wiring: Wiring, extra: Sequence[int]) -> list[Finding]:
    """Devices of the dump that the design has not, with where they are plugged."""
    findings: list[Finding] = []
    for i in extra:
        name = label(wiring.nodes[i])
        at = [
            (label(wiring.nodes[b]), port)
            for k in wiring.links
            for a, b, port in ((k.a, k.b, k.b_port), (k.b, k.a, k.a_port))
            if a == i
        ]
        where = listed(f"{device} port {port}" for device, port in at)
        findings.append(
            Finding(
                "extra device", "fault", name, ((name, 0), *at), "", f"cabled to {where or 'nothing'}",
                "The design has no device of this name, and none that is missing is cabled like it", 0.9,
                "see whether it belongs to this fabric, and add it to the design if it does",
            )
        )  # fmt: skip
    return findings


def _renamed(wiring: Wiring, design: Wiring, twin: Mapping[int, int]) -> list[Finding]:
    """Devices that were told by their cables, not by their names.

    Unnamed hosts have a finding of their own.  When most names differ, or most of the adapters', the machine
    has its own naming for them, which is one note.
    """
    hosts = {f for f in twin if wiring.nodes[f].kind == "host"}
    other = [
        (f, d)
        for f, d in sorted(twin.items())
        if not unnamed(wiring.nodes[f])
        and label(wiring.nodes[f]).casefold() != label(design.nodes[d]).casefold()
    ]
    adapters = [pair for pair in other if pair[0] in hosts]
    own = other if len(other) * 2 > len(twin) else adapters if len(adapters) * 2 > len(hosts) else []
    findings: list[Finding] = []
    if own:
        f, d = own[0]
        findings.append(
            Finding(
                "own names", "note", f"{len(own)} devices", (),
                "the names of the design", "names of the machine's own",
                f"Devices were told by the order of their names and by their cables: "
                f"'{label(wiring.nodes[f])}' is taken for '{label(design.nodes[d])}'",
                0.8, "give a node-name map to be certain which server is which",
            )
        )  # fmt: skip
    return findings + [
        Finding(
            "renamed device", "warning", label(wiring.nodes[f]), ((label(wiring.nodes[f]), 0),),
            label(design.nodes[d]), label(wiring.nodes[f]),
            f"It is cabled as {label(design.nodes[d])} should be, and nothing else is", 0.9,
            "correct the name on the device, or in the design",
        )
        for f, d in sorted({*other} - {*own})
    ]  # fmt: skip
