"""Replay: closed forms of small traces, and a predicted step that replays to its predicted time.

`priced(bandwidth, latency)` takes latency + wire bytes / bandwidth, of which NICs bind the second part.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Muon, Overlap
from railwright.traces import busiest, critical_path, export, load, replay, shares, simai, step_trace
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.outcome import RankShares
from railwright.traces.replaying import Replayed
from railwright.training import place
from training_cases import DENSE, MOE, changed, job, machine, priced

MB = 1e6
GRADIENT_NORM = 40e-6
"""Training leaves the gradient norm out, traces do not: an all-reduce of 4 bytes along the pipeline [s]."""


def trace(groups: dict[str, Group], *nodes: tuple[Node, ...]) -> StepTrace:
    return StepTrace("case", len(nodes), lambda rank: nodes[rank], groups, tuple(range(len(nodes))))


def compute(index: int, seconds: float, *after: int) -> Node:
    return Node(index, f"compute {index}", "compute", after, seconds)


def reduce(index: int, size: float, group: str, *after: int, parts: int = 1) -> Node:
    return Node(index, f"reduce {index}", "collective", after, 0.0, "all_reduce", size, group, parts=parts)


def everyone(ranks: int) -> dict[str, Group]:
    return {"all 0": Group("all 0", tuple(range(ranks)), "all")}


def test_a_collective_begins_when_its_last_member_has_come() -> None:
    """1 ms and 3 ms of compute, then 1 MB over two ranks at 1 GB/s: 3 ms + 20 us + 2 * 1/2 * 1 ms."""
    nodes = [(compute(0, t), reduce(1, MB, "all 0", 0)) for t in (1e-3, 3e-3)]
    result = replay(trace(everyone(2), *nodes), machine(1), priced(1e9))
    assert result.time == pytest.approx(3e-3 + 20e-6 + 1e-3)
    first, second = shares(result, 0), shares(result, 1)
    assert first.idle == pytest.approx(2e-3)
    assert (second.compute, second.idle) == pytest.approx((3e-3, 0.0))
    assert second.communication == {"all": pytest.approx(1.02e-3)}
    assert busiest(result).rank == 1


def test_communication_beside_compute_is_not_exposed() -> None:
    """1 ms of transfer beside 5 ms of compute: the step takes 5 ms and exposes nothing."""
    nodes = [(reduce(0, MB, "all 0"), compute(1, 5e-3))] * 2
    result = replay(trace(everyone(2), *nodes), machine(1), priced(1e9, 0.0))
    assert result.time == pytest.approx(5e-3)
    assert shares(result, 0).communication == {}


def test_two_collectives_across_servers_share_the_nics_and_start_up_apart() -> None:
    """Both have 20 us of their own, then 1.875 ms of wire, at half the rate while the other runs: 3.77 ms.

    16 ranks: 2 * 15/16 * 1 MB at 1 GB/s = 1.875 ms.
    """
    groups = {name: Group(name, tuple(range(16)), name) for name in ("a", "b")}
    nodes = [(reduce(0, MB, "a"), reduce(1, MB, "b"))] * 16
    together = replay(trace(groups, *nodes), machine(2), priced(1e9))
    assert together.time == pytest.approx(20e-6 + 2 * 1.875e-3)
    alone = replay(trace(groups, *[(one[0],) for one in nodes]), machine(2), priced(1e9))
    assert alone.time == pytest.approx(20e-6 + 1.875e-3)


def test_inside_a_server_they_do_not_share() -> None:
    groups = {name: Group(name, tuple(range(8)), name) for name in ("a", "b")}
    nodes = [(reduce(0, MB, "a"), reduce(1, MB, "b"))] * 8
    assert replay(trace(groups, *nodes), machine(1), priced(1e9)).time == pytest.approx(20e-6 + 1.75e-3)


def test_collectives_of_one_group_follow_each_other() -> None:
    nodes = [(reduce(0, MB, "all 0"), reduce(1, MB, "all 0"))] * 2
    assert replay(trace(everyone(2), *nodes), machine(1), priced(1e9)).time == pytest.approx(2 * 1.02e-3)


def test_what_queued_is_on_the_path_behind_what_it_queued_for() -> None:
    """Rank 1 computes 2 ms before the first of two collectives; the second has been ready since the start."""
    late = (compute(0, 2e-3), reduce(1, MB, "all 0", 0), reduce(2, MB, "all 0"))
    early = (reduce(0, MB, "all 0"), reduce(1, MB, "all 0"))
    path = {
        part.kind: (part.seconds, part.nodes)
        for part in critical_path(replay(trace(everyone(2), early, late), machine(1), priced(1e9)))
    }
    assert path == {"compute": (pytest.approx(2e-3), 1), "all": (pytest.approx(2 * 1.02e-3), 2)}


def test_parts_of_a_collective_take_its_time_together() -> None:
    nodes = [tuple(reduce(i, MB, "all 0", *range(i), parts=4) for i in range(4))] * 2
    assert replay(trace(everyone(2), *nodes), machine(1), priced(1e9)).time == pytest.approx(1.02e-3)


def test_a_message_is_needed_when_it_arrives() -> None:
    """Rank 0 computes 2 ms and sends 1 MB (1.02 ms); rank 1 needs it before its last 1 ms."""
    sender = (compute(0, 2e-3), Node(1, "send", "send", (0,), size=MB, peer=1, tag=5))
    receiver = (Node(0, "get", "receive", size=MB, peer=0, tag=5), compute(1, 0.5e-3), compute(2, 1e-3, 0, 1))
    result = replay(trace({}, sender, receiver), machine(1), priced(1e9))
    assert result.time == pytest.approx(2e-3 + 1.02e-3 + 1e-3)
    path = {part.kind: part.seconds for part in critical_path(result)}
    assert path == {"compute": pytest.approx(3e-3), "messages": pytest.approx(1.02e-3)}


def test_a_rank_computes_one_thing_at_a_time_and_its_host_another() -> None:
    host = Node(1, "launch", "host", (), 1e-3)
    nodes = (compute(0, 1e-3), host, compute(2, 2e-3))
    assert replay(trace({}, nodes), machine(1)).time == pytest.approx(3e-3)


def test_an_instant_is_the_hosts_only_where_nothing_else_runs() -> None:
    """1.02 ms of transfer beside 3 ms of launches: the transfer has its instants, the host what is left."""
    launch = Node(0, "launch", "host", (), 3e-3)
    result = replay(trace(everyone(2), *([(launch, reduce(1, MB, "all 0"))] * 2)), machine(1), priced(1e9))
    one = shares(result, 0)
    assert one.communication == {"all": pytest.approx(1.02e-3)}
    assert one.host == pytest.approx(3e-3 - 1.02e-3)


def test_gradients_have_an_instant_only_where_something_waits_for_them() -> None:
    """1.02 ms of gradients beside 3 ms of launches, and 0.5 ms of compute that needs both: all is the host's.

    Where launches take 0.4 ms, the other 0.62 ms are the gradients'.
    """
    groups = {"dp 0": Group("dp 0", (0, 1), "dp")}
    for launches, exposed in ((3e-3, 0.0), (0.4e-3, 0.62e-3)):
        nodes = (Node(0, "launch", "host", (), launches), reduce(1, MB, "dp 0"), compute(2, 0.5e-3, 0, 1))
        one = shares(replay(trace(groups, nodes, nodes), machine(1), priced(1e9)), 0)
        assert one.host == pytest.approx(launches)
        assert sum(one.communication.values()) == pytest.approx(exposed)


def test_gradients_that_nobody_waits_for_leave_a_stage_waiting() -> None:
    """Rank 1 waits 2 ms for rank 0, then 1.02 ms for its message, while gradients take 1.02 ms beside it."""
    groups = {"dp 0": Group("dp 0", (1, 2), "dp")}
    sender = (compute(0, 2e-3), Node(1, "send", "send", (0,), size=MB, peer=1, tag=5))
    other = (reduce(0, MB, "dp 0"),)
    stage = (reduce(0, MB, "dp 0"), Node(1, "get", "receive", size=MB, peer=0, tag=5), compute(2, 1e-3, 1))
    result = replay(trace(groups, sender, stage, other), machine(1), priced(1e9))
    one = shares(result, 1)
    assert (one.idle, one.compute) == (pytest.approx(2e-3), pytest.approx(1e-3))
    assert one.communication == {"messages": pytest.approx(1.02e-3)}
    # the sender has left for good when its message is under way
    assert shares(result, 0).idle == pytest.approx(result.time - 2e-3)


LAYOUTS: dict[str, tuple[bool, dict[str, object]]] = {
    "data parallel": (False, {}),
    "buckets not hidden": (False, {"overlap": Overlap(dp=False)}),
    "tensor, sequence": (False, {"tensor": 4, "sequence_parallel": True}),
    "tensor in shards": (False, {"tensor": 4, "sequence_parallel": True, "overlap": Overlap(tp=True)}),
    "pipeline": (False, {"pipeline": 4}),
    "blocking sends": (False, {"pipeline": 2, "overlap": Overlap(pp=False)}),
    "interleaved": (False, {"pipeline": 2, "virtual_pipeline": 2, "tensor": 2}),
    "experts": (True, {"expert": 4}),
    "experts in turns": (True, {"expert": 4, "overlap": Overlap(ep=True)}),
    "experts in turns, interleaved": (
        True,
        {"expert": 4, "pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(ep=True)},
    ),
    "experts in turns, blocking sends": (
        True,
        {"expert": 2, "pipeline": 4, "virtual_pipeline": 2, "overlap": Overlap(ep=True, pp=False)},
    ),
    "both ways": (False, {"pipeline": 2, "schedule": "dualpipe"}),
    "folded": (False, {"pipeline": 4, "schedule": "zb-v"}),
    "split, interleaved": (False, {"pipeline": 2, "virtual_pipeline": 2, "schedule": "zb-h1"}),
    "experts folded": (True, {"expert": 2, "pipeline": 4, "schedule": "dualpipe-v"}),
    "experts both ways": (True, {"expert": 2, "pipeline": 4, "schedule": "dualpipe"}),
    "experts cut less": (True, {"tensor": 4, "expert_tensor": 2, "sequence_parallel": True}),
    "experts across": (True, {"expert": 2, "tensor": 2, "placement": "expert-across"}),
    "recomputed": (False, {"recompute": "full", "tensor": 2}),
    "some layers recomputed": (
        False,
        {"recompute": "full", "recompute_layers": 1, "tensor": 2, "pipeline": 2, "virtual_pipeline": 2},
    ),
    "some layers of experts recomputed": (True, {"recompute": "full", "recompute_layers": 3, "expert": 4}),
}


MORE: dict[str, tuple[bool, dict[str, object]]] = {
    "ring": (False, {"context": 2, "tensor": 2}),
    "sharded": (False, {"zero": 3}),
    "sharded in groups": (False, {"zero": 3, "shard": 8}),
    "states in groups": (False, {"shard": 8}),
    "experts in groups": (True, {"shard": 8, "expert": 4}),
    "optimizer on the host": (False, {"zero": 1, "offload": ("optimizer", "activations")}),
    "experts, launches bind": (
        True,
        {"expert": 4, "tensor": 2, "sequence_parallel": True, "overlap": Overlap(dp=False)},
    ),
    "experts cut further": (True, {"expert": 2, "expert_tensor": 4, "pipeline": 2}),
    "experts and stages": (True, {"expert": 4, "tensor": 2, "pipeline": 2, "sequence_parallel": True}),
}
KINDS = {"shard": "dp", "copies": "dp", "mirror": "dp", "embedding": "dp", "etp": "tp"}
"""Families of a replay by the kind of a step's shares that they are."""


