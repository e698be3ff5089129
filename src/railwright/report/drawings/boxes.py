"""What a drawing of a fabric shows as one box: a device, or a group of like devices with its count.

Positions and widths are shares of the drawing's width, 0..1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Kind, Role, server_name
from railwright.units import show_count

Ints = NDArray[np.int32]
Spans = dict[int, tuple[float, float]]

MOST_SERVERS = 40
MOST_SWITCHES = 40
MOST_GROUPS = 20
SHOWN_GROUPS = 9
WIDEST_DEVICE, WIDEST_GROUP = 0.11, 0.23
NOUNS = {Kind.GPU: "server", Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}
PLURALS = {Kind.GPU: "servers", Kind.LEAF: "leaves", Kind.SPINE: "spines", Kind.CORE: "cores"}


@dataclass(frozen=True)
class Box:
    """One box: `count` devices of one kind (GPU stands for servers) and where it is drawn.

    rail   of a leaf that serves one rail, else -1
    state  '' | 'failed' (all its cables) | 'slow' | 'hurt' (a group with a failed device in it)
    """

    kind: Kind
    name: str
    label: str
    short: str
    count: int
    rail: int
    state: str
    centre: float
    width: float


@dataclass(frozen=True)
class _Member:
    """One thing of a tier: a server or a switch, and the device ids that belong to it.

    group  what it is drawn with: its scalable unit, or its pod where units are too many to draw
    """

    ordinal: int
    group: int
    rail: int
    devices: tuple[int, ...]


def boxes_of(fabric: Fabric) -> tuple[list[Box], Ints]:
    """The boxes, bottom row first, and (N,) the box of each device."""
    box_of = np.full(fabric.num_devices, -1, np.int32)
    states = _states(fabric)
    pods = _pods(fabric)
    groups, by_pod = _drawn_groups(fabric, pods)
    boxes: list[Box] = []
    spans: Spans = {}
    for kind in (Kind.GPU, Kind.LEAF, Kind.SPINE, Kind.CORE):
        members = _servers(fabric, groups) if kind == Kind.GPU else _switches(fabric, kind, groups)
        if not members:
            continue
        gathered = _gather(members, _single(kind, members, boxes))
        over = spans if kind == Kind.LEAF else _pod_spans(spans, pods, by_pod) if kind == Kind.SPINE else {}
        places = _places(gathered, over)
        for (label, short, group), (centre, width) in zip(gathered, places, strict=True):
            devices = [d for member in group for d in member.devices]
            box_of[devices] = len(boxes)
            rails = {member.rail for member in group}
            rail = group[0].rail if len(rails) == 1 else -1
            name = _name(fabric, kind, group, label)
            boxes.append(
                Box(kind, name, label, short, len(group), rail, _state(states, group), centre, width)
            )
            if kind == Kind.GPU:
                for member in group:
                    low, high = spans.get(member.group, (1.0, 0.0))
                    spans[member.group] = (min(low, centre - width / 2), max(high, centre + width / 2))
    return boxes, box_of


def _pods(fabric: Fabric) -> Ints | None:
    """(U,) pod of spines that each scalable unit hangs on; None without pods."""
    units = fabric.group[fabric.kind == Kind.LEAF]
    spines = fabric.group[fabric.kind == Kind.SPINE]
    if len(np.unique(spines)) < 2 or spines.min() < 0 or units.min(initial=0) < 0:
        return None
    up = fabric.role == Role.LEAF_SPINE
    at_a = fabric.kind[fabric.a[up]] == Kind.LEAF
    leaf = np.where(at_a, fabric.a[up], fabric.b[up])
    spine = np.where(at_a, fabric.b[up], fabric.a[up])
    pods = np.full(int(fabric.group.max()) + 1, -1, np.int32)
    pods[fabric.group[leaf]] = fabric.group[spine]
    return pods


def _drawn_groups(fabric: Fabric, pods: Ints | None) -> tuple[Ints, bool]:
    """(N,) the group that each device is drawn with, and whether that is its pod.

    Where the scalable units are too many for a drawing, their devices are drawn by pod.
    """
    units = np.unique(fabric.group[fabric.kind == Kind.LEAF])
    if pods is None or len(units) <= MOST_GROUPS:
        return fabric.group, False
    below = (fabric.group >= 0) & (fabric.kind <= Kind.LEAF)
    drawn = fabric.group.copy()
    drawn[below] = pods[fabric.group[below]]
    return drawn, True


def _pod_spans(spans: Spans, pods: Ints | None, by_pod: bool) -> Spans:
    """Where each pod's spines belong: above all units of the pod."""
    if pods is None:
        return {}
    if by_pod:
        return spans
    found: Spans = {}
    for unit, (low, high) in spans.items():
        before = found.get(int(pods[unit]), (1.0, 0.0))
        found[int(pods[unit])] = (min(before[0], low), max(before[1], high))
    return found


def _servers(fabric: Fabric, groups: Ints) -> list[_Member]:
    """Every server with its GPUs, NICs and scale-up switch, by the group of its first device that has one."""
    order = np.argsort(fabric.server, kind="stable")
    order = order[fabric.server[order] >= 0]
    starts = np.searchsorted(fabric.server[order], np.arange(fabric.num_servers + 1))
    members = []
    for server in range(fabric.num_servers):
        devices = order[starts[server] : starts[server + 1]]
        group = int(groups[devices].max(initial=-1))
        members.append(_Member(server, group, -1, tuple(int(d) for d in devices)))
    return members


