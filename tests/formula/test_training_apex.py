"""Apex's distributed optimizer under NeMo: buckets of one size, a group of them for each layer, and the ends
with the first layer (distributed_fused_adam.py, init_params_bucket; megatron_gpt_model.py,
configure_optimizers)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import count_parameters, load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.layers.stages import shapes_of
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.states import STATES, state_parts
from railwright.training.optimizer.adam import adam_types
from railwright.training.optimizer.apex import bucket_elements
from railwright.training.optimizer.packed import buckets_of
from railwright.training.software.eras import Pace
from training_cases import DENSE, changed, job, machine, priced, roofline, sent

MIB = 2.0**20
TIED = replace(DENSE, tied_embeddings=True)


def apex(size: float = 4.0, **layout: object) -> TrainingJob:
    """A job of NeMo of 2024 with buckets of so many MiB of gradients in 16 bits."""
    fields = {"software": "nemo-2024", "gradient_dtype": "bf16", "apex_bucket": size * MIB}
    return changed(job(**layout), **fields)


def megatrons(one: TrainingJob) -> TrainingJob:
    """The same job with Megatron's distributed optimizer."""
    return changed(one, apex_bucket=None)


@pytest.mark.parametrize(
    ("model", "size", "buckets"), [("llama-2-7b", 125, 132), ("llama-2-7b", 50, 266), ("llama-3-8b", 75, 219)]
)
def test_buckets_are_as_many_as_apex_makes(model: str, size: float, buckets: int) -> None:
    """As its own code makes them (23c1f865, run on 2026-11-30 with all sizes over 1,024, on 8 ranks)."""
    arch, wanted = load_model(model), apex(size)
    sizes = Sizes.under(wanted.layout, 8)
    (shape,) = shapes_of(wanted, arch)
    ((*groups,),) = buckets_of(wanted, shape, sizes)
    one = bucket_elements(wanted, sizes)
    assert one == pytest.approx(size * MIB / 2, rel=1e-4)
    assert sum(group.parameters for group in groups) / one == pytest.approx(buckets)
    assert len(groups) == arch.layers


def test_a_rank_has_whole_lines_of_a_bucket() -> None:
    # 1 MiB over 24 ranks: 21,845 elements, of which 341 lines of 64 stay
    assert bucket_elements(apex(1), Sizes.under(job().layout, 24)) == 24 * 341 * 64
    # smaller than a line each: one line
    assert bucket_elements(apex(1 / 1024), Sizes.under(job().layout, 64)) == 64 * 64


