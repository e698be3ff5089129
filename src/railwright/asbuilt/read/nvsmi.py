"""`nvidia-smi topo -m`: the matrix of GPUs and NICs, with or without its escape sequences and legends.

Format and path types: NVIDIA, nvidia-smi(1), "topo", and the legend it prints.
"""

from __future__ import annotations

import re
from typing import cast

from railwright.asbuilt.host import Cpu, Gpu, HostTopology, Nic, PathType
from railwright.asbuilt.read.dump import Dump, shorten

_NODE = re.compile(r"(?:GPU|NIC|mlx\d_|i?bp?|hfi\d_|bnxt_re|cxi|roce|rdma|irdma|efa_?)\w*\d\w*")
_HEADING = re.compile(r"^[ \t]*GPU\d{1,4}\b.*(?:GPU\d|Affinity|NIC\d|mlx)", re.MULTILINE)
_ENTRY = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PIX\*|N/A")
_NIC_NAME = re.compile(r"\s*(NIC\d{1,4}):\s*(\S+)\s*$")
_NUMA = re.compile(r"\d{1,4}")
_TAIL = re.compile(r"\s*(CPU Affinity|NUMA Affinity|GPU NUMA ID)\s*")
_OLD = {"SOC": "SYS"}  # before driver 375
MOST_NVLINKS = 18
"""Most NVLinks of one GPU: V100 has 6, A100 12, H100 to B300 18 (catalogue, `scale_up_bandwidth`)."""


def recognise(dump: Dump) -> bool:
    """A heading of GPU names and a row that begins with GPU0."""
    return bool(_HEADING.search(dump.text)) and bool(
        re.search(r"^[ \t]*GPU\d{1,4}[ \t]+(?:X|NV\d|PIX|PXB|PHB|SYS|NODE)\b", dump.text, re.MULTILINE)
    )


def parse(dump: Dump) -> HostTopology:
    """The server of a matrix. SpecError when it has no row of a GPU."""
    notes = list(dump.notes)
    columns: list[str] = []
    tails: list[str] = []
    rows: dict[str, list[str]] = {}
    cpus: dict[str, tuple[str, str, str]] = {}
    lines: dict[str, int] = {}
    names: dict[str, str] = {}
    for number, line in enumerate(dump.lines, start=1):
        words = line.split()
        if match := _NIC_NAME.match(line):
            names[match[1]] = match[2]
        elif not columns:
            if _HEADING.match(line):
                head = _TAIL.split(line)
                columns = head[0].split()
                tails = head[1::2]
        elif words and words[0] in columns:
            entries = words[1 : len(columns) + 1]
            wrong = [e for e in entries if not _ENTRY.fullmatch(e)]
            if len(entries) < len(columns) or wrong:
                said = (
                    f"'{wrong[0]}' is no path type" if wrong else f"{len(entries)} entries of {len(columns)}"
                )
                notes.append(
                    f"line {number}: the row of {words[0]} is damaged ({said}) and left out: "
                    f"'{shorten(line, 40)}'"
                )
                continue
            if words[0] in rows:
                notes.append(
                    f"line {number}: the row of {words[0]} is there twice; line {lines[words[0]]} is kept"
                )
                continue
            rows[words[0]], lines[words[0]] = entries, number
            cpus[words[0]] = _affinity(line, words, len(columns), tails)
    gpus = [name for name in columns if name.startswith("GPU")]
    nics = [name for name in columns if not name.startswith("GPU")]
    if not any(name in rows for name in gpus):
        dump.fail(1, "no whole row of a GPU found; expected the output of: nvidia-smi topo -m")
    absent = [name for name in columns if name not in rows]
    if absent:
        notes.append(f"no row of {', '.join(absent)}: the matrix is cut off or damaged")
    _mirror(rows, columns, lines, notes)
    if not nics:
        notes.append(
            "the matrix shows no NIC: none is present, or the tool could not see any (run it "
            "outside a container)"
        )
    nvlink = tuple(tuple(_links(_entry(rows, columns, a, b)) for b in gpus) for a in gpus)
    into_switches = _into_switches(nvlink)
    return HostTopology(
        source=dump.source("nvidia-smi topo -m"),
        cpus=_cpus(cpus),
        bridges=(),
        gpus=tuple(
            Gpu(key=g, name=g, numa=_numa(cpus, g), switch_nvlinks=links, c2c=_is_node(cpus, g))
            for g, links in zip(gpus, into_switches, strict=True)
        ),
        nics=tuple(
            Nic(key=n, name=names.get(n, "" if n.startswith("NIC") else n), numa=_numa(cpus, n)) for n in nics
        ),
        nvlink=nvlink,
        paths=tuple(tuple(_path(_entry(rows, columns, g, n)) for n in nics) for g in gpus),
        notes=tuple(notes),
    )


