"""The search finds what trying every layout of a space finds.

A space has every value of what its test is of.  Schedules have a test of their own here, and bounds are held
against random layouts of every schedule in test_search_bounds.py; elsewhere FEW stand for all of them.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from search_brute_force import compare
from search_cases import AGAIN, ALTERNATING, DELAYED, TORCHAO, drawn
from training_cases import DENSE, MIXED, MOE, job, machine

FEW = {"schedule": ("auto", "dualpipe"), "virtual_pipeline": (1, 2), "overlap_pp": (True,)}
"""One pass at a time, and two at once; whole stages and halves."""


@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(
    arch=st.sampled_from([DENSE, MOE]),
    servers=st.sampled_from([1, 2]),
    batch=st.sampled_from([16, 24, 32]),
    tp=st.sampled_from([(1, 2), (2, 4)]),
    overlap=st.sampled_from(
        [("overlap_tp", "overlap_dp"), ("overlap_pp", "overlap_dp"), ("overlap_ep", "zero")]
    ),
)
def test_the_search_finds_what_brute_force_finds(
    arch: Transformer, servers: int, batch: int, tp: tuple[int, ...], overlap: tuple[str, ...]
) -> None:
    axes = {"tensor": tp, "micro_batch": (2,), "placement": ("packed",), "expert_tensor": (None,)}
    fixed = {
        "recompute": ("none",),
        "sequence_parallel": (True,),
        "zero": (1,),
        "overlap_tp": (False,),
        "overlap_ep": (False,),
        "overlap_dp": (True,),
        "overlap_pp": (True,),
        "schedule": ("auto",),
    }
    for axis in overlap:
        fixed[axis] = (0, 1, 3) if axis == "zero" else (True, False)
    space = Space({**axes, **fixed})
    compare(job(batch=batch), arch, servers, space)


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=lambda arch: arch.name)
def test_brute_force_of_deepspeeds_zero(arch: Transformer) -> None:
    """All-reduces, gathers behind the step; what the engine refuses is in the space too.  Gradients are
    handled as each stage of ZeRO does, and where they are hidden have a second bucket of 1 GB."""
    axes = {
        "tensor": (1, 2),
        "context": (1, 2),
        "context_kind": ("all-to-all",),
        "pipeline": (1,),
        "micro_batch": (1, 2),
        "recompute": ("none", "full"),
        "zero": (0, 1, 2, 3),
        "offload": ((), ("optimizer",)),
        "overlap_dp": (True, False),
    }
    fixed = dict.fromkeys(("overlap_tp", "overlap_ep", "overlap_cp"), (False,))
    placed = {"placement": ("packed",), "expert": (1,), "expert_tensor": (None,), "overlap_pp": (True,)}
    base = job(batch=64, zero=3).model_copy(update={"software": "deepspeed-2024"})
    space = Space({**axes, **fixed, **placed})
    exact = compare(base, arch, 2, space)
    leanest = search(base, arch, machine(2), space, top=1, steps=0, objective="memory").best[0]
    assert leanest.memory == min(one.memory for one in exact)


@pytest.mark.parametrize(
    "schedules",
    [("auto", "zb-h1"), ("dualpipe", "gpipe"), ("zb-v", "dualpipe-v"), ("1f1b", "interleaved")],
)
def test_brute_force_over_schedules(schedules: tuple[str, ...]) -> None:
    space = Space(
        {
            "tensor": (1, 2),
            "schedule": schedules,
            "pipeline": (2, 4),
            "virtual_pipeline": (1, 2) if {"auto", "interleaved"} & {*schedules} else (1,),
            "micro_batch": (1, 2),
            "recompute": ("none",),
            "zero": (1,),
            "sequence_parallel": (True,),
            "overlap_pp": (True,),
        }
    )
    compare(job(batch=32), DENSE, 2, space)


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_brute_force_where_collectives_meet_on_pcie_slots(arch: Transformer) -> None:
    axes = {"tensor": (1, 2, 4), "pipeline": (1, 2), "expert": (1, 4), "zero": (1, 2, 3), "micro_batch": (1,)}
    fixed = {
        "recompute": ("none",),
        "sequence_parallel": (True,),
        "placement": ("packed",),
    }
    space = Space({**axes, **fixed, **FEW, "overlap_tp": (True, False), "overlap_dp": (True, False)})
    compare(job(batch=32), arch, 2, space, "server-8x-h100-pcie")


@pytest.mark.parametrize(("leading", "every"), [(1, 2), (0, 3)])
def test_brute_force_where_experts_alternate_with_dense_layers(leading: int, every: int) -> None:
    arch = replace(ALTERNATING, dense_layers=leading, expert_every=every)
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2), "expert_tensor": (None,)}
    fixed = {"recompute": ("none",), "sequence_parallel": (True,), "zero": (1,), "overlap_tp": (False,)}
    more = {"expert": (1, 4), "overlap_ep": (False,), "overlap_pp": (True,), "placement": ("packed",)}
    compare(job(batch=32), arch, 1, Space({**axes, **fixed, **more, "micro_batch": (1, 2)}))


def test_brute_force_where_layers_are_of_every_kind() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "recompute": ("none", "full")}
    fixed = {"expert_tensor": (None,), "overlap_tp": (False,), "placement": ("packed",), "zero": (0, 1)}
    compare(job(batch=32), MIXED, 1, Space({**axes, **fixed, **FEW, "micro_batch": (2,)}))


def test_brute_force_where_parts_are_computed_again() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "recompute": ("selective",), "zero": (1,)}
    fixed = {
        "expert_tensor": (None,),
        "overlap_tp": (False,),
        "overlap_pp": (True,),
        "placement": ("packed",),
    }
    compare(AGAIN, ALTERNATING, 1, Space({**axes, **fixed, "micro_batch": (1, 2)}))


@pytest.mark.parametrize("arch", [DENSE, ALTERNATING], ids=["dense", "experts"])
def test_brute_force_over_how_many_layers_are_computed_again(arch: Transformer) -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none", "full"), "zero": (1,)}
    some = {"recompute_layers": (None, 1, 2, 3), "expert": (1, 4) if arch.is_moe else (1,)}
    fixed = {"expert_tensor": (None,), "overlap_tp": (False,), "overlap_ep": (False,), "overlap_pp": (True,)}
    space = Space({**axes, **some, **fixed, "placement": ("packed",), "micro_batch": (1, 2)})
    compare(job(batch=32), arch, 1, space)


def test_brute_force_where_every_pass_ends_together() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "zero": (1, 3), "recompute": ("none",)}
    compare(DELAYED, DENSE, 2, Space({**axes, "sequence_parallel": (True,), "micro_batch": (1, 2)}))


def test_brute_force_with_casts_and_packed_samples() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "zero": (1, 3), "recompute": ("none", "selective")}
    packed = TORCHAO.model_copy(update={"sample_length": 128})
    compare(packed, DENSE, 1, Space({**axes, "micro_batch": (1, 2), "sequence_parallel": (True,)}))


def test_brute_force_where_experts_are_cut_more_than_the_rest() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 2), "expert_tensor": (None, 1, 4)}
    fixed = {"recompute": ("none",), "overlap_tp": (False,), "placement": ("packed",), "zero": (0, 1)}
    compare(job(batch=32), MOE, 1, Space({**axes, **fixed, **FEW, "micro_batch": (1,)}))


def test_brute_force_where_tokens_travel_in_8_bits() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "zero": (1,), "micro_batch": (2,)}
    fixed = {"recompute": ("none", "full"), "overlap_tp": (False,), "placement": ("packed",)}
    one = job(batch=32, dtype="fp8_block").model_copy(update={"dispatch_dtype": "fp8"})
    compare(one, MOE, 1, Space({**axes, **fixed, **FEW}))


@pytest.mark.parametrize("dtype", ["nvfp4", "fp8_block"])
def test_brute_force_where_weights_are_made_narrow_under_every_sharding(dtype: str) -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 1, 3), "recompute": ("none", "selective")}
    space = Space({**axes, "sequence_parallel": (True,), "micro_batch": (1, 2)})
    compare(job(batch=32, dtype=dtype), DENSE, 1, space, "dgx-b200")


def test_brute_force_with_attention_and_inputs_of_swiglu_in_8_bits() -> None:
    """Hopper, which refuses to gather keys in front of it."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "context": (1, 2), "zero": (1, 3), "micro_batch": (1,)}
    kinds = {"context_kind": ("ring", "all-to-all", "all-gather"), "recompute": ("none", "selective")}
    asked = {"dtype_also": ("attention",), "amax_over": "tensor", "activation_input_dtype": "fp8"}
    one = job(batch=16, dtype="fp8").model_copy(update=asked)
    compare(one, replace(DENSE, heads=8, head_dim=128), 1, Space({**axes, **kinds, **FEW}))


