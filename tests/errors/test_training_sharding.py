"""Refusals of groups of ranks that share one copy (`layout.shard`)."""

from __future__ import annotations

from dataclasses import replace

from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.checks.plan import check
from training_cases import DENSE, MOE, changed, job, machine, priced, refusal, roofline


def test_shards_need_something_sharded_and_divisors_of_both_replicas() -> None:
    assert "zero: 0 shards nothing; set zero to 1, 2 or 3" in refusal(job(zero=0, shard=8))
    text = refusal(job(zero=3, shard=5))
    assert (
        "layout.shard 5 does not divide the number of ranks that hold the same parameters, 32; 1, 2" in text
    )
    # 32 ranks hold what is dense, 4 each the experts: 16 groups of 2 have not one of these each
    assert (
        "layout.shard 2 makes 16 groups of the 32 ranks that hold the same parameters, and those that hold "
        "the same experts cannot be divided among them (4); 8, 16, 32 work."
    ) in refusal(job(shard=2, expert=8), MOE)


def test_groups_with_copies_are_not_muons() -> None:
    """Whatever divides; one group of all ranks is none."""
    for shard in (8, 5):
        asked = changed(job(shard=shard), optimizer="muon")
        assert "shard makes groups with copies of their own (Megatron refuses it too)" in refusal(asked)
    check(changed(job(shard=32), optimizer="muon"), DENSE, machine(4).network.fabric)


def test_shards_too_few_say_how_many_fit() -> None:
    """HSDP: states over 2 ranks do not fit; the smallest of 4, 8, 16 and 32 ranks that does is named."""
    large = replace(DENSE, layers=64, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128)
    asked = job(zero=3, shard=2, recompute="full")
    text = refusal(asked, large).split("what would fit: ")[1]
    assert text.startswith("shard: ")
    size = int(text.split("shard: ")[1].split()[0])

    def sharded(over: int) -> TrainingJob:
        return changed(asked, layout=asked.layout.model_copy(update={"shard": over}))

    simulate(sharded(size), large, machine(4), predict=priced(50e9), kernel=roofline)
    capacity, fabric = machine(4).gpu.hbm_bytes, machine(4).network.fabric
    needs = {n: peak_memory(sharded(n), large, fabric, capacity).total for n in (2, 4, 8, 16)}
    assert size == min(n for n, total in needs.items() if total <= capacity)
    # all ranks share already, or states are not sharded in groups: there is none to name
    hopeless = replace(large, hidden=16384, ffn=4 * 16384, heads=128, head_dim=128)
    assert "shard: " not in refusal(job(zero=3, shard=32), hopeless)
    assert "shard: " not in refusal(job(zero=3), hopeless)
