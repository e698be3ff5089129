"""What dispatch brings to a GPU: no tokens that nobody sent, and none where none is sent."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.checks.plan import check
from railwright.training.layers.operators import operators_of
from training_cases import DENSE, MOE, job, machine, priced, roofline

H100 = machine().gpu


def asked(imbalance: float, expert: int, **more: object):  # type: ignore[no-untyped-def]
    return job(imbalance=imbalance, expert=expert, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("imbalance", "expert", "load"),
    [
        (1.0, 8, 1.0),
        (1.3, 8, 1.3),
        (4.0, 8, 4.0),
        # one GPU of two receives all tokens of both: twice the mean
        (3.0, 2, 2.0),
        # a GPU that holds all experts computes all choices of its tokens
        (1.3, 1, 1.0),
    ],
)
def test_a_gpu_receives_at_most_what_its_group_sends(imbalance: float, expert: int, load: float) -> None:
    wanted = asked(imbalance, expert)
    assert wanted.expert_load == load
    # 1,024 tokens of every rank, each to 2 experts
    assert operators_of(wanted, MOE, "moe", H100).dispatched == pytest.approx(1024 * 2 * load)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_balance_changes_nothing_where_every_gpu_holds_all_experts(recompute: str) -> None:
    even, uneven = (
        simulate(asked(x, 1, recompute=recompute), MOE, machine(4), predict=priced(50e9), kernel=roofline)
        for x in (1.0, 3.0)
    )
    assert (uneven.step_time, uneven.memory) == (even.step_time, even.memory)


def test_beyond_its_group_a_gpus_load_grows_no_more() -> None:
    full, beyond = (
        simulate(asked(x, 2), MOE, machine(4), predict=priced(50e9), kernel=roofline) for x in (2.0, 4.0)
    )
    assert (beyond.step_time, beyond.memory) == (full.step_time, full.memory)


def test_padding_is_computed_wherever_experts_lie() -> None:
    wanted = asked(1.0, 1).model_copy(update={"expert_capacity": 1.5})
    assert operators_of(wanted, MOE, "moe", H100).dispatched == pytest.approx(1024 * 2 * 1.5)


@pytest.mark.parametrize("expert", [1, 8])
def test_an_expert_gets_every_token_once_at_most(expert: int) -> None:
    # 8 experts, 2 of them per token: all tokens choose one expert, four times the mean
    fabric = machine(4).network.fabric
    check(asked(4.0, expert), MOE, fabric)
    with pytest.raises(PlanError) as caught:
        check(asked(4.5, expert), MOE, fabric)
    text = str(caught.value)
    assert text.startswith(
        "case: expert_imbalance is 4.5, but each of the experts of moe-8 on a GPU gets at most every token"
    )
    assert "8 / 2 = 4 times the mean; give" in text
    # it does nothing in a dense model, which is told
    check(asked(4.5, 1), DENSE, fabric)


def test_a_balance_that_does_nothing_is_told_once() -> None:
    def told(imbalance: float, expert: int) -> list[str]:
        return doubts(asked(imbalance, expert), MOE, 2)

    assert not told(1.0, 1)
    assert not told(1.3, 2)
    assert [w.split(":")[0] for w in told(1.3, 1)] == [
        "expert_imbalance does nothing while layout.expert is 1"
    ]
    assert [w.split(":")[0] for w in told(3.0, 2)] == ["expert_imbalance 3 counts as 2"]
    padded = asked(3.0, 2).model_copy(update={"expert_capacity": 1.0})
    assert doubts(padded, MOE, 2) == [
        "expert_imbalance does nothing beside expert_capacity, which cuts it off."
    ]
    assert len(doubts(asked(3.0, 1), DENSE, 2)) == 1


@pytest.mark.parametrize("expert", [1, 2, 8])
@pytest.mark.parametrize("capacity", [1.0, 1.25, 4.0])
def test_a_capacity_alone_is_no_doubt_about_a_balance(capacity: float, expert: int) -> None:
    """A capacity is what an expert may take, not what it gets: it cannot be more than there is."""
    assert not doubts(asked(1.0, expert).model_copy(update={"expert_capacity": capacity}), MOE, 2)


def test_without_expert_parallelism_no_dispatcher_permutes() -> None:
    plain, limited = (asked(1.0, 1).model_copy(update={"expert_nodes": nodes}) for nodes in (None, 4))
    assert operators_of(limited, MOE, "moe", H100) == operators_of(plain, MOE, "moe", H100)
    sent = asked(1.0, 8).model_copy(update={"expert_nodes": 4})
    permuted = next(op for op in operators_of(sent, MOE, "moe", H100).forward if op.name == "permute")
    assert (permuted.bytes, permuted.launches) == (0.0, 0)
    (told,) = doubts(limited, MOE, 2)
    assert told.startswith("expert_nodes does nothing while layout.expert is 1")
    assert not doubts(sent, MOE, 2)


def test_the_imbalance_is_described_as_what_it_is_done_to() -> None:
    """It multiplies a whole GPU's tokens, and was called that of one expert."""
    field = TrainingJob.model_fields["expert_imbalance"]
    assert str(field.description).startswith(
        "tokens that the busiest expert-parallel GPU gets for all of its"
    )
    with pytest.raises(PlanError, match="what the busiest GPU's experts get together over the mean"):
        check(asked(4.5, 8), MOE, machine(4).network.fabric)
