"""Chakra execution traces read back: our own, ASTRA-sim's, and those converted from PyTorch's.

A folder holds one file per rank, its number in the name ('workload.3.et'); gzip is seen by its first bytes.
The JSON that Chakra's jsonizer makes of a file is read too.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from railwright.traces import chakra
from railwright.traces.chakra_files import Raw, jsonized, protobuf
from railwright.traces.graph import ALONE, Group, Kind, Node, StepTrace
from railwright.traces.reading import WHOLE, content, finite, json_of, whole
from railwright.traces.refusal import wrong

NAME = re.compile(r"(\d+)\.(?:et|json)(?:\.gz)?$")
"""The last number of a file's name is its rank."""

UNDESCRIBED = "undefined"
"""PyTorch's description of a group that was made without one (distributed_c10d.py, new_group)."""

HOST_COPIES = ("Memcpy HtoD", "Memcpy DtoH")
"""How copies from and to the host are named in traces converted from PyTorch's, as CUPTI names them."""

_NO_PEER = (
    " Chakra's converter does not write between whom PyTorch's sends go, so of its traces those without "
    "pipeline stages are replayed; add it to the nodes of others."
)
"""src/converter/pytorch_converter.py writes `comm_size` and `pg_name` of them."""

_MEMORY = (2, 3)
"""NodeType: MEM_LOAD_NODE, MEM_STORE_NODE."""

_ROOFLINE = ("num_ops", "tensor_size")
"""What ASTRA-sim prices such nodes by (workload/Workload.cc, issue_comp and issue_remote_mem)."""

_OPS = {number: op for op, number in chakra.COMM_TYPE.items()}


def read(folder: str | Path) -> StepTrace:
    """The traces of all ranks of a folder; rank i is on GPU i where its file names no other.

    Raises SpecError, naming file and byte, where a file is missing, cut off or no trace, a node waits for one
    that is not there, or says a communication that cannot be replayed.
    """
    where = Path(folder)
    files = _files(where)
    groups = _group_file(where, len(files))
    ranks: list[tuple[Node, ...]] = []
    found: list[tuple[Path, list[Raw]]] = []
    gpus: list[int] = []
    for rank, file in enumerate(files):
        raws = list(jsonized(file) if ".json" in file.suffixes[-2:] else protobuf(file))
        for raw in raws:
            if raw.kind == chakra.METADATA and "pg_name" in raw.inputs:
                groups |= _groups(file, raw, len(files))
        gpus.append(_gpu(file, raws, rank))
        found.append((file, raws))
    _refuse_shared(files, gpus)
    everyone = Group("all ranks", tuple(range(len(files))))
    for rank, (file, raws) in enumerate(found):
        ranks.append(_nodes(file, rank, raws, groups, everyone))
    used = {node.group for nodes in ranks for node in nodes if node.group}
    kept = {name: group for name, group in groups.items() if name in used}
    if everyone.name in used:
        kept[everyone.name] = everyone
    return StepTrace(
        where.name, len(files), lambda rank: ranks[rank], kept, tuple(gpus),
        _notes([raw for _, raws in found for raw in raws]), in_turn=all(map(_in_turn, ranks)),
    )  # fmt: skip


def _in_turn(nodes: tuple[Node, ...]) -> bool:
    """Whether nodes are listed as a program calls them: none waits for a later one.

    Generators of synthetic traces (astra-sim/symbolic_tensor_graph) list them in any order.
    """
    place = {node.index: i for i, node in enumerate(nodes)}
    return all(place[before] < i for i, node in enumerate(nodes) for before in node.after)


def _notes(raws: list[Raw]) -> tuple[str, ...]:
    """What a replay takes no time for though it would have some elsewhere."""
    works = [raw for raw in raws if raw.kind in (*_MEMORY, chakra.COMPUTE)]
    sized = [raw for raw in works if any(raw.attributes.get(key) for key in _ROOFLINE)]
    untimed = sum(not raw.micros and chakra.SECONDS not in raw.attributes for raw in sized)
    if not untimed:
        return ()
    return (
        f"{untimed:,} of {len(works):,} computing and memory nodes say operations or bytes (num_ops, "
        "tensor_size) and no time, and take none here; ASTRA-sim's models of a roofline and of memory give "
        "them one. Give them duration_micros for the time of a whole step.",
    )


def _gpu(file: Path, raws: list[Raw], rank: int) -> int:
    """Where a rank is: as the head of its file says, else the GPU of its number."""
    said = next((raw.attributes[chakra.GPU] for raw in raws if chakra.GPU in raw.attributes), rank)
    if not isinstance(said, int) or said < 0:
        raise wrong(file, "", f"its head names GPU '{said}' ({chakra.GPU}); GPUs count from 0.")
    return said


