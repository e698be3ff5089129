"""By when flows have finished at the latest, compiled: the twin of `last.look_plainly`.

Legend: F flows, L links, P entries of the incidence.  Importing this file compiles or loads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railwright.network.compiled.kernel_cache import compiled


def _look(ptr: Any, link: Any, weight: Any, capacity: Any, size: Any, target: float, same: float,
          rounds: int, effort: float) -> Any:  # fmt: skip
    """(F,) latest finish of each flow [s], looked into where it may be after the target.

    ptr, link, weight  CSR of the flows; weight is fraction times count, 0 without bytes
    same               latest finishes that fall by less, relatively, have not moved
    effort             neighbours that may be looked at
    """
    num_flows, num_links = len(size), len(capacity)
    row = np.empty(len(link), np.int64)
    crowd = np.zeros(num_links)
    start = np.zeros(num_links + 1, np.int64)
    for f in range(num_flows):
        for e in range(ptr[f], ptr[f + 1]):
            row[e] = f
            crowd[link[e]] += weight[e]
            start[link[e] + 1] += 1
    for y in range(num_links):
        start[y + 1] += start[y]
    fill = start[:-1].copy()
    crossing = np.empty(len(link), np.int64)
    for e in range(len(link)):
        crossing[fill[link[e]]] = e
        fill[link[e]] += 1

    latest = np.zeros(num_flows)
    wanted = np.zeros(num_flows, np.bool_)
    for f in range(num_flows):
        for e in range(ptr[f], ptr[f + 1]):
            latest[f] = max(latest[f], size[f] * crowd[link[e]] / capacity[link[e]])
        wanted[f] = latest[f] > target

    for _ in range(rounds):
        beyond = False
        for f in range(num_flows):
            beyond |= latest[f] > target
            if wanted[f]:
                for e in range(ptr[f], ptr[f + 1]):
                    effort -= start[link[e] + 1] - start[link[e]]
        if effort < 0 or not beyond:
            break
        moved = False
        # those that finish first come first: what follows from them is then settled in the same round
        turn = np.flatnonzero(wanted)
        for f in turn[np.argsort(latest[turn], kind="mergesort")]:
            if latest[f] == 0:
                continue
            links = ptr[f + 1] - ptr[f]
            num = 0
            for e in range(ptr[f], ptr[f + 1]):
                num += start[link[e] + 1] - start[link[e]]
            times, on, amount = np.empty(num), np.empty(num, np.int64), np.empty(num)
            left, own = np.empty(links), np.zeros(links)
            num = 0
            for k in range(links):
                y = link[ptr[f] + k]
                left[k] = crowd[y]
                for i in range(start[y], start[y + 1]):
                    e = crossing[i]
                    if row[e] == f:
                        own[k] += weight[e]
                    else:
                        times[num], on[num], amount[num] = latest[row[e]], k, weight[e]
                        num += 1
            order = np.argsort(times[:num])
            now, bytes_left, at = 0.0, size[f], 0
            while True:
                rate = np.inf
                for k in range(links):
                    # what is left is a difference, and never less than the flow itself
                    held = max(left[k], own[k])
                    if held > 0:
                        rate = min(rate, capacity[link[ptr[f] + k]] / held)
                after = times[order[at]] if at < num else np.inf
                if now + bytes_left / rate <= after:
                    now += bytes_left / rate
                    break
                bytes_left -= rate * (after - now)
                now = after
                while at < num and times[order[at]] <= now:
                    left[on[order[at]]] -= amount[order[at]]
                    at += 1
            if now < latest[f]:
                moved |= now < latest[f] * (1 - same)
                latest[f] = now
        for f in range(num_flows):
            if latest[f] > target:
                for e in range(ptr[f], ptr[f + 1]):
                    y = link[e]
                    for i in range(start[y], start[y + 1]):
                        if not wanted[row[crossing[i]]]:
                            wanted[row[crossing[i]]] = True
                            moved = True
        if not moved:
            break
    return latest


look = compiled(
    _look,
    "float64[::1](int64[::1], int32[::1], float64[::1], float64[::1], float64[::1], float64, float64, int64,"
    " float64)",
)
