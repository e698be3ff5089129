"""OpenSM routes a designed fabric: a real subnet manager on a simulated subnet, without InfiniBand or root.

ibsim answers management packets as the fabric of our ibsim export would; OpenSM speaks to it through
libumad2sim instead of a kernel, and writes its tables.
Sources: opensm(8) of OpenSM 3.3.23 (-o, -R, -f; OSM_TMP_DIR for opensm-lfts.dump); ibsim 0.10, README
(IBSIM_SOCKNAME, SIM_HOST, LD_PRELOAD).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from railwright.asbuilt import Inferred
from railwright.asbuilt.forwarding import ForwardingTables
from railwright.asbuilt.read import read_tables
from railwright.asbuilt.routing import Owners, gaps, machine_owners, out_links, with_lids
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError, RailwrightError, nearest
from railwright.export import render
from railwright.export.ibnet import guid
from railwright.export.sheet import Sheet
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Tables

ENGINES = ("ftree", "updn", "minhop", "dor")
"""Routing engines of OpenSM that route a tree without more than its wiring. Source: opensm(8), "-R"."""

READY = 30.0
"""Longest wait for ibsim to have read its net file [s]; 2,000 nodes take about one."""

_LIBRARIES = ("/usr/lib/*/umad2sim", "/usr/lib64/umad2sim", "/usr/lib/umad2sim", "/usr/local/lib*/umad2sim")
_ADMIN = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, eq=False)
class Routed:
    """What OpenSM made of a fabric.

    tables   forwarding on the fabric's own links
    asked    the engine asked for
    engines  the engine that each subnet was routed by in the end: OpenSM falls back to minhop
    notes    why it fell back, and what could not be placed
    """

    tables: Tables
    asked: str
    engines: tuple[str, ...]
    notes: tuple[str, ...]


def missing() -> tuple[str, ...]:
    """What `route` needs and is not installed: of 'ibsim', 'opensm', 'libumad2sim'."""
    tools = tuple(tool for tool in ("ibsim", "opensm") if shutil.which(tool, path=_path()) is None)
    return tools + (() if _preload() else ("libumad2sim",))


def route(fabric: Fabric, catalog: Catalog, engine: str = "ftree", limit: float = 120.0) -> Routed:
    """Let OpenSM compute the forwarding tables of a fabric.

    limit  longest that OpenSM may take, for each subnet [s]

    Each part of the fabric whose switches are joined is a subnet of its own with a subnet manager of its own
    (rails of a rail-only fabric, planes).  Nothing is left behind: the folder is private, the processes end.
    Raises RailwrightError when the programs are not there or fail, PlanError for an unknown engine.
    """
    if engine not in ENGINES:
        raise PlanError(
            f"OpenSM engine '{engine}' is not one of {', '.join(ENGINES)}{nearest(engine, ENGINES)}"
        )
    if absent := missing():
        raise RailwrightError(
            f"routing by OpenSM needs {', '.join(absent)}, not found on this machine; on Debian and Ubuntu "
            "`apt install opensm ibsim-utils`, or route by `--engine own`, or import a dump by `--tables`"
        )
    (net,) = render(fabric, "ibsim", catalog=catalog).values()
    sheet = Sheet(fabric, catalog, "")
    owners = export_owners(sheet)
    out: np.ndarray | None = None
    notes: list[str] = []
    engines: list[str] = []
    refused: list[str] = []
    with TemporaryDirectory(prefix="railwright-opensm-") as name:
        folder = Path(name)
        with _simulator(net, folder) as environment:
            for number, switch in enumerate(_subnets(fabric)):
                place = folder / f"subnet-{number}"
                place.mkdir()
                log = _manage(
                    place, {**environment, "SIM_HOST": f"S-{guid(sheet, switch):016x}"}, engine, limit
                )
                links, told = out_links(read_tables(place / "opensm-lfts.dump"), fabric, owners)
                out = links if out is None else np.maximum(out, links)
                used = _engine_of(log)
                engines.append(used)
                notes += told
                if used != engine:
                    refused.append(f"{sheet.names[switch]}, which fell back to {used}{_reason(log)}")
    if out is None:
        raise PlanError("the fabric has no live switch with a NIC, so there is nothing to route")
    if refused:
        notes.append(
            f"OpenSM's {engine} refused {len(refused)} of {len(engines)} subnets, first that of {refused[0]}"
        )
    return Routed(
        Tables(out, f"OpenSM's {engine} tables"), engine, tuple(engines), tuple(dict.fromkeys(notes))
    )


def machine_tables(dump: Path | str, machine: Inferred, fabric: Fabric) -> tuple[Tables, list[str]]:
    """Tables dumped on a real machine, on the fabric that `to_fabric(machine)` gave, and what is to be told.

    Raises PlanError where dump and machine do not belong together.
    """
    tables = with_lids(read_tables(dump), machine)
    return _placed(tables, fabric, machine_owners(machine, fabric))


def design_tables(dump: Path | str, fabric: Fabric, catalog: Catalog) -> tuple[Tables, list[str]]:
    """Tables dumped from a simulated subnet of our own ibsim export, on the fabric it was written from."""
    return _placed(read_tables(dump), fabric, export_owners(Sheet(fabric, catalog, "")))


def _placed(tables: ForwardingTables, fabric: Fabric, owners: Owners) -> tuple[Tables, list[str]]:
    out, notes = out_links(tables, fabric, owners)
    return Tables(out, tables.source), [*notes, *gaps(fabric, out)]


def export_owners(sheet: Sheet) -> dict[str, tuple[int, int]]:
    """Whose GUID is whose in the ibsim export: port p of an adapter has the adapter's GUID and p."""
    fabric, owners = sheet.fabric, {}
    for device in np.flatnonzero(fabric.kind >= Kind.LEAF).tolist():
        owners[f"0x{guid(sheet, device):016x}"] = (device, 0)
    at = fabric.role == Role.NODE_LEAF
    for device, port in zip(fabric.a[at].tolist(), fabric.port_a[at].tolist(), strict=True):
        owners[f"0x{guid(sheet, device) + port:016x}"] = (device, port)
    return owners


