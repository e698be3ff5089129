"""What mixtures of experts reach of a GPU's peak: what their own kernels do, less what published steps lose.

Kernels of mixtures reach from 21 to 72 % of a GPU's peak, by how wide the experts are and how many there are,
and steps follow them; those of dense models lie close together.  Half of the published series are of Grok-1,
whose eight wide experts run as dense layers do, at one size after another: shares of the peak, series by
series, would be its own.  So it is what a step keeps of the pace of its kernels that is borrowed, and each
model has one vote on a GPU.
Each published model left out in turn, the middle is 23 % off in 16 bits and 22 % in fp8 (in the mean of
|log|; with shares of the peak 45 and 31 %), and the range holds 7 of 9 and 20 of 28.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from railwright.catalog import load_catalog
from railwright.model import load_model
from railwright.shipped import read_data
from railwright.training.demand.borrowed import kernel_share
from railwright.training.software.constants import model_of, width_of

LEAST_MODELS = 5
"""A GPU with fewer published mixtures gets those of all GPUs."""

NEXT: Final = "weibull"
"""Ranks over n + 1: of n votes of one kind the next one is within the range eight times of ten (exchangeable
observations); percentiles of the votes themselves hold the next of nine six times."""


class Kept(NamedTuple):
    """What published steps of mixtures keep of the pace of their kernels: 10th, 50th and 90th percentile.

    own     whether they are all of the GPU that was asked for
    models  their names, each once
    gpus    models of GPUs they ran on
    """

    low: float
    middle: float
    high: float
    own: bool
    models: tuple[str, ...]
    gpus: tuple[str, ...]

    @property
    def source(self) -> str:
        """Where these shares are from, in words."""
        many = f"{len(self.models)} models ({', '.join(self.models)})"
        return (
            f"published steps of {many} on {', '.join(self.gpus)}, fastest layout of each series "
            f"(measure/data/training*.csv): {self.middle:.0%} of the pace of their own kernels alone "
            f"({self.low:.0%} to {self.high:.0%})"
        )


def kept(gpu: str, dtype: str) -> Kept | None:
    """What steps of mixtures keep on a GPU (catalogue name); of all GPUs where it has published steps of too
    few models; None where nobody published any of this width."""
    votes = _votes(width_of(dtype))
    if not votes:
        return None
    own = {key: share for key, share in votes.items() if key[0] == model_of(gpu)}
    chosen = own if len(own) >= LEAST_MODELS else votes
    low, middle, high = np.percentile([*chosen.values()], (10, 50, 90), method=NEXT).tolist()
    models, gpus = ({key[i]: None for key in chosen} for i in (1, 0))
    return Kept(low, middle, high, chosen is own, tuple(sorted(models)), tuple(gpus))


@cache
def _votes(width: str) -> dict[tuple[str, str], float]:
    """By model of GPU and bundled model: the median of what its published series reach over what its kernels
    reach, both of the dense peak.  Source: training/data/mfu.yaml (tools/fit_mfu.py)."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for gpu, model, sequence, dtype, mfu in read_data("training", "mfu.yaml").get(f"moe {width}", ()):
        share = kernel_share(load_model(model), sequence, load_catalog().gpus[gpu], dtype)
        found[model_of(gpu), model].append(mfu / share)
    return {key: float(np.median(shares)) for key, shares in found.items()}
