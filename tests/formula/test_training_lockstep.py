"""Ranks that end every pass together: who they are, what the slowest costs, what agreeing on maxima costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.tasks import Task, run
from railwright.training.layout.sizes import Sizes
from railwright.training.passes.lockstep import MAXIMA, WAIT, in_step, without_waits
from railwright.training.software.constants import constant
from railwright.training.software.formats import amax_over
from railwright.training.software.stragglers import pass_wait
from training_cases import DENSE, MOE, job, machine

SIZES = Sizes(tensor=2, context=1, data=16, pipeline=4, expert=1, expert_tensor=2, shard=16)


def fp8(**changes: object) -> TrainingJob:
    return job(batch=32).model_copy(update={"dtype": "fp8", "software": "nemo-2024", **changes})


def test_who_keeps_step() -> None:
    plain = job(batch=32)
    assert in_step(plain, SIZES) == 1
    assert in_step(fp8(), SIZES) == 16
    assert in_step(fp8(amax_over="tensor"), SIZES) == in_step(fp8(amax_over="none"), SIZES) == 1
    sharded = plain.model_copy(update={"layout": Layout(zero=3)})
    assert in_step(sharded, SIZES) == 16
    assert in_step(sharded, replace(SIZES, shard=4)) == 4
    assert in_step(plain, replace(SIZES, context=4, data=4)) == 4
    # 8 ranks with one expert each are 4 tensor-parallel groups of 2
    assert in_step(plain, replace(SIZES, expert=8, expert_tensor=1)) == 4


def test_blocks_that_cut_each_other_keep_step_together() -> None:
    # ranks 0 1 | 2 3 | 4 5 share tensors, 0 1 2 | 3 4 5 experts: the second pair is in both groups of experts
    three = replace(SIZES, data=3, expert=3, expert_tensor=1)
    assert in_step(job(batch=32), three) == 3
    # context groups of 4 inside expert groups of 8, and of 3 across expert groups of 2
    assert in_step(job(batch=32), replace(SIZES, context=4, data=4, expert=8)) == 8
    assert in_step(job(batch=32), replace(SIZES, context=3, data=4, expert=2)) == 6


def test_ranks_that_keep_step_are_those_joined_by_groups() -> None:
    # one group after another: whoever shares one with a rank waits for all that it waits for
    for tensor, context, expert, inside in (
        (2, 1, 3, 1),
        (2, 3, 2, 2),
        (1, 2, 3, 1),
        (4, 1, 6, 2),
        (2, 2, 4, 1),
    ):
        sizes = replace(SIZES, tensor=tensor, context=context, data=12, expert=expert, expert_tensor=inside)
        ranks = np.arange(sizes.replicas * tensor)
        joined = {0}
        for _ in ranks:
            for size in (tensor, tensor * context, expert * inside):
                joined = {int(r) for r in ranks if r // size in {j // size for j in joined}}
        assert in_step(job(batch=32), sizes) == len(joined) // tensor


@pytest.mark.parametrize(
    ("dtype", "software", "asked", "over"),
    [
        ("fp8", "nemo-2024", None, "stage"),
        ("fp8", "megatron-2025", None, "none"),
        ("fp8", "megatron-2025", "stage", "stage"),
        ("fp8", "nemo-2024", "none", "none"),
        ("mxfp8", "nemo-2024", "stage", "none"),
        ("bf16", "nemo-2024", "stage", "none"),
    ],
)
def test_maxima_are_agreed_on_as_asked_or_as_the_era_does(
    dtype: str, software: str, asked: str | None, over: str
) -> None:
    update = {"dtype": dtype, "software": software, "amax_over": asked}
    assert amax_over(job().model_copy(update=update)) == over


def test_a_step_pays_one_agreement_for_every_pass() -> None:
    from railwright.training.layers.communication import Prices
    from railwright.training.layout.placement import place
    from railwright.training.passes.lockstep import Lockstep
    from training_cases import priced

    one, cluster = fp8(), machine(4)
    groups = place(one, cluster.network.fabric)
    lockstep = Lockstep(one, Prices(cluster, groups, priced(1e12, 20e-6)))
    tasks = [
        Task("compute", "a", "mlp", 3e-3),
        Task("tp", "b", "all_reduce", 1e-3, (0,)),
        Task("compute", "c", "mlp", 1e-3, (0,)),
    ]
    wait, agree = lockstep.after(tasks, 2, "backward")
    assert (wait.name, agree.name) == (WAIT, MAXIMA)
    ranks = groups.sizes.replicas, groups.sizes.tensor
    assert wait.duration == pytest.approx(pass_wait(*ranks, 4e-3, 4e-3 * constant("pass_spread")))
    assert agree.duration == pytest.approx(20e-6, rel=0.01)
    assert agree.size == 2 * 4 * 2 * 4  # 2 layers of 4 products with 2 gradients each, fp32
    assert set(wait.after) == {1, 2}
    assert 3 in agree.after
    assert without_waits([*tasks, wait, agree]) == tasks
    # an embedding alone multiplies nothing in fp8
    assert [t.name for t in lockstep.after(tasks, 0, "forward")] == [WAIT]


def test_a_16_bit_step_with_one_reduction_has_neither() -> None:
    step = simulate(job(batch=32), DENSE, machine(2))
    assert not [e for e in step.timeline.events if e.name in (WAIT, MAXIMA)]


def test_agreeing_over_more_ranks_never_makes_a_step_shorter() -> None:
    # every kernel alike: scales that are not delayed want a look through the weights in the optimizer's step
    times = [
        simulate(fp8(amax_over=over), DENSE, machine(4), kernel=lambda _: 1e-4).step_time
        for over in ("none", "tensor", "stage")
    ]
    assert times == sorted(times)
    assert times[2] > times[0]


def test_a_fixed_capacity_lets_the_host_run_ahead() -> None:
    # the same experts and tokens: nothing counted, nothing waited for; never longer
    base = job(batch=32)
    dropless, fixed = (
        simulate(base.model_copy(update={"expert_capacity": c}), MOE, machine(2)) for c in (None, 1.0)
    )
    assert fixed.step_time < dropless.step_time
    # with nothing launched one by one, what is padded is computed and sent
    graphed = {"cuda_graphs": ("step",)}
    whole, padded = (
        simulate(base.model_copy(update={**graphed, "expert_capacity": c}), MOE, machine(2))
        for c in (1.0, 1.25)
    )
    assert padded.step_time > whole.step_time


def test_a_pass_without_its_waits_is_whole_where_copies_are_listed_behind_them() -> None:
    # offloaded activations: the copy from the host is task 2, which the product waits for
    wait = Task("compute", WAIT, WAIT, 1.0, (0,))
    tasks = [Task("compute", "product", "mlp", 2.0, (2,), 0), wait, Task("copy", "from host", "copy", 3.0)]
    left = without_waits(tasks)
    assert [task.after for task in left] == [(1,), ()]
    assert run(left).duration == 5.0
