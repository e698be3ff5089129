"""What SwiGLU reads, kept in fp8 for its backward pass (Megatron's activation_func_fp8_input_store)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import find, load_catalog
from railwright.errors import PlanError
from railwright.model import Cut, layer_activations, layer_gradient_bytes, layer_operators, load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.allocator import Requests
from railwright.training.memory.cached import _plans, cached
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.tape import forward
from railwright.training.software.host import launch_times
from training_cases import DENSE, MOE, job, machine, wide

LLAMA = load_model("llama3-8b")
MIXTRAL = load_model("mixtral-8x7b")
DEEPSEEK = load_model("deepseek-v3")


def asked(**what: object) -> TrainingJob:
    return job(gpus=8).model_copy(update={"activation_input_dtype": "fp8", **what})


def kept(arch: Transformer, kind: str, stored: bool, *modules: str) -> dict[str, float]:
    how = {"recompute": "selective", "modules": modules} if modules else {}
    return layer_activations(arch, kind, 4096, 4096, Cut(stored=stored), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "kind", "names"),
    [
        (LLAMA, "dense", ["mlp up output"]),
        (MIXTRAL, "moe", ["expert up output"]),
        (DEEPSEEK, "moe", ["expert up output", "shared up output"]),
    ],
)
def test_half_of_it_is_kept(arch: Transformer, kind: str, names: list[str]) -> None:
    plain, narrow = kept(arch, kind, False), kept(arch, kind, True)
    for name in names:
        assert narrow[f"{name} in 8 bits"] == plain[name] / 2
        assert name not in narrow
    assert sum(plain.values()) - sum(narrow.values()) == sum(plain[name] / 2 for name in names)


def test_what_runs_again_keeps_nothing_of_it_and_experts_whose_activation_does_keep_16_bits() -> None:
    assert kept(LLAMA, "dense", True, "mlp") == kept(LLAMA, "dense", False, "mlp")
    assert kept(DEEPSEEK, "moe", True, "moe") == kept(DEEPSEEK, "moe", False, "moe")
    again = kept(DEEPSEEK, "moe", True, "moe_act")
    assert again["expert up output"] == kept(DEEPSEEK, "moe", False, "moe_act")["expert up output"]
    assert "shared up output in 8 bits" in again


def test_it_is_cast_there_and_back_by_kernels_of_their_own() -> None:
    """2 bytes read and 1 written of every element, 1 read and 2 written in the backward pass."""
    plain, narrow = (
        layer_operators(LLAMA, "dense", 4096, 4096, Cut(stored=stored)) for stored in (False, True)
    )
    more = {op.name: op for op in (*narrow.forward, *narrow.backward_input)}
    for op in (*plain.forward, *plain.backward_input):
        more.pop(op.name)
    assert set(more) == {"mlp activation input", "mlp activation input, backward"}
    assert {op.bytes for op in more.values()} == {3.0 * 4096 * 2 * LLAMA.ffn}
    gpu = find(load_catalog().gpus, "h100-sxm")
    for factor in (1.0, 5.0):  # two operations inside a call that is counted
        times = [launch_times(found, gpu, factor) for found in (plain, narrow)]
        before, after = (one.forward + one.backward for one in times)
        assert after - before == pytest.approx(2 * 13.5e-6)


def test_the_backward_pass_has_it_in_16_bits_again() -> None:
    sizes = [layer_gradient_bytes(LLAMA, "dense", 4096, Cut(stored=stored)) for stored in (False, True)]
    assert sizes[1] - sizes[0] == 2 * 4096 * 2 * LLAMA.ffn


def test_a_step_keeps_less_and_takes_longer() -> None:
    where = machine(1, server="dgx-h200")
    plain, narrow = (
        simulate(asked(activation_input_dtype=dtype, micro_batch=4), LLAMA, where, must_fit=False)
        for dtype in ("bf16", "fp8")
    )
    assert 1.0 < narrow.step_time / plain.step_time < 1.05
    tokens = 4 * job().sequence
    # of every layer half of its input, but for what the layer at work has twice
    saved = (LLAMA.layers - 2) * tokens * 2 * LLAMA.ffn
    least = [one.memory.stages[0].total for one in (plain, narrow)]
    assert least[0] - least[1] == pytest.approx(saved, rel=0.1)


@pytest.mark.parametrize(
    ("arch", "what", "message"),
    [
        (replace(LLAMA, gated=False), {}, r"llama-3-8b has none \(no gate\)"),
        (
            replace(LLAMA, details=replace(LLAMA.details, activation="quick_gelu")),
            {},
            r"has none \(quick_gelu\)",
        ),
        (
            LLAMA,
            {"software": "fsdp-2025"},
            "it is Megatron-LM's and NeMo's since 2023, and software is fsdp-2025",
        ),
        (LLAMA, {"software": "megatron-2022"}, "software is megatron-2022"),
        (LLAMA, {"unfused": ("activation",)}, "unfused names activation"),
        (
            MOE,
            {"software": "megatron-2026", "dtype": "mxfp8"},
            "run experts as one MLP are not known to do so",
        ),
    ],
)
def test_refusals_say_why(arch: Transformer, what: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(asked(**what), arch, machine(1, server="dgx-b200"))


def test_full_recomputation_saves_nothing_by_it() -> None:
    step = simulate(asked(layout=Layout(recompute="full")), LLAMA, machine(1), must_fit=False)
    assert any("activation_input_dtype fp8 saves nothing" in warning for warning in step.warnings)


BLACKWELL = replace(machine(4).network.fabric, generation="blackwell")
"""Current scaling of attention, and heads of other than 128, are Blackwell's."""

IN_8_BITS: list[tuple[Transformer, dict[str, object]]] = [
    (DENSE, {}),
    (DENSE, {"tensor": 4, "sequence_parallel": True}),
    (DENSE, {"pipeline": 4, "zero": 1}),
    (DENSE, {"context": 2, "context_kind": "all-to-all"}),
    (DENSE, {"recompute": "selective", "recompute_modules": ("mlp",)}),
    (MOE, {"expert": 8, "zero": 1}),
    (MOE, {"expert": 4, "recompute": "selective", "recompute_modules": ("moe_act",)}),
]


@pytest.mark.parametrize("scaling", ["stage", "none"])
@pytest.mark.parametrize(("arch", "layout"), IN_8_BITS)
def test_tensors_are_what_memory_adds_up_with_attention_and_inputs_of_swiglu_in_8_bits(
    arch: Transformer, layout: dict[str, object], scaling: str
) -> None:
    formats = {"dtype": "fp8", "amax_over": scaling, "dtype_also": ("attention",)}
    wanted = wide(**layout).model_copy(update={**formats, "activation_input_dtype": "fp8"})
    check(wanted, arch, BLACKWELL)
    (kind,) = {kind for shape in stage_shapes(arch, wanted.layout) for c in shape.chunks for kind in c.layers}
    requests = Requests()
    entry = requests.take(2 * wanted.micro_batch * wanted.sequence * arch.hidden)
    done, _ = forward(requests, _plans(wanted, arch, kind)[0], entry)
    names = {name for name in done.held if name.endswith("in 8 bits")}
    assert "query, key, value in 8 bits" in names
    assert ("attention output in 8 bits" in names) == (scaling == "stage")
    for stage in peak_memory(wanted, arch, BLACKWELL, 80e9).stages:
        found = cached(wanted, arch, BLACKWELL, stage.stage)
        assert found is not None
        assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.02)
