"""Units of PyTorch's FSDP2: what lies whole at each moment, and what its streams hold of a GPU."""

from __future__ import annotations

import pytest

from railwright.model import load_model
from railwright.model.operators.logits import LOSS_TENSORS
from railwright.spec.training import Overlap, TrainingJob
from railwright.training.layers.stages import StageShape, shapes_of
from railwright.training.memory.allocator import COMPUTE, Requests, play
from railwright.training.memory.cached import cached, requests_of
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.replay_sharded import GATHER, REDUCE
from railwright.training.memory.units import GATHERED, WAITING, accumulates, beside, gathered
from railwright.units import GIB
from training_cases import DENSE, changed, job, machine

RANKS = 32
FABRIC = machine(4).network.fabric
END = DENSE.vocab * DENSE.hidden
JOINED, APART = "fsdp-2024", "fsdp-2025"


def asked(software: str, batch: int = RANKS, **layout: object) -> TrainingJob:
    return changed(job(batch=batch, zero=3, sequence=4096, **layout), software=software)  # type: ignore[arg-type]


def shape_of(wanted: TrainingJob) -> StageShape:
    (shape,) = shapes_of(wanted, DENSE)
    return shape


def whole(wanted: TrainingJob, moment: str) -> float:
    """Bytes of gathered weights at a backward pass."""
    shape = shape_of(wanted)
    more = getattr(beside(wanted, shape, [[0.0] * DENSE.layers]), moment)
    return gathered(wanted, shape, True, True) + more.get(GATHERED, 0.0)


def test_what_lies_whole() -> None:
    """Of a model's own unit both ends, always; else the unit at work.  Beside a layer the one before it: the
    embedding beside the first."""
    layer = max(shape_of(asked(APART)).dense[0])
    assert whole(asked(JOINED), "layer") == pytest.approx(2 * (2 * END + 2 * layer), rel=1e-3)
    assert whole(asked(JOINED), "head") == pytest.approx(2 * (2 * END + layer), rel=1e-3)
    assert whole(asked(APART), "layer") == pytest.approx(2 * (layer + END))
    assert whole(asked(APART), "head") == pytest.approx(2 * END, rel=1e-3)
    alone = changed(asked(APART), overlap=Overlap(prefetch=0))
    assert whole(alone, "layer") == pytest.approx(2 * layer)
    stays = asked(APART, reshard=False)
    assert whole(stays, "layer") == whole(stays, "head") == pytest.approx(2 * shape_of(stays).dense_total)


def test_a_layer_behind_others_has_none_of_the_embedding() -> None:
    """Layers that keep much are gone when the first one's turn comes, so the last one's is the fullest."""
    wanted = asked(APART)
    shape = shape_of(wanted)
    layer = max(shape.dense[0])
    more = beside(wanted, shape, [[2.0 * END] * DENSE.layers]).layer
    assert gathered(wanted, shape, True, True) + more[GATHERED] == pytest.approx(2 * 2 * layer)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_layers_on_the_host_are_none_that_have_gone(recompute: str) -> None:
    """The sum of parts has what the allocator holds, whether layers wait on the GPU or on the host; there the
    layer with most gradients and the one with most on its way are taken for one."""
    for offload in ((), ("activations",)):
        wanted = asked(APART, pipeline=2, recompute=recompute, offload=offload)
        stage = peak_memory(wanted, DENSE, FABRIC, 80e9).stages[0]
        found = cached(wanted, DENSE, FABRIC, 0)
        assert found is not None
        held = found.allocated / (stage.total - stage.parts[SYSTEM])
        assert (0.91 if offload else 0.94) < held < 1.02


@pytest.mark.parametrize(("dtype", "width"), [("fp32", 4), ("bf16", 2)])
def test_what_waits_to_be_reduced(dtype: str, width: int) -> None:
    """Gradients in 16 bits, and those of the layer behind as they are sent; the head's too where it is the
    model's own."""
    for software, head in ((JOINED, END), (APART, 0)):
        wanted = changed(asked(software), gradient_dtype=dtype)
        shape = shape_of(wanted)
        (layer,) = set(shape.dense[0])
        found = beside(wanted, shape, [[0.0] * DENSE.layers]).layer[WAITING]
        assert found == pytest.approx((2 + width) * layer + 2 * head, rel=1e-3)
        # what the layer behind kept has gone by then
        kept = [[1.0 * width * layer] * DENSE.layers]
        assert beside(wanted, shape, kept).layer[WAITING] == pytest.approx(2 * layer + 2 * head, rel=1e-3)


