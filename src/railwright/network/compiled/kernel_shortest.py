"""Hops to targets, compiled: the twin of `shortest.distances_plainly`.

Legend: N nodes, A arcs, T targets, P sources of all targets.  Importing this file compiles or loads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railwright.network.compiled.kernel_cache import compiled


def _distances(into_ptr: Any, into: Any, tail: Any, out: Any, head: Any, transit: Any, ends: Any, first: Any,
               source: Any, far: int) -> Any:  # fmt: skip
    """(T * N,) hops to each target: known for every source and all that lies on its way, else `far`.

    into_ptr, into  (N+1,), (A,) CSR of the arcs into a node;  tail, head  (A,) of each arc
    out             (N+1,) arcs out of a node are out[n]..out[n+1]
    transit         (N,) whether paths may pass through
    ends            (T,) targets;  first, source  (T+1,), (P,) CSR of the nodes asked about

    From each target backwards, a hop at a time, until its sources are met; they look one hop ahead where that
    is less than the next step back.
    """
    nodes, targets = len(into_ptr) - 1, len(ends)
    distance = np.full(targets * nodes, far, np.int16)
    queue, missing = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for t in range(targets):
        own = distance[t * nodes : (t + 1) * nodes]
        own[ends[t]] = 0
        queue[0] = ends[t]
        begin, end, step = 0, 1, 0
        while begin < end:
            num, ahead = 0, 0
            for i in range(first[t], first[t + 1]):
                if own[source[i]] == far:
                    missing[num] = source[i]
                    num += 1
                    ahead += out[source[i] + 1] - out[source[i]]
            if num == 0:
                break
            step += 1
            back = 0
            for i in range(begin, end):
                back += into_ptr[queue[i] + 1] - into_ptr[queue[i]]
            if ahead < back:
                met = 0
                for i in range(num):
                    for a in range(out[missing[i]], out[missing[i] + 1]):
                        y = head[a]
                        if own[y] == step - 1 and (transit[y] or y == ends[t]):
                            met += 1
                            break
                if met == num:
                    for i in range(num):
                        own[missing[i]] = step
                    break
            stop = end
            for i in range(begin, end):
                for k in range(into_ptr[queue[i]], into_ptr[queue[i] + 1]):
                    x = tail[into[k]]
                    if own[x] == far:
                        own[x] = step
                        if transit[x]:
                            queue[stop] = x
                            stop += 1
            begin, end = end, stop
    return distance


distances = compiled(
    _distances,
    "int16[::1](int64[::1], int32[::1], int32[::1], int64[::1], int32[::1], boolean[::1], int64[::1],"
    " int64[::1], int64[::1], int64)",
)
