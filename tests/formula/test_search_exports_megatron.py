"""What Megatron-LM and NeMo are told of a layout, and what they refuse."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

import pytest

from export_cases import ON, exported
from railwright.model.shape.architecture import Details
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import FORMS
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap
from search_cases import LATENT_EXPERTS
from training_cases import BLOCKS, DELTA, DENSE, MIXED, MOE, changed, job


def test_nemo_is_told_what_megatron_is() -> None:
    """Capacity, hidden all-to-alls and offload are fields there where they are arguments here."""
    turns = changed(job(expert=4, overlap=Overlap(ep=True)), expert_capacity=1.5)
    for field in ("overlap_moe_expert_parallel_comm=True", "moe_expert_capacity_factor=1.5"):
        assert field in exported((MOE, turns), "nemo")
    assert "--overlap-moe-expert-parallel-comm" in exported((MOE, turns), "megatron")
    assert "--delay-wgrad-compute" in exported((MOE, turns), "megatron")
    held = exported((DENSE, job(offload=("activations", "optimizer"))), "nemo")
    assert "cpu_offloading_num_layers=7" in held
    assert "optimizer_cpu_offload=True" in held


def test_turns_that_are_not_predicted_are_not_written() -> None:
    """Under ZeRO-3 nothing is hidden: written, Megatron would run another step, and refuse shared experts
    that hide what is exchanged instead."""
    arch = replace(MOE, shared_experts=1, shared_ffn=512)
    lines = exported((arch, job(expert=4, zero=3, overlap=Overlap(ep=True, shared=True))), "megatron")
    assert "--moe-shared-expert-overlap" in lines
    assert "--overlap-moe-expert-parallel-comm" not in lines


@pytest.mark.parametrize("layout", [{"pipeline": 2}, {"recompute": "full"}])
def test_turns_that_megatron_refuses_are_a_comment(layout: dict[str, object]) -> None:
    """overlap_moe_expert_parallel_comm wants virtual stages beside a pipeline, and no recomputed layers."""
    case = (MOE, job(expert=4, overlap=Overlap(ep=True), **layout))
    for form in ("megatron", "nemo"):
        text = exported(case, form)
        assert "# hidden expert all-to-all: Megatron has no overlap_moe_expert_parallel_comm" in text
        assert "--overlap-moe" not in text
        assert "overlap_moe_expert_parallel_comm=" not in text


def test_what_megatron_refuses_is_not_written() -> None:
    """Offloaded activations need one stage and no recomputation, overlapped products sequence parallelism."""
    staged = exported((DENSE, job(offload=("activations",), pipeline=2)), "megatron")
    assert "--cpu-offloading-num-layers" not in staged
    assert "allows no pipeline" in staged
    assert "since core 0.16 inputs of named modules go to the host beside them" in staged
    alone = exported((DENSE, job(offload=("activations",))), "megatron")
    assert "--cpu-offloading-num-layers 7" in alone
    # a field, but no argument: arguments.py excludes it and sets it where layers are named
    assert "--cpu-offloading\n" not in alone
    plain = exported((DENSE, job(overlap=ON, tensor=2)), "megatron")
    assert "--tp-comm-overlap" not in plain
    assert "Megatron has no tp_comm_overlap without sequence parallelism" in plain


SPLIT: dict[str, Any] = {"tensor": 2, "sequence_parallel": True, "expert": 4}


@pytest.mark.parametrize(
    ("arch", "overlap", "turns", "products", "told"),
    [
        (MOE, Overlap(ep=True), True, False, ""),
        (MOE, Overlap(tp=True), False, True, ""),
        (
            MOE,
            Overlap(ep=True, tp=True),
            False,
            True,
            "has no overlap_moe_expert_parallel_comm beside hidden tensor parallelism",
        ),
        (
            LATENT_EXPERTS,
            Overlap(tp=True),
            False,
            False,
            "has no tp_comm_overlap beside latent attention",
        ),
        (
            LATENT_EXPERTS,
            Overlap(ep=True, tp=True),
            True,
            False,
            "has no tp_comm_overlap beside latent attention",
        ),
    ],
    ids=["turns", "products", "both", "latent", "both, latent"],
)
def test_what_megatron_cannot_hide_together_is_a_comment(
    arch: object, overlap: Overlap, turns: bool, products: bool, told: str
) -> None:
    """Transformer Engine delays no weight gradients beside Userbuffers, so one of the two is left out."""
    for form, names in (("megatron", "-"), ("nemo", "_")):
        lines = exported((arch, job(**SPLIT, overlap=overlap)), form).splitlines()
        settings = [line.strip(" -,") for line in lines if not line.startswith("#")]
        written = {line.partition("=")[0] for line in settings if not line.endswith("=False")}
        for name, hidden in (
            ("overlap_moe_expert_parallel_comm", turns),
            ("delay_wgrad_compute", turns),
            ("tp_comm_overlap", products),
        ):
            assert (name.replace("_", names) in written) == hidden
        assert any(line.startswith("#") and told in line for line in lines)


@pytest.mark.parametrize(
    ("arch", "layout", "written"),
    [
        (BLOCKS, {}, "M-M*-M-M"),
        (BLOCKS, {"pipeline": 2}, "M-M*|-M-M"),
        (BLOCKS, {"pipeline": 2, "virtual_pipeline": 2}, "M-|M*|-M|-M"),
        (DELTA, {"pipeline": 2, "layers_per_stage": (5, 3)}, "GEGEGE*EGE|GEGE*E"),
        (replace(DELTA, mtp_layers=1), {}, "GEGEGE*E" * 2 + "/*E"),
    ],
    ids=["blocks", "stages", "virtual stages", "uneven stages", "multi-token prediction"],
)
def test_megatron_takes_layers_of_other_kinds_as_a_pattern(
    arch: object, layout: dict[str, object], written: str
) -> None:
    """hybrid_layer_allocation.py: one letter a block, | between stages, / before multi-token prediction."""
    text = exported((arch, job(**layout)), "megatron")  # type: ignore[arg-type]
    [line] = [line for line in text.splitlines() if line.startswith("--hybrid-layer-pattern")]
    assert line.split(" ", 1)[1].strip("'") == written
    for other in ("num-virtual-stages", "pipeline-num-layers", "pipeline-model-parallel-layout"):
        assert f"--{other}" not in text
    assert "pretrain_hybrid.py" in text
    assert "pretrain_hybrid.py" in exported((arch, job(**layout)), "nemo")  # type: ignore[arg-type]
    other = exported((arch, job()), "torchtitan")
    assert "torchtitan 0.2 does not run this: layers that are not attention" in other


@pytest.mark.parametrize(
    ("arch", "told"),
    [
        (replace(MOE, mtp_layers=1, mtp_dense=True), "by a dense MLP: --mtp-num-layers 1 builds it like"),
        (replace(MOE, mtp_layers=1), ""),
        (replace(DENSE, mtp_layers=1), ""),
    ],
    ids=["dense beside experts", "experts", "dense"],
)
def test_megatron_builds_multi_token_prediction_like_the_last_layer(arch: object, told: str) -> None:
    """gpt_builders.py: the spec of the last layer of the decoder is that of the extra ones."""
    for form in ("megatron", "nemo"):
        found = [line for line in exported((arch, job()), form).splitlines() if "# multi-token" in line]
        assert [told in line for line in found] == ([True] if told else [])


@pytest.mark.parametrize(
    ("zero", "states", "told"),
    [
        (1, {}, ""),
        (1, {"dtype": "mxfp8"}, "beside fp8 whose scaling is not delayed"),
        (1, {"dtype": "fp8", "amax_over": "none"}, "beside fp8 whose scaling is not delayed"),
        (1, {"dtype": "fp8", "amax_over": "stage"}, ""),
        (2, {}, "under Megatron-FSDP"),
        (2, {"dtype": "mxfp8"}, "under Megatron-FSDP"),
    ],
)
def test_megatron_says_where_its_master_weights_are_whole(
    zero: int, states: dict[str, object], told: str
) -> None:
    """optimizer_config.py: use_precision_aware_optimizer_no_fp8_or_ds_fp8; Megatron-FSDP keeps its own."""
    text = exported((DENSE, changed(job(zero=zero), master="remainder", **states)), "megatron")
    found = [line for line in text.splitlines() if "master weights as remainders" in line]
    assert bool(found) == bool(told)
    assert all(told in line for line in found)


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [
        ({}, []),
        (
            {"moment_dtype": "bf16"},
            ["--use-precision-aware-optimizer", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16"],
        ),
        ({"master": "remainder"}, ["--use-precision-aware-optimizer"]),
        ({"gradient_dtype": "bf16"}, ["--grad-reduce-in-bf16"]),
        (
            {"gradient_dtype": "bf16", "master": "remainder"},
            ["--use-precision-aware-optimizer", "--main-grads-dtype bf16", "--grad-reduce-in-bf16"],
        ),
        ({"dtype": "fp16", "gradient_dtype": "fp32"}, ["--accumulate-allreduce-grads-in-fp32"]),
        ({"layout": Layout(zero=2)}, ["--megatron-fsdp-main-grads-dtype fp32"]),
        (
            {"layout": Layout(zero=3), "gradient_dtype": "bf16"},
            ["--megatron-fsdp-main-grads-dtype bf16"],
        ),
        (
            {"cuda_graphs": ("attention", "router")},
            ["--cuda-graph-impl transformer_engine", "--cuda-graph-modules attn moe_router moe_preprocess"],
        ),
        (
            {"cuda_graphs": ("step",), "expert_capacity": 1.0},
            ["--cuda-graph-impl full_iteration", "--no-check-for-nan-in-loss-and-grad"],
        ),
    ],
    ids=str,
)
def test_megatron_gets_types_of_states_and_graphs(asked: dict[str, object], arguments: list[str]) -> None:
    lines = exported((MOE, changed(job(), **asked)), "megatron").splitlines()
    kinds = "--(use-precision|exp-avg|main-grads|grad-reduce|accumulate|megatron-fsdp|cuda-graph|no-check)"
    assert [line for line in lines if re.match(kinds, line)] == arguments


@pytest.mark.parametrize(
    ("layout", "lines", "fields"),
    [
        ({"pipeline": 4}, [], {}),
        (
            {"pipeline": 3},  # 8 layers: the last stage is the lighter one
            ["--decoder-first-pipeline-num-layers 3", "--decoder-last-pipeline-num-layers 2"],
            {"num_layers_in_first_pipeline_stage": 3, "num_layers_in_last_pipeline_stage": 2},
        ),
        (
            {"pipeline": 4, "layers_per_stage": (1, 3, 2, 2)},
            ["--pipeline-model-parallel-layout 'Et*1|t*3|t*2|t*2L'"],
            {"pipeline_model_parallel_layout": "Et*1|t*3|t*2|t*2L"},
        ),
        (
            {"pipeline": 2, "virtual_pipeline": 2, "layers_per_stage": (2, 3, 3, 0)},
            ["--pipeline-model-parallel-layout 'Et*2|t*3|t*3|L'"],
            {"pipeline_model_parallel_layout": "Et*2|t*3|t*3|L"},
        ),
    ],
    ids=str,
)
def test_uneven_stages_are_written_for_megatron(
    layout: dict[str, object], lines: list[str], fields: dict[str, object]
) -> None:
    """Two numbers where only the ends differ, else every piece; that stands for the virtual stages too."""
    one = job(batch=48, **layout)
    found = FORMS["megatron"][1](one, DENSE, Hosts(4))
    whole = f"--num-layers {DENSE.layers}"
    assert [x for x in found if ("-layers" in x or "-layout" in x) and x != whole] == lines
    assert any("virtual-stages" in x for x in found) == (one.layout.virtual_pipeline > 1 and not lines)
    text = "\n".join(FORMS["nemo"][1](one, DENSE, Hosts(4)))
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    written = {str(k.arg): k.value for call in calls for k in call.keywords}
    assert {
        k: ast.literal_eval(v) for k, v in written.items() if re.search("_layers_in|_layout", k)
    } == fields


def test_nemo_is_told_what_it_takes_otherwise_by_default() -> None:
    """Megatron-FSDP wants its checkpoints' format; Megatron-Bridge takes experts whole unless told."""
    assert "save_ckpt_format='fsdp_dtensor'" in exported((DENSE, job(zero=2)), "nemo")
    assert "save_ckpt_format" not in exported((DENSE, job(zero=1)), "nemo")
    cut = exported((MOE, job(expert=2, tensor=2, sequence_parallel=True)), "nemo")
    assert "expert_tensor_parallel_size=2" in cut
    for form, words in (("nemo", "moe_grouped_gemm=True"), ("megatron", "--moe-grouped-gemm")):
        assert words in exported((MOE, job(expert=2)), form)
    lora = exported((DENSE, changed(job(), lora=Lora(rank=8, targets=("qkv", "mlp up")))), "nemo")
    assert "target_modules=['linear_qkv', 'linear_fc1']" in lora
    assert "dim=8" in lora
    assert "dropout" not in lora.split("peft = dict(")[1]
    dropped = Lora(rank=8, dropout=0.1, dropout_position="post")
    lora = exported((DENSE, changed(job(), lora=dropped)), "nemo")
    assert "dropout=0.1,\n    dropout_position='post'" in lora