def _refuse_shared(files: list[Path], gpus: list[int]) -> None:
    first: dict[int, Path] = {}
    for file, gpu in zip(files, gpus, strict=True):
        if gpu in first:
            raise wrong(
                file,
                "",
                f"it is on GPU {gpu}, and so is '{first[gpu].name}'; keep the files of one trace together.",
            )
        first[gpu] = file


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise wrong(
            folder,
            "",
            "no such file or folder; name the folder that holds a trace per rank, or a workload of SimAI.",
        )
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = NAME.search(path.name)
        if not match or not path.is_file():
            continue
        rank = int(match[1])
        if rank in found:
            raise wrong(path, "", f"'{found[rank].name}' is rank {rank} too; keep one of them.")
        found[rank] = path
    if not found:
        raise wrong(
            folder,
            "",
            "no execution traces here: neither files named like 'workload.0.et' or '0.json' nor a workload "
            "of SimAI.",
        )
    missing = next((rank for rank in range(len(found)) if rank not in found), None)
    if missing is not None:
        raise wrong(
            folder,
            "",
            f"{len(found)} traces up to rank {max(found)}, but none of rank {missing}; ranks count from 0 "
            "and none may be left out.",
        )
    return [found[rank] for rank in range(len(found))]


def _group_file(folder: Path, ranks: int) -> dict[str, Group]:
    """ASTRA-sim's groups, where they lie beside the traces: in GROUP_FILE, or in the only file that has any.

    Its name is an argument there, and symbolic_tensor_graph calls it as the traces ('workload.json').
    """
    file = folder / chakra.GROUP_FILE
    if not file.exists():
        others = [path for path in sorted(folder.glob("*.json")) if not NAME.search(path.name)]
        holding = [path for path in others if _lists_groups(path)]
        if len(holding) > 1:
            names = ", ".join(f"'{path.name}'" for path in holding)
            raise wrong(folder, "", f"groups of ranks in {names}; call the right one {chakra.GROUP_FILE}.")
        if not holding:
            return {}
        file = holding[0]
    try:
        listed = json_of(content(file).decode())
        if not isinstance(listed, dict) or not all(isinstance(held, list) for held in listed.values()):
            raise ValueError("they are an object of lists of ranks, by the group's name")
        groups = {str(name): Group(str(name), tuple(whole(r) for r in held)) for name, held in listed.items()}
    except (TypeError, ValueError) as error:
        raise wrong(file, "", f"no groups of ranks: {error}.") from None
    for group in groups.values():
        if not group.ranks or not all(0 <= rank < ranks for rank in group.ranks):
            raise wrong(file, "", f"group '{group.name}' is not of ranks 0 to {ranks - 1}.")
        if (twice := _twice(group)) is not None:
            raise wrong(file, "", f"group '{group.name}' has rank {twice} twice.")
    return groups


def _lists_groups(file: Path) -> bool:
    """Whether a file is an object of lists by numbers, as ASTRA-sim has its groups."""
    try:
        listed = json_of(content(file).decode())
    except ValueError:
        return False
    numbered = isinstance(listed, dict) and bool(listed) and all(str(name).isdecimal() for name in listed)
    return numbered and all(isinstance(held, list) for held in listed.values())


def _twice(group: Group) -> int | None:
    """A rank that a group lists more than once."""
    return next((rank for rank, count in Counter(group.ranks).items() if count > 1), None)


def _groups(file: Path, raw: Raw, ranks: int) -> dict[str, Group]:
    """Process groups of a metadata node: Python's text of a list that holds a JSON list."""
    text = raw.inputs[raw.inputs.find("[", 1) : raw.inputs.rfind("]", 0, -1) + 1]
    found = {}
    try:
        for one in json_of(text):
            members = tuple(whole(rank) for rank in one["ranks"]) or tuple(range(ranks))
            name = str(one["pg_name"])
            family = str(one.get("pg_desc", ""))
            found[name] = Group(name, members, "" if family == UNDESCRIBED else family)
            strange = next((rank for rank in members if not 0 <= rank < ranks), None)
            if strange is not None:
                raise wrong(
                    file,
                    raw.where,
                    f"process group '{name}' has rank {strange}, and there are "
                    f"traces of {ranks} ranks; add the others.",
                )
            if (twice := _twice(found[name])) is not None:
                raise wrong(file, raw.where, f"process group '{name}' has rank {twice} twice.")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise wrong(file, raw.where, f"its process groups cannot be read: {error}.") from None
    return found