def test_shards_of_gradients_are_there_from_the_second_microbatch_on() -> None:
    one, two = (peak_memory(asked(JOINED, RANKS * n), DENSE, FABRIC, 80e9) for n in (1, 2))
    shard = 4 * shape_of(asked(JOINED)).dense_total / RANKS
    assert two.total - one.total == pytest.approx(shard, rel=1e-3)
    assert not accumulates(asked(JOINED), 1, RANKS)
    assert accumulates(asked(JOINED), 2, RANKS)
    # sums that are not reduced, and other ways to shard
    assert accumulates(asked(JOINED, reduce_each=False), 1, RANKS)
    assert accumulates(asked("fsdp-2023"), 1, RANKS)


@pytest.mark.parametrize("software", [JOINED, APART])
def test_streams_hold_what_they_had_at_most(software: str) -> None:
    """Two units of the largest pair beside the weights that were copied out of them, and all shards."""
    wanted = asked(software)
    requests = requests_of(wanted, DENSE, FABRIC, 0)
    held = {stream: play(_alone(requests, stream), expandable=True) for stream in (COMPUTE, GATHER, REDUCE)}
    layer = max(shape_of(wanted).dense[0])
    ends = 2 * END if software == JOINED else END
    pair = 2 * (ends + layer) * (1 + 1 / RANKS)
    assert held[GATHER].most_allocated == pytest.approx(pair, rel=0.04)
    assert held[REDUCE].most_allocated == pytest.approx(4 * shape_of(wanted).dense_total / RANKS, rel=0.01)
    together = play(requests, expandable=True)
    assert together.most_reserved == sum(one.most_reserved for one in held.values())
    # no stream's most comes when another's does
    assert together.most_allocated < sum(one.most_allocated for one in held.values())


def _alone(requests: Requests, stream: int) -> Requests:
    """What is asked on one stream."""
    found, here = Requests(), dict[int, int]()
    for one in requests.asked:
        tensor = one if one >= 0 else -1 - one
        if requests.others.get(tensor, COMPUTE) != stream:
            continue
        if one >= 0:
            here[tensor] = found.take(requests.sizes[tensor])
        else:
            found.give(here[tensor])
    return found


def test_what_streams_hold_of_llama_3_8b_on_8_gpus() -> None:
    """docs/training/memory.md has these figures."""
    arch, fabric = load_model("llama-3.1-8b"), machine(1).network.fabric
    wanted = changed(job(batch=16, zero=3, sequence=8192, micro_batch=2), software=JOINED)
    requests = requests_of(wanted, arch, fabric, 0)
    held = [play(_alone(requests, stream), expandable=True).most_reserved for stream in (GATHER, REDUCE)]
    assert [one / GIB for one in held] == pytest.approx([2.6, 3.8], abs=0.05)


def test_a_loss_of_several_tensors_leaves_holes() -> None:
    """PyTorch's has let go of 6 bytes a logit when it asks for 4 and 4 more, of which the second ones find no
    room there: 14 bytes, where 12 are in tensors.  A compiled one leaves none."""
    wanted = asked(JOINED)
    logits = 4096 * DENSE.vocab
    memory = peak_memory(wanted, DENSE, FABRIC, 80e9)
    found = cached(wanted, DENSE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(memory.total - memory.parts[SYSTEM], rel=0.005)
    requests = Requests()
    live: dict[str, int] = {}
    tensors = LOSS_TENSORS["eager"]
    for name, size in (*tensors.forward, *tensors.backward):
        if size > 0:
            live[name] = requests.take(size * logits)
        else:
            requests.give(live.pop(name))
    played = play(requests, expandable=True)
    assert played.most_allocated == pytest.approx(12 * logits, rel=1e-3)
    assert played.most_reserved == pytest.approx(14 * logits, rel=0.08)
    assert played.most_reserved < 14 * logits + 0.1 * GIB


def test_pytorchs_last_stage_kept_the_logits_of_a_whole_step() -> None:
    """16 bits of each, until the next step; software of 2025 asks for none."""
    for software, kept in ((JOINED, True), (APART, False)):
        few, many = (
            changed(
                asked(software, n * RANKS),
                layout=changed(asked(software).layout, pipeline=2, reduce_each=False),
            )
            for n in (4, 8)
        )
        totals = [peak_memory(one, DENSE, FABRIC, 80e9).stages[-1].total for one in (few, many)]
        passes = 2 * 8 - 2 * 4
        logits = 2 * passes * few.sequence * few.micro_batch * DENSE.vocab * kept
        assert totals[1] - totals[0] == pytest.approx(logits, rel=1e-3)