@pytest.mark.parametrize(
    ("layout", "connections"),
    [
        ({}, ""),
        ({"tensor": 2, "sequence_parallel": True}, "before Blackwell: export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"context": 2}, "before Blackwell: export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"context": 2, "zero": 3}, "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        ({"context": 2, "expert": 4, "overlap": Overlap(ep=True)}, "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
    ],
    ids=str,
)
def test_megatron_and_nemo_are_told_their_connections(layout: dict[str, object], connections: str) -> None:
    """validate_args refuses a number above 1 beside tensor or context parallelism, and 1 beside FSDP; what is
    a comment for Megatron-LM, NeMo is given in `env_vars`."""
    case = (MOE, job(**layout))
    lines = exported(case, "megatron").splitlines()
    told = [line for line in lines if "CUDA_DEVICE_MAX_CONNECTIONS" in line]
    assert told == ([f"# {connections}"] if connections else [])
    text = exported(case, "nemo")
    calls = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    given = {
        keyword.arg: ast.literal_eval(keyword.value)
        for node in calls
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "env_vars"
        for keyword in node.value.keywords  # type: ignore[attr-defined]
    }
    number = connections.rpartition("=")[2]
    assert given == ({"CUDA_DEVICE_MAX_CONNECTIONS": number} if connections else {})
    assert ("# before Blackwell" in text) == connections.startswith("before Blackwell")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_megatron_fsdp_accumulates_no_gradients_in_products(zero: int) -> None:
    """Without Transformer Engine 2.10 Megatron-FSDP refuses gradient_accumulation_fusion, whose default is on
    for Megatron-LM's script and for NeMo's models."""
    case = (DENSE, job(zero=zero))
    assert ("--no-gradient-accumulation-fusion" in exported(case, "megatron").splitlines()) == (zero >= 2)
    assert ("    gradient_accumulation_fusion=False," in exported(case, "nemo").splitlines()) == (zero >= 2)


