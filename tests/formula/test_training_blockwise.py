"""fp8 with a scale per block, and tokens that travel to experts in 8 bits."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from railwright.catalog import load_catalog
from railwright.compute import kernel_time
from railwright.errors import PlanError
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.layers.blockwise import CAST, SENT, TO_EXPERTS
from railwright.training.layers.operators import operators_of
from training_cases import BLOCKS, DENSE, MOE, changed, job, machine

GPU = load_catalog().gpus["h100-sxm"]
LATENT = replace(DENSE, attention="mla", kv_heads=16, q_lora=384, kv_lora=128, rope_dim=32, v_head_dim=64)
SHARED = replace(MOE, shared_experts=1, shared_ffn=1024)

DEEPGEMM = [
    # groups, rows of each, columns, inner size, TFLOP/s
    (1, 4096, 2112, 7168, 1127),
    (1, 4096, 24576, 1536, 1212),
    (1, 4096, 32768, 512, 775),
    (1, 4096, 7168, 16384, 1520),
    (1, 4096, 4096, 7168, 1410),
    (1, 4096, 7168, 2048, 1168),
    (4, 8192, 4096, 7168, 1346),
    (4, 8192, 7168, 2048, 1214),
    (8, 4096, 4096, 7168, 1346),
    (8, 4096, 7168, 2048, 1214),
]
"""deepseek-ai/DeepGEMM at 327ec92 (9 April 2025), README: dense and contiguous grouped products on H800."""


def step(one: TrainingJob, arch: Transformer = MOE, servers: int = 2) -> StepResult:
    return simulate(one, arch, machine(servers), must_fit=False)


def test_products_with_block_scales_are_as_fast_as_with_one() -> None:
    found = []
    for groups, m, n, k, rate in DEEPGEMM:
        flops = 2.0 * groups * m * n * k
        kind = "gemm" if groups == 1 else "grouped_gemm"
        moved = groups * (m * k + k * n + 2.0 * m * n)
        ours = kernel_time(
            Operator("product", kind, flops, moved, "fp8", m, n, k, groups),  # type: ignore[arg-type]
            load_catalog().gpus["h800"],
        )
        found.append(ours / (flops / (rate * 1e12)))
    assert mean(found) == pytest.approx(1.0, abs=0.03), found
    assert all(0.85 <= ratio <= 1.15 for ratio in found), found


@pytest.mark.parametrize(
    ("arch", "kind", "cast"),
    [
        (DENSE, "dense", {"qkv projection": 1024, "mlp up": 1024, "mlp down": 4096}),
        (
            LATENT,
            "dense",
            {
                "query down": 1024,
                "query up": 384,
                "key/value down": 1024,
                "key/value up": 128,
                "mlp up": 1024,
                "mlp down": 4096,
            },
        ),
        (SHARED, "moe", {"qkv projection": 1024, "shared expert up": 1024, "shared expert down": 1024}),
    ],
    ids=["dense", "latent", "shared"],
)
def test_every_product_has_its_input_cast_once(arch: Transformer, kind: str, cast: dict[str, int]) -> None:
    """What experts and the output projection multiply is cast by kernels of its own under every fp8."""
    one = job(dtype="fp8_block")
    plain = operators_of(job(dtype="fp8"), arch, kind, GPU)  # type: ignore[arg-type]
    found = operators_of(one, arch, kind, GPU)  # type: ignore[arg-type]
    added = {op.name: op.bytes for op in found.forward if op.name.endswith(" input cast")}
    assert added == {f"{name} input cast": CAST * 1024 * width for name, width in cast.items()}
    ours, theirs = ([op for op in one.forward if op.name not in added] for one in (found, plain))
    assert ours == theirs
    assert found.backward_input == plain.backward_input


def test_blackwell_multiplies_blocks_as_mxfp8() -> None:
    """Which takes 5 % longer than with one scale per tensor; their casts stay."""
    on = {
        name: operators_of(job(dtype="fp8_block"), SHARED, "moe", load_catalog().gpus[name])
        for name in ("h100-sxm", "b200-sxm")
    }
    formats = {
        name: {op.dtype for op in (*one.forward, *one.backward_input) if op.kind.endswith("gemm")}
        for name, one in on.items()
    }
    assert formats["h100-sxm"] - formats["b200-sxm"] == {"fp8"}
    assert formats["b200-sxm"] - formats["h100-sxm"] == {"mxfp8"}
    moved = [
        {op.name: op.bytes for op in (*one.forward, *one.backward_input) if op.name.endswith(" cast")}
        for one in on.values()
    ]
    assert moved[0] == moved[1]


def test_what_a_mixer_makes_is_cast_once() -> None:
    names = [op.name for op in operators_of(job(dtype="fp8_block"), BLOCKS, "linear", GPU).forward]
    assert "mixer output cast" in names
    assert "mixer projection input cast" in names
    assert "mixer output projection input cast" not in names


def test_rows_that_tensor_ranks_gather_are_cast_before() -> None:
    def cast(sequence_parallel: bool) -> dict[str, float]:
        one = job(dtype="fp8_block", tensor=4, sequence_parallel=sequence_parallel)
        found = operators_of(one, DENSE, "dense", GPU).forward
        return {op.name: op.bytes for op in found if op.name.endswith(" input cast")}

    whole, part = cast(False), cast(True)
    assert part["mlp down input cast"] == whole["mlp down input cast"]
    for name in ("qkv projection", "mlp up"):
        assert part[f"{name} input cast"] == whole[f"{name} input cast"] / 4


@pytest.mark.parametrize("arch", [DENSE, LATENT, MOE, SHARED], ids=["dense", "latent", "moe", "shared"])
def test_blocks_take_longer_than_one_scale_and_less_than_16_bits(arch: Transformer) -> None:
    wide = replace(arch, hidden=8192, ffn=28672, heads=64, kv_heads=64 if arch.attention == "mla" else 8)
    wide = replace(wide, head_dim=128)
    times = [
        step(job(dtype=dtype, micro_batch=4, sequence=4096, batch=64), wide).step_time
        for dtype in ("fp8", "fp8_block", "bf16")
    ]
    assert times == sorted(times)
    assert times[1] < 1.1 * times[0]


def test_memory_of_blocks() -> None:
    """Weights in 16 bits and twice in 8, kept inputs in 8 bits with 4 bytes of scale per 128."""
    block, tensor = (step(job(dtype=dtype, zero=1), DENSE).memory.parts for dtype in ("fp8_block", "fp8"))
    layers = 8 * (1024 * (16 + 8) * 64 + 1024 * 1024 + 3 * 1024 * 4096)
    assert block["weights"] - tensor["weights"] == pytest.approx(layers * (2 + 8 / 128**2), rel=2e-3)
    assert tensor["activations"] < block["activations"] < 1.04 * tensor["activations"]


def sent(one: TrainingJob, arch: Transformer = MOE) -> dict[str, float]:
    return {u.purpose: u.prediction.size for u in step(one, arch).collectives if u.purpose.startswith("ep ")}


def test_what_goes_to_experts_travels_in_8_bits() -> None:
    one = job(dtype="fp8_block", expert=8)
    before, after = sent(one), sent(changed(one, dispatch_dtype="fp8"))
    assert before.keys() == after.keys()
    for name, size in before.items():
        assert after[name] == pytest.approx(size * (SENT if name in TO_EXPERTS else 1.0)), name
    assert sum(name in TO_EXPERTS for name in before) == 2


def test_tokens_are_cast_once() -> None:
    """Before they leave, instead of where they arrive: there they are only turned."""
    one = job(dtype="fp8_block", expert=8)
    narrow = operators_of(changed(one, dispatch_dtype="fp8"), MOE, "moe", GPU)
    wide = operators_of(one, MOE, "moe", GPU)
    names = [op.name for op in narrow.forward]
    assert names.index("dispatch cast") == names.index("permute") - 1
    moved = {op.name: op.bytes for op in wide.forward}
    less = {op.name: op.bytes for op in narrow.forward}
    assert less["experts up, cast"] == moved["experts up, cast"] / 2
    assert less["experts down, cast"] == moved["experts down, cast"]
    assert sum(op.flops for op in narrow.forward) == sum(op.flops for op in wide.forward)


@pytest.mark.parametrize("nodes", [None, 2])
def test_a_narrow_dispatch_shortens_what_is_exposed(nodes: int | None) -> None:
    one, arch = changed(job(dtype="fp8_block", expert=16), expert_nodes=nodes), replace(MOE, experts=16)
    shares = [
        {s.kind: s.exposed for s in step(changed(one, dispatch_dtype=dtype), arch).shares}
        for dtype in ("bf16", "fp8")
    ]
    assert 0.7 * shares[0]["ep"] < shares[1]["ep"] < shares[0]["ep"]


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_rowwise", "nvfp4"])
def test_tokens_without_block_scales_are_refused(dtype: str) -> None:
    with pytest.raises(
        PlanError, match=f"dispatch_dtype fp8 sends tokens in blocks .* dtype {dtype} has none"
    ):
        step(changed(job(dtype=dtype, expert=8), dispatch_dtype="fp8"))


def test_a_narrow_dispatch_of_no_tokens_is_told() -> None:
    told = "dispatch_dtype does nothing: no token travels to an expert (layout.expert is 1)."
    assert told in step(changed(job(dtype="fp8_block"), dispatch_dtype="fp8")).warnings
    assert told in step(changed(job(dtype="fp8_block"), dispatch_dtype="fp8"), DENSE).warnings
    assert told not in step(changed(job(dtype="fp8_block", expert=8), dispatch_dtype="fp8")).warnings
