"""DeepSpeed's ZeRO-3 against what FlagPerf read of it: memory of Llama 2 7B on 8 A800 and H800.

Source: FlagOpen/FlagPerf@1b5a0303, training/nvidia/llama2_7b-deepspeed-nvidia (57 of 80), llama2_7b-deepspeed
(59 of 80); training/benchmarks/llama2_7b/deepspeed/run_pretraining.py (mem_efficient_linear=False: autograd
keeps what was gathered).  Their steps are among `measure/data/unseen_runs.yaml`.
"""

from __future__ import annotations

import pytest

from railwright.measure.training.unseen_runs import run_of
from railwright.training import simulate
from railwright.training.memory.cached import reserved
from railwright.units import GIB

READ = {"a800-4096": 57, "h800-4096": 59}
"""Run -> GiB of the fullest GPU, as nvidia-smi shows it."""


def held(name: str, *, kept: bool) -> float:
    """What a GPU holds with the allocator's holes, CUDA and NCCL. [GiB]

    kept  gathered weights until their backward pass
    """
    run = run_of("flagperf-zero3", name)
    layout = run.job.layout.model_copy(update={"reshard": not kept})
    job = run.job.model_copy(update={"layout": layout})
    step = simulate(job, run.arch, run.machine, most_events=0)
    found = reserved(job, run.arch, run.machine.network.fabric, step.memory)
    assert found is not None
    return (found.reserved + found.system) / GIB


@pytest.mark.parametrize("name", READ)
def test_a_gpu_holds_what_nvidia_smi_read(name: str) -> None:
    assert held(name, kept=True) == pytest.approx(READ[name], rel=0.075)
    assert held(name, kept=True) == pytest.approx(54.6, abs=0.2)


@pytest.mark.parametrize("name", READ)
def test_memory_efficient_layers_would_take_a_fifth_less(name: str) -> None:
    """6.7 billion weights in 16 bits, but for those that are there anyway."""
    assert held(name, kept=True) - held(name, kept=False) == pytest.approx(11.6, abs=0.2)
