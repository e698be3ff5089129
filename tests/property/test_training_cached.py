"""Any layout can be replayed on the allocator, which holds no less than the tensors that are in it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.measure.training.vtrain import TRACED
from railwright.spec.training import Overlap
from railwright.training.checks.plan import check
from railwright.training.layers.stages import shapes_of
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.units import copies_out, unit_counts
from railwright.training.software.eras import eras
from training_cases import BLOCKS, DELTA, DENSE, KIMI, LATENTS, LIGHTNING, MOE, job, machine

GATED = replace(MOE, attention_gate="element", qk_norm=True, expert_layers=(0, 1, 5))
CHOOSING = replace(
    MOE,
    attention="mla",
    kv_heads=16,
    q_lora=384,
    kv_lora=128,
    rope_dim=32,
    v_head_dim=64,
    index_topk=1024,
    index_heads=8,
    index_dim=64,
)
HEADED = replace(
    GATED,
    window_heads=32,
    v_head_dim=32,
    sliding_window=512,
    pattern=("moe", "windowed moe", "dense", "windowed dense", "dense", "moe", "dense", "windowed dense"),
    expert_layers=(),
)
FABRIC = machine(4).network.fabric

PARTS = [("core_attn",), ("mlp",), ("layernorm", "mla_up_proj"), ("moe",), ("moe_act",), ("ops",)]
ERAS = [name for name, era in eras().items() if era.allocator != "jax" and name != TRACED]
"""Frameworks that train; the traced one is a profiler's."""

LAYOUTS = st.fixed_dictionaries(
    {
        "tensor": st.sampled_from([1, 2, 4]),
        "pipeline": st.sampled_from([1, 2, 4]),
        "virtual_pipeline": st.sampled_from([1, 2]),
        "schedule": st.sampled_from(["auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"]),
        "sequence_parallel": st.booleans(),
        "context": st.sampled_from([1, 2]),
        "context_kind": st.sampled_from(["ring", "all-to-all", "all-gather"]),
        "expert": st.sampled_from([1, 2, 8]),
        "zero": st.integers(0, 3),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "recompute_modules": st.sampled_from(PARTS),
        "offload": st.sampled_from([(), ("activations",), ("optimizer",), ("weights",)]),
    }
)

MANY_REFUSED = [HealthCheck.filter_too_much]
"""Most layouts of random axes are refused, of some draws nearly all."""


@settings(max_examples=80, suppress_health_check=MANY_REFUSED)
@given(
    LAYOUTS,
    st.sampled_from([DENSE, MOE, LATENTS, GATED, HEADED, CHOOSING]),
    st.sampled_from(ERAS),
    st.sampled_from(["bf16", "fp8", "mxfp8"]),
    st.booleans(),
)
def test_any_layout_can_be_replayed(layout, arch, software, dtype, hidden) -> None:  # type: ignore[no-untyped-def]
    _replayed(layout, arch, software, dtype, hidden)


@settings(max_examples=60, suppress_health_check=MANY_REFUSED)
@given(
    LAYOUTS,
    st.sampled_from([BLOCKS, DELTA, KIMI, LIGHTNING]),
    st.sampled_from(["megatron-2025", "megatron-2026", "fsdp-2025"]),
    st.sampled_from(["bf16", "fp8"]),
)
def test_any_layout_of_hybrids_can_be_replayed(layout, arch, software, dtype) -> None:  # type: ignore[no-untyped-def]
    _replayed(layout, arch, software, dtype, False)


def _replayed(layout, arch, software, dtype, hidden) -> None:  # type: ignore[no-untyped-def]
    try:
        wanted = job(
            gpus=32,
            sequence=4096,
            batch=64,
            dtype=dtype,
            overlap=Overlap(ep=hidden),
            **(layout if arch.is_moe else {**layout, "expert": 1}),
        ).model_copy(update={"software": software})
        check(wanted, arch, FABRIC)
        memory = peak_memory(wanted, arch, FABRIC, 80e9)
    except (PlanError, ValueError):
        assume(False)
        raise
    for stage in memory.stages:
        for expandable in (False, True):
            found = cached(wanted, arch, FABRIC, stage.stage, expandable=expandable)
            assert found is not None
            assert found.allocated <= found.reserved
            assert found.second <= found.reserved
            assert found.retries == 0
            tensors = stage.total - stage.parts[SYSTEM]
            plain = layout["schedule"] in ("auto", "gpipe") and layout["virtual_pipeline"] == 1
            if eras()[software].deepspeed and (hidden or not plain):
                # its pipelines have no other order
                assert found.allocated >= 0.7 * tensors
            else:
                # with one or two stages logits of one direction wait beside the other's forward pass, and
                # those that the loss makes beside come before the fullest backward pass
                few = layout["schedule"].startswith("dualpipe") and layout["pipeline"] <= 2
                tokens = wanted.sequence / layout["context"]
                waiting = 4.0 * tokens * arch.vocab / layout["tensor"] if few else 0.0
                # sums take the most of each kind of layer, whichever comes first
                least = 0.85 if few else 0.88
                # FSDP2's sum has all gradients of a layer beside all that it holds before it makes them
                made = 2.0 * _largest_layer(wanted, arch, stage.stage) * copies_out(wanted)
                assert least * tensors - made <= found.allocated <= 1.1 * tensors + waiting


def _largest_layer(wanted, arch, stage) -> float:  # type: ignore[no-untyped-def]
    shape = shapes_of(wanted, arch)[stage]
    return max(unit_counts(replace(shape, embedding=0.0, head=0.0)), default=0.0)
