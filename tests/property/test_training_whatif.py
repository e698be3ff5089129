"""Laws of the what-ifs: each is the same job simulated on a changed machine, and none is scaled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.fabric.graph import Role
from railwright.model import load_model
from railwright.spec import load_study, override
from railwright.spec.study import Cluster, ComputeNetwork, Variant
from railwright.spec.training import Overlap
from railwright.study.bottleneck import exposed_between
from railwright.study.evaluate import Workshop
from railwright.study.result import VariantResult
from railwright.study.sensitivity import first_job, pxn_gain, sensitivity_row, what_if_rows
from railwright.training import StepResult, simulate
from railwright.training.software.eras import pace_of
from railwright.training.whatif.changes import share_changes, what_ifs
from railwright.training.whatif.machine import at_rate
from training_cases import DENSE, MOE, changed, job, machine, priced

LLAMA = load_model("llama-3.1-8b")
PLANS = [
    (DENSE, job(tensor=2, pipeline=2, overlap=Overlap(dp=False))),
    (MOE, job(tensor=2, expert=8, sequence_parallel=True, imbalance=1.3)),
]


def asked(arch, plan) -> dict[str, StepResult]:  # type: ignore[no-untyped-def]
    found = what_ifs(plan, arch, machine())
    assert all(one.step is not None for one in found)
    return {one.name: one.step for one in found if one.step is not None}


@pytest.mark.parametrize(("arch", "plan"), PLANS)
def test_less_to_wait_for_never_takes_longer(arch, plan) -> None:  # type: ignore[no-untyped-def]
    base, steps = simulate(plan, arch, machine()), asked(arch, plan)
    close = 1 + 1e-9
    assert steps["Network ×2"].step_time <= base.step_time * close
    assert steps["Network ÷2"].step_time >= base.step_time / close
    # A faster network is never worth more than a free one, and that no more than free communication.
    assert steps["Free network between servers"].step_time <= steps["Network ×2"].step_time * close
    assert steps["Free communication"].step_time <= steps["Free network between servers"].step_time * close
    assert steps["HBM bandwidth ×2"].step_time <= base.step_time * close
    assert steps["Infinite compute"].step_time <= base.step_time * close
    assert steps["GPUs all alike"].step_time <= base.step_time * close
    assert base.step_time / close <= steps["One GPU 10 % slower"].step_time <= 1.1 * base.step_time * close


@pytest.mark.parametrize(("arch", "plan"), PLANS)
def test_changes_of_shares_add_up_to_the_change_of_the_step(arch, plan) -> None:  # type: ignore[no-untyped-def]
    base = simulate(plan, arch, machine())
    for step in asked(arch, plan).values():
        told = sum(seconds for _, seconds in share_changes(base, step))
        assert told == pytest.approx(step.step_time - base.step_time, abs=1e-7 * base.step_time)


def test_a_slower_gpu_slows_what_its_clock_does() -> None:
    """The step grows in proportion, by less than a tenth of compute: memory and launches stay."""
    plan = job(tensor=2, sequence=8192)
    base = simulate(plan, LLAMA, machine())
    ten, twenty = (
        simulate(plan, LLAMA, machine(), slower={0: f}).step_time - base.step_time for f in (1.1, 1.2)
    )
    assert twenty == pytest.approx(2 * ten, rel=0.02)
    compute = next(share.busy for share in base.shares if share.kind == "compute")
    assert 0.07 * compute < ten < 0.1 * compute
    assert asked(LLAMA, plan)["One GPU 10 % slower"].step_time == base.step_time + ten
    free = simulate(plan, LLAMA, machine(), kernel=lambda op: 1e-6 * (op.kind == "memory"))
    slow = simulate(plan, LLAMA, machine(), kernel=lambda op: 1e-6 * (op.kind == "memory"), slower={0: 2.0})
    assert slow.step_time == free.step_time


def test_a_token_sent_once_per_server_is_a_job_that_says_so() -> None:
    """Asked of experts on several servers that use NCCL's all-to-all; groups inside a server send nothing."""
    plan = job(expert=4, placement="expert-across")
    sent = plan.model_copy(update={"expert_nodes": 4})
    steps = {one.name: one.step for one in what_ifs(plan, MOE, machine())}
    found = steps["Tokens once per server"]
    assert found is not None
    assert found.step_time == simulate(sent, MOE, machine()).step_time
    whole = job(tensor=8, expert=8, expert_tensor=1)
    for other in (
        sent,
        job(expert=8),
        job(expert=8, gpus=8),
        job(tensor=2),
        whole,
        job(expert=4, placement="spread"),
    ):
        assert "Tokens once per server" not in {one.name for one in what_ifs(other, MOE, machine())}
    # The second of three groups.
    straddling = job(expert=4, gpus=12, batch=24).model_copy(update={"gpus_per_server": 6})
    assert "Tokens once per server" in {one.name for one in what_ifs(straddling, MOE, machine())}
    # and not on unequal parts, which their kernels do not take: 4, 3 and 1, 2 and 2
    uneven = job(expert=4, gpus=12, batch=24).model_copy(update={"gpus_per_server": 7})
    assert "Tokens once per server" not in {one.name for one in what_ifs(uneven, MOE, machine())}


