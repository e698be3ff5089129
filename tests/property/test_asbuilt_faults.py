"""The punch list's promise: break a designed fabric, and every injected fault is reported, and nothing else.

What must be reported, and from what (up to 10 % of the cables broken, no cable twice):

| injected | with the design | from the dump alone |
|---|---|---|
| cable removed | missing link, or missing device where an adapter vanishes with it | the same |
| cable degraded or down | degraded link, down port | the same |
| two cables exchanged | one finding naming both | the same |
| cable plugged into a free port of a wrong switch | extra link | the same |
| adapter, leaf or spine removed | one missing device | adapters and rail leaves; a spine only as a note |
| whole server removed | one missing device | invisible |
| name lost, or another's name taken | unnamed host, two hosts of one name | the same |
| switch renamed | renamed device | invisible |

From the dump alone a design must have witnesses: at least `WITNESSES` servers per unit and spines, no server
that lost half of its cables and no switch that lost more than a quarter.
RAILWRIGHT_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from asbuilt_broken import (
    CABLES,
    Broken,
    Machine,
    add_link,
    degrade,
    lose_name,
    remove_adapter,
    remove_link,
    remove_server,
    remove_switch,
    rename_switch,
    swap,
    take_name,
)
from asbuilt_designs import any_design, regular_design
from railwright.asbuilt import Link, Node, Wiring, as_text, punch_list
from railwright.asbuilt.read import read

THOROUGH = bool(os.environ.get("RAILWRIGHT_THOROUGH"))
QUICK = settings(
    max_examples=4000 if THOROUGH else 100,
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TEXT = settings(QUICK, max_examples=1000 if THOROUGH else 25)


def break_it(data, wiring: Wiring, ways, gentle: bool = True) -> Machine:
    """Faults drawn until the budget of one cable in ten is spent.

    gentle  no server loses half of its cables, and no switch more than a quarter: each keeps its witnesses
    """
    machine = Machine(wiring, gentle)

    def pick(choices):
        choices = list(choices)
        if not choices:
            raise LookupError
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    for _ in range(data.draw(st.integers(1, 6))):
        way = pick(ways)
        before = machine.budget
        if before <= 0:
            break
        try:
            way(machine, pick)
        except LookupError:
            continue
        assume(machine.budget >= 0 or len(machine.faults) == 1)
    assume(machine.faults)
    return machine


def check(machine: Machine, found) -> None:
    """One finding for each fault and no other, each of a kind that names the fault and touching it."""
    story = "\n".join([*(f"{f.what}: {sorted(f.touches)[:4]}" for f in machine.faults), *as_text(found)])
    wrong = [f for f in found if f.severity != "note"]
    for fault in machine.faults:
        telling = [f for f in wrong if f.kind in fault.kinds and touches(f, fault)]
        assert telling, f"not reported: {fault.what}\n{story}"
    for f in wrong:
        assert any(f.kind in x.kinds and touches(f, x) for x in machine.faults), (
            f"nothing of the kind\n{story}"
        )
    assert len(wrong) == len(machine.faults), story


def touches(finding, fault: Broken) -> bool:
    """Whether a finding names a port that the fault is about (or a device, where it names no port)."""
    devices = {device for device, _ in fault.touches}
    return any((e in fault.touches) if e[1] else (e[0] in devices) for e in finding.ends)


@QUICK
@given(any_design())
def test_a_sound_design_has_no_findings(wiring):
    assert [f for f in punch_list(wiring) if f.severity != "note"] == []
    assert punch_list(wiring, wiring) == []


@QUICK
@given(any_design(), st.data())
def test_with_its_design_every_fault_is_found_and_nothing_else(wiring, data):
    ways = (*CABLES, remove_switch, remove_adapter, remove_server, lose_name, take_name, rename_switch)
    machine = break_it(data, wiring, ways, gentle=False)
    check(machine, punch_list(machine.wiring(), wiring))


@QUICK
@given(regular_design(), st.data())
def test_from_the_dump_alone_every_cable_fault_is_found_and_nothing_else(wiring, data):
    machine = break_it(data, wiring, CABLES)
    check(machine, punch_list(machine.wiring()))


@QUICK
@given(regular_design(), st.data())
def test_from_the_dump_alone_lost_names_and_adapters_are_found(wiring, data):
    machine = break_it(data, wiring, (*CABLES, lose_name, take_name, remove_adapter))
    check(machine, punch_list(machine.wiring()))


@TEXT
@given(regular_design(), st.data())
def test_through_ibnetdiscover_text_the_same_faults_are_found(wiring, data):
    """Text holds no cable that is down and no adapter without a cable, so those two are not injected here."""
    assume(len({n.adapter for n in wiring.nodes if n.kind == "host"}) > 1)
    machine = break_it(data, wiring, (remove_link, degrade, swap, add_link, lose_name, remove_adapter))
    read_back = read_text(ibnetdiscover(machine.wiring()))
    check(machine, punch_list(read_back))
    check(machine, punch_list(read_back, wiring))


def ibnetdiscover(wiring: Wiring) -> str:
    """The wiring as `ibnetdiscover` prints it: every switch, then every adapter that a switch can see."""
    guids = [f"{i + 1:016x}" for i in range(len(wiring.nodes))]
    rows: dict[int, list[tuple[int, int, int, Link]]] = {}
    for k in wiring.links:
        rows.setdefault(k.a, []).append((k.a_port, k.b, k.b_port, k))
        rows.setdefault(k.b, []).append((k.b_port, k.a, k.a_port, k))
    ids = [("S-" if n.kind == "switch" else "H-") + g for n, g in zip(wiring.nodes, guids, strict=True)]
    lines: list[str] = []
    for i in sorted(rows, key=lambda i: (wiring.nodes[i].kind == "host", i)):
        node, switch = wiring.nodes[i], wiring.nodes[i].kind == "switch"
        lines += ["", "vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guids[i]}"]
        name = description(node)
        if switch:
            lines += [f"switchguid=0x{guids[i]}({guids[i]})"]
            lines += [f'Switch\t{node.ports} "{ids[i]}"\t\t# "{name}" base port 0 lid {i + 1} lmc 0']
        else:
            lines += [f"caguid=0x{guids[i]}", f'Ca\t{node.ports} "{ids[i]}"\t\t# "{name}"']
        for port, far, far_port, k in sorted(rows[i], key=lambda row: row[0]):
            there = f'"{ids[far]}"[{far_port}]' + (
                "" if wiring.nodes[far].kind == "switch" else f"({guids[far]})"
            )
            own = f"[{port}]" if switch else f"[{port}]({guids[i]})"
            lid = "" if switch else f"lid {i + 1} lmc 0 "
            comment = f'{lid}"{description(wiring.nodes[far])}" lid {far + 1} {k.width}x{k.speed}'
            lines.append(f"{own}\t{there}\t\t# {comment}")
    return "\n".join(lines) + "\n"


def description(node: Node) -> str:
    return f"{node.host} {node.adapter}" if node.host else node.name


def read_text(text: str) -> Wiring:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fabric.out"
        path.write_text(text)
        return read(path)
