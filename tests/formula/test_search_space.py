"""The space is data: how many layouts it has can be counted by hand, and its files say what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import SpecError
from railwright.search import Space
from railwright.search.bounds.blocks import blocks
from railwright.search.space.axes import apply, setting_of
from railwright.spec.training import Overlap
from training_cases import DENSE, MOE, job, machine


def test_counting_by_hand() -> None:
    """8 GPUs, tensor 1 or 2, no pipeline: data 8 or 4.  Of 16 sequences that leaves 2 or 4 local ones, so
    micro batches (1, 2) or (1, 2, 4).  Tensor 1 has no sequence parallelism and no overlap of it; tensor 2
    has both
    choices of both.  2 x 3 recomputations = 6, and 3 x 3 x 2 x 2 = 36: 42 layouts."""
    axes = {"tensor": [1, 2], "pipeline": [1], "zero": [1], "overlap_dp": [True], "schedule": ["auto"]}
    found, refused = blocks(Space.of(axes), job(batch=16), DENSE, machine(1).network.fabric)
    assert [block.size for block in found] == [6, 36]
    assert not refused


@pytest.mark.parametrize(
    ("software", "sizes"), [("megatron-2022", [1, 1]), ("megatron-2025", [1, 2]), ("fsdp-2024", [2, 2])]
)
def test_sends_that_the_software_cannot_hide_are_no_choice(software: str, sizes: list[int]) -> None:
    """Two stages of one chunk (1F1B), then of two (interleaved): hidden sends count where they can be."""
    one = {"tensor": [1], "pipeline": [2], "virtual_pipeline": [1, 2], "schedule": ["auto"]}
    rest = {"micro_batch": [1], "recompute": ["none"], "zero": [1], "overlap_dp": [True]}
    wanted = job(batch=16).model_copy(update={"software": software})
    found, _ = blocks(Space.of({**one, **rest}), wanted, DENSE, machine(1).network.fabric)
    assert [block.size for block in found] == sizes


def test_a_layout_of_the_space_is_a_job() -> None:
    base = job(batch=16)
    found, _ = blocks(Space(), base, MOE, machine(1).network.fabric)
    for block in found[:40]:
        setting = block.at(tuple(n - 1 for n in block.shape))
        assert setting_of(apply(base, setting)) == setting


def test_part_of_each_server_makes_the_same_space_whether_the_gpus_are_counted_or_not() -> None:
    """4 of the 8 GPUs of two servers are 8 GPUs, with or without `gpus: 8`."""
    part = job(batch=16).model_copy(update={"gpus_per_server": 4})
    fabric = machine(2).network.fabric
    axes = Space.of({"tensor": [1, 2], "context": [1], "overlap_dp": [True], "recompute": ["none"]})
    found, _ = blocks(axes, part, DENSE, fabric)
    again, _ = blocks(axes, part.model_copy(update={"gpus": 8}), DENSE, fabric)
    assert found == again
    assert {block.data * block.structure["tensor"] * block.structure["pipeline"] for block in found} == {8}


@pytest.mark.parametrize(
    ("batch", "context", "sizes"),
    [(64, 1, {1}), (64, 4, {1, 2, 4}), (4, 1, {1, 2, 4}), (2, 1, {1, 2, 4, 8})],
    ids=["short sequences", "the job's own", "four sequences", "two"],
)
def test_context_ranks_of_short_sequences(batch: int, context: int, sizes: set[int]) -> None:
    """1,024 tokens are no 4,096 for two ranks; 16 GPUs that 4 sequences are to feed are another matter."""
    axes = Space.of({"tensor": [1], "pipeline": [1], "context_kind": ["ring"], "placement": ["packed"]})
    found, _ = blocks(axes, job(batch=batch, context=context), DENSE, machine(2).network.fabric)
    # of two sequences 8 ranks each is the least that keeps all GPUs busy
    assert {block.structure["context"] for block in found} == {c for c in sizes if 16 // c <= batch}


def test_fields_that_allow_only_values_like_the_jobs_own_leave_a_space() -> None:
    """Copies shared by 4 ranks want something sharded, blocking launches nothing hidden: the axes' first
    values, zero 0 and hidden gradients, are refused, and still all layouts with the others are there."""
    axes = {"tensor": [1, 2], "pipeline": [1], "context": [1], "micro_batch": [1], "recompute": ["none"]}
    fabric = machine(1).network.fabric
    grouped, _ = blocks(
        Space.of({**axes, "overlap_tp": [False]}), job(batch=16, zero=3, shard=4), DENSE, fabric
    )
    assert [b.of("zero") for b in grouped] == [(1, 2, 3), (1, 2, 3)]
    # three of zero; tensor 1: gradients hidden or not; tensor 2: and norms split or not
    assert [b.size for b in grouped] == [3 * 2, 3 * 4]
    off = job(batch=16, overlap=Overlap(dp=False, pp=False, cp=False))
    off = off.model_copy(update={"launch_blocking": True})
    blocking, _ = blocks(Space.of(axes), off, DENSE, fabric)
    assert [b.of("overlap_dp") for b in blocking] == [(False,), (False,)]
    assert [b.of("overlap_tp") for b in blocking] == [(False,), (False,)]
    # a job that hides what it can by default, as its refusal says, has the same space
    default, _ = blocks(
        Space.of(axes), job(batch=16).model_copy(update={"launch_blocking": True}), DENSE, fabric
    )
    assert default == blocking


def test_experts_cut_less_than_the_rest_have_copies_on_tensor_ranks() -> None:
    """8 GPUs, tensor 8, experts uncut over 2, 4 and 8 ranks: 4, 2 and 1 GPUs hold the same experts, and where
    there are several, what they hide is a choice although data parallelism is 1; what they share is one for
    its memory anyway."""
    axes = {"tensor": [8], "pipeline": [1], "expert": [2, 4, 8], "expert_tensor": [1]}
    found, _ = blocks(Space.of(axes), job(batch=16), MOE, machine(1).network.fabric)
    assert [b.of("zero") for b in found] == [(0, 1, 2, 3)] * 3
    assert [b.of("overlap_dp") for b in found] == [(True, False), (True, False), (True,)]


def test_schedules_by_their_own_names_are_those_that_auto_stands_for() -> None:
    """`auto` is 1F1B with one chunk per stage, which one stage runs too, and interleaved with several."""
    axes = {"tensor": [1], "pipeline": [1, 2], "virtual_pipeline": [1, 2], "context": [1]}
    fabric = machine(1).network.fabric
    sizes = {}
    for names in (["auto"], ["1f1b"], ["interleaved"], ["1f1b", "interleaved"]):
        found, _ = blocks(Space.of({**axes, "schedule": names}), job(batch=16), DENSE, fabric)
        sizes["+".join(names)] = {
            (b.structure["pipeline"], b.structure["virtual_pipeline"]): b.size
            for b in found
            if b.structure["placement"] == "packed"
        }
    every = sizes["auto"]
    assert list(every) == [(1, 1), (2, 1), (2, 2)]
    assert sizes["1f1b"] == {key: every[key] for key in [(1, 1), (2, 1)]}
    assert sizes["interleaved"] == {(2, 2): every[2, 2]}
    assert sizes["1f1b+interleaved"] == every


def test_virtual_stages_divide_a_stage_whose_layers_are_one_more_or_one_less() -> None:
    """126 layers, as Llama 3.1 405B has: on 8 stages 15 or 16, on 16 stages 7 or 8, on 2 stages 63."""
    deep = replace(DENSE, layers=126)
    axes = {"tensor": [1], "context": [1], "schedule": ["auto"], "placement": ["packed"]}
    for pipeline, chunks in {
        2: {1, 3, 7, 9, 21, 63},
        8: {1, 2, 3, 4, 5, 8, 15, 16},
        16: {1, 2, 4, 7, 8},
    }.items():
        space = Space.of({**axes, "pipeline": [pipeline]})
        found, _ = blocks(space, job(batch=256), deep, machine(2).network.fabric)
        assert {block.structure["virtual_pipeline"] for block in found} == chunks


def test_a_value_given_twice_is_one_layout() -> None:
    assert Space.of({"tensor": [1, 2, 1], "offload": [[], []]}).values == {"tensor": (1, 2), "offload": ((),)}


def test_a_dense_model_has_no_layouts_with_experts_over_several_ranks() -> None:
    axes = {"tensor": [1], "context": [1], "pipeline": [1]}
    fabric = machine(1).network.fabric
    found, refused = blocks(Space.of({**axes, "expert": [1, 2]}), job(batch=16), DENSE, fabric)
    assert {block.structure["expert"] for block in found} == {1}
    assert "dense model without experts" in refused[0].example


def test_refused_layouts_are_counted_with_their_reason() -> None:
    """16 heads over 3 GPUs cannot be cut."""
    found, refused = blocks(
        Space.of({"tensor": [3], "context": [1]}), job(batch=16, gpus=6), DENSE, machine(1).network.fabric
    )
    assert not found
    assert "layout.tensor" in refused[0].example


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tenser": [1]}, "tenser: there is no such axis; did you mean 'tensor'?"),
        ({"recompute_layers": ["half"]}, "write a whole number, or a word (every, quarters)"),
        ({"recompute_layers": {"quarters": 1}}, "or a word (every, quarters)"),
        ({"shard": ["server"]}, "write a whole number, or a word (servers)"),
        ({"tensor": []}, "tensor: the axis is empty"),
        ({"zero": [4]}, "zero: 4 is not allowed; write one of 0, 1, 2, 3"),
        ({"offload": ["optimizer"]}, "offload: 'optimizer' is no list; write a list of lists"),
        ({"micro_batch": [0]}, "micro_batch: 0 is not a whole number"),
        ([1], "a space is a set of axes"),
    ],
)
def test_a_wrong_space_says_what_is_wrong(given: object, said: str) -> None:
    with pytest.raises(SpecError) as no:
        Space.of(given, "s.yaml")
    assert said in str(no.value)


def _structures(given: dict[str, object]) -> set[tuple[object, ...]]:
    found, _ = blocks(Space.of(given), job(batch=32), MOE, machine(1).network.fabric)
    names = ("tensor", "pipeline", "schedule", "expert", "expert_tensor")
    return {tuple(block.structure[name] for name in names) for block in found}


def test_experts_are_cut_as_the_space_says_whatever_the_rest_is() -> None:
    """By 1 only, beside a rest that is cut by 1 or 2, over one rank and over two."""
    one = {"context": [1], "pipeline": [1], "schedule": ["auto"], "placement": ["packed"]}
    found = _structures({**one, "tensor": [1, 2], "expert": [1, 2], "expert_tensor": [1]})
    assert found == {(tensor, 1, "auto", expert, 1) for tensor in (1, 2) for expert in (1, 2)}


def test_a_first_value_that_is_refused_takes_no_other_with_it() -> None:
    """Two stages with one rank each: ZB-H1 refuses zero 3, not 1; blocking launches refuse hidden sends."""
    one = {"tensor": [1], "pipeline": [2], "virtual_pipeline": [1], "micro_batch": [1], "recompute": ["none"]}
    small = job(gpus=2, batch=32)
    fabric = machine(1).network.fabric
    found, _ = blocks(Space.of({**one, "schedule": ["zb-h1"], "zero": [3, 1]}), small, DENSE, fabric)
    assert [block.of("zero") for block in found] == [(1,)]
    blocking = small.model_copy(update={"launch_blocking": True})
    found, _ = blocks(Space.of({**one, "schedule": ["auto"], "zero": [1]}), blocking, DENSE, fabric)
    assert [block.of("overlap_pp") for block in found] == [(False,)]


def test_groups_that_share_a_copy_are_an_axis() -> None:
    """16 ranks; copies of 4 and 8 want something sharded, all ranks allow any."""
    axes = {"tensor": [1], "pipeline": [1], "context": [1], "micro_batch": [1], "recompute": ["none"]}
    fabric = machine(2).network.fabric
    space = {**axes, "shard": [None, 4, 8], "overlap_dp": [True]}
    found, refused = blocks(Space.of(space), job(batch=16), DENSE, fabric)
    packed = [b for b in found if b.structure["placement"] == "packed"]
    assert [(b.structure["shard"], b.of("zero")) for b in packed] == [
        (None, (0, 1, 2, 3)),
        (4, (1, 2, 3)),
        (8, (1, 2, 3)),
    ]
    assert not refused
    # in a pipeline zero 2 and 3 are not tried by default
    staged, _ = blocks(Space.of({**space, "pipeline": [2]}), job(batch=16), DENSE, fabric)
    assert {(b.structure["shard"], b.of("zero")) for b in staged if b.structure["schedule"] == "auto"} == {
        (None, (0, 1)),
        (4, (1,)),
        (8, (1,)),
    }


@pytest.mark.parametrize("shard", [["servers"], [None, "servers"]])
def test_structures_larger_than_the_job_are_refused(shard: list[object]) -> None:
    """Two stages named for one GPU of a server: no ranks are left to be counted in servers."""
    wanted = job(batch=16, gpus=1)
    axes = {"tensor": [1], "pipeline": [1, 2], "shard": shard, "placement": ["packed"]}
    found, refused = blocks(Space.of(axes), wanted, DENSE, machine(1).network.fabric)
    assert {block.structure["pipeline"] for block in found} <= {1}
    assert any("1 GPU is not a multiple of tensor x pipeline" in no.example for no in refused) is (
        None in shard
    )


def test_a_word_stands_for_groups_of_whole_servers() -> None:
    """16 and 32 ranks on 2 and 4 servers of 8: while there are several groups; context-parallel ranks stay
    together, and no server has less than a group where tensors are cut over all of it."""
    axes = {
        "context": [1],
        "micro_batch": [1],
        "placement": ["packed"],
        "zero": [1],
        "context_kind": ["ring"],
    }

    def groups(servers: int, **more: list[object]) -> list[int | None]:
        space = Space.of({**axes, "pipeline": [1], **more})
        found, _ = blocks(space, job(batch=32), DENSE, machine(servers).network.fabric)
        return [b.structure["shard"] for b in found]

    assert groups(2, tensor=[1], shard=[None, "servers"]) == [None, 8]
    assert groups(4, tensor=[1], shard=["servers"]) == [8, 16]
    assert groups(4, tensor=[4], shard=[None, "servers"]) == [None, 2, 4]
    assert groups(4, tensor=[1], context=[16], shard=["servers"]) == [16]
    assert groups(4, tensor=[8], shard=[None, "servers"]) == [None]
    # a number that is also one of the word's counts once
    assert groups(2, tensor=[1], shard=[8, "servers"]) == [8]


def test_groups_of_experts_have_a_copy_of_all_of_them() -> None:
    axes = {"tensor": [1], "context": [1], "pipeline": [1], "placement": ["packed"], "expert_tensor": [None]}
    space = Space.of({**axes, "expert": [4, 8], "zero": [1], "shard": [None, "servers"]})
    found, refused = blocks(space, job(batch=32), MOE, machine(4).network.fabric)
    assert not refused
    assert [(b.structure["expert"], b.structure["shard"]) for b in found] == [
        (4, None), (4, 8), (4, 16), (8, None), (8, 8), (8, 16),
    ]  # fmt: skip


def test_parameters_kept_and_gradients_reduced_once_are_no_layouts_of_less_sharding() -> None:
    """reshard does nothing below zero 3, reduce_each below 2: their second values make no twins."""
    axes = {"tensor": [1], "pipeline": [1], "context": [1], "placement": ["packed"], "zero": [1, 2, 3]}
    space = Space.of({**axes, "reshard": [True, False], "reduce_each": [False, True]})
    found, _ = blocks(space, job(batch=16), DENSE, machine(1).network.fabric)
    assert [(b.structure["reshard"], b.structure["reduce_each"], b.of("zero")) for b in found] == [
        (True, False, (1, 2, 3)),
        (True, True, (2, 3)),
        (False, False, (3,)),
        (False, True, (3,)),
    ]


def test_a_space_of_groups_that_share_nothing_says_what_they_want() -> None:
    axes = {"tensor": [1], "pipeline": [1], "context": [1], "zero": [0], "shard": [4]}
    found, refused = blocks(Space.of(axes), job(batch=16), DENSE, machine(1).network.fabric)
    assert not found
    assert "set zero to 1, 2 or 3" in refused[0].example


def test_values_of_groups_are_checked_like_a_studys() -> None:
    with pytest.raises(SpecError, match="shard"):
        Space.of({"shard": [0]})
    with pytest.raises(SpecError, match="reshard"):
        Space.of({"reshard": ["sometimes"]})