@pytest.mark.parametrize(("software", "dropout"), [("megatron-2025", 0.0), ("megatron-2021", 0.1)])
def test_dropout_is_what_was_predicted(software: str, dropout: float) -> None:
    """TransformerConfig drops a tenth of both where it is not told; eras of today are predicted without,
    those of 2021 and 2022 with it (Korthikanti et al. 2022, section 4)."""
    case = (DENSE, job().model_copy(update={"software": software}))
    for name in ("attention", "hidden"):
        assert f"--{name}-dropout {dropout}" in exported(case, "megatron").splitlines()
        assert f"    {name}_dropout={dropout}," in exported(case, "nemo").splitlines()


@pytest.mark.parametrize(
    ("arch", "modules", "written"),
    [
        (MOE, ("moe_act", "mla_up_proj", "core_attn"), "--recompute-modules moe_act core_attn"),
        (DENSE, ("moe_act", "mla_up_proj", "core_attn"), "--recompute-modules core_attn"),
        (LATENT_EXPERTS, ("mla_up_proj",), "--recompute-modules mla_up_proj"),
        (DENSE, ("moe_act",), ""),
    ],
)
def test_modules_that_a_model_has_not_are_not_computed_again(
    arch: object, modules: tuple[str, ...], written: str
) -> None:
    """TransformerConfig refuses moe_act without experts, and mla_up_proj without latent attention."""
    text = exported((arch, job(recompute="selective", recompute_modules=modules)), "megatron")
    assert [x for x in text.splitlines() if "recompute-modules" in x] == ([written] if written else [])
    assert ("--recompute-granularity" in text) == bool(written)