def _nodes(
    file: Path, rank: int, raws: list[Raw], groups: dict[str, Group], everyone: Group
) -> tuple[Node, ...]:
    known: set[int] = set()
    raws = raws[1:]  # the first is the head
    for raw in raws:
        if raw.index < 0:
            raise wrong(file, raw.where, f"node {raw.index} ('{raw.name}'); their numbers are 0 or more.")
        if raw.index in known:
            raise wrong(file, raw.where, f"a second node {raw.index}.")
        known.add(raw.index)
    found = []
    for raw in raws:
        lost = next((before for before in raw.after if before not in known), None)
        if lost is not None:
            raise wrong(
                file,
                raw.where,
                f"node {raw.index} ('{raw.name}') waits for node {lost}, which is not in the file.",
            )
        # Chakra's converter takes out a root that no data waits for, and leaves its number in what it called
        # (src/converter/pytorch_converter.py, remove_dangling_nodes).
        raw.after = [caller for caller in raw.callers if caller in known] + raw.after
        found.append(_node(file, rank, raw, groups, everyone))
    return tuple(found)


def _node(file: Path, rank: int, raw: Raw, groups: dict[str, Group], everyone: Group) -> Node:
    attributes = raw.attributes
    exact = attributes.get(chakra.SECONDS)
    seconds = finite(exact) if isinstance(exact, int | float) else raw.micros * 1e-6
    if seconds is None or seconds < 0:
        shown = seconds if seconds is not None else exact
        raise wrong(
            file,
            raw.where,
            f"node {raw.index} ('{raw.name}') takes {shown} s; times are 0 or more, and finite.",
        )
    kinds: dict[int, Kind] = {chakra.SEND: "send", chakra.RECEIVE: "receive", chakra.COLLECTIVE: "collective"}
    alone: Kind = "host" if attributes.get("is_cpu_op") or raw.kind <= 1 else "compute"
    copies = attributes.get(chakra.COPY) or (alone == "compute" and raw.name.startswith(HOST_COPIES))
    kind = kinds.get(raw.kind, "copy" if copies else alone)
    node = Node(raw.index, raw.name, kind, tuple(dict.fromkeys(raw.after)), seconds)
    if kind in ALONE:
        return node
    said = _whole(file, raw, "comm_size")
    if kind == "collective":
        number = _whole(file, raw, "comm_type")
        if number not in _OPS:
            raise wrong(
                file,
                raw.where,
                f"node {raw.index} ('{raw.name}') is a collective of type {number}, "
                f"which cannot be replayed; known are {', '.join(_OPS.values())}.",
            )
        group = _group(file, rank, raw, groups, everyone)
        parts = max(1, _whole(file, raw, chakra.PARTS, 1))
        total = chakra.total_size(_OPS[number], float(said), len(group.ranks)) * parts
        return replace(node, op=_OPS[number], size=_exact(file, raw, total), group=group.name, parts=parts)
    peer = _whole(file, raw, "comm_dst" if kind == "send" else "comm_src")
    if not 0 <= peer < len(everyone.ranks):
        raise wrong(
            file,
            raw.where,
            f"node {raw.index} ('{raw.name}') names rank {peer}, and there are traces "
            f"of {len(everyone.ranks)} ranks.",
        )
    size = _exact(file, raw, float(said))
    return replace(node, size=size, peer=peer, tag=_whole(file, raw, "comm_tag", 0, -WHOLE))


def _whole(file: Path, raw: Raw, name: str, default: int | None = None, least: int = 0) -> int:
    value = raw.attributes.get(name, default)
    if not isinstance(value, int) or value < least:
        said = f"says '{name}' {str(value)[:20]!r}" if name in raw.attributes else f"says no '{name}'"
        more = _NO_PEER if name in ("comm_src", "comm_dst") and name not in raw.attributes else ""
        raise wrong(
            file,
            raw.where,
            f"communication node {raw.index} ('{raw.name}') {said}; a replay needs it, as a whole "
            f"number{' of 0 or more' if not least else ''}.{more}",
        )
    return value


def _exact(file: Path, raw: Raw, size: float) -> float:
    """The exact size where our own writer put it beside the whole bytes of `comm_size`, which make `size`."""
    held = raw.attributes.get(chakra.SIZE, size)
    exact = finite(held)
    if exact is None or exact < 0:
        raise wrong(
            file,
            raw.where,
            f"communication node {raw.index} ('{raw.name}') says {chakra.SIZE} {held}; sizes are 0 or more.",
        )
    return exact


def _group(file: Path, rank: int, raw: Raw, groups: dict[str, Group], everyone: Group) -> Group:
    name = str(raw.attributes.get("pg_name", raw.attributes.get("comm_group", "")))
    group = groups.get(name)
    if group is None and name in ("", "0"):
        return everyone
    if group is None or rank not in group.ranks:
        what = (
            f"is described nowhere; put ASTRA-sim's file of groups beside the traces, as {chakra.GROUP_FILE}"
            if group is None
            else f"does not have rank {rank}"
        )
        raise wrong(
            file,
            raw.where,
            f"node {raw.index} ('{raw.name}') runs in process group '{name}', which {what}.",
        )
    return group
