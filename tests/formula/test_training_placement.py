"""Ranks on GPUs follow Megatron's order, and expert-across puts an expert group on one rail."""

from __future__ import annotations

import numpy as np

from railwright.spec.training import Layout
from railwright.training.layout.placement import Groups, place
from railwright.training.layout.sizes import Sizes
from training_cases import job, machine


def lists(groups: Groups, kind: str) -> list[list[int]]:
    return [list(map(int, c.gpus)) for c in groups.of(kind)]  # type: ignore[arg-type]


def test_packed_is_tensor_fastest_pipeline_slowest() -> None:
    # 32 GPUs = TP2 x DP4 x PP4: rank = tp + 2 (dp + 4 pp)
    groups = place(job(tensor=2, pipeline=4, expert=2), machine(4).network.fabric)
    assert lists(groups, "tp")[:2] == [[0, 1], [2, 3]]
    assert lists(groups, "dp")[:2] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert lists(groups, "pp")[0] == [0, 8, 16, 24]
    # expert groups: blocks of two consecutive data-parallel ranks; experts' replicas: every second one
    assert lists(groups, "ep")[:2] == [[0, 2], [1, 3]]
    assert lists(groups, "expert_dp")[:2] == [[0, 4], [1, 5]]
    assert lists(groups, "embedding")[0] == [0, 24]


def test_every_kind_of_group_covers_every_gpu_once() -> None:
    for placement in ("packed", "expert-across"):
        groups = place(job(tensor=2, pipeline=2, expert=2, placement=placement), machine(8).network.fabric)
        for kind in ("tp", "ep", "dp", "expert_dp", "pp"):
            gpus = np.sort(np.concatenate([c.gpus for c in groups.of(kind)]))  # type: ignore[arg-type]
            assert gpus.tolist() == list(range(64)), (placement, kind)


def test_expert_across_uses_different_servers_on_one_rail() -> None:
    fabric = machine(8).network.fabric
    groups = place(job(expert=8, placement="expert-across"), fabric)
    for group in groups.ep:
        assert group.num_servers(fabric) == 8
        assert len(set(fabric.rail[group.gpus].tolist())) == 1
    assert groups.notes == ()


def test_without_expert_groups_expert_across_is_packed() -> None:
    """It scattered the ranks of a sequence over servers (a step of `context: 2` on 32 H100 took 41 % longer),
    and was said to do nothing."""
    fabric = machine(4).network.fabric
    for tensor, context in ((1, 2), (2, 4)):
        packed, across = (
            place(job(tensor=tensor, context=context, placement=placement), fabric)  # type: ignore[arg-type]
            for placement in ("packed", "expert-across")
        )
        assert across.grid.tolist() == packed.grid.tolist()
        assert across.servers("cp") == 1


def test_thirty_servers_are_not_a_multiple_of_eight_and_it_says_so() -> None:
    fabric = machine(30).network.fabric
    groups = place(job(tensor=2, expert=8, batch=480, placement="expert-across"), fabric)
    # 30 servers x 4 places, in groups of 8: 3 of the 15 groups run over the end of a place
    assert "3 of 15 expert groups" in groups.notes[0]
    assert all(group.num_servers(fabric) == 8 for group in groups.ep)


def test_a_job_on_part_of_the_cluster_takes_the_first_gpus() -> None:
    groups = place(job(gpus=16, tensor=2), machine(4).network.fabric)
    assert sorted(int(g) for c in groups.tp for g in c.gpus) == list(range(16))


def test_copies_of_experts_that_are_cut_less_than_the_rest() -> None:
    """Tensor 4 with whole experts: 2 copies of the rest are 8 of experts."""
    sizes = Sizes.under(Layout(tensor=4, expert_tensor=1, context=2, pipeline=2), 1)
    assert (sizes.replicas, sizes.expert_replicas, sizes.copies) == (2, 8, 8)
    assert sizes.degrees() == {"tp": 4, "ep": 1, "pp": 2, "cp": 2, "dp": 8}
    cut = Sizes.under(Layout(tensor=4, expert=4, expert_tensor=4), 4)
    assert (cut.replicas, cut.expert_replicas, cut.copies) == (4, 1, 4)
