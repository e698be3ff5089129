"""Exports name the kernels that tokens were predicted to be exchanged by, and what a router must know."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import FORMS, export
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.search.training.result import Candidate
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, changed, job, machine

WIDE = replace(MOE, experts=256, experts_per_token=8, expert_ffn=256)
"""DeepSeek-V3's routing: 8 of 256 experts."""


def limited(nodes: int | None, capacity: float | None = None, **layout: object) -> TrainingJob:
    return changed(job(batch=32, **layout), expert_nodes=nodes, expert_capacity=capacity)  # type: ignore[arg-type]


def megatron(one: TrainingJob, arch: Transformer, hosts: Hosts) -> tuple[list[str], list[str]]:
    """Arguments of the dispatcher and of the router's groups, and all comments."""
    lines = FORMS["megatron"][1](one, arch, hosts)
    wanted = ("--moe-token-dispatcher", "--moe-flex", "--moe-router-num", "--moe-router-group")
    return [x for x in lines if x.startswith(wanted)], [x for x in lines if x.startswith("#")]


NCCL = ["--moe-token-dispatcher-type alltoall"]
GATHERED = ["--moe-token-dispatcher-type allgather"]
SPLIT = {"tensor": 2, "sequence_parallel": True}
DEEPEP = ["--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend deepep"]
HYBRIDEP = ["--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend hybridep"]


@pytest.mark.parametrize(
    ("one", "hosts", "written"),
    [
        (limited(None, expert=32), Hosts(32, 4), NCCL),
        (limited(4, expert=32), Hosts(32, 4), DEEPEP),
        # 2 of 4 servers, 64 experts on each: groups of 64
        (
            limited(2, expert=32),
            Hosts(32, 4),
            [*DEEPEP, "--moe-router-num-groups 4", "--moe-router-group-topk 2"],
        ),
        # 8 experts lie on 8 servers at most: a limit of 8 leaves out none of 16
        (limited(8, expert=128), Hosts(128, 16), DEEPEP),
        (limited(4, expert=8), Hosts(32, 1), DEEPEP),
        # tensor-parallel ranks inside experts exchange tokens too: 8 ranks on each server
        (limited(4, expert=8, tensor=2, sequence_parallel=True), Hosts(16, 2), DEEPEP),
        # four ranks a server, racks of NVLink, and experts padded to their capacity
        (limited(4, expert=8), Hosts(32, 2), HYBRIDEP),
        (limited(4, expert=32), Hosts(32, 1, "gb200"), HYBRIDEP),
        (limited(4, expert=8), Hosts(32, 1, "gb300"), HYBRIDEP),
        (limited(4, 1.0, expert=8), Hosts(32, 1), HYBRIDEP),
        (limited(4, expert=1), Hosts(32, 1), GATHERED),
        # every token once over the tensor ranks, its copies where experts are cut otherwise
        (limited(None, **SPLIT), Hosts(16, 1), GATHERED),
        (limited(None, **SPLIT, expert_tensor=4), Hosts(16, 1), NCCL),
        # whose ranks count no tokens on the host: only alltoall pads to the capacity
        (limited(None, 1.5), Hosts(32, 1), NCCL),
        (limited(None, 1.5, **SPLIT, expert_tensor=1), Hosts(16, 1), NCCL),
        (limited(None, 1.5, **SPLIT), Hosts(16, 1), GATHERED),
    ],
    ids=str,
)
def test_megatron_is_told_what_was_predicted(one: TrainingJob, hosts: Hosts, written: list[str]) -> None:
    """transformer_config.py: moe_flex_dispatcher_backend, and moe_router_num_groups "equal to number of nodes
    in EP group" for node-limited routing."""
    assert megatron(one, WIDE, hosts)[0] == written


def test_capacities_of_cut_experts_on_one_rank_are_counted_all_the_same() -> None:
    """token_dispatcher.py: MoEAllGatherTokenDispatcher knows no drop_and_pad."""
    said = "# fixed capacities, of which the host needs no counts"
    for capacity, cut in ((1.5, None), (1.5, 1), (None, None)):
        one = limited(None, capacity, **SPLIT, expert_tensor=cut)
        found = any(x.startswith(said) for x in megatron(one, WIDE, Hosts(16, 1))[1])
        assert found == (capacity is not None and cut is None)


def test_nemo_is_told_the_same() -> None:
    text = "\n".join(FORMS["nemo"][1](limited(2, expert=32), WIDE, Hosts(32, 4)))
    for field in (
        "moe_token_dispatcher_type='flex'",
        "moe_flex_dispatcher_backend='deepep'",
        "moe_router_num_groups=4",
        "moe_router_group_topk=2",
    ):
        assert field in text


def test_torchtitan_is_told_the_kernels_and_its_reader_the_groups() -> None:
    lines = FORMS["torchtitan"][1](limited(2, expert=32), WIDE, Hosts(32, 4))
    assert tomllib.loads("\n".join(lines))["parallelism"]["expert_parallel_comm_backend"] == "deepep"
    assert any("num_expert_groups 4 and num_limited_groups 2" in line for line in lines)
    plain = FORMS["torchtitan"][1](limited(None, expert=32), WIDE, Hosts(32, 4))
    assert not any("comm_backend" in line for line in plain)