def test_the_ends_are_with_the_first_layer_and_the_embedding_in_fp32() -> None:
    wanted = apex()
    sizes = Sizes.under(wanted.layout, 8)
    (shape,) = shapes_of(wanted, DENSE)
    ((first, *rest),) = buckets_of(wanted, shape, sizes)
    one = bucket_elements(wanted, sizes)
    assert (first.first, first.last) == (-1, 0)
    assert [(group.first, group.last) for group in rest] == [(i, i) for i in range(1, 8)]
    filled = -(-shape.embedding // one) * one
    assert (first.wide, first.parameters) == (
        filled,
        filled + -(-(shape.dense[0][0] + shape.head) // one) * one,
    )
    counts, bytes_ = sent(wanted, DENSE)
    assert counts["dp gradients"] == counts["dp parameters"] == DENSE.layers
    parameters = sum(group.parameters for group in (first, *rest))
    assert bytes_["dp gradients"] == pytest.approx(2 * parameters + 2 * filled)
    assert bytes_["dp parameters"] == pytest.approx(2 * parameters)


@pytest.mark.parametrize(("arch", "wide"), [(DENSE, 0.0), (TIED, 1.0)], ids=["own", "tied"])
def test_the_last_stage_has_its_head_with_its_first_layer(arch: Transformer, wide: float) -> None:
    wanted = apex(pipeline=2)
    first, last = shapes_of(wanted, arch)
    sizes = Sizes.under(wanted.layout, 8)
    ((ends, rest),) = buckets_of(wanted, last, sizes)
    # all other layers at once, behind the last backward pass (reduce_overlap_gradients)
    assert [(b.first, b.last) for b in (ends, rest)] == [(0, 0), (1, 3)]
    assert ends.ends >= last.head > 0
    assert ends.wide == pytest.approx(wide * ends.ends, rel=0.1)
    ((*groups,),) = buckets_of(wanted, first, sizes)
    assert [(b.first, b.last) for b in groups] == [(-1, 0), (1, 1), (2, 2), (3, 3)]


def test_virtual_stages_have_all_ends_in_the_first_chunk() -> None:
    wanted = apex(pipeline=2, virtual_pipeline=2)
    _, last = shapes_of(wanted, DENSE)
    chunks = buckets_of(wanted, last, Sizes.under(wanted.layout, 8))
    assert [[(b.first, b.last) for b in chunk] for chunk in chunks] == [[(0, 0), (1, 1)], [(0, 1)]]
    assert chunks[0][0].ends >= last.head
    assert chunks[1][0].ends == 0


def test_what_nothing_hides_is_the_first_group() -> None:
    """A network so fast that all else is hidden: the ends' gradients follow the last backward pass, and their
    weights come before the first forward pass."""
    arch = replace(DENSE, vocab=512_000)
    ours, theirs = (
        simulate(one, arch, machine(4), predict=priced(2e12, 0.0), kernel=roofline, pace=Pace())
        for one in (apex(), megatrons(apex()))
    )
    table = arch.vocab * arch.hidden
    # Megatron waits for the embedding's gradients and weights in 16 bits; here are the head's too, and two
    # bytes more of the embedding's gradients
    more = table * (2 + 2) + table * 2
    extra = (ours.exposed("dp") - theirs.exposed("dp")) * 2e12
    assert extra == pytest.approx(more, rel=0.1)


def test_without_overlap_all_is_exchanged_behind_the_step() -> None:
    wanted = changed(apex(), overlap=Overlap(dp=False))
    counts, _ = sent(wanted, DENSE)
    assert counts["dp gradients"] == DENSE.layers


def test_buckets_are_filled_up_in_memory() -> None:
    wanted = apex(64)
    (shape,) = shapes_of(wanted, DENSE)
    sizes = Sizes.under(wanted.layout, 8)
    filled, exact = (state_parts(one, DENSE, shape, 8) for one in (wanted, megatrons(wanted)))
    ((*groups,),) = buckets_of(wanted, shape, sizes)
    extra = sum(group.parameters for group in groups) - count_parameters(DENSE).total
    assert extra > 0
    assert filled["weights"] - exact["weights"] == pytest.approx(2 * extra)
    assert filled["gradients"] - exact["gradients"] == pytest.approx(2 * extra + 2 * groups[0].wide)
    assert filled[STATES] - exact[STATES] == pytest.approx(12 * extra / 8)


def test_adam_reads_gradients_as_they_are_and_casts_masters_of_fp8() -> None:
    wanted = apex()
    assert not adam_types(wanted).widened
    # 2 bytes of gradients twice, moments 16, master 8, weight 2
    assert adam_types(wanted).norm_bytes + adam_types(wanted).update_bytes == 2 + 2 + 16 + 8 + 2
    narrow = changed(wanted, dtype="fp8")
    assert adam_types(narrow).update_bytes == 2 + 16 + 8 + (4 + 1)
    wide = changed(narrow, fp8_param_gather=False)
    assert adam_types(wide).update_bytes == adam_types(wanted).update_bytes


def test_in_fp8_ends_do_not_fill_the_buckets_of_layers() -> None:
    wide, narrow = apex(), changed(apex(), dtype="fp8")
    sizes = Sizes.under(wide.layout, 8)
    (shape,) = shapes_of(wide, DENSE)
    one = bucket_elements(wide, sizes)
    for wanted, filled in (
        (wide, -(-(shape.dense[0][0] + shape.head) // one)),
        (narrow, -(-shape.dense[0][0] // one) + -(-shape.head // one)),
    ):
        ((first, *_),) = buckets_of(wanted, shape, sizes)
        assert first.parameters - first.wide == filled * one
    ((first, *rest),) = buckets_of(narrow, shape, sizes)
    layers = sum(group.parameters for group in (first, *rest)) - first.ends
    assert sent(narrow, DENSE)[1]["dp parameters"] == pytest.approx(layers + 2 * first.ends)
