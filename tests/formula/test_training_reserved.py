"""What is told of a job whose allocator holds more than its tensors: by studies, searches and exports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.search import Space, search
from railwright.search.bounds.allocator import Allocations
from railwright.search.exports.dispatcher import Hosts
from railwright.search.space.axes import setting_of
from railwright.search.training.explain import explain
from railwright.search.training.export import export
from railwright.search.training.result import Candidate
from railwright.spec import load_study_text
from railwright.spec.training import Overlap
from railwright.study.evaluate import Workshop, with_reserved
from railwright.study.foretold import foretold_warnings
from railwright.study.result import JobResult
from railwright.study.runner import run
from railwright.training import simulate
from railwright.training.memory.cached import (
    Reserved,
    cached,
    crowded,
    is_held,
    relies_on_growth,
    requests_of,
    reserved,
)
from railwright.training.memory.peak import peak_memory
from railwright.units import GIB
from training_cases import DENSE, changed, job, machine, priced, wide

FABRIC = machine(4).network.fabric
CAPACITY = 80e9
DENSE_MODEL = "qwen3-8b"
"""A bundled model, where a study names one."""


def test_the_fullest_gpu_and_a_warning_where_holes_do_not_fit() -> None:
    wanted = wide(pipeline=4, zero=1)
    memory = peak_memory(wanted, DENSE, FABRIC, CAPACITY)
    held = reserved(wanted, DENSE, FABRIC, memory)
    assert held is not None
    each = [cached(wanted, DENSE, FABRIC, stage) for stage in range(4)]
    assert held.reserved == max(one.reserved for one in each if one is not None)
    assert (held.retries, held.short) == (0, 0.0)
    assert crowded(held, CAPACITY) == ""
    # a GPU that has room for the tensors and not for all holes
    tight = held.reserved + held.system - held.holes / 2
    squeezed = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, tight))
    assert squeezed is not None
    assert squeezed.retries > 0
    told = crowded(squeezed, tight)
    assert f"wants {(held.reserved + held.system) / GIB:.1f} GiB of the {tight / GIB:.1f} GiB" in told
    assert ("expandable_segments:True" in told) == (squeezed.growing < squeezed.reserved)


def test_unused_pages_of_segments_that_grow_go_back() -> None:
    """FSDP2's other streams hold what they do not use: a job whose tensors fit waits, and runs."""
    wanted = changed(job(zero=3, sequence=4096), software="fsdp-2024")
    held = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, CAPACITY))
    assert held is not None
    tensors = held.reserved - held.holes + held.system
    for tight, short in ((tensors + 1e6, 0.0), (tensors - 1e6, 1e6)):
        squeezed = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, tight))
        assert squeezed is not None
        assert (squeezed.retries, squeezed.short) == (1, pytest.approx(short))
        assert is_held(squeezed, tight) == (not short)
        assert ("memory ends once a step" in crowded(squeezed, tight)) == (not short)


