"""What `railwright search` says when it cannot search."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.memory.cached import reserved
from search_cases import STUDY
from training_cases import DENSE, MOE, changed, job, machine

SPACE = """\
tensor: [4, 8]
pipeline: [1, 2]
micro_batch: [1]
recompute: [selective]
zero: [1]
overlap_tp: [false]
schedule: [auto]
"""


def test_no_layout_can_work() -> None:
    """The constraint that stops all is named, in the training room's words."""
    with pytest.raises(
        PlanError, match=r"no layout of the space can work; all .* refused because the 16 attention heads"
    ):
        search(job(gpus=6), DENSE, machine(1), Space({"tensor": (3,), "context": (1,)}))


def test_one_reason_stops_all() -> None:
    with pytest.raises(
        PlanError, match=r"can work; all [\d,]+ are refused because gpus is 16, but the cluster has 8"
    ):
        search(job(gpus=16), DENSE, machine(1), Space({"tensor": (1, 2), "context": (1,)}))


def refusal(asked: TrainingJob, arch: Transformer, axes: dict[str, tuple[object, ...]]) -> str:
    """What a search on one server says that finds nothing."""
    with pytest.raises(PlanError) as no:
        search(asked, arch, machine(1), Space(axes))
    return str(no.value)


def test_what_stops_every_layout_is_named_before_what_stops_some() -> None:
    """Of a loss that the software has not no value of the space gets rid; of expert groups that do not divide
    a rank's and of schedules without virtual stages others do."""
    asked = changed(job(batch=64), chunked_loss="torchtitan")
    said = refusal(asked, MOE, {"tensor": (1, 2), "schedule": ("auto", "zb-v", "dualpipe")})
    assert re.search(r"all [\d,]+ are refused because software megatron-2025 has no chunked_loss", said)
    assert "zb-v" not in said


def test_all_that_stops_every_layout_is_named() -> None:
    """Both would have to change: telling one of them would bring the next refusal."""
    asked = changed(job(batch=64, dtype="fp8"), chunked_loss="torchtitan", dispatch_dtype="fp8")
    said = refusal(asked, MOE, {"tensor": (1, 2), "schedule": ("auto", "zb-v")})
    assert "chunked_loss" in said
    assert " And because dispatch_dtype fp8" in said


def test_constraints_are_named_together_where_none_stops_all_alone() -> None:
    """6 GPUs: 16 sequences are none of 6 or 3 ranks', and with three stages, over 2 ranks, Liger's loss is
    refused, as with two."""
    asked = changed(job(gpus=6, batch=16), chunked_loss="liger", software="fsdp-2025")
    axes = {"tensor": (1,), "context": (1,), "micro_batch": (1,), "zero": (3,), "schedule": ("auto",)}
    said = refusal(asked, DENSE, axes | {"pipeline": (1, 2, 3), "virtual_pipeline": (1,)})
    found = re.search(r"of ([\d,]+) ([\d,]+) are refused because chunked_loss liger", said)
    batch = re.search(r"Of the others ([\d,]+) because global_batch 16 is not a multiple .* = 6;", said)
    assert found is not None
    assert batch is not None
    every, most, rest = (int(n.replace(",", "")) for n in (*found.groups(), batch[1]))
    assert every == most + rest


def test_sizes_that_do_not_divide_the_gpus_are_not_what_stops_a_space() -> None:
    """Tensor 4 goes into 6 GPUs under no layout, which says nothing of the batch that stops the others."""
    axes = {"tensor": (1, 2, 4), "context": (1,), "pipeline": (1, 4), "micro_batch": (1,)}
    said = refusal(job(gpus=6, batch=16), DENSE, axes)
    assert re.search(r"all [\d,]+ that divide the 6 GPUs are refused because global_batch 16", said)


@pytest.mark.parametrize("share", [0.9, 1e-3])
def test_what_sends_to_a_search_says_how_to_narrow_it(share: float) -> None:
    """Where something near would fit, and where nothing does."""
    asked, on = job(gpus=8), machine(1)
    need = peak_memory(asked, DENSE, on.network.fabric, on.gpu.hbm_bytes).total
    with pytest.raises(PlanError) as no:
        simulate(asked, DENSE, replace(on, gpu=replace(on.gpu, hbm_bytes=need * share)))
    assert "`railwright search`" in str(no.value)
    assert "`--framework`" in str(no.value)
    assert "`--space`" in str(no.value)