def test_servers_with_different_numbers_of_experts_are_told() -> None:
    """Groups of 6 on servers of 8: ranks 6 and 7 begin the next one, which lies on two."""
    one, arch = limited(1, expert=6, gpus=24), replace(WIDE, experts=240)
    hosts = Hosts.of(changed(one, global_batch=24), machine(3))
    assert (hosts.servers, hosts.even) == (2, False)
    found, told = megatron(one, arch, hosts)
    assert not any("router" in line for line in found)
    assert any("lies unevenly on up to 2, where neither DeepEP nor HybridEP runs" in line for line in told)
    assert not any("HYBRID_EP_RANKS" in line for line in told)
    lines = FORMS["torchtitan"][1](one, arch, hosts)
    assert any("where neither DeepEP nor HybridEP runs" in line for line in lines)


def test_groups_on_one_server_and_on_two_equal_halves_are_told() -> None:
    """Groups of 4 on 6 GPUs of each server: a router's groups would be those of two servers."""
    one = changed(limited(1, expert=4, gpus=12), gpus_per_server=6, global_batch=24)
    hosts = Hosts.of(one, machine(2))
    assert (hosts.servers, hosts.even, hosts.apart) == (2, False, False)
    _, told = megatron(one, replace(WIDE, experts=240), hosts)
    assert any("a token's experts on at most 1 servers" in line for line in told)
    assert any("HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=2" in line for line in told)


def test_hybridep_is_told_the_ranks_of_a_server() -> None:
    _, told = megatron(limited(4, expert=8), WIDE, Hosts(32, 2))
    assert any("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=4" in line for line in told)


def test_what_no_kernel_of_one_copy_runs() -> None:
    across = limited(4, expert=4, placement="expert-across", zero=3)
    for name in ("megatron", "nemo", "torchtitan"):
        (lack,) = FRAMEWORKS[name].lacks(across, MOE, 32)
        assert lack == "one copy to each server (DeepEP) where an expert group has one rank on each"
        assert not FRAMEWORKS[name].lacks(changed(across, expert_nodes=None), MOE, 32)
    cut = limited(4, expert=4, tensor=2, sequence_parallel=True, zero=3)
    (lack,) = FRAMEWORKS["torchtitan"].lacks(cut, MOE, 16)
    assert lack == "one copy to each server (DeepEP) beside tensor parallelism inside experts"
    assert not FRAMEWORKS["megatron"].lacks(cut, MOE, 16)


def test_hosts_are_those_of_the_simulation() -> None:
    four = machine(4)
    assert Hosts.of(limited(4, expert=32), four) == Hosts(32, 4, four.gpu.name, node=8)
    assert Hosts.of(limited(4, expert=8, tensor=2, expert_tensor=1), four).servers == 1
    assert Hosts.of(job(), four).servers == 1


@pytest.mark.parametrize(
    ("nodes", "layout", "told"),
    [
        (None, {"expert": 32}, ""),
        (4, {"expert": 32}, ""),
        (
            99,
            {"expert": 32},
            "expert_nodes 99 counts as 4: an expert group lies on 4 servers and a token goes",
        ),
        (2, {"expert": 8}, "expert_nodes 2 counts as 1: an expert group lies on 1 server and"),
        (9, {"expert": 1}, ""),
    ],
)
def test_a_limit_beyond_all_servers_is_told(nodes: int | None, layout: dict[str, int], told: str) -> None:
    step = simulate(limited(nodes, **layout), WIDE, machine(4))
    found = [w for w in step.warnings if "counts as" in w]
    assert bool(found) == bool(told)
    assert all(w.startswith(told) for w in found)
    if nodes == 99:
        assert step.step_time == simulate(limited(4, **layout), WIDE, machine(4)).step_time


def test_a_search_says_it_too() -> None:
    axes = {
        "tensor": (1,),
        "pipeline": (1,),
        "expert": (8,),
        "recompute": ("none",),
        "placement": ("packed",),
    }
    found = search(
        limited(99, expert=8), MOE, machine(1), Space({**axes, "micro_batch": (1,)}), top=1, steps=0
    )
    assert any(word.startswith("expert_nodes 99 counts as 1") for word in found.words)


@pytest.mark.parametrize(
    ("node", "gpus", "says"),
    [
        (8, 4, "on 4 GPUs of each server: --nproc-per-node 4\n"),
        # an NVL72 is 18 trays of 4 GPUs: torchrun on a tray finds no 64
        (4, 64, "on 64 GPUs of each server: --nproc-per-node 4 on 16 of its operating systems"),
        (4, 66, "4 each, so that one of them runs 2 processes"),
    ],
)
def test_processes_are_those_of_an_operating_system(node: int, gpus: int, says: str) -> None:
    plain = job()
    step = simulate(plain, DENSE, machine(2))  # only the head is of the step
    part = changed(plain, gpus_per_server=gpus)
    assert says in export(Candidate({}, part, step, 0.0, 0.0), DENSE, Hosts(16, node=node), "megatron")
