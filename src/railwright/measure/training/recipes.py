"""What Megatron-Bridge's recipes say of its published steps beyond its tables of results."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

RECIPE_KEYS = ("software", "kind", "model", "gpu", "dtype", "gbs")


@lru_cache(maxsize=1)
def _recipes() -> Mapping[tuple[str, ...], Mapping[str, str]]:
    text = resources.files("railwright.measure").joinpath("data/recipes.csv").read_text(encoding="utf-8")
    return {tuple(row[k] for k in RECIPE_KEYS): row for row in csv.DictReader(text.splitlines())}


def recipe_of(record: Mapping[str, str]) -> Mapping[str, str]:
    """What Megatron-Bridge's recipe of a record's release says beyond its tables of results; {} for others.

    dispatcher  alltoall, deepep or hybridep
    hidden      'yes': expert all-to-alls run beside other microbatches' compute
    graphs      what is launched as CUDA graphs (`TrainingJob.cuda_graphs`)
    recompute   modules computed again
    fused       'yes': the MLP of the experts is one fused kernel
    layers      of every virtual stage, computed again whole (`Layout.recompute_layers`)
    also        what is multiplied in MXFP8 beside the layers' linear parts (`TrainingJob.dtype_also`)
    tp to mbs   its layout, where the table of results says otherwise
    Source: scripts/performance/configs at the tag of the release (tools/carry_recipes.py).
    """
    return _recipes().get(tuple(record[k] for k in RECIPE_KEYS), {})
