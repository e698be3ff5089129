"""What a search says of the layout it found against the one as written."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cli.search import _show
from railwright.search import SearchResult, Space, search
from railwright.search.space.axes import setting_of
from railwright.search.training.claims import launching, spreading
from railwright.search.training.explain import explain
from railwright.search.training.result import Candidate
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.timeline import Share
from railwright.units import show_time
from search_cases import STUDY
from training_cases import DENSE, MOE, changed, job, machine

WIDE = replace(DENSE, hidden=8192, heads=64, kv_heads=8, head_dim=128, ffn=28672, layers=2)

FEW = """\
tensor: [4, 8]
pipeline: [1]
micro_batch: [1]
recompute: [selective]
zero: [1]
overlap_tp: [false]
schedule: [auto]
"""

FIXED: dict[str, tuple[object, ...]] = {
    "pipeline": (1,),
    "context": (1,),
    "micro_batch": (1,),
    "placement": ("packed",),
    "schedule": ("auto",),
    "sequence_parallel": (False,),
    "overlap_tp": (False,),
    "overlap_dp": (True,),
}


def said(objective: str = "time", **axes: tuple[object, ...]) -> tuple[str, ...]:
    space = Space({**FIXED, **axes})
    return search(job(tensor=2), DENSE, machine(2), space, objective=objective).words  # type: ignore[arg-type]


def test_a_leaner_layout_that_is_slower_is_not_called_slower_than_the_best() -> None:
    """The own layout recomputes nothing and shards optimizer states: the leanest takes longer."""
    words = said("memory", tensor=(2, 4), recompute=("none", "full"), zero=(1, 3))
    assert words[0].startswith("The leanest layout takes ")
    assert "fewer steps in the same time" in words[0]
    assert "recompute none -> full" in words[0]
    assert words[-2].startswith("Memory goes from ")
    assert words[-1].startswith("All layers are computed again")


def test_a_space_without_the_own_layout_may_hold_nothing_better() -> None:
    words = said(tensor=(8,), recompute=("full",), zero=(0,))
    assert "best of the space: " not in words[0]
    assert "takes" in words[0]
    assert "fewer steps in the same time" in words[0]


def test_the_own_layout_can_be_the_best() -> None:
    (sentence,) = said(tensor=(2,), recompute=("none",), zero=(1,))
    assert sentence.startswith("The layout as written is the best of the space: ")


def test_a_bubble_of_another_schedule_is_not_explained_by_the_form_of_1f1b() -> None:
    space = Space({**FIXED, "tensor": (1,), "pipeline": (4,), "schedule": ("zb-h1",), "recompute": ("none",)})
    words = search(job(pipeline=4), DENSE, machine(2), space).words
    (bubble,) = [w for w in words if w.startswith("Pipeline bubble")]
    assert ": schedule zb-h1 instead of 1f1b, virtual stages are 2 instead of 1." in bubble
    assert "(p - 1)" not in bubble


def between(own: TrainingJob, best: TrainingJob, moe: bool = False, wide: bool = False) -> tuple[str, ...]:
    """What is said of two layouts, whichever of them a search would find."""
    arch = MOE if moe else WIDE if wide else DENSE
    one, other = (Candidate(setting_of(j), j, simulate(j, arch, machine(2)), 0.0, 0.0) for j in (own, best))
    return explain(one, "", other, 80e9)


@pytest.mark.parametrize(("share", "told"), [(0.88, False), (0.96, True)])
def test_a_layout_that_fills_more_than_published_ones_do_is_told(share: float, told: bool) -> None:
    own, best = (
        Candidate(setting_of(j), j, simulate(j, DENSE, machine(2)), 0.0, 0.0)
        for j in (job(pipeline=2), job())
    )
    for before in (own, None):
        words = [
            w for w in explain(before, "", best, best.memory / share) if w.startswith("The best one fills ")
        ]
        assert len(words) == told
        assert all("fills 96% of the GPU; nine of ten published jobs fill 89%" in w for w in words)


def test_a_gain_is_told_with_how_far_to_trust_it() -> None:
    """A layout that is faster; none is told of one that is slower, or as fast."""
    faster = between(job(pipeline=4), job())
    assert "published pairs of layouts of one job" in faster[1]
    for words in (between(job(), job(pipeline=4)), between(job(), job())):
        assert not any("published pairs" in w for w in words)


@pytest.mark.parametrize(("waits", "after", "told"), [(0.3, 0.1, 1), (0.2, 0.1, 0), (0.3, 0.3, 0)])
def test_a_gain_over_a_step_of_launches_is_told_as_a_range(waits: float, after: float, told: int) -> None:
    """0.8 to 1.3 times a step of 2 s beside one of 1 s: 60 to 160 % more steps."""
    step = simulate(job(), DENSE, machine(2))
    shares = [(Share("host", took, took),) for took in (2.0 * waits, after)]
    slow = replace(step, step_time=2.0, shares=shares[0], error_low=0.8, error_high=1.3)
    fast = replace(step, step_time=1.0, shares=shares[1])
    own, best = (Candidate(setting_of(job()), job(), one, 0.0, 0.0) for one in (slow, fast))
    found = launching(own, best)
    assert len(found) == told
    assert all("waits for launches in 30% of its step" in w and "60% to 160% more" in w for w in found)


def test_fewer_experts_of_a_gpu_are_told() -> None:
    """8 experts over 2 ranks and over 8; with a fixed capacity no GPU gets more than another."""
    few, many = (
        Candidate(setting_of(j), j, simulate(j, MOE, machine(2)), 0.0, 0.0)
        for j in (job(expert=2), job(expert=8))
    )
    (told,) = spreading(few, many, MOE)
    assert "has 1 of 8 experts instead of 4" in told
    assert not spreading(many, few, MOE)
    assert not spreading(None, many, MOE)
    fixed = replace(many, job=changed(many.job, expert_capacity=1.0))
    assert not spreading(few, fixed, MOE)


def test_auto_is_the_schedule_it_stands_for() -> None:
    """1F1B as written, auto with 2 virtual stages found: chunks shorten the bubble, from 3 / 16 to 3 / 32."""
    words = between(job(pipeline=4, schedule="1f1b"), job(pipeline=4, virtual_pipeline=2))
    assert "schedule 1f1b -> interleaved" in words[0]
    (bubble,) = [w for w in words if w.startswith("Pipeline bubble saves")]
    assert "(p - 1) / (v m) is 3 / (2 x 16) = 9.4% instead of 3 / (1 x 16) = 18.8%" in bubble
    same = between(job(pipeline=4, schedule="1f1b"), job(pipeline=4, tensor=2))
    assert "schedule" not in same[0]


def test_experts_cut_like_the_rest_are_no_change() -> None:
    words = between(
        job(tensor=2, expert=2, expert_tensor=2), job(tensor=2, expert=4, recompute="full"), moe=True
    )
    assert "expert 2 -> 4" in words[0]
    assert "expert_tensor" not in words[0]
    wider = between(job(tensor=2, expert=2, expert_tensor=2), job(tensor=4, expert=2), moe=True)
    assert "expert_tensor 2 -> 4" in wider[0]


def test_what_lengthens_compute_does_not_explain_that_it_is_shorter() -> None:
    """Without tensor ranks nobody repeats norms, and products are whole."""
    large: dict[str, int] = {"sequence": 4096, "micro_batch": 8, "batch": 256}
    shared, repeated, whole = (
        job(tensor=4, sequence_parallel=True, **large), job(tensor=4, **large), job(**large)
    )  # fmt: skip
    (saved,) = [w for w in between(shared, whole) if w.startswith("Compute saves")]
    assert "products are whole instead of cut over 4 GPUs" in saved
    assert "norms" not in saved
    (costs,) = [w for w in between(shared, repeated) if w.startswith("Compute costs")]
    assert "norms and residuals are repeated on all tensor ranks" in costs
    (gained,) = [w for w in between(repeated, whole) if w.startswith("Compute saves")]
    assert "norms and residuals are no longer repeated on all tensor ranks" in gained


def test_reasons_are_those_that_move_a_share_as_it_moved() -> None:
    """Wider tensor and expert groups send more, so what is saved beside them is not their doing."""
    hidden = Overlap(tp=True)
    base = {"tensor": 2, "sequence_parallel": True, "sequence": 4096}
    wide = {**base, "tensor": 4}
    exposed = [
        simulate(j, WIDE, machine(2)).exposed("tp")
        for j in (job(**base), job(**wide), job(**wide, overlap=hidden))
    ]
    assert exposed[2] < exposed[0] < exposed[1]
    (tensor,) = [
        w for w in between(job(**base), job(**wide, overlap=hidden), wide=True) if "Exposed tensor" in w
    ]
    assert tensor.endswith(": shards of collectives run beside products.")
    (wider,) = [w for w in between(job(**base), job(**wide), wide=True) if "tensor-parallel" in w]
    assert wider.endswith(": groups of 4 instead of 2.")
    slower = between(job(**base), job(**base, overlap=hidden), wide=True)
    assert any(w.endswith("it is slowed by tensor-parallel communication beside it.") for w in slower)
    turns = between(job(expert=2), job(expert=8, overlap=Overlap(ep=True)), moe=True)
    (expert,) = [w for w in turns if "expert all-to-all" in w]
    assert ("saves" in expert) == ("take turns" in expert) == ("groups of 8" not in expert)


def test_the_list_says_how_far_to_trust_it(tmp_path) -> None:
    """The band of the steps, and that neighbours in the list may change places; in the JSON too."""
    study = tmp_path / "study.yaml"
    study.write_text(STUDY, encoding="utf-8")
    space = tmp_path / "space.yaml"
    space.write_text(FEW, encoding="utf-8")
    arguments = ["search", str(study), "--space", str(space), "-q"]
    best = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["best"][0]
    low, high = best["error_low"], best["error_high"]
    assert low < 1 < high
    printed = " ".join(CliRunner().invoke(app, arguments).stdout.split())
    times = [show_time(best["step_seconds"] * factor) for factor in (low, high)]
    assert f"expected at {low:.2f} to {high:.2f} times the predicted ones" in printed
    assert (
        f"for the first {times[0]} to {times[1]}. Layouts a few per cent apart may change places" in printed
    )
    assert "net GB: what one GPU sends a step in groups that span servers" in printed


def test_the_best_layout_has_the_warnings_that_run_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    """On A100 PCIe no published step stands behind it, and `search` gave its range without a word."""
    found = search(job(), DENSE, machine(2, server="server-8x-a100-pcie"), Space(FIXED), top=1, steps=0)
    warnings = found.best[0].step.warnings
    assert any("No published training step" in w for w in warnings)
    _show(found)
    words = " ".join(capsys.readouterr().out.split())
    assert all(f"! {w}" in words for w in warnings)


def test_groups_that_share_a_copy_are_a_change_only_where_parameters_are_shared() -> None:
    """From zero 1, where neither does anything, to copies of 8 ranks that keep their parameters."""
    axes = {"tensor": (1,), "recompute": ("none",), "zero": (3,), "shard": (8,), "reshard": (False,)}
    space = Space({**FIXED, **axes, "expert": (1,)})
    found = search(job(), DENSE, machine(2), space, steps=0)
    (changed,) = [w for w in found.words if "What changes:" in w]
    assert "shard all -> 8" in changed
    assert "reshard on -> off" in changed
    assert "reduce_each" not in changed
    # states alone are in groups, and nothing is dropped
    states = Space({**FIXED, **axes, "zero": (1,), "expert": (1,)})
    (changed,) = [w for w in search(job(), DENSE, machine(2), states, steps=0).words if "What changes:" in w]
    assert "shard all -> 8" in changed
    assert "reshard" not in changed
    plain = Space({**FIXED, "tensor": (1,), "recompute": ("none",), "zero": (0, 1), "reshard": (False,)})
    words = search(job(recompute="full"), DENSE, machine(2), plain, steps=0).words
    assert not any("reshard" in word for word in words)


def short_of_memory() -> SearchResult:
    """A search on GPUs that hold just the tensors of the fastest layout, and not the holes between.  That
    layout is the job's own."""
    one, wanted = machine(1), job(sequence=4096, batch=32)
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 1), "recompute": ("none", "full")}
    space = Space({**axes, "overlap_dp": (True,), "overlap_tp": (False,), "micro_batch": (1, 2)})
    fastest = search(wanted, DENSE, one, space, top=1, steps=0).best[0]
    tight = replace(one, gpu=replace(one.gpu, hbm_bytes=fastest.memory + 1))
    return search(fastest.job, DENSE, tight, space, top=3, steps=0)