def test_stages_that_hold_and_run_the_same_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of GPipe's stages but the ends; 1F1B's hold one pass less each."""
    replayed = []

    def counted(*args: object) -> object:
        replayed.append(args[3])
        return requests_of(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("railwright.training.memory.cached.requests_of", counted)
    for schedule_, stages in (("gpipe", [7, 1, 0]), ("1f1b", [7, 6, 5, 4, 3, 2, 1, 0])):
        wanted = wide(pipeline=8, schedule=schedule_)
        replayed.clear()
        held = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, CAPACITY))
        assert replayed == stages
        each = [cached(wanted, DENSE, FABRIC, stage) for stage in range(8)]
        assert held is not None
        assert held.reserved == max(one.reserved for one in each if one is not None)


def test_jax_has_an_allocator_of_its_own() -> None:
    wanted = wide(zero=3).model_copy(update={"software": "xla-2025"})
    assert cached(wanted, DENSE, FABRIC, 0) is None
    assert reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, CAPACITY)) is None


def test_what_is_missing_is_told() -> None:
    held = Reserved(3, int(80 * GIB), int(6 * GIB), int(75 * GIB), 3 * GIB, 4, 2 * GIB)
    assert crowded(held, 79 * GIB) == (
        "tensors fit, but PyTorch's allocator wants 83.0 GiB of the 79.0 GiB of a GPU of stage 3, 6.0 GiB of "
        "them for holes between tensors: 2.0 GiB are missing by this replay, which is good to some 5 %. With "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True it wants 78.0 GiB."
    )


@pytest.mark.parametrize(
    ("retries", "said"), [(0, "in the first step"), (1, "once a step"), (2, "2 times a step")]
)
def test_how_often_memory_ends(retries: int, said: str) -> None:
    held = Reserved(0, int(80 * GIB), int(6 * GIB), int(80 * GIB), 3 * GIB, retries, 0.0)
    assert f": memory ends {said}, and the GPU waits while unused segments go back." in crowded(
        held, 82 * GIB
    )


GROWS = Reserved(3, int(80 * GIB), int(6 * GIB), int(75 * GIB), 3 * GIB, 4, 2 * GIB)
"""83 GiB with segments of fixed sizes, of which two are missing of 79 GiB; 78 with segments that grow."""


def test_what_fits_with_segments_that_grow_relies_on_them() -> None:
    assert relies_on_growth(GROWS, 79 * GIB)
    assert is_held(GROWS, 79 * GIB)
    # one GiB less and neither kind of segments fits
    assert not relies_on_growth(GROWS, 77 * GIB)
    assert not is_held(GROWS, 77 * GIB)
    # unused segments that go back are enough
    assert is_held(replace(GROWS, short=0.0), 77 * GIB)
    assert not relies_on_growth(GROWS, 84 * GIB)
    # nothing is known of an allocator that is not PyTorch's
    assert is_held(None, 1.0)


@pytest.mark.parametrize(
    ("form", "graphs", "line"),
    [
        ("megatron", (), "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("nemo", (), "    PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True',"),
        (
            "torchtitan",
            (),
            "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (run_train.sh does)",
        ),
        ("study", (), "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        (
            "megatron",
            ("attention",),
            "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True NCCL_GRAPH_REGISTER=0",
        ),
        ("nemo", ("attention",), "    NCCL_GRAPH_REGISTER='0',"),
    ],
)
def test_an_export_sets_what_its_layout_relies_on(form: str, graphs: tuple[str, ...], line: str) -> None:
    """As a setting where the framework takes variables of the environment, else as a comment."""
    wanted = job(gpus=8).model_copy(update={"cuda_graphs": graphs})
    step = simulate(wanted, DENSE, machine(1), predict=priced(0.0))
    tight = replace(step, memory=replace(step.memory, capacity=79 * GIB))
    one = Candidate(setting_of(wanted), wanted, tight, 0.0, 0.0, GROWS)
    lines = export(one, DENSE, Hosts(8), form).splitlines()
    assert line in lines
    wants = "# tensors fit, but PyTorch's allocator wants 83.0 GiB of the 79.0 GiB"
    assert any(told.startswith(wants) for told in lines)
    roomy = replace(one, held=replace(GROWS, reserved=GROWS.growing, short=0.0, retries=0))
    assert "expandable_segments" not in export(roomy, DENSE, Hosts(8), form)
    assert explain(None, "", one, 79 * GIB)[-1].endswith("it wants 78.0 GiB. Its export sets that.")


def test_a_study_tells_what_the_allocator_holds_and_warns() -> None:
    wanted = wide(pipeline=4, zero=1)
    step = simulate(wanted, DENSE, machine(4), predict=priced(0.0))
    held = reserved(wanted, DENSE, FABRIC, step.memory)
    assert held is not None
    study, shop = wanted.model_copy(update={"model": DENSE_MODEL}), Workshop(load_catalog())
    roomy = with_reserved(JobResult("case", step), study, machine(4), shop)
    assert roomy.reserved is not None
    assert roomy.step is step
    tight = replace(step, memory=replace(step.memory, capacity=roomy.reserved.reserved + 1e9))
    crowd = with_reserved(JobResult("case", tight), study, machine(4), shop)
    assert crowd.step is not None
    assert [w for w in crowd.step.warnings if w.startswith("tensors fit, but PyTorch's allocator wants")]
    nothing = JobResult("case", None, "no")
    assert with_reserved(nothing, study, machine(4), shop) is nothing


CROWDED = """
railwright: 1
name: crowded
as_written: Tree
cluster: {servers: 64, server: dgx-h100, compute: {family: fat-tree, switch: qm9700}}
jobs:
  - {name: j, model: llama-3.1-70b, sequence: 8192, global_batch: 1024, tokens: 1e12,
     layout: {tensor: 4, pipeline: 4, virtual_pipeline: 5, sequence_parallel: true}}