def test_a_space_that_is_too_large_says_how_to_narrow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railwright.search.training.branch.MOST_LAYOUTS", 10)
    with pytest.raises(PlanError, match=r"more than the 10 .* \(--space\), or .* \(--framework\)\."):
        search(job(gpus=8), DENSE, machine(1), Space())


def test_nothing_fits() -> None:
    """The leanest layout is named with what it needs and what there is."""
    one = machine(1)
    small = replace(one, gpu=replace(one.gpu, hbm_bytes=2.0**30))
    with pytest.raises(
        PlanError, match=r"memory stops all .* layouts .* needs at least .* GiB and a GPU has 1.0 GiB"
    ):
        search(job(batch=16), DENSE, small, Space({"zero": (1,)}))


ONE = {"tensor": (1,), "context": (1,), "pipeline": (1,)}


@pytest.mark.parametrize(
    ("axes", "gib", "said"),
    [
        # every default value is tried already, and what lies on the host does not help
        ({}, 1.0, "use more or larger GPUs: other values of offload do not make it fit either."),
        ({"zero": (1,)}, 1.0, "GPUs: other values of zero and offload do not make it fit either."),
        ({"offload": (("optimizer", "activations"), ())}, 1.0, "GPUs: the space leaves out nothing leaner."),
        # 8 GPUs without any cut need 5 GiB each: of all axes that are held at 1 tensor alone reaches 2.4
        ({**ONE, "zero": (0,)}, 2.4, "GPUs, or give the space more values of tensor."),
    ],
    ids=str,
)
def test_advice_is_of_axes_that_would_help(
    axes: dict[str, tuple[object, ...]], gib: float, said: str
) -> None:
    """What a space does not leave out, or what leaves it as far off, is no advice."""
    one = machine(1)
    small = replace(one, gpu=replace(one.gpu, hbm_bytes=gib * 2**30))
    with pytest.raises(PlanError) as no:
        search(job(batch=16), DENSE, small, Space(axes))
    assert said in str(no.value)


def test_the_leanest_layout_is_the_jobs_own_where_it_is_as_lean() -> None:
    """One rank holds all states however they are sharded: zero is what the job says."""
    one = machine(1)
    small = replace(one, gpu=replace(one.gpu, hbm_bytes=2.0**30))
    axes = {"tensor": (8,), "pipeline": (1,), "context": (1,), "micro_batch": (1,)}
    for zero in (0, 1):
        with pytest.raises(PlanError, match=rf"recompute \w+, zero {zero}\)"):
            search(job(batch=16, zero=zero), DENSE, small, Space(axes))


def test_what_fits_only_with_the_jobs_own_offload_is_found() -> None:
    """Small GPUs hold the model where its optimizer lies on the host, as the job says."""
    own = job(batch=16, zero=0, recompute="full", offload=("optimizer",))
    one = machine(1)
    memory = peak_memory(own, DENSE, one.network.fabric, 80e9)
    held = reserved(own, DENSE, one.network.fabric, memory)
    assert held is not None
    small = replace(one, gpu=replace(one.gpu, hbm_bytes=held.reserved + held.system))
    axes = {"tensor": (1,), "pipeline": (1,), "context": (1,), "recompute": ("full",), "zero": (0,)}
    found = search(own, DENSE, small, Space({**axes, "micro_batch": (1,)}), top=1, steps=0)
    assert found.best[0].setting["offload"] == ("optimizer",)
    plain = job(batch=16, zero=0, recompute="full")
    tensors = peak_memory(plain, DENSE, one.network.fabric, 80e9).total
    tight = replace(one, gpu=replace(one.gpu, hbm_bytes=1.001 * tensors))
    with pytest.raises(PlanError, match="PyTorch's allocator has no room for the holes between them"):
        search(own, DENSE, tight, Space({**axes, "micro_batch": (1,), "offload": ((),)}))


def test_what_one_recomputation_refuses_the_others_do_not() -> None:
    """Every second product is not known of experts without gates: full recomputation is, and none."""
    own = job(batch=16, recompute_modules=("ops",))
    axes = {"tensor": (1,), "pipeline": (1,), "zero": (1,), "micro_batch": (1,)}
    found = search(own, replace(MOE, gated=False), machine(1), Space(axes), steps=0)
    assert {one.setting["recompute"] for one in found.best} == {"none", "full"}
    assert any("'ops' is torchtitan's" in one.example for one in found.refused)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--job", "tunes"], "no job 'tunes'; did you mean 'tune'?"),
        (["--objective", "tim"], "--objective: there is no 'tim'; did you mean 'time'?"),
        (["--export", "deepspeed"], "--export: there is no 'deepspeed'"),
        (["--rank", "2"], "--rank says which layout --export writes; add --export"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], said: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    result = CliRunner().invoke(app, ["search", str(file), "-q", *options])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("options", [[], ["--serving"]])
