"""fp8 with a scale per tensor writes one copy where any layout will do, or where nothing reads the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.model.shape.architecture import Operator
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training.layers.operators import operators_of
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import peak_memory
from railwright.training.memory.states import state_parts
from training_cases import DENSE, MOE, job, machine

GPUS = load_catalog().gpus
LORA = Lora(rank=8, targets=("qkv",))


def moved(wanted: TrainingJob, gpu: str, experts: bool = False) -> dict[str, float]:
    """Bytes per token of kernels bound by memory."""
    layer = operators_of(wanted, MOE if experts else DENSE, "moe" if experts else "dense", GPUS[gpu])
    found: tuple[Operator, ...] = (*layer.forward, *layer.backward_input)
    return {op.name: op.bytes / 1024 for op in found if op.kind == "memory"}


@pytest.mark.parametrize("gpu", ["b200-sxm", "gb300"])
def test_products_that_take_any_layout_need_one_copy(gpu: str) -> None:
    two, one = (moved(job(dtype="fp8"), name) for name in ("h100-sxm", gpu))
    h, f = DENSE.hidden, DENSE.ffn
    less = {name: two[name] - one[name] for name in two if one[name] < two[name]}
    assert less == {
        "input norm": h,
        "attention output cast": DENSE.heads * DENSE.head_dim,
        "mlp norm": h,
        "mlp down input cast": f,
        "mlp down, gradient cast": h,
        "mlp up, gradient cast": (2 if DENSE.gated else 1) * f,
        "output projection, gradient cast": h,
        "qkv projection, gradient cast": (DENSE.heads + 2 * DENSE.kv_heads) * DENSE.head_dim,
    }


def test_desktop_blackwell_and_formats_of_blocks_keep_two() -> None:
    rtx = next(name for name, gpu in GPUS.items() if gpu.generation == "blackwell-rtx")
    assert moved(job(dtype="fp8"), rtx) == moved(job(dtype="fp8"), "h100-sxm")
    for dtype in ("mxfp8", "fp8_block", "bf16"):
        assert moved(job(dtype=dtype), "b200-sxm") == moved(job(dtype=dtype), "h100-sxm")  # type: ignore[arg-type]


def test_frozen_weights_read_one_copy_everywhere() -> None:
    tuned = job(dtype="fp8").model_copy(update={"lora": LORA})
    frozen, trained = moved(tuned, "h100-sxm"), moved(job(dtype="fp8"), "h100-sxm")
    assert frozen["mlp up, gradient cast"] == pytest.approx(0.75 * trained["mlp up, gradient cast"])
    assert frozen["input norm"] == pytest.approx(0.75 * trained["input norm"])


def test_what_reads_16_bits_is_written_so() -> None:
    two, one = (moved(job(dtype="fp8"), name, experts=True) for name in ("h100-sxm", "b200-sxm"))
    assert one["mlp norm"] == two["mlp norm"]
    assert one["experts activation"] == two["experts activation"]
    assert one["experts up, cast"] == pytest.approx(0.75 * two["experts up, cast"])
    split = replace(DENSE, gated=False)
    eager = job(dtype="fp8").model_copy(update={"unfused": ("norm",)})
    layer = operators_of(eager, split, "dense", GPUS["b200-sxm"])
    assert {op.name: op.bytes for op in layer.forward}["mlp norm"] > 4 * 1024 * split.hidden


def test_weights_without_a_transpose_take_a_byte() -> None:
    """Embedding and head stay in 16 bits; the optimizer's buffer has one copy everywhere."""
    wanted = job(dtype="fp8", zero=1)
    (shape,) = stage_shapes(DENSE, wanted.layout)
    two, one = (state_parts(wanted, DENSE, shape, 8, once)["weights"] for once in (False, True))
    assert two == 2 * shape.dense_total
    assert one == two - (shape.dense_total - shape.embedding - shape.head)


def test_memory_and_replay_know_the_generation_of_a_cluster_s_gpus() -> None:
    wanted = job(dtype="fp8", zero=1, gpus=8)
    fabrics = [machine(1, server=name).network.fabric for name in ("dgx-h100", "dgx-b200")]
    assert [fabric.generation for fabric in fabrics] == ["hopper", "blackwell"]
    weights = [peak_memory(wanted, DENSE, fabric, 0.0).stages[0].parts["weights"] for fabric in fabrics]
    (shape,) = stage_shapes(DENSE, wanted.layout)
    assert weights[0] - weights[1] == shape.dense_total - shape.embedding - shape.head
    held = [cached(wanted, DENSE, fabric, 0) for fabric in fabrics]
    assert held[0] is not None
    assert held[1] is not None
    # the allocator counts what is left of a block where it does not split it
    assert held[0].allocated - held[1].allocated == pytest.approx(weights[0] - weights[1], rel=0.02)