def test_modules_that_megatron_refuses_beside_the_rest_are_a_comment() -> None:
    delayed = changed(job(recompute="selective", recompute_modules=("moe_act", "mlp")), dtype="fp8")
    text = exported((MOE, changed(delayed, amax_over="stage")), "megatron")
    assert "# recomputation of moe_act: Megatron refuses it beside fp8 with delayed scaling" in text
    assert "--recompute-modules mlp\n" in text


def test_attention_with_biases_has_no_graph_beside_hidden_turns() -> None:
    """validate_args: "CUDA graph with delay_wgrad_compute doesn't support attn bias"."""
    turns = changed(job(expert=4, overlap=Overlap(ep=True)), cuda_graphs=("attention", "router"))
    assert "--cuda-graph-modules attn" in exported((MOE, turns), "megatron")
    text = exported((replace(MOE, attention_bias=True), turns), "megatron")
    assert "--cuda-graph-modules" not in text
    assert "refused, beside hidden expert all-to-alls, of attention with biases" in text
    shown = changed(turns, overlap=Overlap(ep=True, dp=False))
    assert "--cuda-graph-modules attn" in exported((replace(MOE, attention_bias=True), shown), "megatron")


def test_one_expert_a_token_names_the_score_that_megatron_refuses() -> None:
    said = "of one expert a token not softmax behind the choice"
    assert said in exported((replace(MOE, experts_per_token=1), job()), "megatron")
    assert said not in exported((MOE, job()), "megatron")


