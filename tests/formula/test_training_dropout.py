"""Dropout of hidden states and of attention's scores: kernels, bytes and tensors by hand.

h hidden, a heads, s sequence; a mask has a byte an element, hidden states two.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.compute.time import DRAWING, kernel_time
from railwright.model import Cut, layer_operators
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import Software, TrainingJob
from railwright.training import simulate
from railwright.training.layers.operators import embedding_of, operators_of
from railwright.training.memory.activations import layer_kept_parts
from railwright.training.memory.end_activations import embedding_kept
from railwright.training.memory.peak import peak_memory
from training_cases import DENSE, MOE, changed, job, machine

H, ROWS = 1024, 1024
GPU = load_catalog().gpus["h100-sxm"]


def dropping(software: Software = "megatron-2025", hidden: float = 0.1, **layout: object) -> TrainingJob:
    return changed(job(**layout), software=software, hidden_dropout=hidden)


def named(operators: tuple[Operator, ...], name: str) -> Operator:
    return next(op for op in operators if op.name == name)


def residuals(one: TrainingJob) -> tuple[Operator, Operator]:
    found: LayerOperators = operators_of(one, DENSE, "dense", GPU)
    return named(found.forward, "mlp residual"), named(found.backward_input, "mlp residual, backward")


@pytest.mark.parametrize(
    ("software", "forward", "backward", "launches"),
    [
        # Megatron's kernel, and torch.compile's, writes the mask beside the sum; backward reads gradient and
        # mask, and writes
        ("megatron-2025", 1, 2 + 1 + 2, (1, 2)),
        ("fsdp-2025", 1, 2 + 1 + 2, (1, 2)),
        # nn.Dropout reads and writes hidden states and a mask before they are added
        ("fsdp-2024-eager", 2 + 2 + 1, 2 + 1 + 2, (2, 2)),
    ],
)
def test_bytes_and_kernels_of_dropped_hidden_states(
    software: Software, forward: int, backward: int, launches: tuple[int, int]
) -> None:
    with_it, without = residuals(dropping(software)), residuals(dropping(software, 0.0))
    more = [one.bytes - other.bytes for one, other in zip(with_it, without, strict=True)]
    assert more == [forward * ROWS * H, backward * ROWS * H]
    assert tuple(op.launches for op in with_it) == launches
    assert [op.launches for op in without] == [1, 1]
    # how large the share is changes nothing
    assert residuals(dropping(software, 0.9)) == with_it


def test_an_embedding_is_dropped_by_a_kernel_of_its_own() -> None:
    found = embedding_of(dropping(tensor=4, sequence_parallel=True), DENSE)
    assert named(found.forward, "embedding dropout").bytes == (2 + 2 + 1) * ROWS / 4 * H
    assert found.backward_input[0].name == "embedding dropout, backward"
    assert all(op.name != "embedding dropout" for op in embedding_of(job(), DENSE).forward)


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_a_layer_keeps_two_masks_and_the_embedding_one(arch: object) -> None:
    kind = "dense" if arch is DENSE else "moe"
    for layout, share in (({}, 1), ({"tensor": 4}, 1), ({"tensor": 4, "sequence_parallel": True}, 4)):
        one, none = dropping(**layout), dropping(hidden=0.0, **layout)  # type: ignore[arg-type]
        kept, bare = (layer_kept_parts(each, arch, kind, "none") for each in (one, none))  # type: ignore[arg-type]
        assert kept == bare | {"dropout masks": 2 * ROWS * H / share}
        assert embedding_kept(one, DENSE) == (ROWS * H / share,)
    assert embedding_kept(none, DENSE) == ()


def test_masks_are_there_at_the_peak() -> None:
    """Two of every layer and one of the embedding, a byte an element; no copies beside them."""
    fabric = machine(4).network.fabric
    one, none = (peak_memory(dropping(hidden=p), DENSE, fabric, GPU.hbm_bytes) for p in (0.1, 0.0))
    assert one.total - none.total == pytest.approx((2 * DENSE.layers + 1) * ROWS * H)
    whole = layer_kept_parts(dropping(recompute="full"), DENSE, "dense", "full")
    assert list(whole) == ["layer input"]


def test_attention_draws_a_number_for_every_score_forward_and_backward() -> None:
    scores = 2 * 2048 * 2048 / 2 * 16  # two sequences, below the diagonal
    for dropped in (False, True):
        cut = Cut(attention_dropout=dropped)
        layer = layer_operators(DENSE, "dense", 4096, 2048, cut)
        core = (
            named(layer.forward, "core attention"),
            named(layer.backward_input, "core attention, backward"),
        )
        assert [op.dropped for op in core] == [dropped] * 2
        without = [kernel_time(replace(op, dropped=False), GPU) for op in core]
        # an H100 has 64 lanes for integers in each of 132 multiprocessors, half of those for fp32
        expected = DRAWING * scores / (67e12 / 4) if dropped else 0.0
        for op, bare in zip(core, without, strict=True):
            assert kernel_time(op, GPU) - bare == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_a_ring_of_keys_draws_as_many_numbers() -> None:
    def drawing(context: int) -> float:
        """Time of random numbers of all ranks of a context group."""
        one = changed(job(gpus=4, context=context), attention_dropout=0.1, sequence=4096, micro_batch=1)
        ops = [op for op in operators_of(one, DENSE, "dense", GPU).forward if op.name == "core attention"]
        with_it = sum(kernel_time(op, GPU) - kernel_time(replace(op, dropped=False), GPU) for op in ops)
        return context * with_it

    assert drawing(4) == pytest.approx(drawing(1), rel=1e-9)
    assert drawing(1) > 0


def test_scores_that_are_written_are_dropped_by_a_kernel_with_a_mask() -> None:
    one = changed(job(), software="megatron-2025-unfused", attention_dropout=0.1)
    names = [op.name for op in operators_of(one, DENSE, "dense", GPU).forward]
    assert "attention dropout" in names
    assert "attention layout" not in names


def test_software_of_2021_drops_both_unless_told_otherwise() -> None:
    old = changed(job(), software="megatron-2022")
    told = changed(old, hidden_dropout=0.1, attention_dropout=0.1)
    assert operators_of(old, DENSE, "dense", GPU) == operators_of(told, DENSE, "dense", GPU)
    none = operators_of(changed(old, hidden_dropout=0.0, attention_dropout=0.0), DENSE, "dense", GPU)
    assert "attention dropout" not in [op.name for op in none.forward]
    # biases stay: their gradients are sums of their own
    assert named(none.backward_input, "mlp residual, backward").launches == 2


def test_a_step_with_dropout_is_longer() -> None:
    plain, both = job(), changed(job(), hidden_dropout=0.1, attention_dropout=0.1)
    times = [simulate(one, DENSE, machine(1)).step_time for one in (plain, both)]
    assert 1.0 < times[1] / times[0] < 1.3