def test_what_is_faster_and_does_not_fit_the_allocator_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = short_of_memory()
    _show(found)
    told = capsys.readouterr().out
    words = " ".join(told.split())
    assert "The fastest whose tensors fit a GPU and that PyTorch's allocator can hold there." in words
    assert "is no faster than a variant of it that is listed, or does not fit." in words
    assert "whose tensors fit, but PyTorch's allocator has no room for the holes between them" in words
    count = sum(one.time < found.best[0].time for one in found.overfull)
    assert 1 <= count <= len(found.overfull) == found.effort.overfull
    assert f"({count} faster than the first)" in words
    table = told.split("some 5 %.")[1].split("Faster, leaner")[0]
    assert len(re.findall(r" \d+\.\dx ", table)) == min(len(found.overfull), 3)
    assert found.own is not None
    assert found.own.setting == found.overfull[0].setting
    assert "The best of the space takes" in found.words[0]
    assert "fewer steps in the same time" in found.words[0]
    (why,) = [w for w in found.words if w.startswith("Of the one as written tensors fit, but PyTorch's")]
    assert "are missing by this replay" in why


def test_of_an_allocator_that_is_not_pytorchs_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = job(sequence=4096, batch=32, zero=3).model_copy(update={"software": "xla-2025"})
    axes = {"tensor": (1,), "pipeline": (1,), "context": (1,), "zero": (3,), "micro_batch": (1, 2)}
    found = search(wanted, DENSE, machine(1), Space(axes), top=2, steps=0)
    assert [one.held for one in found.best] == [None, None]
    _show(found)
    words = " ".join(capsys.readouterr().out.split())
    assert "The fastest whose tensors fit a GPU. GiB" in words