def test_an_interleaved_pipeline_is_a_job_that_says_so() -> None:
    """Asked of 1F1B whose microbatches go in rounds of its stages, and no stage is said to differ."""
    name, plan = "Interleaved pipeline", job(pipeline=4, batch=32)
    found = asked(DENSE, plan)[name]
    assert (
        found.step_time == simulate(job(pipeline=4, batch=32, virtual_pipeline=2), DENSE, machine()).step_time
    )
    assert found.step_time < simulate(plan, DENSE, machine()).step_time
    others: list[dict[str, Any]] = [
        {"pipeline": 1},
        {"pipeline": 4, "virtual_pipeline": 2},
        {"pipeline": 4, "schedule": "zb-h1"},
        {"pipeline": 4, "batch": 40},  # five microbatches
        {"pipeline": 4, "layers_per_stage": (2, 2, 2, 2)},
    ]
    assert not [other for other in others if name in asked(DENSE, job(**{"batch": 32, **other}))]


def test_sharding_inside_servers_is_a_job_that_says_so() -> None:
    """Asked where ranks on several servers share something, all of them; experts too have their replicas."""
    name, plan = "Sharding inside servers", job(tensor=2)
    found = asked(DENSE, plan)[name]
    assert found.step_time == simulate(job(tensor=2, shard=4), DENSE, machine()).step_time
    assert name in asked(MOE, job(expert=8))
    others: list[dict[str, Any]] = [
        {"zero": 0},
        {"shard": 16},
        {"tensor": 8},  # a server holds one rank
        {"gpus": 8},  # or all
    ]
    assert not [other for other in others if name in asked(DENSE, job(**other))]
    assert name not in asked(MOE, job(expert=2, placement="expert-across")), "neighbours are on two servers"


def test_alike_gpus_wait_for_none() -> None:
    plan = job(tensor=2, sequence=8192)
    alone = simulate(plan, LLAMA, machine(), pace=pace_of(plan, machine().gpu, 1))
    assert asked(LLAMA, plan)["GPUs all alike"].step_time == alone.step_time
    assert alone.step_time < simulate(plan, LLAMA, machine()).step_time


def test_one_slow_stage_is_less_than_all() -> None:
    """A pipeline fills while its slow stage is not yet reached."""
    plan = job(tensor=2, pipeline=2, sequence=8192)
    base = simulate(plan, LLAMA, machine()).step_time
    one = [simulate(plan, LLAMA, machine(), slower={s: 1.1}).step_time for s in (0, 1)]
    both = simulate(plan, LLAMA, machine(), slower={0: 1.1, 1: 1.1}).step_time
    assert base < min(one) <= max(one) < both


def test_only_what_the_job_has_is_asked() -> None:
    dense, moe = (set(asked(arch, plan)) for arch, plan in PLANS)
    assert "Gradients overlapped" in dense
    assert "Gradients overlapped" not in moe, "they are overlapped already"
    assert {"Expert all-to-all overlapped", "Experts perfectly balanced"} <= moe
    assert not {"Expert all-to-all overlapped", "Experts perfectly balanced"} & dense
    assert "No PXN" in moe
    assert "PXN" not in moe