@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("# mine\ntensr: [1]\n", "s.yaml:2:1: tensr: there is no such axis; did you mean 'tensor'?"),
        ("tensor: 2\ntensor: 4\n", "s.yaml:2:1: tensor: written twice"),
        ("- tensor\n", "s.yaml:1:1: a space is a set of axes"),
        ("# nothing yet\n", "s.yaml: the file is empty; name axes and values"),
    ],
)
def test_wrong_space_files(tmp_path: Path, options: list[str], space: str, said: str) -> None:
    """Each mistake with its line, of training and of serving."""
    study, file = tmp_path / "study.yaml", tmp_path / "s.yaml"
    serving = (
        "{name: chat, model: llama-3-8b, client: {kind: poisson, rate: 2, requests: 9}, slo: {ttft: 1 s}}"
    )
    study.write_text(f"{STUDY}serving:\n  - {serving}\n")
    file.write_text(space)
    result = CliRunner().invoke(app, ["search", str(study), "-q", "--space", str(file), *options])
    assert result.exit_code == 2
    assert said in result.output


def test_a_search_from_the_command_line(tmp_path: Path) -> None:
    """The same answer twice; exports name the fields of the real frameworks; the study's job loads again."""
    study, space = tmp_path / "study.yaml", tmp_path / "space.yaml"
    study.write_text(STUDY)
    space.write_text(SPACE)
    asked = ["search", str(study), "-q", "--space", str(space), "--top", "2", "--front", "0"]

    def run(*more: str) -> str:
        result = CliRunner().invoke(app, [*asked, *more])
        assert result.exit_code == 0, result.output
        return result.output

    first, second = run("--json"), run("--json")
    assert first == second
    shown = run()
    assert "\nown " in shown
    assert "more steps in the same time" in shown
    assert "--tensor-model-parallel-size 4" in run("--export", "megatron")
    refused = CliRunner().invoke(app, [*asked, "--export", "torchtitan"])
    assert "zero 1 and 2, which shard gradients or optimizer states" in refused.output
    space.write_text(SPACE.replace("zero: [1]", "zero: [3]"))
    refused = CliRunner().invoke(app, [*asked, "--export", "torchtitan"])
    assert "it lacks recomputation of core_attn" in refused.output
    study.write_text(STUDY.replace("tensor: 8", "tensor: 8, recompute_modules: [ops]"))
    text = run("--export", "torchtitan")
    assert "tensor_parallel_degree = 4" in text
    priced = "# Priced with software fsdp-2026, as torchtitan 0.2 runs, instead of the job's megatron-2025"
    assert priced in text
    study.write_text(STUDY)
    space.write_text(SPACE)
    assert "tensor_model_parallel_size=4" in run("--export", "nemo")
    best = json.loads(first)["best"]
    assert [one["rank"] for one in best] == [1, 2]
    for one in best:
        stages = f"--pipeline-model-parallel-size {one['layout']['pipeline']}\n"
        assert stages in run("--export", "megatron", "--rank", str(one["rank"]))
    assert best[0]["layout"]["pipeline"] != best[1]["layout"]["pipeline"]
    none = CliRunner().invoke(app, [*asked, "--export", "study", "--rank", "99"])
    assert none.exit_code == 2
    assert "--rank: there is no layout 99; 3 are listed, and --top or --front lists more" in none.output
    whole = run("--export", "study")
    assert json.loads(run("--export", "study", "--json")) == json.loads(first) | {"export": whole}
    from railwright.spec import load_study_text

    assert load_study_text(whole).jobs[0].layout.tensor == 4


@pytest.mark.parametrize(("framework", "form"), [("torchtitan", "megatron"), ("megatron", "torchtitan")])
def test_an_export_to_another_framework_than_asked_for(framework: str, form: str) -> None:
    """It wrote arguments under a comment that Megatron-LM does not run them."""
    asked = ["search", "server", "--framework", framework, "--export", form]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 2
    assert f"--export {form} writes what {framework} runs" in " ".join(told.output.split())