@contextmanager
def _simulator(net: str, folder: Path) -> Iterator[dict[str, str]]:
    """ibsim running on a net file; the environment that joins OpenSM to it."""
    (folder / "fabric.net").write_text(net, encoding="utf-8")
    # The file's own second line says how large a simulator it takes.
    sizes = re.findall(r"-[NSP]|\d+", net.splitlines()[1])
    environment = {**os.environ, "PATH": _path(), "OSM_CACHE_DIR": str(folder)}
    # The simulator's socket is named, not a file: one name per process and moment keeps instances apart.
    environment["IBSIM_SOCKNAME"] = f"railwright-{os.getpid()}-{time.monotonic_ns()}"
    log = folder / "ibsim.log"
    with log.open("w") as told:
        process = subprocess.Popen(
            ["ibsim", "-s", "-n", *sizes, str(folder / "fabric.net")],
            env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told, cwd=folder,
        )  # fmt: skip
    try:
        _wait(process, log)
        yield {**environment, "LD_PRELOAD": str(_preload())}
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the simulator says it is ready."""
    until = time.monotonic() + READY
    while "simulator ready" not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            last = text.strip().splitlines()[-1:] or ["it said nothing"]
            raise RailwrightError(f"ibsim did not start within {READY:.0f} s: {last[0]}")
        time.sleep(0.02)


def _manage(place: Path, environment: dict[str, str], engine: str, limit: float) -> str:
    """One sweep of OpenSM; its log."""
    log = place / "opensm.log"
    command = ["opensm", "-o", "-R", engine, "-f", str(log), "-D", "0x43"]
    try:
        done = subprocess.run(
            command, env={**environment, "OSM_TMP_DIR": str(place)}, cwd=place,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RailwrightError(
            f"OpenSM was not done within {limit:.0f} s and was stopped; route a smaller fabric, or import "
            "the tables of a subnet manager by `--tables`"
        ) from None
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if done.returncode or not (place / "opensm-lfts.dump").exists():
        said = [line for line in text.splitlines() if " ERR " in line] or ["no error in its log"]
        raise RailwrightError(f"OpenSM ended without tables (status {done.returncode}): {said[0].strip()}")
    return text


def _subnets(fabric: Fabric) -> list[int]:
    """The last switch of each part of the fabric that live cables join and that has NICs."""
    live = (fabric.capacity[0::2] > 0) & (fabric.capacity[1::2] > 0)
    between = np.flatnonzero((fabric.role > Role.NODE_LEAF) & live)
    count = fabric.num_devices
    joined = coo_array(
        (np.ones(len(between), np.int8), (fabric.a[between], fabric.b[between])), (count, count)
    )
    _, part = connected_components(joined, directed=False)
    # The highest switch manages: from the top every leaf is as far.
    homes = np.unique(part[fabric.b[(fabric.role == Role.NODE_LEAF) & live]])
    return sorted(int(np.flatnonzero(part == home)[-1]) for home in homes.tolist())


def _engine_of(log: str) -> str:
    found = re.findall(r"(\S+) tables configured on all switches", log)
    return found[-1] if found else "an unknown engine"


def _reason(log: str) -> str:
    """What the log gives as the reason of a refusal, after a colon."""
    said = re.findall(r"ERR \w+: (.+)", log) or re.findall(r"-> (.+)\nFalling back", log)
    return f": {said[0].strip().rstrip(':.')}" if said else ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{_ADMIN}"


def _preload() -> Path | None:
    for pattern in _LIBRARIES:
        found = sorted(Path("/").glob(f"{pattern[1:]}/libumad2sim.so"))
        if found:
            return found[0]
    return None
