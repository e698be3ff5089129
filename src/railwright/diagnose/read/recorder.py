"""PyTorch/NCCL flight-recorder dumps of all ranks: who stopped, and who only waits for them.

Two proofs, per process group and collective (never point-to-point, which every rank numbers for itself):
- stopped: a rank has not issued a collective that others of its group wait in;
- stalled: a rank does not report a collective as complete although others completed a later one of the same
  group, which they could not without its part: its GPU, or the thread that watches it, no longer answers.
A rank that has not issued a collective while one of its own is held up by another rank is a victim.

Sources: PyTorch, torch/csrc/distributed/c10d/FlightRecorder (fields of a dump, collective_seq_id);
tools/flight_recorder (what a missing rank means).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from railwright.diagnose.constants import says, share
from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import Event, Evidence
from railwright.diagnose.read.unpickle import load_plain
from railwright.errors import Mistake, SpecError

ONE_SIDED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "coalesced")
"""Operations that one rank may complete before another has begun; reduce_scatter and all_… are none."""


@dataclass
class Group:
    """One process group over all ranks' dumps.

    members   ranks of the group
    issued, completed  rank -> last collective issued, last known complete
    names     collective -> what it is
    one_sided collectives that a rank can leave early
    p2p       the group also sends point to point, so that counters in pg_status mix both
    """

    name: str
    text: str
    members: tuple[int, ...]
    issued: dict[int, int] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    one_sided: set[int] = field(default_factory=set)
    p2p: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the dumps prove of one rank: 'stopped', 'stalled' or 'behind' (a weak sign), and why."""

    rank: int
    state: str
    why: str


