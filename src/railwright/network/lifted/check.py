"""Whether a lifted solution rests on a truly equitable partition, checked demand by demand.

Legend: F demands, X classes of demands, Y classes of links, L directed links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.network.lifted.classes import destinations, relays, sources
from railwright.network.lifted.solving import Lifted, lift
from railwright.network.maxmin import add_up
from railwright.network.routing.paths import Routes, find_routes
from railwright.network.routing.solution import Network
from railwright.traffic import Groups, Traffic

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

CLOSE = 1e-9


@dataclass(frozen=True)
class Breach:
    """The first promise that a partition breaks.

    checked  demands compared until then
    what     one sentence that names it
    """

    checked: int
    what: str


def unequal_classes(network: Network, traffic: Groups | Traffic) -> Breach | None:
    """The first breach of the partition that `solve_lifted` takes for this traffic; None: it is equitable.

    Three promises are checked on every demand and every link, on no sample: each source has as many
    destinations of every class as the source it is like; each demand crosses every class of links with the
    weight of the demand it is like; each link carries as much of every class of demands as the links of its
    class.  The last compares sums over classes, each times a random number of its own, so a breach stays
    unseen with a chance below one in a billion.
    Takes as long as routing every demand (about 20 us each), and no more memory than a block of them.
    """
    return check(network, lift(network, traffic))


def check(network: Network, work: Lifted) -> Breach | None:
    """The first breach of a partition, of whatever origin."""
    fabric, groups, classes = network.fabric, work.groups, work.classes
    kinds = int(work.link_class.max(initial=-1)) + 1
    number = len(classes.members) + int(work.alike.max(initial=-1)) + 1
    secret = np.random.default_rng(1).uniform(1.0, 2.0, number)
    carried = np.zeros(fabric.num_links)
    checked = 0
    wanted = _per_class(work.routes, work.link_class, kinds)
    seen = [classes.source, classes.kind, classes.target]
    row_of = {tuple(key): x for x, key in enumerate(np.column_stack(seen).tolist())}
    told = np.column_stack([*seen, classes.each])
    for gpu, _, joined in sources(groups, np.arange(fabric.num_gpus)):
        fine = work.partition.singled_out(work.graph, gpu)
        source = int(work.partition.label[gpu])
        like = told[classes.source == source]
        sees: list[list[int]] = []
        for group in joined:
            found, each, _ = destinations(groups, fine, gpu, group)
            kind = int(fine.label[fabric.num_devices + group])
            sees += [[source, kind, int(t), int(n)] for t, n in zip(found, each, strict=True)]
        if sorted(sees) != sorted(like.tolist()):
            other = fabric.device_name(int(classes.traffic.src[np.flatnonzero(classes.source == source)[0]]))
            return Breach(checked, f"{fabric.device_name(gpu)} does not see what {other} sees, its like.")
        for group in joined:
            ranks = groups.members(group).astype(np.int64)
            ranks = ranks[ranks != gpu]
            kind = int(fine.label[fabric.num_devices + group])
            row = np.array([row_of[source, kind, t] for t in fine.label[ranks].tolist()], np.int64)
            routes = find_routes(network, _from(fabric, groups, gpu, ranks, group))
            carried += routes.carried(secret[row], fabric.num_links)
            bad = _unlike(_per_class(routes, work.link_class, kinds), wanted[row])
            checked += len(ranks)
            if bad >= 0:
                pair = [int(x[row[bad]]) for x in (classes.traffic.src, classes.traffic.dst)]
                return Breach(checked, _differ(fabric, gpu, int(ranks[bad]), *pair))
    carried += work.explicit.carried(secret[len(classes.members) + work.alike], len(carried))
    every = checked + len(work.alike)
    return _explicit(fabric, work, kinds, checked) or _links(fabric, work, carried, every)


def _explicit(fabric: Fabric, work: Lifted, kinds: int, checked: int) -> Breach | None:
    """Explicit demands of one class cross the same classes of links and are of one size."""
    if not len(work.alike):
        return None
    demands = work.groups.explicit
    first = np.unique(work.alike, return_index=True)[1][work.alike]
    table = np.column_stack([_per_class(work.explicit, work.link_class, kinds), demands.size])
    bad = _unlike(table, table[first])
    if bad < 0:
        return None
    pair = [int(x[y]) for y in (bad, first[bad]) for x in (demands.src, demands.dst)]
    return Breach(checked + bad, _differ(fabric, *pair))


def _links(fabric: Fabric, work: Lifted, carried: Floats, checked: int) -> Breach | None:
    """Links of one class have one capacity and carry the same sum."""
    _, example, which = np.unique(work.link_class, return_index=True, return_inverse=True)
    first = example[which.reshape(-1)]
    table = np.column_stack([carried, fabric.capacity])
    bad = _unlike(table, table[first])
    if bad < 0:
        return None
    like = fabric.link_name(int(first[bad]))
    return Breach(checked, f"{fabric.link_name(bad)} does not carry what {like} carries, its like.")


def _differ(fabric: Fabric, src: int, dst: int, other_src: int, other_dst: int) -> str:
    name = fabric.device_name
    return (
        f"{name(src)} to {name(dst)} does not cross the links that {name(other_src)} to {name(other_dst)} "
        "crosses, its like."
    )


def _from(fabric: Fabric, groups: Groups, gpu: int, ranks: Longs, group: int) -> Traffic:
    """The demands of one rank of a group."""
    src, owner = np.full(len(ranks), gpu), np.full(len(ranks), group)
    return Traffic(
        src.astype(np.int32),
        ranks.astype(np.int32),
        relays(fabric, groups, src, ranks, owner),
        groups.size[owner],
    )


def _per_class(routes: Routes, link_class: Longs, kinds: int) -> Floats:
    """(F, Y) what each demand puts on each class of links, in shares of the demand."""
    ptr, link, weight = routes.flat()
    row = np.repeat(np.arange(len(routes)), np.diff(ptr))
    return add_up(row * kinds + link_class[link], weight, len(routes) * kinds).reshape(len(routes), kinds)


def _unlike(table: Floats, like: Floats) -> int:
    """First row that differs from its like, or -1."""
    scale = np.maximum(np.abs(like).max(initial=0.0), 1e-300)
    differs = (np.abs(table - like) > CLOSE * np.maximum(np.abs(like), 1e-6 * scale)).any(axis=1)
    return int(np.argmax(differs)) if differs.any() else -1
