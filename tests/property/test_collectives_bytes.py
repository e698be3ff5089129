"""What NICs carry of every algorithm, counted demand by demand on random groups, is the closed form.

n ranks in D scale-up domains; R NICs that every domain can offer; bytes per byte of S.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from collectives_machines import machine
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.group import group_of
from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.placement import domain_of_gpu


def members(rng: random.Random, gpus: int) -> list[int]:
    """Neighbours, every second, fourth or eighth GPU, or any."""
    count = rng.choice([2, 3, 5, 6, 8, 13, 16, 24, gpus])
    first = rng.randrange(gpus - count + 1)
    step = rng.choice([2, 4, 8])
    every = list(range(0, gpus, step))[:count]
    return rng.choice([list(range(first, first + count)), every, sorted(rng.sample(range(gpus), count))])


def sent(traffic: Traffic, domain: np.ndarray, nic: np.ndarray) -> tuple[Counter[int], Counter[int]]:
    """Bytes that leave and enter by each NIC."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    rows = zip(*(x.tolist() for x in (traffic.src, traffic.dst, traffic.relay, traffic.size)), strict=True)
    for source, target, relay, size in rows:
        if domain[source] != domain[target]:
            out[int(nic[source if relay < 0 else relay])] += size
            into[int(nic[target])] += size
    return out, into


@pytest.mark.parametrize("pxn", [True, False])
@pytest.mark.parametrize("server", ["dgx-h100", "dgx-a100", "server-8x-h100-pcie", "dgx-1-v100"])
def test_nics_carry_the_closed_form_of_every_algorithm(server: str, pxn: bool) -> None:
    rng = random.Random(f"{server} {pxn}")
    fabric = machine(4, server=server).network.fabric
    domain, nic = domain_of_gpu(fabric), fabric.nic_of_gpu
    seen: set[str] = set()
    for _ in range(60):
        comm = Communicator(np.array(members(rng, fabric.num_gpus), np.int32))
        group = group_of(machine(4, server=server), comm)
        n, where = len(comm), domain[comm.gpus]
        domains = len(set(where.tolist()))
        if domains == 1 or n < 2:
            continue
        shared = min(len(set(nic[comm.gpus[where == d]].tolist())) for d in np.unique(where))
        busiest = {
            ("ring", "all_reduce"): 2 * (n - 1) / n,
            ("ring", "all_gather"): (n - 1) / n,
            ("ring", "reduce_scatter"): (n - 1) / n,
            # two nodes cross an edge once; of three none has two children in one tree
            ("tree", "all_reduce"): {2: 1.0, 3: 1.5}.get(domains, 2.0),
            ("nvlstree", "all_reduce"): {2: 1.0, 3: 1.5}.get(domains, 2.0),
            # a switch adds up: S goes up once and comes down once
            ("collnet", "all_reduce"): 1.0,
        }
        for (name, op), most in busiest.items():
            algorithm = ALGORITHMS[name]
            if algorithm.unavailable(op, group, True):  # type: ignore[arg-type]
                continue
            seen.add(name)
            out, into = sent(algorithm.traffic(fabric, [comm], op, pxn), domain, nic)  # type: ignore[arg-type]
            assert max(*out.values(), *into.values()) == pytest.approx(most / shared), (name, op, comm.gpus)
            # a tree of D nodes has D - 1 edges, each crossed up and down
            whole = {"ring": most * domains, "collnet": domains}.get(name, 2 * (domains - 1))
            assert sum(out.values()) == pytest.approx(whole), (name, op, comm.gpus)
    assert {"ring", "tree", "collnet"} <= seen