variants:
  - {name: Rails, set: {cluster.compute.family: rail-optimised}}
  - {name: Twice, set: {cluster.servers: 128}}
  - {name: Wider, set: {jobs.j.layout.tensor: 8}}
"""


def test_the_allocator_of_every_variant_is_looked_into() -> None:
    """Only the study as written and the recommended variant were, so that rails seemed to have the room that
    the same job on a fat tree lacks."""
    study = load_study_text(CROWDED)
    result = run(study, what_if=False)
    told = [w for w in result.warnings if "tensors fit, but PyTorch's allocator wants" in w]
    assert [w.partition(": tensors")[0] for w in told] == ["j, with 'Tree' and 'Rails'", "j, with 'Twice'"]
    assert [w for w in foretold_warnings(study, Workshop.of(study)) if "allocator" in w] == told
    assert all(v.jobs[0].reserved is not None for v in result.variants)


def test_a_search_says_what_the_allocator_holds_of_its_best_layouts() -> None:
    space = Space({"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",), "placement": ("packed",)})
    wanted = job(gpus=8, sequence=4096, batch=64, micro_batch=2)
    found = search(wanted, DENSE, machine(1), space, top=2, steps=0)
    assert found.own is not None
    for one in (*found.best, *found.front, found.own):
        stage = one.step.memory.stage
        again = cached(one.job, DENSE, machine(1).network.fabric, stage)
        assert one.held is not None
        assert again is not None
        assert (one.held.stage, one.held.reserved) == (stage, again.reserved)
    best = found.best[0]
    assert "allocator" not in export(best, DENSE, Hosts(8), "megatron")
    assert not any("allocator" in sentence for sentence in found.words)


def test_layouts_that_differ_in_where_ranks_are_and_what_is_hidden_hold_the_same() -> None:
    """So one replay is enough for all of them (`search.allocator`); other axes change what is held."""
    base = wide(pipeline=2, context=2, zero=1)
    same = {"placement": "spread", "context_kind": "all-gather"}
    memory = peak_memory(base, DENSE, FABRIC, CAPACITY)
    held = reserved(base, DENSE, FABRIC, memory)
    moved = wide(pipeline=2, context=2, zero=1, **same).model_copy(
        update={"overlap": Overlap(tp=True, dp=False, pp=False, cp=False)}
    )
    allocations = Allocations(base, DENSE, FABRIC, CAPACITY)
    assert reserved(moved, DENSE, FABRIC, peak_memory(moved, DENSE, FABRIC, CAPACITY)) == held
    first = allocations.held(setting_of(base), base)
    assert allocations.held(setting_of(moved), moved) is first
    for other in (
        wide(pipeline=2, context=2, zero=3),
        wide(pipeline=2, context=2, zero=1, context_kind="all-to-all"),
    ):
        assert allocations.held(setting_of(other), other) != first


def test_stages_far_from_full_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """1F1B's later stages hold less: of a GPU of which the first takes all, those above three quarters."""
    base = wide(pipeline=8)
    full = peak_memory(base, DENSE, FABRIC, CAPACITY)
    looked = []

    def told(*args: object) -> None:
        looked.extend(args[4])  # type: ignore[arg-type]

    monkeypatch.setattr("railwright.search.bounds.allocator.reserved", told)
    Allocations(base, DENSE, FABRIC, full.total).held(setting_of(base), base)
    assert looked == [stage.stage for stage in full.stages if stage.total >= 0.75 * full.total]
    assert full.stage in looked
    assert len(looked) < 8
    looked.clear()
    Allocations(base, DENSE, FABRIC, 2 * full.total).held(setting_of(base), base)
    assert looked == [full.stage]
