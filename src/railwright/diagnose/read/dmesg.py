"""Kernel logs: Xid lines of NVIDIA's driver, each against the GPU (or the software) of its host.

Source: NVIDIA, Xid errors (numbers and actions: data/xid.yaml); line format as the driver prints it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright.diagnose.constants import says, share, xids
from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import Event, Evidence
from railwright.diagnose.read.text_file import fail, text_of

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?:, (?:pid=(?P<pid>[^,]*))?(?P<rest>.*))?"
)
_SYSLOG = re.compile(
    r"^(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (?P<host>[\w.-]+) kernel(?:\[\d+\])?:"
)
_KERNEL = re.compile(r"kernel|NVRM|^\[|^<\d+>|^kern|^\d+,\d+,\d+,[-+c]", re.MULTILINE)


@dataclass(frozen=True)
class XidLine:
    """One Xid of a log: host, PCI address ('0000:9b:00'), number, line and what followed."""

    host: str
    pci: str
    number: int
    line: int
    text: str


def read_dmesg(path: Path, host: str = "") -> list[XidLine]:
    """The Xids of a kernel log (dmesg, journal, syslog); none is a good answer.

    host  where the log is from, if its lines do not tell; default the file's name up to its first dot
    SpecError for a text that is no kernel log.
    """
    text = text_of(path)
    if text.strip() and not _KERNEL.search(text):
        fail(path, 1, "this is no kernel log; expected the output of dmesg, journalctl -k or a syslog")
    fallback = host or path.name.split(".")[0].removeprefix("dmesg-").removeprefix("dmesg_")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if (xid := _XID.search(line)) is None:
            continue
        told = _SYSLOG.match(line)
        where = host or (told["host"] if told else fallback)
        rest = (xid["rest"] or "").strip(" ,")
        found.append(XidLine(where, xid["pci"].lower(), int(xid["xid"]), number, rest[:100]))
    return found


def dmesg_evidence(elements: Elements, lines: Sequence[XidLine]) -> Evidence:
    """Each (GPU, Xid) once, as an event; those that only inform, or are unknown, as notes."""
    known = xids()
    count: dict[tuple[str, str, int], int] = {}
    for line in lines:
        key = (line.host, line.pci, line.number)
        count[key] = count.get(key, 0) + 1
    events, notes = [], []
    for (host, pci, number), times in sorted(count.items()):
        xid = known.get(number)
        again = f", {times} times" if times > 1 else ""
        told = f"{host}, GPU at PCI {pci}: Xid {number}{again}"
        if xid is None:
            notes.append(f"{told}: not in our catalogue; look it up at docs.nvidia.com/deploy/xid-errors")
            continue
        if xid.group == "information":
            notes.append(f"{told} ({xid.meaning}): {xid.action}")
            continue
        seen = says("xid_seen", xid.group)
        gpu = _gpu(elements, host, pci)
        node = elements.add("node", host) if elements.find(host) is None else elements.find(host)
        software = elements.add("rank", f"software on {host}")
        causes = [(gpu, share(seen, "gpu")), (software, share(seen, "rank"))]
        if node is not None:
            causes.append((node, share(seen, "node")))
        text = f"{told} ({xid.meaning}); {xid.action}"
        # An application that fails does so once; the same Xid again and again speaks for the part.
        leak = seen.leak / times if xid.group != "software" else seen.leak
        events.append(Event(text, tuple((e, q) for e, q in causes if q > 0), leak, "dmesg"))
    if not lines:
        notes.append("dmesg: no Xid")
    return Evidence((), tuple(events), (), tuple(notes))


def _gpu(elements: Elements, host: str, pci: str) -> int:
    """A GPU by its PCI address: which GPU of the drawing it is, nobody has told."""
    return elements.add("gpu", f"{host}/gpu@{pci}")
