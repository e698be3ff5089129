"""With `expert_nodes` a token goes once to each server of its experts and once to each GPU of them inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import comb

import pytest

from railwright.collectives.machine import Machine
from railwright.collectives.moe_routing import exchanged
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.traffic.demand import Communicator
from railwright.training import place, simulate
from training_cases import MOE, job, machine, priced, roofline

WIDE = replace(MOE, experts=256, experts_per_token=8, expert_ffn=256)
"""DeepSeek-V3's routing: 8 of 256 experts."""

ROUTED = 1024 * 1024 * 2.0
"""One expert's share of a microbatch's dispatch [byte]."""


def holders(experts: int, places: int, top: int) -> float:
    """Places that hold any of `top` different experts, in the mean: each is missed if all are elsewhere."""
    return places * (1 - comb(experts - experts // places, top) / comb(experts, top))


def asked(wanted: TrainingJob, arch: Transformer) -> dict[tuple[int, ...], float]:
    """All-to-alls of a dispatch [byte] by the sizes of the groups that run them."""
    found: dict[tuple[int, ...], float] = defaultdict(float)

    def predict(on: Machine, op: Op, size: float, groups: Sequence[Communicator]) -> CollectivePrediction:
        if op == "all_to_all":
            found[tuple(sorted({len(group) for group in groups}))] = size
        return priced(50e9)(on, op, size, groups)

    simulate(wanted, arch, machine(4), predict=predict, kernel=roofline)
    return dict(found)


def limited(nodes: int | None, **layout: object) -> TrainingJob:
    return job(batch=32, **layout).model_copy(update={"expert_nodes": nodes})  # type: ignore[arg-type]


def test_every_copy_is_sent_without_a_limit() -> None:
    assert asked(limited(None, expert=32), WIDE) == {(32,): 8 * ROUTED}


@pytest.mark.parametrize("nodes", [1, 2, 4, 9])
def test_one_copy_goes_to_each_server_and_one_to_each_gpu_inside(nodes: int) -> None:
    # 32 ranks on 4 servers of 8 with 64 experts each; a token's 8 lie on `nodes` of them, or on all.
    kept = min(nodes, 4)
    between, inside = holders(64 * kept, kept, 8), holders(64 * kept, 8 * kept, 8)
    found = asked(limited(nodes, expert=32), WIDE)
    # between servers each GPU meets those at its place on the others: its rail
    assert found[4,] == pytest.approx(between * ROUTED)
    assert found[8,] == pytest.approx(inside * ROUTED)


def test_experts_of_a_token_are_different_ones() -> None:
    # 8 experts on 8 GPUs of one server: a token's two are never on the same
    assert asked(limited(4, expert=8), MOE) == {(8,): pytest.approx(2 * ROUTED)}
    # 16 on two servers: 2 (1 - 8 x 7 / (16 x 15)) of them hold a token's two
    sixteen = replace(MOE, experts=16)
    assert asked(limited(4, expert=16), sixteen)[2,] == pytest.approx(2 * (1 - 56 / 240) * ROUTED)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_limit_of_as_many_servers_as_experts_limits_nothing(nodes: int) -> None:
    # two experts lie on two servers at most, whichever of the four these are
    found = asked(limited(nodes, expert=32), replace(MOE, experts=64))
    assert found[4,] == pytest.approx(holders(64, 4, 2) * ROUTED)


def test_ranks_of_a_rail_have_the_same_place_in_their_servers() -> None:
    groups = place(job(batch=32, expert=16), machine(4).network.fabric)
    rails = [group.gpus.tolist() for group in groups.of("ep_rail")]
    assert rails[:2] == [[0, 8], [1, 9]]
    assert sorted(gpu for rail in rails for gpu in rail) == list(range(32))


def test_the_group_on_the_most_servers_counts() -> None:
    # Groups of 6: ranks 0 to 5 share a server, 6 to 11 do not.
    arch = replace(MOE, experts=24, experts_per_token=4)
    wanted = limited(4, expert=6, gpus=24).model_copy(update={"global_batch": 24})
    for servers in ((0, 1, 2), (2, 0, 1)):
        found = asked(wanted.model_copy(update={"servers": servers}), arch)
        # Ranks 4 to 7 and 16 to 19 are on two servers each, two ranks there and four: the two get of every
        # token on the four one copy, if any of its 4 experts is among their 8.
        sent = 1 - comb(16, 4) / comb(24, 4)
        assert found[6,] * (4 / 6) == pytest.approx(4 / 2 * sent * ROUTED)
        assert found[2, 4, 6] == pytest.approx(holders(24, 6, 4) * ROUTED)


def test_a_small_part_of_a_group_receives_for_few_what_many_send() -> None:
    small = 1 - comb(48, 8) / comb(64, 8)
    assert exchanged(64, (4, 12), 8, None).between * (12 / 16) == pytest.approx(12 / 4 * small)
    assert exchanged(64, (8, 8), 8, None).between == pytest.approx(holders(64, 2, 8))
    # without a limit nothing is sent twice, and never more than by an all-to-all of every copy
    for parts in ((1, 15), (4, 12), (3, 5, 8), (8, 8)):
        sent = exchanged(64, parts, 8, None)
        assert sent.between <= 8
        assert sent.inside == pytest.approx(holders(64, 16, 8))


def test_servers_that_hold_too_few_experts_are_never_kept() -> None:
    # Of 1 and 3 ranks with 4 experts each, one server takes all 6 of a token: the larger one.
    sent = exchanged(16, (1, 3), 6, 1)
    assert sent.between == pytest.approx(4 / 3)
    assert sent.inside == pytest.approx(4 / 3 * holders(12, 3, 6))
    with pytest.raises(PlanError, match="do not fit"):
        exchanged(16, (1, 1, 2), 9, 1)


def test_where_no_kernel_sends_one_copy_is_said() -> None:
    def said(one: TrainingJob, where: Machine) -> list[str]:
        found = simulate(one, WIDE, where, predict=priced(50e9), kernel=roofline).warnings
        return [text for text in found if "HybridEP" in text]

    # 32 ranks on servers of which 7 GPUs run: 7, 7, 7, 7 and 4
    (text,) = said(limited(4, expert=32, gpus=32).model_copy(update={"gpus_per_server": 7}), machine(5))
    assert "in unequal parts (4 and 7 and 7 and 7 and 7)" in text
    (text,) = said(limited(4, expert=16), machine(4, server="server-8x-h100-pcie"))
    assert "NVLink, which h100-pcie has not" in text
    # groups of 4 on 6 GPUs of each server: 4, 2 and 2, 4
    equal = limited(4, expert=4, gpus=12).model_copy(update={"gpus_per_server": 6, "global_batch": 24})
    assert not said(equal, machine(4))
    assert not said(limited(4, expert=32), machine(4))