@pytest.mark.parametrize(
    ("server", "servers", "there"),
    [("dgx-h100", 4, True), ("server-8x-l40s", 4, False), ("gh200-1", 32, False)],
)
def test_pxn_is_asked_about_where_nvlink_joins_gpus_of_several_rails(server, servers, there) -> None:
    """PXN = PCI + NVLink (NCCL src/graph/paths.cc): cards on PCIe and single GPUs have none."""
    for pxn, name in ((True, "No PXN"), (False, "PXN")):
        on = machine(servers, pxn, server)
        found = {one.name for one in what_ifs(job(tensor=1), DENSE, on)}
        assert (name in found) == there
        assert "Network ×2" in found


def test_pxn_gains_nothing_to_tell_without_nvlink() -> None:
    example = load_study(Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml")
    fields = {"jobs.finetune.micro_batch": 1, "jobs.finetune.layout.recompute": "full"}
    on_rails = {"cluster.compute.family": "rail-optimised"}
    cards = override(example, fields | on_rails | {"cluster.server": "server-8x-h100-pcie"})
    assert first_job(cards, Workshop.of(cards)).step is not None
    assert pxn_gain(cards, Workshop.of(cards)) is None
    nvlink = override(example, fields | on_rails)
    assert pxn_gain(nvlink, Workshop.of(nvlink)) is not None


OFF = Overlap(dp=False, tp=False, ep=False, pp=False, cp=False)

USES = [
    ("Context-parallel overlapped", DENSE, job(tensor=2, context=4, overlap=OFF), True),
    ("Context-parallel overlapped", DENSE, job(context=2, context_kind="all-to-all", overlap=OFF), False),
    ("Context-parallel overlapped", DENSE, job(context=2, context_kind="all-gather", overlap=OFF), False),
    ("Pipeline sends overlapped", DENSE, job(pipeline=4, virtual_pipeline=2, overlap=OFF), True),
    ("Pipeline sends overlapped", DENSE, job(pipeline=4, overlap=OFF), False),
    ("Expert all-to-all overlapped", MOE, job(expert=8, batch=64, overlap=OFF), True),
    ("Expert all-to-all overlapped", MOE, job(expert=8, batch=32, overlap=OFF), False),
    (
        "Expert all-to-all overlapped",
        MOE,
        job(pipeline=4, virtual_pipeline=2, expert=8, batch=32, overlap=OFF),
        True,
    ),
    ("Expert all-to-all overlapped", MOE, job(pipeline=4, expert=8, batch=32, overlap=OFF), False),
    ("Expert all-to-all overlapped", MOE, job(zero=3, expert=8, batch=64, overlap=OFF), False),
    ("Expert all-to-all overlapped", MOE, job(pipeline=2, expert=8, schedule="dualpipe", overlap=OFF), False),
    ("Gradients overlapped", DENSE, job(tensor=8, context=4, overlap=OFF), True),
    ("Gradients overlapped", MOE, job(tensor=8, pipeline=4, expert_tensor=2, overlap=OFF), True),
    ("Gradients overlapped", DENSE, job(tensor=8, pipeline=4, overlap=OFF), False),
    ("Tensor-parallel overlapped", DENSE, job(tensor=2, overlap=OFF), True),
]


@pytest.mark.parametrize(("name", "arch", "plan", "there"), USES)
def test_a_flag_is_asked_about_where_it_changes_the_step(name, arch, plan, there) -> None:  # type: ignore[no-untyped-def]
    """And nowhere else: a row that repeats the study reads as if the framework could do no better.

    Launches cost nothing here: where the host sets the pace nothing that is hidden shortens a step.
    """
    plan = plan.model_copy(update={"cuda_graphs": ("step",)})
    flag = {"C": "cp", "P": "pp", "E": "ep", "G": "dp", "T": "tp"}[name[0]]
    changed = plan.model_copy(update={"overlap": OFF.model_copy(update={flag: True})})
    base, step = (simulate(one, arch, machine()).step_time for one in (plan, changed))
    assert (step != pytest.approx(base, rel=1e-9)) == there
    assert (name in asked(arch, plan)) == there


def test_a_flag_that_hides_nothing_is_not_one_of_all() -> None:
    """Plain 1F1B cannot hide its sends: beside gradients alone there is nothing to set together."""
    found = asked(DENSE, job(pipeline=4, overlap=OFF))
    assert "Gradients overlapped" in found
    assert "All of it overlapped" not in found


def test_each_flag_is_the_job_with_that_flag() -> None:
    arch, plan = PLANS[0]
    changed = plan.model_copy(update={"overlap": Overlap(dp=True)})
    assert asked(arch, plan)["Gradients overlapped"].step_time == simulate(changed, arch, machine()).step_time


def test_free_communication_is_a_price_of_nothing() -> None:
    arch, plan = PLANS[1]
    nothing = simulate(plan, arch, machine(), predict=priced(0.0, 0.0))
    step = asked(arch, plan)["Free communication"]
    assert step.step_time == pytest.approx(nothing.step_time)
    assert step.exposed_share == pytest.approx(0.0)


def test_a_rate_changes_the_network_and_not_the_scale_up() -> None:
    base = machine()
    twice = at_rate(base, 2.0)
    before, after = base.network.fabric, twice.network.fabric
    # An H100's lane to its NIC stays at the 63 GB/s of its own slot.
    inside = (before.role == Role.SCALE_UP) | (before.role == Role.PCIE)
    assert np.array_equal(after.rate[inside], before.rate[inside])
    assert np.array_equal(after.rate[~inside], 2 * before.rate[~inside])
    assert np.array_equal(after.capacity[1::2][~inside], 2 * before.capacity[1::2][~inside])
    assert twice.nic.rate == 2 * base.nic.rate
    back = at_rate(twice, 0.5)
    assert np.array_equal(back.network.fabric.capacity, before.capacity)


@pytest.mark.parametrize(
    "server", ["dgx-h100", "server-8x-h100-pcie", "server-8x-a100-pcie", "server-8x-l40s"]
)
def test_a_faster_network_moves_nothing_inside_servers(server: str) -> None:
    """Nor does a slower one: GPUs without NVLink meet over their own slots, with no gradients beside."""
    plan = job(tensor=8, sequence_parallel=True, gpus=16, overlap=Overlap(dp=False))
    base = Machine.of(
        Cluster(servers=2, server=server, compute=ComputeNetwork(family="fat-tree", switch="qm9700")),
        load_catalog(),
        NcclSettings(),
    )
    steps = [simulate(plan, DENSE, one) for one in (at_rate(base, 0.5), base, at_rate(base, 2.0))]
    inside = [next(share.busy for share in step.shares if share.kind == "tp") for step in steps]
    assert inside == pytest.approx([inside[1]] * 3)
    assert inside[1] > 0


def test_a_faster_nic_is_worth_nothing_behind_a_gpus_own_slot() -> None:
    """One L40S a server sends no faster than its 31.5 GB/s, and waits for what is still between servers."""
    base = machine(servers=2, server="server-8x-l40s")
    plan = job(gpus=2, overlap=Overlap(dp=False)).model_copy(update={"gpus_per_server": 1})
    lanes = base.network.fabric.role == Role.PCIE
    assert (at_rate(base, 2.0).network.fabric.rate[lanes] == 31.5e9).all()
    steps = [simulate(plan, DENSE, one) for one in (base, at_rate(base, 2.0))]
    assert steps[1].step_time == pytest.approx(steps[0].step_time)
    sent = [c.prediction for c in steps[0].collectives]
    assert all(0 < p.busbw < 31.5e9 for p in sent)
    waited = steps[0].exposed_share * steps[0].step_time
    assert exposed_between(base.network.fabric, steps[0]) == pytest.approx(waited)


def test_twice_and_half_as_fast_is_as_before() -> None:
    arch, plan = PLANS[1]
    back = at_rate(at_rate(machine(), 2.0), 0.5)
    assert simulate(plan, arch, back).step_time == simulate(plan, arch, machine()).step_time


def test_one_server_has_no_network_to_ask_about() -> None:
    found = {one.name for one in what_ifs(job(tensor=2), DENSE, machine(1))}
    assert not {"Network ×2", "Network ÷2", "No PXN", "Free network between servers"} & found
    assert "Free communication" in found


def test_changes_of_shares_are_of_one_stage() -> None:
    """With a free network the first of four equal stages waits least, which alone sets gradients to zero: no
    less for launches."""
    plan = job(pipeline=4, micro_batch=4, batch=256, overlap=Overlap(dp=False))
    base = simulate(plan, DENSE, machine())
    free = {one.name: one.step for one in what_ifs(plan, DENSE, machine(), base.stage)}
    step = free["Free network between servers"]
    assert step is not None
    assert simulate(plan, DENSE, machine(), predict=priced(0.0)).stage != base.stage, "by itself another"
    assert step.stage == base.stage
    assert {kind for kind, _ in share_changes(base, step)} <= {"pp", "dp", "bubble"}
    told = sum(seconds for _, seconds in share_changes(base, step))
    assert told == pytest.approx(step.step_time - base.step_time)


def test_a_study_compares_shares_of_one_stage() -> None:
    """Its what-ifs and its own rows: graphs save launches, and no compute of the other stage."""
    fields = {
        "cluster.servers": 2,
        "jobs.finetune.model": "gpt2",
        "jobs.finetune.sequence": 1024,
        "jobs.finetune.global_batch": 256,
        "jobs.finetune.micro_batch": 4,
        "jobs.finetune.layout.tensor": 1,
        "jobs.finetune.layout.sequence_parallel": False,
        "jobs.finetune.layout.expert": 1,
        "jobs.finetune.layout.pipeline": 2,
        "jobs.finetune.layout.recompute": "none",
    }
    study = override(load_study(Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml"), fields)
    workshop = Workshop.of(study)
    first = workshop.run(study.jobs[0], study)
    assert first.step is not None
    base = VariantResult("as written", "", None, None, (), (first,))
    launches = next(share.exposed for share in first.step.shares if share.kind == "host")
    asked_for = {row.name: dict(row.changes) for row in what_if_rows(study, base, workshop)}
    free = asked_for["Free network between servers"]
    assert abs(free.get("host", 0.0)) < abs(free["pp"])
    graphs = Variant(name="Graphs", why="", set={"jobs.finetune.cuda_graphs": ["step"]})
    moved = dict(sensitivity_row(study, graphs, base, workshop).changes)
    assert moved["host"] == pytest.approx(-launches)
    assert abs(moved.get("compute", 0.0)) < 0.01 * launches


@pytest.mark.parametrize(("arch", "plan"), PLANS)
def test_free_launches_are_those_of_a_graph_of_the_whole_step(arch, plan) -> None:  # type: ignore[no-untyped-def]
    steps = asked(arch, plan)
    free = steps["Kernel launches free (CUDA graphs)"]
    assert free.exposed("host") == 0.0
    graphed = plan.model_copy(update={"cuda_graphs": ("step",)})
    assert free.step_time == pytest.approx(simulate(graphed, arch, machine()).step_time, rel=1e-12)
    rows = {one.name for one in what_ifs(graphed, arch, machine())}
    assert not {"Kernel launches free (CUDA graphs)", "Free compute and launches"} & rows
    for alone in ("Kernel launches free (CUDA graphs)", "Infinite compute"):
        assert steps["Free compute and launches"].step_time <= steps[alone].step_time * (1 + 1e-9)


def test_a_job_in_one_server_of_many_has_no_network_to_ask_about() -> None:
    found = {one.name for one in what_ifs(job(tensor=2, gpus=8), DENSE, machine())}
    assert not {"Network ×2", "Network ÷2", "No PXN", "Free network between servers"} & found
    assert "Free communication" in found


def test_one_gpu_has_no_communication_to_ask_about() -> None:
    found = {one.name for one in what_ifs(job(gpus=1), DENSE, machine())}
    assert found == {"HBM bandwidth ×2", "Infinite compute", "Kernel launches free (CUDA graphs)"}


def test_a_graph_of_one_gpus_step_would_leave_nothing() -> None:
    """Without kernels either it would take no time at all, and its MFU be a division by that."""
    found = {one.name for one in what_ifs(changed(job(gpus=1), cuda_graphs=("step",)), DENSE, machine())}
    assert found == {"HBM bandwidth ×2"}


def test_a_change_that_cannot_run_says_why() -> None:
    """A broken part is a note in its row, and the other rows stand."""
    small = replace(machine(), gpu=replace(machine().gpu, hbm_bytes=1e9))
    found = what_ifs(job(tensor=2), DENSE, small)
    assert found
    assert all(one.step is None and one.note.startswith("case: ") for one in found)