def test_brute_force_of_whole_matrices() -> None:
    """Muon: data-parallel ranks update matrices of their own, and `zero` 2 and 3 are refused."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "zero": (0, 1, 3), "micro_batch": (1,)}
    fixed = {"recompute": ("none",), "overlap_tp": (False,), "overlap_ep": (False,), "placement": ("packed",)}
    muon = job(batch=32).model_copy(update={"optimizer": "muon"})
    compare(muon, MOE, 1, Space({**axes, **fixed, **FEW}))


def test_brute_force_where_launches_block() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    off = {f"overlap_{kind}": (False,) for kind in ("dp", "tp", "pp", "ep")}
    base = job(batch=32).model_copy(update={"launch_blocking": True})
    compare(base, DENSE, 2, Space({**axes, **off, "zero": (1,), "sequence_parallel": (True,)}))


def test_brute_force_where_only_experts_have_copies() -> None:
    """Tensor parallelism over all GPUs, experts uncut: `zero` shares and `overlap.dp` hides theirs."""
    axes = {"tensor": (4, 8), "pipeline": (1, 2), "expert": (1, 2), "recompute": ("none",)}
    fixed = {
        "overlap_ep": (False,),
        "placement": ("packed",),
        "sequence_parallel": (True,),
        "schedule": ("auto",),
    }
    space = Space({**axes, **fixed, "zero": (0, 1, 3), "overlap_dp": (True, False), "micro_batch": (1, 2)})
    compare(job(batch=16), MOE, 1, space)
    screen, layouts = drawn(MOE, job(batch=16), space, random.Random(1), 30)
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_brute_force_where_a_copy_is_shared_by_few() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    base = job(batch=32, zero=3, shard=4)
    compare(base, DENSE, 2, Space({**axes, "overlap_dp": (True, False), "sequence_parallel": (True,)}))


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_brute_force_over_groups_that_share_a_copy(arch: Transformer) -> None:
    """Groups of ranks, parameters kept or dropped, gradients reduced every time or once, in one space."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",)}
    sharing = {"shard": (None, 2, 4, 8), "reshard": (True, False), "reduce_each": (True, False)}
    more = {
        "zero": (1, 2, 3),
        "expert": (1, 4) if arch is MOE else (1,),
        "placement": ("packed",),
        "micro_batch": (1,),
    }
    fixed = {"overlap_tp": (False,), "sequence_parallel": (True,)}
    compare(job(batch=32), arch, 2, Space({**axes, **sharing, **more, **fixed, **FEW}))


