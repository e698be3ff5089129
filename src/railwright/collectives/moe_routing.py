"""Expected token copies of a mixture-of-experts layer: how many nodes and GPUs a token's experts sit on.

E experts spread evenly, k of them per token, drawn uniformly without repetition; N nodes of L ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb, expm1, lgamma, prod

from railwright.errors import PlanError


def distinct_groups(experts: int, groups: int, topk: int) -> float:
    """Expected number of different groups that k experts drawn without repetition fall into.

    experts  E, spread evenly over `groups` (E / groups each)
    Each group is missed with probability C(E - E/groups, k) / C(E, k) (hypergeometric, closed form).
    """
    return groups * _hit(experts, experts // groups, topk)


def nodes_kept(nodes: int, topk: int, limit: int | None) -> int:
    """Nodes that a token's k experts are drawn from.

    limit  M: nodes that its experts may lie on; None: any
    k experts lie on k nodes at most, so a limit of k or more leaves out none: a router that first keeps the k
    nodes with the best single expert keeps those of the k best experts.
    """
    return nodes if limit is None or limit >= topk else min(limit, nodes)


@dataclass(frozen=True)
class Copies:
    """Copies of one token, on average.

    nodes         different nodes it goes to, its own among them as likely as any other
    ranks         different GPUs it goes to
    remote_nodes  nodes other than its own: RDMA copies when each node is sent one
    lane          copies that cross NVLink when the GPU of the same place in each node forwards them
    """

    nodes: float
    ranks: float
    remote_nodes: float
    lane: float


def copies(experts: int, topk: int, nodes: int, ranks_per_node: int, nodes_limit: int | None) -> Copies:
    """Expected copies of one token.

    nodes_limit  M: the router first keeps M nodes, then takes k experts of theirs; None or k: of all

    Of M kept nodes any is the sender's own with chance M/N, hence the (N-1)/N of both counts.  With a limit
    the kept nodes are taken as drawn uniformly; routers that keep the nodes of the best expert (DeepSeek-V3,
    arXiv:2412.19437 section 2.1.2) hit slightly more of them.
    """
    kept = nodes_kept(nodes, topk, nodes_limit)
    pool = experts // nodes * kept
    if topk > pool:
        raise PlanError(
            f"topk = {topk} experts do not fit in the {pool} experts of {kept} of {nodes} nodes; "
            f"raise nodes_limit to at least {-(-topk * nodes // experts)} or lower topk."
        )
    at_nodes = distinct_groups(pool, kept, topk)
    at_ranks = distinct_groups(pool, kept * ranks_per_node, topk)
    return Copies(
        nodes=at_nodes,
        ranks=at_ranks,
        remote_nodes=at_nodes * (nodes - 1) / nodes,
        lane=at_ranks * (ranks_per_node - 1) / ranks_per_node,
    )


@dataclass(frozen=True)
class Exchanged:
    """What ranks exchange where a token goes once to each node and is passed on there, in copies of a token.

    between  of an all-to-all over all ranks, whose busiest NIC sends or receives as much as this exchange's
    inside   of an all-to-all over the ranks of one node
    """

    between: float
    inside: float


@cache
def exchanged(experts: int, parts: tuple[int, ...], topk: int, limit: int | None) -> Exchanged:
    """Copies that a group's ranks exchange, however many of them lie on each node.

    parts  ranks of the group on each node; every rank holds as many experts
    limit  M: nodes that a token's experts may lie on; None: any

    A node of r of the n ranks holds r / n of the experts, and a token goes there with chance p, whichever
    rank it is on.  Its copies are spread evenly over the r ranks, so that each NIC there receives
    (n - r) p / r: most in the smallest node, more than any NIC sends.  An all-to-all of p n / r copies, of
    which (n - r) / n leave, loads it alike.  Where all nodes hold as many ranks, p n / r are the different
    nodes of a token and the load of every NIC is exact; else those of larger nodes have less.  Combine sends
    the same back.
    With a limit M nodes are kept, drawn in proportion to the experts they hold together: then every expert is
    as likely as any other.
    Raises PlanError where no M nodes hold k experts.
    """
    ranks = sum(parts)
    each = experts // ranks
    sets = [s for s in _kept(parts, nodes_kept(len(parts), topk, limit)) if sum(s[1]) * each >= topk]
    if not sets:
        raise PlanError(
            f"topk = {topk} experts do not fit on {limit} of {len(parts)} nodes that hold "
            f"{', '.join(str(part * each) for part in parts)}; raise the limit or lower topk."
        )
    most = sum(ways * sum(kept) for ways, kept in sets)
    between = inside = 0.0
    for part, count in Counter(parts).items():
        node = rank = 0.0
        for ways, kept in sets:
            pool = sum(kept)
            # Of all nodes of this size those that are among the kept ones.
            chance = ways * pool / most * kept.count(part) / count
            node += chance * _hit(pool * each, part * each, topk)
            rank += chance * _hit(pool * each, each, topk)
        between = max(between, node * ranks / part)
        inside = max(inside, rank * ranks)
    return Exchanged(between, inside)


def _kept(parts: tuple[int, ...], kept: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Sizes of every different choice of `kept` nodes, and how many ways lead to it."""
    sizes = Counter(parts)
    for taken in product(*(range(min(count, kept) + 1) for count in sizes.values())):
        if sum(taken) == kept:
            ways = prod(comb(count, n) for count, n in zip(sizes.values(), taken, strict=True))
            yield ways, tuple(size for size, n in zip(sizes, taken, strict=True) for _ in range(n))


def _hit(experts: int, held: int, topk: int) -> float:
    """Chance that any of k experts drawn without repetition is one of `held`."""
    if topk > experts - held:
        return 1.0
    return -expm1(_log_choose(experts - held, topk) - _log_choose(experts, topk))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
