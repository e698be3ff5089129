"""Forwarding tables as a routing: which link every switch sends by towards every NIC port.

Legend: S switches (leaves, spines, cores, in order of device id), D destinations (cables between NICs and
leaves, in order of cable id: one LID, so to speak, per NIC port), F walks, H hops, L directed links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.shortest import shortest_paths, switch_graph
from railwright.network.routing.switching import Crossing, SwitchPaths, static, static_tables

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

NO_LINK = -1
"""In tables: the switch has no route to the destination."""

REACHED, HOLE, DEAD, ASTRAY, LOOP = range(5)
"""How a walk ends: at its goal, at a switch without a route, at a failed cable, at another NIC, never."""

LONG = 16
"""Hops after which a walk is suspected to run in a circle; paths of the families here have at most five."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Destination-based forwarding of a whole fabric.

    out     (S, D) directed link by which each switch sends to each destination; NO_LINK where it has no
            route, which is no fault where nothing ever comes by
    source  where the tables come from, for messages
    """

    out: Ints
    source: str = "tables"


@dataclass(frozen=True, eq=False)
class Walks:
    """Where packets go.

    links  (F, H) links taken, the one down to the NIC included, padded with -1
    end    (F,) REACHED, HOLE, DEAD, ASTRAY or LOOP
    last   (F,) device where the walk ended, or a switch of the circle
    """

    links: Ints
    end: Ints
    last: Ints


def switches(fabric: Fabric) -> Ints:
    """(S,) the switches in the order of the rows of tables."""
    return np.flatnonzero(fabric.kind >= Kind.LEAF).astype(np.int32)


def destinations(fabric: Fabric) -> Ints:
    """(D,) the NIC-leaf cables in the order of the columns of tables."""
    return np.flatnonzero(fabric.role == Role.NODE_LEAF).astype(np.int32)


def destination_name(fabric: Fabric, cable: int) -> str:
    """'server-03/nic-1', with its port where the NIC has several cables."""
    nic = int(fabric.a[cable])
    several = np.count_nonzero((fabric.a == nic) & (fabric.role == Role.NODE_LEAF)) > 1
    return fabric.device_name(nic) + (f" port {int(fabric.port_a[cable])}" if several else "")


def own_tables(fabric: Fabric) -> Tables:
    """Our own 'static' routing as tables, one destination per live NIC port.

    On fabrics whose NICs have one cable each, traffic under these tables goes exactly as under 'static'.
    Entries of switches that no path from a leaf crosses stay NO_LINK.
    """
    graph, cables = switch_graph(fabric), destinations(fabric)
    out = np.full((len(switches(fabric)), len(cables)), NO_LINK, np.int32)
    live = np.flatnonzero((fabric.capacity[2 * cables] > 0) & (fabric.capacity[2 * cables + 1] > 0))
    # Destinations are dealt in order of NIC and port, as they come in order of the host's adapters.
    order = live[np.lexsort((fabric.port_a[cables[live]], fabric.a[cables[live]]))]
    home = graph.inner[fabric.b[cables[order]]].astype(np.int64)
    if not len(order):
        return Tables(out, "our static tables")
    digits = static_tables(graph, home)
    leaves = np.unique(home)
    start, goal = (x.reshape(-1) for x in np.meshgrid(leaves, np.arange(len(order)), indexing="ij"))
    away = start != home[goal]
    start, goal = start[away], goal[away]
    pairs, pair = np.unique(home[goal] * graph.num_nodes + start, return_inverse=True)
    paths = shortest_paths(graph, pairs % graph.num_nodes, pairs // graph.num_nodes)
    near = paths.start[pair] >= 0
    goal, pair = goal[near], pair[near]
    flows = Crossing(pair, lambda qp: np.zeros(len(pair), np.uint64), lambda: digits[goal])
    links = static(graph, paths, flows, 0).links
    first = int(fabric.num_devices - len(out))
    out[fabric.b[cables[order]] - first, order] = 2 * cables[order] + 1
    for column in links.T:
        on = column >= 0
        out[_tails(fabric)[column[on]] - first, order[goal[on]]] = column[on]
    return Tables(out, "our static tables")


def walk(fabric: Fabric, tables: Tables, start: Ints, column: Longs) -> Walks:
    """Follow the tables from leaves to destinations.

    start   (F,) device ids of switches
    column  (F,) destinations, as columns of the tables
    Raises PlanError for tables of another size than the fabric's.
    """
    _check_size(fabric, tables)
    first = fabric.num_devices - len(tables.out)
    head, kind = _heads(fabric), fabric.kind
    goal = 2 * destinations(fabric)[column] + 1
    end = np.full(len(start), LOOP, np.int32)
    last = start.astype(np.int32).copy()
    columns: list[Ints] = []
    going = np.arange(len(start))
    while len(going):
        if len(columns) == LONG:
            circling = _circles(fabric, tables)[last[going] - first, column[going]]
            going = going[~circling]
        link = tables.out[last[going] - first, column[going]]
        hole = link < 0
        dead = ~hole & (fabric.capacity[np.maximum(link, 0)] <= 0)
        end[going[hole]], end[going[dead]] = HOLE, DEAD
        going, link = going[~hole & ~dead], link[~hole & ~dead]
        if not len(going):
            break
        taken = np.full(len(start), -1, np.int32)
        taken[going] = link
        columns.append(taken)
        last[going] = head[link]
        done = link == goal[going]
        end[going[done]] = REACHED
        astray = ~done & (kind[head[link]] < Kind.LEAF)
        end[going[astray]] = ASTRAY
        going = going[~done & ~astray]
    links = np.stack(columns, axis=1) if columns else np.zeros((len(start), 0), np.int32)
    return Walks(links, end, last)


def wrong(fabric: Fabric, tables: Tables, walks: Walks, start: Ints, column: Longs, which: int) -> str:
    """One sentence on a walk that does not arrive, naming switch and destination."""
    cable = int(destinations(fabric)[column[which]])
    goal, leaf = destination_name(fabric, cable), fabric.device_name(int(start[which]))
    last, end = int(walks.last[which]), int(walks.end[which])
    here = fabric.device_name(last)
    if end == HOLE:
        return f"{here} has no route to {goal} (asked from {leaf})"
    if end == DEAD:
        link = int(tables.out[last - (fabric.num_devices - len(tables.out)), column[which]])
        return f"{here} sends to {goal} by a failed cable, {fabric.link_name(link)} (asked from {leaf})"
    if end == ASTRAY:
        through = fabric.device_name(int(_tails(fabric)[walks.links[which][walks.links[which] >= 0][-1]]))
        return f"{through} sends what is for {goal} to {here} instead (asked from {leaf})"
    circle = _circle(fabric, tables, last, int(column[which]))
    return f"what is for {goal} runs in a circle from {leaf}: {' -> '.join(circle)}"


def table_paths(fabric: Fabric, tables: Tables, nic_out: Ints, nic_in: Ints) -> SwitchPaths:
    """Paths of flows between NICs under tables, as `find_routes` wants them.

    nic_out, nic_in  (F,) device ids, of NICs with live cables

    A flow between NICs of one cable each takes one path.  Where a NIC has several, bytes divide evenly over
    the pairs of ports that the tables join: in a fabric of planes, those of one plane.
    Raises PlanError with the first flow that does not arrive.
    """
    num_nics = fabric.num_devices
    pair, flow = np.unique(nic_out.astype(np.int64) * num_nics + nic_in, return_inverse=True)
    out, into = (pair // num_nics).astype(np.int32), (pair % num_nics).astype(np.int32)
    rising, falling = _ports(fabric, 0), _ports(fabric, 1)
    many_out = np.count_nonzero(rising[out] >= 0, axis=1) > 1
    many_in = np.count_nonzero(falling[into] >= 0, axis=1) > 1
    row, leave, arrive = _lanes(rising[out], falling[into])
    cables = destinations(fabric)
    start = fabric.b[cables[leave]]
    walks = walk(fabric, tables, start, arrive)
    arrives = walks.end == REACHED
    joined = np.bincount(row[arrives], minlength=len(pair)) > 0
    failed = np.flatnonzero(~arrives & ((walks.end != HOLE) | ~joined[row]))
    if len(failed):
        which = int(failed[0])
        raise PlanError(
            f"{tables.source}: {wrong(fabric, tables, walks, start, arrive, which)}, so "
            f"{fabric.device_name(int(out[row[which]]))} cannot reach it; mend the tables or dump them again"
        )
    row, leave, arrive, walked = row[arrives], leave[arrives], arrive[arrives], walks.links[arrives]
    up = np.where(many_out[row], 2 * cables[leave], -1).astype(np.int32)[:, None]
    links = walked.copy()
    links[(walked == (2 * cables[arrive] + 1)[:, None]) & ~many_in[row][:, None]] = -1
    whole = np.concatenate([up, links], axis=1)

    several = many_out | many_in
    single = np.full((len(pair), whole.shape[1]), -1, np.int32)
    alone = ~several[row]
    single[row[alone]] = whole[alone]
    number = np.full(len(pair), -1, np.int32)
    number[several] = np.arange(np.count_nonzero(several), dtype=np.int32)
    parts = np.flatnonzero(several[row])
    used = whole[parts] >= 0
    of = np.repeat(number[row[parts]], used.sum(axis=1))
    share = 1.0 / np.maximum(np.bincount(number[row[parts]], minlength=1), 1)
    # Two ways of one flow may share a link: it stands there once, with both shares.
    on, again = np.unique(of * np.int64(fabric.num_links) + whole[parts][used], return_inverse=True)
    weight = np.bincount(again.reshape(-1), share[of], len(on)).astype(np.float64, copy=False)
    ends = np.cumsum(np.bincount(on // fabric.num_links, minlength=np.count_nonzero(several)))
    link = (on % fabric.num_links).astype(np.int32)
    return SwitchPaths(single[flow], number[flow], np.append(0, ends).astype(np.int64), link, weight)


def _lanes(rising: Ints, falling: Ints) -> tuple[Longs, Longs, Longs]:
    """(pair, leaving column, arriving column) of every way from port to port, in order of pair."""
    row, p, q = np.nonzero((rising[:, :, None] >= 0) & (falling[:, None, :] >= 0))
    return row, rising[row, p].astype(np.int64), falling[row, q].astype(np.int64)


def _ports(fabric: Fabric, direction: int) -> Ints:
    """(N, ports) column of the cable on each port of a NIC that is live in a direction (0: out), or -1."""
    cables = destinations(fabric)
    table = np.full((fabric.num_devices, int(fabric.port_a[cables].max(initial=0)) + 1), -1, np.int32)
    live = np.flatnonzero(fabric.capacity[2 * cables + direction] > 0)
    table[fabric.a[cables[live]], fabric.port_a[cables[live]]] = live
    return table


def _circles(fabric: Fabric, tables: Tables) -> NDArray[np.bool_]:
    """(S, D) whether what a switch sends to a destination never leaves the switches; steps are doubled."""
    num, first = len(tables.out), fabric.num_devices - len(tables.out)
    ahead = np.where(tables.out >= 0, _heads(fabric)[tables.out] - first, num)
    ahead[(ahead < 0) | (fabric.capacity[tables.out] <= 0)] = num
    jump = np.vstack([ahead, np.full((1, ahead.shape[1]), num)])
    for _ in range(max(num, 1).bit_length()):
        jump = np.take_along_axis(jump, jump, axis=0)
    circling: NDArray[np.bool_] = jump[:num] < num
    return circling


def _circle(fabric: Fabric, tables: Tables, here: int, column: int) -> list[str]:
    """Names of the switches on a circle that passes by, or is reached from, a switch."""
    head, first = _heads(fabric), fabric.num_devices - len(tables.out)
    seen: list[int] = []
    while here not in seen:
        seen.append(here)
        here = int(head[tables.out[here - first, column]])
    return [fabric.device_name(device) for device in [*seen[seen.index(here) :], here]]


def _check_size(fabric: Fabric, tables: Tables) -> None:
    wanted = len(switches(fabric)), len(destinations(fabric))
    if tables.out.shape != wanted:
        raise PlanError(
            f"{tables.source} are for {tables.out.shape[0]} switches and {tables.out.shape[1]} NIC ports, the"
            f" fabric has {wanted[0]} and {wanted[1]}; read them again for this fabric"
        )


def _tails(fabric: Fabric) -> Ints:
    return np.stack([fabric.a, fabric.b], axis=1).reshape(-1)


def _heads(fabric: Fabric) -> Ints:
    return np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