def test_no_mlp_of_a_pattern_with_experts_is_a_graph() -> None:
    """TransformerConfig: "mlp cuda graph is only supported for dense layers", which it counts by
    moe_layer_freq."""
    graphs = changed(job(), cuda_graphs=("attention", "mlp"))
    assert "--cuda-graph-modules attn\n" in exported((MIXED, graphs), "megatron")
    assert "--cuda-graph-modules attn mlp\n" in exported((BLOCKS, graphs), "megatron")


def test_a_clamped_gate_is_unfused_by_the_argument_of_gelu() -> None:
    """core_transformer_config_from_args: bias_swiglu_fusion counts beside --swiglu alone."""
    unfused = changed(job(), unfused=("activation",))
    gated = replace(MOE, details=Details(activation="quick_gelu"))
    assert "--no-bias-gelu-fusion" in exported((gated, unfused), "megatron").splitlines()
    assert "--no-bias-swiglu-fusion" in exported((MOE, unfused), "megatron").splitlines()


def test_a_squared_relu_that_megatron_compiles_is_told() -> None:
    """core/activations.py: jit_fuser; without a gate no argument takes it apart."""
    unfused = changed(job(), unfused=("activation",))
    squared = replace(DENSE, gated=False, details=Details(activation="relu2"))
    assert "# squared ReLU one kernel per operation" in exported((squared, unfused), "megatron")
    plain = replace(squared, details=Details(activation="gelu"))
    for arch, asked in ((squared, job()), (plain, unfused), (DENSE, unfused)):
        assert "squared ReLU one kernel" not in exported((arch, asked), "megatron")
