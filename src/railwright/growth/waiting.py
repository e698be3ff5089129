"""How long jobs wait for GPUs that people share: Erlang's formula, and the load at which it passes a bound.

Jobs arrive at random, their lengths are exponential, each takes the same number of GPUs.  Then a pool of
GPUs is a queue of as many servers as jobs fit at once, and the mean wait over the mean length hangs on the
load alone.  `queueing.simulate` gives the same waits (tests/oracle/test_growth_queue.py).
"""

from __future__ import annotations


def erlang_c(servers: int, load: float) -> float:
    """Probability that a job has to wait, M/M/c.

    servers  jobs that run at once;  load  mean number of jobs that want to run (rate times length)

    1 where the load reaches the servers: the line then grows without end.
    Source: Erlang (1917); Kleinrock, Queueing Systems I (1975), section 3.4.  Erlang B by its recursion.
    """
    if load <= 0:
        return 0.0
    if servers <= 0 or load >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def wait_share(servers: int, load: float) -> float:
    """Mean wait over mean job length: Erlang C over (servers - load); infinite where the line never ends."""
    if load <= 0:
        return 0.0
    if load >= servers:
        return float("inf")
    return erlang_c(servers, load) / (servers - load)


def places(machines: int, gpus: int, job: int) -> int:
    """Jobs of `job` GPUs that run at once on machines of `gpus` each.

    A job up to a machine stays inside one; a larger one takes whole machines.
    """
    if job <= gpus:
        return machines * (gpus // job)
    return machines // -(-job // gpus)


def most_load(servers: int, share: float) -> float:
    """The load at which the mean wait is `share` of the mean job length; 0 without servers."""
    if servers <= 0:
        return 0.0
    low, high = 0.0, float(servers)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if wait_share(servers, middle) <= share else (low, middle)
    return low