def _switches(fabric: Fabric, kind: Kind, groups: Ints) -> list[_Member]:
    return [
        _Member(i, int(groups[d]), int(fabric.rail[d]), (int(d),)) for i, d in enumerate(fabric.devices(kind))
    ]


def _single(kind: Kind, members: Sequence[_Member], boxes: Sequence[Box]) -> bool:
    """Whether a tier is drawn device by device.

    Leaves are not where their servers share one box for many groups: they would all have to stand over it.
    """
    if len(members) > (MOST_SERVERS if kind == Kind.GPU else MOST_SWITCHES):
        return False
    crowded = len({member.group for member in members}) > MOST_GROUPS and any(box.count > 1 for box in boxes)
    return kind != Kind.LEAF or not crowded


def _gather(members: Sequence[_Member], single: bool) -> list[tuple[str, str, list[_Member]]]:
    """(label, short label, members) of each box: single devices where they are few, else groups."""
    if single:
        return [(f"{m.ordinal + 1:02d}", str(m.ordinal + 1), [m]) for m in members]
    groups: dict[int, list[_Member]] = {}
    for member in members:
        groups.setdefault(member.group, []).append(member)
    keys = list(groups)
    if len(keys) <= MOST_GROUPS:
        return [(*_label(groups[key]), groups[key]) for key in keys]
    shown, rest = keys[: SHOWN_GROUPS - 1], keys[SHOWN_GROUPS - 1 : -1]
    found = [(*_label(groups[key]), groups[key]) for key in shown]
    others = [member for key in rest for member in groups[key]]
    found.append((f"… {show_count(len(others))} more", f"+{len(others)}", others))
    found.append((*_label(groups[keys[-1]]), groups[keys[-1]]))
    return found


def _label(group: Sequence[_Member]) -> tuple[str, str]:
    """Long and short: how many there are, or the number of the only one."""
    if len(group) == 1:
        return f"{group[0].ordinal + 1:02d}", str(group[0].ordinal + 1)
    return f"× {show_count(len(group))}", str(len(group))


def _places(gathered: Sequence[tuple[str, str, list[_Member]]], spans: Spans) -> list[tuple[float, float]]:
    """(centre, width) of each box: in the span of its own group where that is known, else side by side."""
    by_group: dict[int, list[int]] = {}
    for i, (_, _, members) in enumerate(gathered):
        by_group.setdefault(members[0].group, []).append(i)
    placed = [(0.0, 0.0)] * len(gathered)
    if len(by_group) > 1 and all(group in spans for group in by_group):
        for group, indices in by_group.items():
            low, high = spans[group]
            pitch = (high - low) / len(indices)
            for nth, i in enumerate(indices):
                placed[i] = (low + (nth + 0.5) * pitch, min(_widest(gathered[i][2]), pitch * 0.86))
        return placed
    # Neighbours of different groups get half a box more room between them.
    gaps = [0.0]
    for before, after in pairwise(gathered):
        gaps.append(0.5 if before[2][0].group != after[2][0].group and len(gathered) > len(by_group) else 0.0)
    pitch = 1.0 / (len(gathered) + sum(gaps))
    x = 0.0
    for i in range(len(gathered)):
        x += gaps[i] * pitch
        placed[i] = (x + pitch / 2, min(_widest(gathered[i][2]), pitch * 0.82))
        x += pitch
    return placed


def _widest(members: Sequence[_Member]) -> float:
    return WIDEST_DEVICE if len(members) == 1 else WIDEST_GROUP


def _name(fabric: Fabric, kind: Kind, group: Sequence[_Member], label: str) -> str:
    if len(group) == 1:
        member = group[0]
        if kind == Kind.GPU:
            return server_name(member.ordinal)
        rail = f" (rail {member.rail + 1})" if member.rail >= 0 else ""
        return fabric.device_name(member.devices[0]) + rail
    noun = PLURALS[kind]
    if label.startswith("…"):
        return f"{show_count(len(group))} more {noun}"
    first, last = group[0].ordinal + 1, group[-1].ordinal + 1
    return (
        f"{noun} {first:02d} to {last:02d}"
        if last - first + 1 == len(group)
        else f"{show_count(len(group))} {noun}"
    )


def _states(fabric: Fabric) -> Ints:
    """(N,) 0 whole, 1 slow, 2 failed: all its scale-out cables are so; -1 without such cables."""
    worst = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2])
    out = fabric.role >= Role.NODE_LEAF
    cables, failed, slow = (np.zeros(fabric.num_devices) for _ in range(3))
    for end in (fabric.a, fabric.b):
        np.add.at(cables, end[out], 1)
        np.add.at(failed, end[out], worst[out] <= 0)
        np.add.at(slow, end[out], worst[out] < fabric.rate[out] * 0.999)
    state = np.where(cables > 0, 0, -1).astype(np.int32)
    state[(cables > 0) & (slow == cables)] = 1
    state[(cables > 0) & (failed == cables)] = 2
    return state


def _state(states: Ints, group: Sequence[_Member]) -> str:
    """Of a box: all of it failed, all of it slow, or a group with something failed or slow inside.

    A server counts as failed when all its NICs are cut off, not when one rail is.
    """
    worst = [min((int(states[d]) for d in m.devices if states[d] >= 0), default=0) for m in group]
    if min(worst) == 2:
        return "failed"
    if min(worst) == 1:
        return "slow"
    return "hurt" if max(worst) > 0 else ""