def _entry(rows: dict[str, list[str]], columns: list[str], a: str, b: str) -> str:
    if a in rows:
        return rows[a][columns.index(b)]
    return rows[b][columns.index(a)] if b in rows else ""


def _links(entry: str) -> int:
    return int(entry[2:]) if entry.startswith("NV") else 0


def _into_switches(nvlink: tuple[tuple[int, ...], ...]) -> list[int]:
    """NVLinks of every GPU into NVSwitches.  Those lead to every peer and stand in the row once for each, so
    a row adds up to more than a GPU has; 0 for all where no row does: they lead from GPU to GPU."""
    switched = any(sum(row) > MOST_NVLINKS for row in nvlink)
    return [max(row) if switched else 0 for row in nvlink]


def _path(entry: str) -> PathType:
    entry = _OLD.get(entry, entry).rstrip("*")
    return cast(PathType, entry) if entry in ("PIX", "PXB", "PHB", "NODE", "SYS") else ""


def _mirror(rows: dict[str, list[str]], columns: list[str], lines: dict[str, int], notes: list[str]) -> None:
    """The matrix must say the same both ways."""
    for i, a in enumerate(columns):
        for j in range(i):
            b = columns[j]
            if a in rows and b in rows and rows[a][j] != rows[b][i]:
                notes.append(
                    f"line {lines[a]}: {a} to {b} is {rows[a][j]}, but line {lines[b]} says "
                    f"{rows[b][i]} for the "
                    f"way back; the first is kept"
                )


def _affinity(line: str, words: list[str], width: int, tails: list[str]) -> tuple[str, str, str]:
    """(cores, NUMA node, NUMA node of the GPU's own memory) of a row, as its last columns say."""
    cells = [c.strip() for c in line.split("\t")]
    rest = (cells if len(cells) > width + 1 else words)[width + 1 :]
    if len(rest) > len(tails):  # two tabs stand before the last column
        rest = [*rest[: len(tails) - 1], *[cell for cell in rest[len(tails) - 1 :] if cell]]
    found = dict(zip(tails, rest, strict=False))
    return found.get("CPU Affinity", ""), found.get("NUMA Affinity", ""), found.get("GPU NUMA ID", "")


def _numa(cpus: dict[str, tuple[str, str, str]], name: str) -> int:
    text = cpus.get(name, ("", "", ""))[1]
    return int(text) if _NUMA.fullmatch(text) else -1


def _is_node(cpus: dict[str, tuple[str, str, str]], name: str) -> bool:
    """Whether a GPU's memory is a NUMA node, as it is behind NVLink-C2C alone."""
    return _NUMA.fullmatch(cpus.get(name, ("", "", ""))[2]) is not None


def _cpus(cpus: dict[str, tuple[str, str, str]]) -> tuple[Cpu, ...]:
    found: dict[int, str] = {}
    for name, (cores, _, _) in cpus.items():
        if (numa := _numa(cpus, name)) >= 0 and cores and cores != "N/A":
            found.setdefault(numa, cores)
    return tuple(Cpu(numa, cores) for numa, cores in sorted(found.items()))
