"""What is offloaded is in some host's memory: by hand, tensor by tensor; refused where it does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.model import count_parameters, load_model
from railwright.search import Space, search
from railwright.shipped import read_data
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import HostMemory, StepResult
from railwright.training.layout.placement import place
from railwright.training.memory.activations import layer_kept_parts
from railwright.training.memory.host_memory import host_memory, pinned, ranks_on_hosts
from railwright.training.passes.offload import (
    HOST_ADAM,
    HYBRID_BYTES,
    HostUpdate,
    beside,
    host_link,
    update_on_host,
)
from railwright.training.software.hosted import ranks_together
from training_cases import DENSE, job, machine

TOTAL = count_parameters(DENSE).total


def held(asked: TrainingJob, one: Machine) -> HostMemory:
    found = host_memory(asked, DENSE, one.network.fabric, one.server)
    assert found is not None
    return found


def small(memory: float, servers: int = 1) -> Machine:
    one = machine(servers)
    return replace(one, server=replace(one.server, memory=memory))


def test_pytorch_pins_powers_of_two() -> None:
    assert [pinned(size) for size in (0, 1, 3, 4, 5e9)] == [0, 1, 4, 4, 2.0**33]


def test_an_optimizer_has_its_masters_and_gradients_pinned_and_its_moments_not() -> None:
    found = held(job(gpus=8, zero=1, offload=("optimizer",)), machine(1))
    # eight ranks together have all parameters once, and norms count as the rest
    assert found.ranks == 8
    assert found.parts["moments"] == pytest.approx(8 * TOTAL)
    assert found.parts["master weights"] == found.parts["gradients"]
    assert 4 * TOTAL < found.parts["gradients"] < 8 * TOTAL
    # queries, keys and values, 1536 x 1024, take 4/3 of their size; tables are cut to a rank's share of
    # 22 million; output, gate and up, and down take their sizes
    layer = {
        1536 * 1024: 2048 * 1024,
        1024 * 1024: 1024 * 1024,
        8192 * 1024: 8192 * 1024,
        4096 * 1024: 4096 * 1024,
    }
    share = TOTAL / 8
    ends = 2 * 32000 * 1024 * pinned(4 * share) / (4 * share)
    by_weight = (8 * sum(layer.values()) + ends) / (8 * sum(layer) + 2 * 32000 * 1024)
    assert found.parts["gradients"] == pytest.approx(4 * TOTAL * by_weight, rel=1e-3)


def test_without_sharding_every_rank_has_its_own() -> None:
    one, eight = (held(job(gpus=8, zero=zero, offload=("optimizer",)), machine(1)) for zero in (1, 0))
    assert eight.parts["moments"] == pytest.approx(8 * one.parts["moments"])


def test_jax_pins_what_it_asks_for() -> None:
    asked = job(gpus=8, zero=1, offload=("optimizer",)).model_copy(update={"software": "xla-2025"})
    assert held(asked, machine(1)).total == pytest.approx(16 * TOTAL)


def test_activations_are_those_of_all_passes_held_and_all_layers_but_the_last() -> None:
    asked = job(gpus=8, pipeline=4, batch=32, offload=("activations",))
    found = held(asked, machine(1))
    layer = sum(pinned(size) for size in layer_kept_parts(asked, DENSE, "dense", "none").values())
    # stages of two layers hold 4, 3, 2 and 1 passes, on two ranks each
    assert found.total == pytest.approx(2 * (4 + 3 + 2 + 1) * layer)
    assert found.parts == {"activations": found.total}


def test_a_rack_has_eighteen_hosts_of_four_gpus() -> None:
    rack = Cluster(
        servers=1, server="gb200-nvl72", compute=ComputeNetwork(family="fat-tree", switch="qm9700")
    )
    one = Machine.of(rack, load_catalog(), NcclSettings())
    asked = job(gpus=72, batch=72, zero=1, offload=("optimizer",))
    counts = ranks_on_hosts(place(asked, one.network.fabric), one.network.fabric, one.server)
    assert counts.shape == (18, 1)
    assert (counts == 4).all()
    found = held(asked, one)
    assert found.ranks == 4
    assert found.capacity == 960e9
    assert ranks_together(asked, one.network.fabric, one.server, 72) == 4
    # CPU Adam: four ranks share a tray's cores, not 72
    update = update_on_host(asked, 1e9, 72, one)
    assert update.adam == pytest.approx(4e9 * HOST_ADAM)
    assert update.down == update.up == pytest.approx(1e9 * HYBRID_BYTES / host_link(one))


def test_what_does_not_fit_is_refused_with_the_parts_and_what_would() -> None:
    asked = job(gpus=8, batch=64, zero=0, offload=("optimizer", "activations"))
    need = held(asked, machine(1)).total
    with pytest.raises(PlanError) as no:
        simulate(asked, DENSE, small(need * 0.5))
    said = str(no.value)
    assert "its 8 ranks on one host put" in said
    assert "more than the" in said
    assert "moments" in said
    assert "activations" in said
    assert "what would fit: zero: 1" in said
    assert (
        simulate(
            asked.model_copy(update={"layout": asked.layout.model_copy(update={"zero": 1})}),
            DENSE,
            small(need * 0.5),
        ).memory.host
        is not None
    )


def test_a_host_that_is_nearly_full_or_unknown_is_told() -> None:
    asked = job(gpus=8, batch=64, zero=1, offload=("optimizer",))
    need = held(asked, machine(1)).total
    assert any("fills 98%" in w for w in simulate(asked, DENSE, small(need / 0.98)).warnings)
    assert any("nothing is known" in w for w in simulate(asked, DENSE, small(0.0)).warnings)
    assert not any("host" in w for w in simulate(asked, DENSE, machine(1)).warnings)
    assert simulate(job(gpus=8), DENSE, machine(1)).memory.host is None


def test_a_search_leaves_out_what_its_hosts_cannot_hold() -> None:
    asked = job(gpus=8, batch=32, zero=1)
    space = Space.of(
        {"tensor": [1], "pipeline": [1], "zero": [1], "offload": [["optimizer"], ["activations"]]}
    )
    need = held(job(gpus=8, zero=1, offload=("optimizer",)), machine(1)).total
    kept = {c.setting["offload"] for c in search(asked, DENSE, small(need * 1.1), space).best}
    left = {c.setting["offload"] for c in search(asked, DENSE, small(need * 0.9), space).best}
    assert ("optimizer",) in kept
    assert ("optimizer",) not in left
    with pytest.raises(PlanError, match="with what it offloads its host"):
        search(asked, DENSE, small(1e6), space)


def test_the_catalogue_and_the_schedulers_files_agree_on_a_hosts_memory() -> None:
    servers = load_catalog().servers
    for row in read_data("deploy", "hosts.yaml")["rows"]:
        for name in row["servers"]:
            assert servers[name].memory == row["memory"], name


def test_a_large_model_does_not_fit_the_host_of_its_gpus() -> None:
    # 405B on 8 GPUs: 16 bytes of 406 billion parameters are 6.5 TB, of 2 TB
    arch = load_model("llama-3.1-405b")
    asked = job(gpus=8, batch=8, tensor=8, offload=("optimizer",))
    one = machine(1)
    found = host_memory(asked, arch, one.network.fabric, one.server)
    assert found is not None
    assert found.total > 6.4e12 > found.capacity == 2e12


def test_copies_beside_the_update_take_what_the_slowest_of_three_takes() -> None:
    # ten tensors: 1 s down, 3 s of Adam and 2 s up each in turn; the first down and the last up are seen
    assert beside(HostUpdate(10.0, 30.0, 20.0), 10) == pytest.approx((1, 30, 2, 27))
    # where copying up is slowest, Adam waits for nothing and the copies go on behind it
    assert beside(HostUpdate(10.0, 20.0, 30.0), 10) == pytest.approx((1, 20, 3 + 9, 27))
    assert beside(HostUpdate(30.0, 20.0, 10.0), 10) == pytest.approx((3 + 9, 20, 1, 27))
    one = HostUpdate(10.0, 20.0, 30.0)
    assert beside(one, 1) == one, "a single tensor has nothing beside it"


def test_megatron_copies_beside_its_update_where_it_is_asked_to() -> None:
    def step(hidden: bool, software: str = "megatron-2025") -> StepResult:
        asked = job(gpus=8, zero=1, offload=("optimizer",), overlap=Overlap(offload=hidden))
        return simulate(asked.model_copy(update={"software": software}), DENSE, machine(1))

    apart, together = step(False), step(True)
    before, after = (next(s for s in found.shares if s.kind == "copy") for found in (apart, together))
    assert together.step_time < apart.step_time
    assert after.busy == pytest.approx(before.busy)
    assert after.exposed < before.exposed
    assert sum(s.exposed for s in together.shares) == pytest.approx(together.step_time)
    other = step(True, "nemo-2024")
    assert other.step_time == step(False, "nemo-2024").step_time
    assert any("overlap.offload does nothing" in said for said in other.warnings)


def test_the_link_of_a_host_is_its_grace_cpus_or_a_pcie_slot() -> None:
    """NVLink-C2C has 900 GB/s both ways, 450 in one, for a Grace CPU's GPUs: one of a GH200, two of a GB200;
    another Arm CPU has a GPU in a PCIe slot (5.0 x16, 63 GB/s, of which 88 % are reached)."""
    plain = ComputeNetwork(family="fat-tree", switch="qm9700")
    alone, rack = (
        Machine.of(Cluster(servers=2, server=server, compute=plain), load_catalog(), NcclSettings())
        for server in ("gh200-1", "gb200-nvl72")
    )
    assert host_link(alone) == 450e9
    assert host_link(rack) == 225e9
    one = machine(1)
    arm = replace(one, server=replace(one.server, cpu="arm"))
    assert host_link(arm) == host_link(one) == pytest.approx(55.4e9, rel=0.01)
