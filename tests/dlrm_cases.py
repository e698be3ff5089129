"""A recommendation job, its machine and its study, for tests."""

from __future__ import annotations

from functools import cache

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.model.recommendation.dlrm import Recommender, load_recommender
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.training import StepResult
from railwright.training.recommendation.dlrm import simulate_recommendation

MODEL = load_recommender("dlrm-dcnv2")

SMALL = Recommender(
    name="small",
    rows=(1_000_000,) * 64,
    lookups=(10,) * 64,
    width=64,
    dense_features=16,
    bottom=(128, 64),
    top=(256, 1),
    interaction="dot",
)

STUDY = """\
railwright: 1
name: ranking
cluster:
  servers: 8
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
recommendations:
  - {name: ranking, model: dlrm-dcnv2, global_batch: 135168, samples: 4.2e9, dtype: fp16}
sensitivity:
  - {name: Half the batch, set: {recommendations.ranking.global_batch: 67584}}
"""


@cache
def machine(servers: int = 8) -> Machine:
    """A rail-optimised cluster of 8-GPU servers."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    return Machine.of(cluster, load_catalog(), NcclSettings())


def asked(**fields: object) -> RecommendationJob:
    """DLRM-DCNv2 at MLPerf's largest batch, with some fields changed."""
    given = {"name": "r", "model": "dlrm-dcnv2", "global_batch": 135168, "samples": 4.2e9, "dtype": "fp16"}
    return RecommendationJob(**(given | fields))


def ranking(**changes: object) -> RecommendationJob:
    """A job of SMALL, with some fields changed."""
    fields: dict[str, object] = {"name": "ranking", "model": "small", "global_batch": 32_768, "samples": 1e9}
    return RecommendationJob(**{**fields, **changes})  # type: ignore[arg-type]


def step(job: RecommendationJob, model: Recommender = SMALL, **how: object) -> StepResult:
    """Its step on four servers."""
    return simulate_recommendation(job, model, machine(4), **how)  # type: ignore[arg-type]
