"""GPU-hours of published runs against the range we give without knowing their layout.

Source: Touvron et al., "Llama 2", arXiv 2307.09288, table 2: GPU-hours on A100-80GB at 2 T tokens of 4,096;
7B 184,320, 13B 368,640, 70B 1,720,320.  Meta ran thousands of GPUs over RoCE or InfiniBand; no layout is
given, so nothing but the kind of model and the GPU is known to us.  Llama 3's hours on H100 are in its model
card (training/data/whole_runs.yaml): far more than published benchmarks, why is not known.
DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 3.2.3: 172.8 thousand H800 hours per trillion tokens;
"DeepSeek-V3", arXiv 2412.19437, table 1: 2,664 thousand H800 hours of pre-training, 14.8 trillion tokens of
4,096.  No step on H800 is in the table that demand borrows from.
"""

from __future__ import annotations

import pytest

from railwright.catalog import load_catalog
from railwright.model import load_model
from railwright.training.demand.budget import Demand, Equipment, TokenBudget, demand, usual_server
from railwright.training.demand.whole_runs import over_middle, whole_runs

TOKENS, SEQUENCE = 2e12, 4096
LLAMA_2 = {"llama-2-7b": 184_320, "llama-2-13b": 368_640, "llama-2-70b": 1_720_320}


def asked(model: str, days: float | None = None, gpus: int | None = None) -> Demand:
    catalog = load_catalog()
    gpu = catalog.gpus["a100-sxm-80"]
    budget = TokenBudget(load_model(model), TOKENS, SEQUENCE, "bf16")
    return demand(budget, Equipment(gpu, usual_server(catalog, gpu)), days=days, gpus=gpus)


@pytest.mark.parametrize(("model", "hours"), LLAMA_2.items())
def test_llama_2_lies_in_the_range(model: str, hours: float) -> None:
    """The 80 % range of published A100 runs holds each; its middle is 10 % to 25 % too fast (measured)."""
    found = asked(model).gpu_hours
    assert found.low < hours < found.high
    assert found.middle == pytest.approx(hours, rel=0.30)


@pytest.mark.parametrize(
    ("model", "tokens", "dtype", "hours"),
    [("deepseek-v2", 1e12, "bf16", 172_800), ("deepseek-v3", 14.8e12, "fp8", 2_664_000)],
)
def test_deepseek_lies_in_the_range(model: str, tokens: float, dtype: str, hours: float) -> None:
    """Mixtures of many narrow experts, on a GPU of whose steps none is published: 1.22 and 1.08 times the
    middle (1.51 and 1.22 when shares of the peak were borrowed, most of them Grok-1's)."""
    catalog = load_catalog()
    gpu = catalog.gpus["h800"]
    run = TokenBudget(load_model(model), tokens, SEQUENCE, dtype)
    found = demand(run, Equipment(gpu, usual_server(catalog, gpu))).gpu_hours
    assert found.low < hours < found.high
    assert found.middle < hours < 1.25 * found.middle


def test_llama_2_70b_takes_over_a_month_on_2000_gpus() -> None:
    """1,720,320 h / 2,000 = 35.8 days; our middle is over 30 days too."""
    found = asked("llama-2-70b", gpus=2000)
    assert found.days.middle > 30
    assert found.days.low < 1_720_320 / 2000 / 24 < found.days.high


def test_llama_2_70b_in_a_day() -> None:
    """One day takes 10 EFLOP/s sustained whatever the machine, on up to about 30 EFLOP/s of A100 peak."""
    found = asked("llama-2-70b", days=1)
    assert found.sustained.middle == pytest.approx(10.3e18, rel=0.01)
    assert found.fleet_peak.low < 1_720_320 / 24 * 312e12 < found.fleet_peak.high
    assert found.fleet_peak.high == pytest.approx(30e18, rel=0.05)


def test_whole_runs_take_more_than_the_middle() -> None:
    """No published run took fewer GPU-hours than the middle; Llama 3's are beyond the range, and are told."""
    gpus, kinds = load_catalog().gpus, ("dense", "moe")
    on = [(gpus[name], kind) for name in ("a100-sxm-80", "h100-sxm", "h800", "b300-sxm") for kind in kinds]
    told = {run.run: ratio for gpu, kind in on for run, ratio in over_middle(gpu, kind)}
    assert set(told) == {run.run for run in whole_runs()}
    assert all(ratio > 1.0 for ratio in told.values()), told
    assert told["Llama 2 70B"] == pytest.approx(1_720_320 / asked("llama-2-70b").gpu_hours.middle)
    assert 1.3 < told["Llama 3 70B"] < 1.6
    assert 2.2 < told["Llama 3 8B"] < 2.7
    assert 1.0 < told["Falcon 180B"] < 1.1
    assert 2.4 < told["Trinity Large"] < 3.0


def test_a_mixture_hears_of_mixtures() -> None:
    """A plan of one was told what Llama 3's runs took; a GPU that has dense runs alone tells those."""
    gpus = load_catalog().gpus
    assert [run.run for run, _ in over_middle(gpus["h100-sxm"], "moe")] == [
        "Llama 4 Scout",
        "Llama 4 Maverick",
    ]
    assert {run.kind for run, _ in over_middle(gpus["h100-sxm"], "dense")} == {"dense"}
    assert [run.run for run, _ in over_middle(gpus["h800"], "moe")] == ["DeepSeek-V2", "DeepSeek-V3"]
    assert over_middle(gpus["a100-sxm-80"], "moe") == over_middle(gpus["a100-sxm-80"], "dense")
