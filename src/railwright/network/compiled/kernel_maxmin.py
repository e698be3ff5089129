"""Max-min fair rates, compiled: the twin of `maxmin.max_min_rates`. Importing this file compiles or loads it.

Legend: F flows, L links, P entries of the incidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railwright.network.compiled.kernel_cache import compiled


def _fill(ptr: Any, link: Any, weight: Any, slack: Any) -> Any:
    """Rate of each flow (F,), filling links in order of the level at which they saturate.

    ptr, link, weight  CSR of the flows; weight is fraction times count
    slack              (L,) capacity for these flows; overwritten
    """
    num_flows, num_links = len(ptr) - 1, len(slack)
    rate = np.zeros(num_flows)
    demand = np.zeros(num_links)
    left = np.zeros(num_links, np.int64)
    for e in range(ptr[num_flows]):
        demand[link[e]] += weight[e]
        left[link[e]] += 1
    start = np.zeros(num_links + 1, np.int64)
    for y in range(num_links):
        start[y + 1] = start[y] + left[y]
    fill = start[:-1].copy()
    flow_at = np.empty(ptr[num_flows], np.int64)
    for f in range(num_flows):
        for e in range(ptr[f], ptr[f + 1]):
            flow_at[fill[link[e]]] = f
            fill[link[e]] += 1

    # A binary heap of links by level; a level only rises, so a stale top is corrected and sifted down.
    heap = np.empty(num_links, np.int64)
    level = np.empty(num_links)
    size = 0
    for y in range(num_links):
        if left[y] > 0:
            level[y] = slack[y] / demand[y]
            heap[size] = y
            size += 1
    root = size // 2 - 1
    fixed = np.zeros(num_flows, np.bool_)
    while size > 0:
        building = root >= 0
        at = root if building else 0
        if building:
            root -= 1
        else:
            y = heap[0]
            if left[y] == 0:
                size -= 1
                heap[0] = heap[size]
            else:
                now = max(slack[y], 0.0) / demand[y]
                if now <= level[y] * (1 + 1e-13):
                    for k in range(start[y], start[y + 1]):
                        f = flow_at[k]
                        if not fixed[f]:
                            fixed[f] = True
                            rate[f] = now
                            for e in range(ptr[f], ptr[f + 1]):
                                slack[link[e]] -= weight[e] * now
                                demand[link[e]] -= weight[e]
                                left[link[e]] -= 1
                    size -= 1
                    heap[0] = heap[size]
                else:
                    level[y] = now
        while True:
            child = 2 * at + 1
            if child >= size:
                break
            if child + 1 < size and level[heap[child + 1]] < level[heap[child]]:
                child += 1
            if level[heap[at]] <= level[heap[child]]:
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child
    return rate


fill = compiled(_fill, "float64[::1](int64[::1], int32[::1], float64[::1], float64[::1])")
