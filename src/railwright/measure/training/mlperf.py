"""What the configurations of MLPerf Training's submissions say beyond their rows of the tables of records."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources


@lru_cache(maxsize=1)
def configurations() -> Mapping[str, Mapping[str, str]]:
    """Record -> what `configuration_of` says of it."""
    data = resources.files("railwright.measure").joinpath("data/mlperf_configurations.csv")
    rows = csv.DictReader(data.read_text(encoding="utf-8").splitlines())
    return {row["id"]: {k: v for k, v in row.items() if v and k not in ("id", "source")} for row in rows}


def configuration_of(record: Mapping[str, str]) -> Mapping[str, str]:
    """Columns of a record of MLPerf's that its submission's configuration says; {} for all other records.

    mbs to dtype  columns of a record that its table leaves out
    graphs        what is launched as CUDA graphs (`TrainingJob.cuda_graphs`): LAYER_CUDA_GRAPH and
                  MCORE_CUDA_GRAPH layers, FULL_CUDA_GRAPH and the latter over a full iteration the step
    amax          ranks that agree on fp8 maxima (`TrainingJob.amax_over`), by the revision of Megatron-LM and
                  by TP_ONLY_AMAX_RED where a script passes it on; nothing reads FP8_REDUCE_AMAX
    ends          ASYM_PP_EMBED and ASYM_PP_LOSS (`Layout.ends_as_layers`)
    tp_overlap    'no': TP_COMM_OVERLAP is off
    eager_loss    CROSS_ENTROPY_LOSS_FUSION, and what adapters' scripts leave at its default, off
    te_ops        'yes': layers are sequences of Transformer Engine's fused operations (USE_TE_OPS)
    context_kind  CP_COMM_TYPE (`Layout.context_kind`), where it is not a ring
    bucket        BUCKET_SIZE (`TrainingJob.ddp_bucket`), where its script passes it on
    Source: mlcommons/training_results_v4.0 to v5.1, what a system's log prints of its configuration, else
    <submitter>/benchmarks/<benchmark>/…/<source>, with the files it takes from beside it
    (tools/carry_mlperf.py).  FP8_DPA and FP8_ACT are left out (what they would change:
    docs/training/unseen.md), VBOOST_VALUE is not modelled.
    """
    return configurations().get(record["id"], {})
