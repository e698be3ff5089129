"""The utilisation of GPUs without published steps: that of others, scaled by what isolated kernels reach.

A step is slower than its kernels alone, by software, network and waiting: that part is borrowed from GPUs
that have published steps.  What share of a GPU's peak its kernels reach is its own (compute/data) and differs
between GPUs by up to a factor of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import exp, gcd, log

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu
from railwright.compute.time import kernel_times, peak_rate
from railwright.errors import PlanError
from railwright.model import Cut, layer_operators
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import layer_kinds
from railwright.training.software.constants import model_of

EXPERT_PARALLEL = 8
"""GPUs that experts are spread over here: those of a server, as most mixtures are trained at least."""


def kernel_share(arch: Transformer, sequence: int, gpu: Gpu, dtype: str) -> float:
    """FLOPs of all layers' kernels over the time they take one by one and the dense peak; 0 to 1.

    Of one sequence on one GPU, forward and backward, products in `dtype` and attention in 16 bits, experts
    spread over eight GPUs, as `compute.kernel_time` has them on that GPU.  Embedding, head, optimizer and
    launches are left out.
    """
    flops = seconds = 0.0
    ep = gcd(arch.experts, EXPERT_PARALLEL) if arch.is_moe else 1
    for kind, count in Counter(layer_kinds(arch)).items():
        layer = layer_operators(arch, kind, sequence, sequence, Cut(ep=ep), dtype=dtype)
        operators = (*layer.forward, *layer.backward_input, *layer.backward_weight)
        flops += count * sum(op.flops for op in operators)
        seconds += count * kernel_times(operators, gpu)
    return flops / (seconds * peak_rate(gpu, dtype))


def kernels_over(arch: Transformer, sequence: int, gpu: Gpu, dtype: str, series: Mapping[str, int]) -> float:
    """What share of its peak a GPU's kernels reach, over that of the GPUs whose published steps stand for it.

    series  published series of each of those ('H100': 102), by which they count; geometric mean
    Those that lack the dtype, or its kernels, do not count.  1 where none is left.
    """
    own, total, weight = log(kernel_share(arch, sequence, gpu, dtype)), 0.0, 0
    for name, count in series.items():
        other = next((g for g in load_catalog().gpus.values() if model_of(g.name) == name), None)
        if other is None:
            continue
        try:
            total += count * log(kernel_share(arch, sequence, other, dtype))
        except PlanError:
            continue
        weight += count
    return exp(own - total / weight) if weight else 1.0