def read_recorder(paths: Sequence[Path]) -> dict[int, Mapping[str, Any]]:
    """Rank -> dump, from the dumps of all ranks or folders of them (pickle, or JSON of the same shape).

    The rank is the last number of the file's name, as PyTorch writes it ('…_dump_12', 'nccl_trace_rank_12').
    Raises SpecError for files that are no dump, and for two of one rank.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(p for p in path.iterdir() if p.is_file() and _number(p) is not None)
        else:
            files.append(path)
    if not files:
        _fail(paths[0], "this folder holds no dump; expected one file per rank, its name ending in the rank")
    dumps: dict[int, Mapping[str, Any]] = {}
    origin: dict[int, Path] = {}
    for path in files:
        rank = _number(path)
        if rank is None:
            _fail(path, "the file's name does not end in its rank, like nccl_trace_rank_12")
        if rank in dumps:
            _fail(path, f"rank {rank} has two dumps, this one and {origin[rank]}; give those of one moment")
        dumps[rank], origin[rank] = _checked(path, _load(path)), path
    return dumps


def groups_of(dumps: Mapping[int, Mapping[str, Any]]) -> list[Group]:
    """The process groups, with what each rank issued and completed."""
    groups: dict[str, Group] = {}
    for rank, dump in sorted(dumps.items()):
        for name, config in dump["pg_config"].items():
            members = tuple(int(n) for n in re.findall(r"\d+", str(config.get("ranks", ""))))
            group = groups.setdefault(str(name), Group(str(name), str(config.get("desc", "")), members))
            if not group.members:
                group.members = members
        for entry in dump["entries"]:
            _take(groups, rank, entry)
    for rank, dump in sorted(dumps.items()):
        _take_status(groups, rank, dump)
    return sorted(groups.values(), key=lambda g: (len(g.name), g.name))


def verdicts(dumps: Mapping[int, Mapping[str, Any]]) -> tuple[list[Verdict], list[str]]:
    """What is proved of ranks, one verdict each, and notes (ranks without a dump, victims)."""
    groups = groups_of(dumps)
    worst: dict[int, Verdict] = {}
    missing: dict[int, Verdict] = {}
    for group in groups:
        known = [r for r in group.members if r in group.issued]
        if len(known) < 2:
            continue
        most = max(group.issued[r] for r in known)
        done = max((group.completed.get(r, -1) for r in known), default=-1)
        for rank in known:
            here = group.completed.get(rank, -1)
            if rank in group.completed and here < done and here + 1 not in group.one_sided:
                ahead = done - here
                state = "stalled" if ahead > 1 else "behind"
                peers = [r for r in known if group.completed.get(r, -1) == done]
                why = (
                    f"{_called(group)}: collective {here + 1} ({group.names.get(here + 1, '?')}) is not "
                    f"complete on it, but rank {peers[0]} has completed up to {done}, which needs its part"
                )
                _keep(worst, Verdict(rank, state, why))
            if group.issued[rank] < most:
                first = group.issued[rank] + 1
                waiting = sum(group.issued[r] >= first for r in known)
                why = (
                    f"{_called(group)}: it never issued collective {first} ({group.names.get(first, '?')}), "
                    f"in which {waiting} of {len(group.members)} ranks wait"
                )
                missing.setdefault(rank, Verdict(rank, "stopped", why))
    notes = []
    held = _held(groups, set(missing) | set(worst))
    for rank, verdict in missing.items():
        if rank in held and rank not in worst:
            notes.append(f"rank {rank} waits for others itself ({held[rank]}): a victim, no suspect")
        else:
            _keep(worst, verdict)
    absent = sorted({r for g in groups for r in g.members} - set(dumps))
    for rank in absent:
        _keep(worst, Verdict(rank, "stopped", "it left no dump, though the others of its groups did"))
    return [worst[rank] for rank in sorted(worst)], notes


def recorder_evidence(elements: Elements, dumps: Mapping[int, Mapping[str, Any]]) -> Evidence:
    """The verdicts as events; ranks of whom nothing is said speak for themselves."""
    found, notes = verdicts(dumps)
    events = []
    for verdict in found:
        seen = says("ranks", verdict.state)
        causes = [(elements.rank(verdict.rank), share(seen, "rank"))]
        place = elements.place_of_rank(verdict.rank)
        if place is not None:
            words = ("gpu", "nic", "node")
            causes += [(e, share(seen, kind)) for kind, e in zip(words, place, strict=True)]
        text = f"rank {verdict.rank} {verdict.state}: {verdict.why}"
        events.append(Event(text, tuple(causes), seen.leak, "flight recorder"))
    accused = {v.rank for v in found}
    quiet = []
    for rank in sorted(set(dumps) - accused):
        seen = says("ranks", "stopped")
        quiet.append((elements.rank(rank), share(seen, "rank")))
        place = elements.place_of_rank(rank)
        words = ("gpu", "nic", "node")
        quiet += [(e, share(seen, kind)) for kind, e in zip(words, place or (), strict=False)]
    if not found:
        notes.append(f"flight recorder: the {len(dumps)} ranks agree; no rank stopped or stalled")
    return Evidence((), tuple(events), tuple(quiet), tuple(notes))


def _held(groups: Sequence[Group], guilty: set[int]) -> dict[int, str]:
    """Ranks with a collective of their own that waits for another of the guilty, and in which group."""
    held: dict[int, str] = {}
    for group in groups:
        for rank in guilty & set(group.issued):
            pending = group.completed.get(rank, group.issued[rank]) + 1
            if group.issued[rank] < pending:
                continue
            late = [r for r in group.members if r != rank and r in group.issued and group.issued[r] < pending]
            if late:
                held[rank] = f"{_called(group)}, collective {pending}, for rank {late[0]}"
    return held


def _take(groups: dict[str, Group], rank: int, entry: Mapping[str, Any]) -> None:
    name = str(entry["process_group"][0])
    group = groups.setdefault(name, Group(name, str(entry["process_group"][1]), ()))
    if entry.get("is_p2p"):
        group.p2p = True
        return
    number, what = int(entry["collective_seq_id"]), str(entry.get("profiling_name", "?"))
    group.issued[rank] = max(group.issued.get(rank, -1), number)
    group.names.setdefault(number, what.removeprefix("nccl:"))
    if what.removeprefix("nccl:").lstrip("_").startswith(ONE_SIDED) and "reduce_scatter" not in what:
        group.one_sided.add(number)
    if entry.get("state") == "completed" or entry.get("retired"):
        group.completed[rank] = max(group.completed.get(rank, -1), number)


def _take_status(groups: dict[str, Group], rank: int, dump: Mapping[str, Any]) -> None:
    """Counters of pg_status: they know what has left the ring buffer.  They are kept by a local id."""
    status = dump.get("pg_status") or {}
    names = {str(e["pg_id"]): str(e["process_group"][0]) for e in dump["entries"] if "pg_id" in e}
    ids = sorted((str(i) for i in status), key=_order)
    configured = sorted((str(n) for n in dump["pg_config"]), key=_order)
    if len(ids) == len(configured):  # groups were made in one order, whatever their ids
        paired = dict(zip(ids, configured, strict=True))
        if all(paired.get(i) == n for i, n in names.items()):
            names = paired
    for local, name in names.items():
        group, counts = groups.get(name), status.get(local)
        if group is None or counts is None or group.p2p:
            continue
        group.issued[rank] = max(group.issued.get(rank, -1), int(counts["last_enqueued_collective"]))
        group.completed[rank] = max(group.completed.get(rank, -1), int(counts["last_completed_collective"]))


def _keep(worst: dict[int, Verdict], verdict: Verdict) -> None:
    order = ("stalled", "stopped", "behind")
    old = worst.get(verdict.rank)
    if old is None or order.index(verdict.state) < order.index(old.state):
        worst[verdict.rank] = verdict


def _called(group: Group) -> str:
    return f"group {group.name} ({group.text})" if group.text else f"group {group.name}"


def _order(text: str) -> tuple[int, str]:
    """Numbers in their order, before names."""
    return (int(text), "") if text.isdigit() else (2**62, text)


def _number(path: Path) -> int | None:
    found = re.search(r"(\d+)(\.(pkl|pickle|json|bin))?$", path.name)
    return int(found[1]) if found else None


def _load(path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as no:
            _fail(path, f"it cannot be read as JSON ({no})")
    return load_plain(path)


def _checked(path: Path, dump: Any) -> Mapping[str, Any]:
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        _fail(path, "this is no flight-recorder dump: a dict with a list 'entries' was expected")
    config = dump.get("pg_config")
    if not isinstance(config, dict) or not all(isinstance(c, dict) for c in config.values()):
        _fail(path, "it has no 'pg_config' with its process groups; dump with PyTorch 2.4 or later")
    for place, entry in enumerate(dump["entries"]):
        try:
            good = len(entry["process_group"]) == 2 and int(entry["collective_seq_id"]) >= 0
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            _fail(path, f"entries[{place}] has no process_group and collective_seq_id of a dump")
    status = dump.get("pg_status") or {}
    for name, counts in status.items() if isinstance(status, dict) else [("", None)]:
        if not isinstance(counts, dict) or not isinstance(counts.get("last_completed_collective"), int) or (
            not isinstance(counts.get("last_enqueued_collective"), int)
        ):  # fmt: skip
            _fail(
                path, f"pg_status[{name}] does not say last_enqueued_collective and last_completed_collective"
            )
    return dump


def _fail(path: Path, message: str) -> NoReturn:
    raise SpecError([Mistake(str(path), 0, 0, "", message)])