def test_a_space_of_one_layout_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    axes = {**FIXED, "tensor": (1,), "recompute": ("none",), "zero": (1,), "sequence_parallel": (False,)}
    _show(search(job(), DENSE, machine(1), Space(axes), top=1, steps=0))
    assert capsys.readouterr().out.startswith("1 layout, 1 within memory; 1 simulated, in ")


def test_every_layout_that_is_told_has_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    """The front goes on counting where the list ends, so that `--rank` knows both."""
    space = Space({**FIXED, "tensor": (1, 2), "recompute": ("none",), "zero": (0, 1, 3)})
    found = search(job(tensor=2), DENSE, machine(2), space, top=1)
    assert found.ranked[0] == found.best[0]
    assert len(found.ranked) > 1
    settings = [one.setting for one in found.ranked]
    assert all(settings.count(one.setting) == 1 for one in (*found.best, *found.front))
    _show(found)
    front = capsys.readouterr().out.split("Faster, leaner")[1]
    numbers = [line.split()[0] for line in front.splitlines() if line[:1].isdigit()]
    assert numbers == [str(settings.index(one.setting) + 1) for one in found.front][: len(numbers)]


def test_a_layout_that_is_as_fast_and_leaner_is_not_called_slower() -> None:
    """Where launches bind, gathering parameters again takes no time, and keeping them takes memory."""
    axes = {"tensor": (1,), "recompute": ("none",), "zero": (3,), "reshard": (True, False)}
    own = job(sequence=4096, batch=32, zero=3, reshard=False)
    words = search(own, DENSE, machine(1), Space({**FIXED, **axes}), steps=0).words
    assert words[0].startswith("Another layout is as fast as the one as written, ")
    assert "and needs less memory. What changes: reshard off -> on." in words[0]


def test_one_microbatch_is_launched_and_shares_that_change_add_up() -> None:
    space = Space({"schedule": ("auto",), "context": (1,), "micro_batch": (1, 2), "recompute": ("none",)})
    found = search(job(batch=64, sequence=4096, tensor=8, schedule="zb-h1"), DENSE, machine(4), space, top=1)
    assert any("1 microbatch is launched instead of 16" in words for words in found.words)
    # on one stage no schedule changes
    assert not any("zb-h1" in words for words in found.words)
    assert found.own is not None
    before, after = (sum(s.exposed for s in one.step.shares) for one in (found.own, found.best[0]))
    assert after - before == pytest.approx(found.best[0].time - found.own.time)
