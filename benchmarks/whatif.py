"""How long `railwright fabric whatif` takes: every single failure and any two, 240 to 32,768 GPUs.

    .venv/bin/python benchmarks/whatif.py [--large]

Each case in its own process, one after the other; CPU seconds, wall seconds and peak memory of the whole
process, import and fabric included.  'alone': every element solved by itself instead of one per class.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "mixtral-240-h100.yaml"
CLOS = ROOT / "src" / "railwright" / "spec" / "templates" / "clos-32k.yaml"


def case(name: str, study: Path, pattern: str, pxn: bool, changes: dict, k: int, alone: bool) -> None:
    from railwright.catalog import load_catalog
    from railwright.fabric import build
    from railwright.network import Network
    from railwright.network.whatif.elements import elements
    from railwright.network.whatif.pattern import Pattern, world
    from railwright.network.whatif.price import price
    from railwright.network.whatif.sets import random_failures
    from railwright.network.whatif.single import single_failures
    from railwright.spec import load_study, override

    start = time.perf_counter()
    asked = override(load_study(str(study)), changes)
    fabric = build(asked.cluster, load_catalog(asked.catalog))
    network, sent = Network(fabric, asked.cluster.compute.routing), Pattern(pattern, world(fabric), pxn)
    found = elements(fabric)
    if alone:
        solved = len([price(network, sent, [element]) for element in found])
        failures = solved
    elif k > 1:
        sets = random_failures(network, sent, k)
        failures, solved = sets.sets, sets.solved
    else:
        effects = single_failures(network, sent).effects
        failures, solved = sum(e.count for e in effects), sum(e.solved for e in effects)
    wall = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu = time.process_time()
    counts = f"{fabric.num_gpus:>8,} {failures:>14,} {solved:>7,}"
    print(f"{name:<48} {counts} {cpu:>7.1f} {wall:>7.1f} {memory:>7.0f}", flush=True)


RAILS_96 = {"cluster.servers": 12, "cluster.compute.servers_per_group": 6, "jobs": []}

CASES = [
    ("240 GPUs, rails, all-to-all, PXN", EXAMPLE, "all-to-all", True, {}, 1, False),
    ("the same, alone", EXAMPLE, "all-to-all", True, {}, 1, True),
    ("240 GPUs, rails, ring", EXAMPLE, "ring", True, {}, 1, False),
    ("240 GPUs, rails, tree", EXAMPLE, "tree", True, {}, 1, False),
    ("96 GPUs, rails, any two, PXN", EXAMPLE, "all-to-all", True, RAILS_96, 2, False),
    ("240 GPUs, rails, any two, no PXN", EXAMPLE, "all-to-all", False, {}, 2, False),
    ("1,024 GPUs, rails", EXAMPLE, "all-to-all", True, {"cluster.servers": 128, "jobs": []}, 1, False),
    ("32,768 GPUs, 3 tiers, PXN", CLOS, "all-to-all", True, {}, 1, False),
    ("32,768 GPUs, 3 tiers, no PXN", CLOS, "all-to-all", False, {}, 1, False),
    ("32,768 GPUs, 3 tiers, ring", CLOS, "ring", True, {}, 1, False),
]
LARGE = [
    ("32,768 GPUs, 3 tiers, any two", CLOS, "all-to-all", False, {}, 2, False),
]


def main() -> None:
    print(f"{'':<48} {'GPUs':>8} {'failures':>14} {'solved':>7} {'CPU s':>7} {'wall s':>7} {'MB':>7}")
    for arguments in CASES + (LARGE if "--large" in sys.argv else []):
        process = multiprocessing.get_context("spawn").Process(target=case, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()