def test_brute_force_of_what_fsdp_has() -> None:
    """Defaults of FSDP2, on three servers: all ranks or whole servers share, context ranks among them."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",), "context": (1, 2)}
    space = Space({**axes, "overlap_tp": (False,), "micro_batch": (1,)}, fsdp=True)
    compare(job(batch=48, sequence=8192), DENSE, 3, space)


def test_brute_force_where_a_stage_sends_one_layer_to_the_host() -> None:
    """Two virtual stages send one each, as many as a whole stage of one: their passes are not the same."""
    axes = {
        "tensor": (1,),
        "pipeline": (2,),
        "virtual_pipeline": (1, 2),
        "schedule": ("auto", "zb-h1", "zb-v"),
    }
    more = {"recompute": ("none",), "zero": (1,), "offload": (("activations",),), "micro_batch": (1, 2)}
    base = job(batch=32, sequence=4096, offload=("activations",), offload_layers=2)
    compare(base, DENSE, 1, Space({**axes, **more, "overlap_pp": (True,), "overlap_dp": (True,)}))


def test_brute_force_where_copies_to_the_host_shorten_a_step() -> None:
    """Where launches bind, the host runs ahead while a forward pass waits for its copies, and stages of
    different sizes wait less for each other."""
    axes = {"tensor": (1,), "pipeline": (2,), "virtual_pipeline": (1,), "schedule": ("auto", "gpipe")}
    more = {"recompute": ("none",), "zero": (1,), "offload": ((), ("activations",)), "micro_batch": (2,)}
    compare(job(batch=16), replace(DENSE, layers=5), 1, Space({**axes, **more}))
