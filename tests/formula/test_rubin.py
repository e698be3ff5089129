"""Vera Rubin NVL72: what its catalogue entry brings into rooms, and what is said of what nobody measured."""

from __future__ import annotations

import pytest

from railwright.catalog import find, load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.compute import kernel_time, profile_of
from railwright.errors import PlanError
from railwright.fabric import build, count
from railwright.model import load_model
from railwright.model.operators.layer import layer_operators
from railwright.serving.kernels.constants import kernels_of
from railwright.spec.study import Cluster
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.passes.offload import host_link

CATALOG = load_catalog()
RUBIN, BLACKWELL = (find(CATALOG.gpus, name) for name in ("vr200", "gb300"))


def racks(family: str = "rack-rails", **more: object) -> Cluster:
    network = {"family": family, "switch": "q3400-ra", "nics_per_tray": 4, **more}
    return Cluster.model_validate({"servers": 8, "server": "vr200-nvl72", "compute": network})


def test_two_adapters_of_a_gpu_are_two_ports_of_one():
    found = count(build(racks(), CATALOG), CATALOG)
    # 4 rails x 8 racks x 18 trays x 2 ports = 1,152 ports on leaves of 144, half of them down
    assert (found.leaves, found.spines) == (16, 8)
    assert found.node_leaf == found.leaf_spine == 1152


def test_each_of_the_two_has_a_plane_of_its_own():
    found = count(build(racks("dual-plane"), CATALOG), CATALOG)
    assert found.node_leaf == 1152
    assert found.leaves % 8 == 0  # a leaf at least for each of 4 rails in 2 planes


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "mxfp8", "nvfp4"])
def test_no_kernel_is_slower_than_on_gb300_nor_gains_more_than_its_peak_and_memory(dtype: str):
    arch = load_model("llama-3.1-70b")
    narrow = {"mxfp8": "fp8", "nvfp4": "fp4"}.get(dtype, dtype)
    most = max(RUBIN.peak_flops[d] / BLACKWELL.peak_flops[d] for d in ("bf16", narrow))
    most = max(most, RUBIN.hbm_bandwidth / BLACKWELL.hbm_bandwidth)
    for operator in layer_operators(arch, "dense", 8192, 8192, dtype=dtype).forward:
        gain = kernel_time(operator, BLACKWELL, profile_of(BLACKWELL)) / kernel_time(
            operator, RUBIN, profile_of(RUBIN)
        )
        assert 1.0 <= gain <= most, operator.name


def test_a_training_step_runs_and_says_that_no_step_of_it_is_published():
    machine = Machine.of(racks(), CATALOG, NcclSettings())
    job = TrainingJob.model_validate(
        {
            "name": "dense", "model": "llama-3.1-8b", "gpus": 72, "software": "megatron-2026",
            "dtype": "mxfp8", "global_batch": 72, "micro_batch": 1, "sequence": 8192, "tokens": 1e12,
        }
    )  # fmt: skip
    step = simulate(job, load_model(job.model), machine)
    assert any("No published training step on vr200" in told for told in step.warnings)
    assert step.error_high - step.error_low > 0.2
    assert host_link(machine) == 450e9  # 1.8 TB/s both ways between a Vera and its two GPUs


def test_serving_waits_for_measured_kernels():
    with pytest.raises(PlanError, match="No inference kernel was measured on the GPU 'vr200'"):
        kernels_of(RUBIN, "vllm")