def kinds_of(one: RankShares, messages: str) -> Counter[str]:
    """Seconds of a rank by kinds of a step's shares."""
    found = Counter({"compute": one.compute, "host": one.host, "bubble": one.idle})
    for family, seconds in one.communication.items():
        word = family.split()[-1].rstrip("'")
        found[messages if word == "messages" else KINDS.get(word, word)] += seconds
    return found


@pytest.mark.parametrize("name", [*LAYOUTS, *MORE])
def test_a_replayed_step_has_the_shares_of_the_predicted_one(name: str) -> None:
    """Kind by kind, on the stage that both tell of: host, gradients and messages that coincide too."""
    moe, layout = (LAYOUTS | MORE)[name]
    one = job(batch=32, sequence=512, **layout)  # type: ignore[arg-type]
    made, step = step_trace(one, MOE if moe else DENSE, machine(2))
    result = replay(made, machine(2))
    stage = place(one, machine(2).network.fabric).grid[step.stage].reshape(-1)
    ranks = [made.gpus.index(int(gpu)) for gpu in stage]
    told = kinds_of(
        min((shares(result, rank) for rank in ranks), key=lambda s: s.idle), "cp" if name == "ring" else "pp"
    )
    expected: Counter[str] = Counter()
    for share in step.shares:
        expected[{"copy": "host", "adam": "host"}.get(share.kind, share.kind)] += share.exposed
    for kind in {*told, *expected}:
        off = GRADIENT_NORM if one.layout.pipeline > 1 else 0.0
        assert told[kind] == pytest.approx(expected[kind], abs=off + 1e-9 * step.step_time), kind


