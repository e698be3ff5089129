"""Expected token copies of a mixture-of-experts layer: how many nodes and GPUs a token's experts sit on.

E experts spread evenly, k of them per token, drawn uniformly without repetition; N nodes of L ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, lgamma

from railwright.errors import PlanError


def distinct_groups(experts: int, groups: int, topk: int) -> float:
    """Expected number of different groups that k experts drawn without repetition fall into.

    experts  E, spread evenly over `groups` (E / groups each)
    Each group is missed with probability C(E - E/groups, k) / C(E, k) (hypergeometric, closed form).
    """
    missed = experts - experts // groups
    if topk > missed:
        return float(groups)
    return groups * -expm1(_log_choose(missed, topk) - _log_choose(experts, topk))


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


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
