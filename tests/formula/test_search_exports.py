"""Every argument that an export writes exists in the framework it is written for."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from export_cases import CASES, exported
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import export, study
from railwright.search.training.result import Candidate
from railwright.spec.dataset import Data
from railwright.spec.load import load_study_text
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, changed, job, machine

KNOWN = yaml.safe_load((Path(__file__).parent / "search_arguments.yaml").read_text())
CLUSTER = """\
railwright: 1
name: small
cluster: {servers: 1, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}"""


@pytest.mark.parametrize("case", CASES, ids=lambda c: "")
def test_names_are_the_frameworks_own(case: tuple[object, TrainingJob]) -> None:
    lines = [x for x in exported(case, "megatron").splitlines() if not x.startswith("#")]
    found = {name for line in lines for name in re.findall(r"--([a-z0-9-]+)", line)}
    assert found <= set(KNOWN["megatron"]["names"])
    for line in lines:
        name, _, value = line.removeprefix("--").partition(" ")
        allowed = KNOWN["megatron"].get(name.replace("-", "_"))
        assert allowed is None or value in allowed

    tree = ast.parse(exported(case, "nemo"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert {k.arg for call in calls for k in call.keywords} <= set(KNOWN["nemo"]["names"])

    written = tomllib.loads(exported(case, "torchtitan"))
    assert set(written["training"].get("dataloader", {})) <= set(KNOWN["torchtitan"]["dataloader"])
    for layer, kinds in written.pop("quantize", {}).items():
        for kind, values in kinds.items():
            assert set(values) <= set(KNOWN["torchtitan"]["quantize"][layer][kind])
            assert f"quantize.{layer}.{kind}" in written["model"]["converters"]
    for section, values in written.items():
        assert set(values) <= set(KNOWN["torchtitan"][section]), section


@pytest.mark.parametrize(
    ("asked", "arguments", "fields", "converters"),
    [
        ({"dtype": "bf16"}, ["--bf16"], {"bf16": True}, []),
        (
            {"dtype": "fp8"},
            ["--bf16", "--fp8-format hybrid", "--fp8-recipe tensorwise"],
            {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
            ["quantize.linear.float8", "quantize.grouped_mm.float8"],
        ),
        (
            {"dtype": "fp8", "amax_over": "tensor"},
            ["--bf16", "--fp8-format hybrid", "--fp8-recipe delayed"],
            {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed", "tp_only_amax_red": True},
            ["quantize.linear.float8", "quantize.grouped_mm.float8"],
        ),
        (
            {"dtype": "mxfp8"},
            ["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"],
            {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
            ["quantize.linear.mx", "quantize.grouped_mm.mx"],
        ),
        (
            {"dtype": "mxfp8", "dtype_also": ("attention", "head")},
            ["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8", "--fp8-output-proj"],
            {
                "bf16": True,
                "fp8": "e4m3",
                "fp8_recipe": "mxfp8",
                "fp8_dot_product_attention": True,
                "fp8_output_proj": True,
            },
            ["quantize.linear.mx", "quantize.grouped_mm.mx"],
        ),
        ({"dtype": "nvfp4"}, ["--bf16", "--fp4-format e2m1"], {"bf16": True, "fp4": "e2m1"}, []),
    ],
)
def test_every_framework_gets_the_number_format(
    asked: dict[str, object], arguments: list[str], fields: dict[str, object], converters: list[str]
) -> None:
    case = (MOE, changed(job(expert=4), **asked))
    lines = exported(case, "megatron").splitlines()
    assert [x for x in lines if re.match("--(bf16|fp16|fp8-(?!param)|fp4)", x)] == arguments
    text = exported(case, "nemo")
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    given = {k.arg: ast.literal_eval(k.value) for call in calls for k in call.keywords}
    assert {
        k: v for k, v in given.items() if re.match("bf16|fp16|fp8(?!_param)|fp4|tp_only", str(k))
    } == fields
    titan = tomllib.loads(exported(case, "torchtitan"))
    assert titan.get("model", {}).get("converters", []) == converters
    assert ("# nvfp4: torchtitan" in exported(case, "torchtitan")) == (asked["dtype"] == "nvfp4")


def test_the_loss_is_fused_as_each_framework_takes_it() -> None:
    """Transformer Engine's kernel in NeMo; Megatron-LM's own where pretrain_gpt.py refuses that one."""
    plain = exported((DENSE, job()), "megatron")
    assert "--cross-entropy-loss-fusion\n--cross-entropy-fusion-impl native" in plain
    assert "# the loss is predicted as Transformer Engine's kernel" in plain
    assert "cross_entropy_fusion_impl='te'" in exported((DENSE, job()), "nemo")


def test_megatrons_own_loss_of_2024_is_asked_for() -> None:
    """Predicted as compiled, as --cross-entropy-loss-fusion makes it; by default it is not fused."""
    of_2024 = changed(job(), software="nemo-2024")
    text = exported((DENSE, of_2024), "megatron")
    assert "--cross-entropy-loss-fusion\n" in text
    assert "--cross-entropy-fusion-impl" not in text
    assert "Transformer Engine's kernel" not in text
    assert "cross_entropy_loss_fusion=True" in exported((DENSE, of_2024), "nemo")
    for eager in (changed(of_2024, unfused=("loss",)), changed(job(), software="megatron-2022")):
        assert "cross-entropy-loss-fusion" not in exported((DENSE, eager), "megatron")


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan"])
def test_a_placement_says_what_the_launcher_must_do(form: str) -> None:
    """Ranks of a server are consecutive in torchrun, so no order of hosts spreads an expert group."""
    across = exported((MOE, job(expert=2, tensor=2, placement="expert-across")), form)
    assert "no order of hosts gives it" in across
    assert "srun --distribution=plane=2" in across
    spread = exported((MOE, job(expert=2, placement="spread")), form)
    assert "order the hosts so that neighbours are on different leaves" in spread
    assert "placement" not in exported((MOE, job(expert=2)), form)


@pytest.mark.parametrize("text", ["true", "123", "null", "1e3", 'a "b"', "a\\b", "a: b", "a #b", "a b", "07"])
def test_a_studys_text_is_read_as_it_was(text: str) -> None:
    """Names and paths of models that YAML would read as something else are quoted."""
    named = job(tensor=2).model_copy(update={"name": text, "model": f"{text}/config.json"})
    assert load_study_text("\n".join([CLUSTER, *study(named, DENSE, Hosts(4))])).jobs == (named,)


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan", "study"])
def test_warnings_of_the_step_stand_in_an_export(form: str) -> None:
    """What `railwright run` says of a layout, whoever reads its arguments reads too."""
    one, cluster = job(expert=4), machine(2)
    step = replace(simulate(one, MOE, cluster), warnings=("case: a doubt.",))
    text = export(Candidate({}, one, step, 0.0, 0.0), MOE, Hosts.of(one, cluster), form)
    assert "# warning of the prediction: case: a doubt." in text.splitlines()


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan", "study"])
def test_an_export_says_that_its_time_has_no_wait_for_data_in_it(form: str) -> None:
    slow = job(expert=4).model_copy(update={"data": Data(prepare="1 s")})
    said = "# predicted without waiting for data"
    assert said in exported((MOE, slow), form).splitlines()
    assert said not in exported((MOE, job(expert=4)), form)