@pytest.mark.parametrize("server", ["dgx-h100", "server-8x-h100-pcie"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_predicted_step_replays_to_its_time(name: str, server: str) -> None:
    """To 1e-9 of the step, plus the gradient norm where there are stages."""
    (moe, layout), on = LAYOUTS[name], machine(2, server=server)
    one = job(batch=32, sequence=512, **layout)  # type: ignore[arg-type]
    made, step = step_trace(one, MOE if moe else DENSE, on)
    result = replay(made, on)
    later = result.time - step.step_time
    assert later >= -1e-9 * step.step_time
    assert later <= 1e-9 * step.step_time + (GRADIENT_NORM if one.layout.pipeline > 1 else 0.0)
    _adds_up(result)


@pytest.mark.parametrize(
    ("layout", "software"),
    [
        ({"context": 2, "tensor": 2, "placement": "expert-across"}, "megatron-2025"),
        ({"context": 4, "tensor": 4}, "megatron-2025"),
        ({"context": 4, "tensor": 4, "zero": 2}, "megatron-2025"),
        ({"zero": 3, "pipeline": 2}, "megatron-2025"),
        ({"zero": 3, "pipeline": 4, "virtual_pipeline": 2, "reshard": False}, "megatron-2025"),
        ({"zero": 3, "pipeline": 2, "offload": ("weights",)}, "fsdp-2025"),
        ({"tensor": 2, "pipeline": 4}, "megatron-2022"),
        ({"tensor": 2, "pipeline": 4, "virtual_pipeline": 2}, "megatron-2021"),
        ({"tensor": 2, "pipeline": 4, "virtual_pipeline": 2, "schedule": "zb-h1"}, "megatron-2021"),
    ],
    ids=str,
)
def test_what_shares_nics_or_waits_for_messages_replays_to_its_time(
    layout: dict[str, object], software: str
) -> None:
    """Steps of rings beside gradients, gathers of a stage before its first message, Adam on the host, and
    messages that are cut over the tensor ranks and gathered by their receiver."""
    one = changed(job(batch=32, sequence=4096, **layout), software=software)  # type: ignore[arg-type]
    made, step = step_trace(one, DENSE, machine(2))
    later = replay(made, machine(2)).time - step.step_time
    assert later >= -1e-9 * step.step_time
    assert later <= 1e-9 * step.step_time + (GRADIENT_NORM if one.layout.pipeline > 1 else 0.0)


@pytest.mark.parametrize("mode", ["duplicated", "distributed"])
@pytest.mark.parametrize(
    "layout",
    [{"pipeline": 2}, {"expert": 2, "expert_tensor": 4}, {"pipeline": 4, "layers_per_stage": (1, 3, 2, 2)}],
    ids=str,
)
def test_what_an_optimizer_exchanges_is_replayed(mode: str, layout: dict[str, object]) -> None:
    """Muon's momentum over tensor-parallel ranks, those of experts among them; tokens in 8 bits beside it."""
    one = job(batch=32, sequence=512, tensor=2, sequence_parallel=True, dtype="fp8_block", **layout)
    asked = {"optimizer": "muon", "muon": Muon(tp_mode=mode)}  # type: ignore[arg-type]
    narrow = {"dispatch_dtype": "fp8"} if "expert" in layout else {}
    made, step = step_trace(changed(one, **asked, **narrow), MOE, machine(2))
    result = replay(made, machine(2))
    later = result.time - step.step_time
    assert -1e-9 * step.step_time <= later
    assert later <= 1e-9 * step.step_time + (GRADIENT_NORM if one.layout.pipeline > 1 else 0.0)


def test_through_files_too_and_on_another_fabric(tmp_path: Path) -> None:
    """The same step from its Chakra files; with half of the tensor ranks' links it takes longer."""
    one = job(batch=16, sequence=512, tensor=2, pipeline=2)
    files, step = export(one, DENSE, machine(2), "chakra", tmp_path / "trace")
    assert len(files) == 17
    made = load(tmp_path / "trace", 16)
    here = replay(made, machine(2))
    told = kinds_of(busiest(here), "pp")
    for share in step.shares:
        assert told[share.kind] == pytest.approx(share.exposed, abs=GRADIENT_NORM), share.kind
    assert here.time == pytest.approx(replay(step_trace(one, DENSE, machine(2))[0], machine(2)).time)
    free = replay(made, machine(2), priced(0.0))
    assert free.time < step.step_time < replay(made, machine(2), priced(1e9)).time


PLACED: dict[str, dict[str, object]] = {
    "half of each server": {"gpus_per_server": 4},
    "servers by number": {"servers": (3, 1)},
    "half of some": {"servers": (2, 0), "gpus_per_server": 4},
}


@pytest.mark.parametrize("name", PLACED)
def test_files_say_where_ranks_are(name: str, tmp_path: Path) -> None:
    """Sends between stages and gradients cross servers elsewhere when rank i is put on GPU i."""
    one = job(batch=16, sequence=512, tensor=2, pipeline=2).model_copy(update=PLACED[name])
    export(one, DENSE, machine(4), "chakra", tmp_path / "trace")
    made = load(tmp_path / "trace", 32)
    known = step_trace(one, DENSE, machine(4))[0]
    assert made.gpus == known.gpus != tuple(range(made.ranks))
    assert replay(made, machine(4)).time == pytest.approx(replay(known, machine(4)).time, rel=1e-9)


def test_files_keep_copies_apart_from_the_host_and_odd_sizes(tmp_path: Path) -> None:
    """Copies to the host run beside its launches; 510 tokens over 4 ranks leave no whole bytes in a shard."""
    one = job(
        batch=16, sequence=510, tensor=4, sequence_parallel=True, zero=1, offload=("optimizer", "activations")
    )
    export(one, DENSE, machine(2), "chakra", tmp_path / "trace")
    made, known = load(tmp_path / "trace", 16), step_trace(one, DENSE, machine(2))[0]
    assert [node.size for node in made.nodes(0)] == [node.size for node in known.nodes(0)]
    assert {node.kind for node in made.nodes(0)} >= {"copy", "compute", "collective"}
    assert replay(made, machine(2)).time == pytest.approx(replay(known, machine(2)).time, rel=1e-9)


def test_a_simai_workload_takes_what_its_stage_takes(tmp_path: Path) -> None:
    """Rows hold the whole time between collectives; what differs is data parallelism, which AICB has last."""
    one = job(batch=32, sequence=512, tensor=4, sequence_parallel=True, overlap=Overlap(dp=False))
    _, step = export(one, DENSE, machine(2), "simai", tmp_path / "work")
    result = replay(load(tmp_path / "work" / "case.txt", 16), machine(2))
    assert result.time == pytest.approx(step.step_time, rel=0.02)
    assert replay(load(tmp_path / "work", 16), machine(2)).time == result.time


@pytest.mark.parametrize("pieces", [1, 2])
def test_simai_is_told_the_pieces_of_a_stage(tmp_path: Path, pieces: int) -> None:
    """It divides the bubble by `vpp` (Layer.cc), once the number of rows: steps were 21 % short there."""
    one = job(batch=16, sequence=512, tensor=2, pipeline=2, virtual_pipeline=pieces)
    export(one, DENSE, machine(2), "simai", tmp_path / "work")
    assert simai.read(tmp_path / "work" / "case.txt").pieces == pieces


def test_a_simai_row_ends_where_gradients_leave(tmp_path: Path) -> None:
    """A job of data parallelism alone has no other collectives: every bucket leaves beside what follows it,
    and parameters are gathered behind the optimizer."""
    one = job(batch=32, sequence=512)
    _, step = export(one, DENSE, machine(2), "simai", tmp_path / "work")
    rows = simai.read(tmp_path / "work" / "case.txt").rows
    reduced = [i for i, row in enumerate(rows) if row.weight.comm == "REDUCESCATTER"]
    gathered = [i for i, row in enumerate(rows) if row.weight.comm == "ALLGATHER"]
    updated = next(i for i, row in enumerate(rows) if row.name == "optimizer")
    count = sum(c.count for c in step.collectives if c.purpose == "dp gradients")
    assert len(reduced) == len(gathered) == count > 2
    assert max(gathered) < updated < min(reduced), "rows are walked upwards"
    between = [sum(row.gradient.seconds for row in rows[a:b]) for a, b in pairwise(reduced)]
    assert all(seconds > 0 for seconds in between)


@pytest.mark.parametrize(
    ("arch", "layout", "gpus"),
    [
        # two data-parallel ranks, and two stages with one embedding: both are groups of 2
        (replace(DENSE, tied_embeddings=True), {"pipeline": 4}, 8),
        # 2 replicas of every expert, and two stages with the embedding that extra prediction reads
        (replace(MOE, mtp_layers=1), {"pipeline": 2, "expert": 4}, 16),
    ],
    ids=["tied", "extra"],
)
def test_groups_of_as_many_ranks_are_not_simais(
    tmp_path: Path, arch: Transformer, layout: dict[str, int], gpus: int
) -> None:
    one = job(batch=32, sequence=512, gpus=gpus, **layout)
    with pytest.raises(PlanError, match=r"no groups for 'tied embedding gradients' \(2 ranks\)"):
        export(one, arch, machine(2), "simai", tmp_path / "work")


def _adds_up(result: Replayed) -> None:
    for rank in range(result.trace.ranks):
        one = shares(result, rank)
        total = one.compute + one.host + one.idle + sum(one.communication.values())
        assert total == pytest.approx(result.time)
    assert sum(part.seconds for part in critical_path(result)) == pytest.approx(result.time)
