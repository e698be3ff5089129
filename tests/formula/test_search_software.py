"""A search for a framework predicts its software and its sharding, and the export is what was predicted."""

from __future__ import annotations

import tomllib

import pytest

from railwright.search import Space, search
from railwright.search.bounds.blocks import blocks
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import FORMS, export
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.training import simulate
from railwright.training.layout.sizes import data_parallel
from railwright.units import show_time
from training_cases import DENSE, changed, job, machine

SMALL = {"tensor": (1, 2), "pipeline": (1, 2), "micro_batch": (1,), "recompute": ("none",), "context": (1,)}


@pytest.mark.parametrize(
    ("name", "software", "priced"),
    [
        ("torchtitan", "megatron-2025", "fsdp-2026"),
        ("torchtitan", "fsdp-2024", "fsdp-2024"),
        ("torchtitan", "fsdp-2023", "fsdp-2026"),  # llm-foundry's
        ("megatron", "fsdp-2025", "megatron-2025"),
        ("nemo", "xla-2025", "megatron-2025"),
        ("megatron", "nemo-2024", "nemo-2024"),
    ],
)
def test_a_framework_is_priced_with_its_own_software(name: str, software: str, priced: str) -> None:
    """Its own era where the job has one, else today's, and both times are told."""
    wanted = changed(job(batch=32), software=software)
    found = search(wanted, DENSE, machine(1), Space(SMALL), top=1, steps=0, framework=name)
    best = found.best[0]
    assert found.own is not None
    assert {best.job.software, found.own.job.software} == {priced}
    assert best.time == simulate(best.job, DENSE, machine(1)).step_time
    if software == priced:
        assert not found.priced
        return
    other = show_time(simulate(changed(best.job, software=software), DENSE, machine(1)).step_time)
    assert found.priced == found.words[0]
    assert (
        f"software {priced}, as {FRAMEWORKS[name].title} runs, instead of the job's {software}"
        in found.priced
    )
    assert f"takes {show_time(best.time)} a step, with the job's own {other}." in found.priced
    text = export(best, DENSE, Hosts.of(best.job, machine(1)), name, found.priced)
    assert f"as {priced} runs\n# Priced with software {priced}" in text
    assert "its software is not" not in text


def test_an_export_for_another_framework_than_was_searched_says_so() -> None:
    best = search(job(batch=32), DENSE, machine(1), Space(SMALL), top=1, steps=0).best[0]
    text = export(best, DENSE, Hosts.of(best.job, machine(1)), "torchtitan")
    assert "# its software is not torchtitan 0.2's: search with --framework torchtitan" in text


def test_torchtitans_space_is_what_torchtitan_runs() -> None:
    """Whole servers or all ranks share a copy; pipelines reduce once per step; never ZeRO 1 or 2."""
    space = FRAMEWORKS["torchtitan"].space(Space({**SMALL, "expert": (1,)}))
    found, _ = blocks(space, job(batch=48, sequence=2048), DENSE, machine(6).network.fabric)
    shapes = {
        (b.structure["tensor"], b.structure["pipeline"], b.structure["shard"], b.structure["reshard"])
        for b in found
    }
    # 48 ranks of 8 a server, 24 of 4, 24 of 8, and 12 of 4: every number of whole servers that divides them
    shards = {(1, 1): (None, 8, 16, 24), (2, 1): (None, 4, 8, 12), (1, 2): (None, 8), (2, 2): (None, 4)}
    assert shapes == {(*key, n, kept) for key, many in shards.items() for n in many for kept in (True, False)}
    for block in found:
        again = block.structure["shard"] is None and block.structure["reshard"]
        assert block.of("zero") == ((0, 3) if again else (3,))
        assert block.structure["reduce_each"] == (block.structure["pipeline"] == 1)
    # other frameworks have the job's own sharding alone
    plain, _ = blocks(Space(SMALL), job(batch=48), DENSE, machine(6).network.fabric)
    assert {(b.structure["shard"], b.structure["reshard"], b.structure["reduce_each"]) for b in plain} == {
        (None, True, True)
    }


def test_what_is_printed_for_torchtitan_is_what_was_predicted() -> None:
    """Degrees and policy of the best layout are those of its job, and no comment takes any of it back."""
    found = search(job(batch=32), DENSE, machine(2), Space(SMALL), top=5, steps=0, framework="torchtitan")
    for one in found.best:
        text = export(one, DENSE, Hosts.of(one.job, machine(2)), "torchtitan", found.priced)
        p = tomllib.loads(text)["parallelism"]
        layout, data = one.job.layout, data_parallel(one.job, machine(2).network.fabric)
        shard = 1 if layout.zero == 0 else (layout.shard or data)
        assert (p["data_parallel_replicate_degree"], p["data_parallel_shard_degree"]) == (
            data // shard,
            shard,
        )
        if layout.zero == 3:
            assert p["fsdp_reshard_after_forward"] == ("always" if layout.reshard else "never")
        comments = [line for line in text.splitlines() if line.startswith("#")]
        assert not any("nearest" in line or "does not run" in line for line in comments), comments


@pytest.mark.parametrize(
    ("layout", "copies"),
    [
        ({"shard": 4}, 4),
        ({"shard": 4, "context": 2}, 4),
        ({"shard": 16}, 1),
        ({}, 1),
        ({"zero": 1, "shard": 8}, 2),
    ],
    ids=str,
)
def test_megatron_is_told_how_many_copies_share_gradients(layout: dict[str, int], copies: int) -> None:
    """16 ranks with the same parameters, context-parallel ones among them."""
    one = job(**{"zero": 3, **layout})
    hosts = Hosts.of(one, machine(2))
    arguments = FORMS["megatron"][1](one, DENSE, hosts)
    assert (f"--num-distributed-optimizer-instances {copies}" in arguments) == (copies > 1)
    fields = "\n".join(FORMS["nemo"][1](one, DENSE, hosts))
    assert (f"num_distributed_optimizer_instances={copies}" in fields) == (copies > 1)
