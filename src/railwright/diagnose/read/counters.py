"""Port counters: `ibqueryerrors` and `perfquery`, now or as the difference of two snapshots.

Errors of the wire are evidence against the cable, its ends and little else; waiting and discards are
congestion, and no fault of the port that waits.

Sources: InfiniBand Architecture Specification volume 1, PortCounters; infiniband-diags, ibqueryerrors(8),
perfquery(8) (both formats).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from railwright.diagnose.constants import Seen, counters, share
from railwright.diagnose.elements import Elements, cable_at, device_called
from railwright.diagnose.evidence import Event, Evidence
from railwright.diagnose.read.text_file import fail, text_of

_NODE = re.compile(r'^Errors for (?:(?P<guid>0x[0-9a-fA-F]+) )?"(?P<name>[^"]*)"')
_PORT = re.compile(r"^\s+GUID (?P<guid>0x[0-9a-fA-F]+) port (?P<port>\d+|ALL):(?P<rest>.*)$")
_VALUE = re.compile(r"\[(\w+) == (\d+)")
_PERF = re.compile(
    r"^# (?:Port(?: extended)? counters|PortRcvErrorDetails counters): "
    r"(?:Lid (?P<lid>\d+)|.*?) port (?P<port>\d+)"
)
_DOTS = re.compile(r"^(\w+):\.*(0x[0-9a-fA-F]+|\d+)\s*$")
_CHECKED = re.compile(r"(\d+) ports checked")


@dataclass(frozen=True)
class Snapshot:
    """Counters of one moment.

    values   (device, port) -> counter -> count; a device by its name, or 'lid 6' where only that is told
    checked  ports that were looked at; those without an entry showed nothing (0: not told)
    """

    values: Mapping[tuple[str, int], Mapping[str, int]]
    checked: int
    file: str


def read_counters(path: Path) -> Snapshot:
    """One snapshot, of either tool; SpecError where the text is neither."""
    values: dict[tuple[str, int], dict[str, int]] = {}
    checked, name, place = 0, "", None
    known = False
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if found := _NODE.match(line):
            name, place, known = found["name"], None, True
        elif found := _PORT.match(line):
            if not name:
                fail(path, number, "a port before the line 'Errors for …' that names its device")
            if found["port"] != "ALL":
                mine = values.setdefault((name, int(found["port"])), {})
                mine.update({key: int(value) for key, value in _VALUE.findall(found["rest"])})
        elif found := _PERF.match(line):
            device = f"lid {found['lid']}" if found["lid"] else path.stem
            place, known = values.setdefault((device, int(found["port"])), {}), True
            checked += 1
        elif (found := _DOTS.match(line)) and place is not None:
            place[found[1]] = int(found[2], 0)
        elif found := _CHECKED.search(line):
            checked, known = int(found[1]), True
    if not known:
        fail(path, 0, "no port counters here; expected the output of `ibqueryerrors` or `perfquery`")
    return Snapshot(values, checked, str(path))


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Snapshots of one moment as one."""
    values: dict[tuple[str, int], Mapping[str, int]] = {}
    for snapshot in snapshots:
        values.update(snapshot.values)
    return Snapshot(values, sum(s.checked for s in snapshots), ", ".join(s.file for s in snapshots))


def difference(now: Snapshot, before: Snapshot | None) -> dict[tuple[str, int], dict[str, int]]:
    """What was counted since; a counter that is lower now was cleared between, so it counts from 0."""
    if before is None:
        return {place: dict(counts) for place, counts in now.values.items()}
    since: dict[tuple[str, int], dict[str, int]] = {}
    for place, counts in now.values.items():
        old = before.values.get(place, {})
        since[place] = {
            name: value - old.get(name, 0) if value >= old.get(name, 0) else value
            for name, value in counts.items()
        }
    return since


def counter_evidence(
    elements: Elements, now: Snapshot, before: Snapshot | None = None, lids: Mapping[int, str] | None = None
) -> Evidence:
    """Errors as events of the port's cable and both its ends; congestion as notes; clean ports as quiet.

    lids  LID -> name of the device, for perfquery
    """
    table = counters()
    events: list[Event] = []
    notes: list[str] = []
    loud: set[int] = set()
    for (called, port), counts in sorted(difference(now, before).items()):
        name = (lids or {}).get(int(called[4:]), called) if called.startswith("lid ") else called
        kinds: dict[str, list[str]] = {}
        for counter, value in counts.items():
            known = table.get(counter)
            if known is None or value <= 0:
                continue
            if known.says is None:
                kinds.setdefault(known.meaning, []).append(f"{counter} {value:,}")
                continue
            if value < known.threshold:
                continue
            causes = _causes(elements, name, port, known.says)
            if not causes:
                notes.append(f"{name} port {port}: {counter} {value:,}, but the topology has no such port")
                causes = ((elements.add("cable", f"{name} port {port}"), share(known.says, "cable")),)
            loud.add(causes[0][0])
            leak = min(0.5, known.says.leak * max(1.0, known.threshold) / max(value, 1))
            text = f"{name} port {port}: {counter} {value:,}" + (" more than before" if before else "")
            events.append(Event(text, causes, max(leak, 1e-6), "port counters"))
        for meaning, told in kinds.items():
            if note := _MEANS.get(meaning):
                notes.append(f"{name} port {port}: {', '.join(told)}: {note}")
    if before is None and events:
        notes.append(
            "counters since they were last cleared: an old error looks like a new one; clear them "
            "(ibclearerrors) or give an earlier snapshot with --before"
        )
    return Evidence((), tuple(events), _quiet(elements, now, loud), tuple(notes))


_MEANS = {
    "congestion": "congestion, no fault of this port",
    "elsewhere": "marked bad further up: look at the port where the errors begin",
    "configuration": "partition or P_Key settings, no fault of the hardware",
}


def _causes(elements: Elements, name: str, port: int, seen: Seen) -> tuple[tuple[int, float], ...]:
    """(element, probability) of the cable on a port first, then both devices and a NIC's server."""
    device = device_called(elements, name)
    fabric = elements.fabric
    if device is None or fabric is None:
        return ()
    cable = cable_at(elements, device, port)
    if cable is None:
        return ()
    at = int(np.flatnonzero(elements.of_cable == cable)[0])
    causes = [(cable, share(seen, "cable"))]
    for end in (int(fabric.a[at]), int(fabric.b[at])):
        made = int(elements.of_device[end])
        causes.append((made, share(seen, elements.kind[made])))
        if fabric.server[end] >= 0:
            causes.append((int(elements.of_server[fabric.server[end]]), share(seen, "node")))
    return tuple((e, q) for e, q in causes if q > 0)


def _quiet(elements: Elements, now: Snapshot, loud: set[int]) -> tuple[tuple[int, float], ...]:
    """Cables whose ports were looked at and showed no error, where the tool says that it looked at all."""
    cables = np.unique(elements.of_cable[elements.of_cable >= 0]).tolist()
    if not cables or now.checked < len(cables):
        return ()
    best = max(share(c.says, "cable") for c in counters().values() if c.says is not None)
    return tuple((cable, best) for cable in cables if cable not in loud)
