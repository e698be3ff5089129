"""Every argument that an export writes exists in the framework it is written for."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from railwright.search.dispatcher import Hosts
from railwright.search.export import FORMS, export, study
from railwright.search.result import Candidate
from railwright.spec.load import load_study_text
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate
from search_cases import CHOOSING
from training_cases import BLOCKS, DELTA, DENSE, MOE, changed, job, machine

KNOWN = yaml.safe_load((Path(__file__).parent / "search_arguments.yaml").read_text())
ON, OFF = Overlap(tp=True, dp=True), Overlap(tp=False, dp=False, pp=False)
SCHEDULES = ("auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v")
CASES: list[tuple[object, TrainingJob]] = [
    *(
        (DENSE, job(overlap=o, tensor=2, sequence_parallel=sp, zero=zero, recompute=recompute))
        for (o, sp), zero, recompute in product(
            ((ON, True), (ON, False), (OFF, True)), (0, 1, 2, 3), ("none", "selective", "full")
        )
    ),
    *((DENSE, job(context=2, context_kind=kind)) for kind in ("ring", "all-to-all", "all-gather")),
    *((DENSE, job(pipeline=2, schedule=s, overlap=OFF)) for s in SCHEDULES),
    (DENSE, job(pipeline=2, virtual_pipeline=2, schedule="zb-h1")),
    (DENSE, job(pipeline=2, virtual_pipeline=2)),
    (DENSE, job(pipeline=2, layers_per_stage=(5, 3))),
    (DENSE, job(offload=("activations", "optimizer"))),
    (DENSE, job(offload=("activations", "optimizer"), pipeline=2)),
    (MOE, job(expert=4, overlap=Overlap(ep=True))),
    (MOE, job(expert=4, tensor=2, expert_tensor=1, sequence_parallel=True)),
    *((DENSE, job(dtype=dtype)) for dtype in ("fp16", "fp8")),
    *(
        (arch, changed(job(), dtype=dtype))
        for arch, dtype in product((DENSE, MOE), ("fp8", "fp8_rowwise", "mxfp8", "nvfp4"))
    ),
    *((DENSE, changed(job(dtype="fp8"), amax_over=over)) for over in ("stage", "tensor", "none")),
    (MOE, changed(job(expert=4), expert_capacity=1.5)),
    (MOE, changed(job(expert=8), expert_nodes=1)),
    (DENSE, job(zero=3, shard=4)),
    (replace(MOE, experts=64, experts_per_token=4), changed(job(expert=16), expert_nodes=1)),
    (replace(MOE, shared_experts=1, shared_ffn=512), job(expert=4, overlap=Overlap(shared=True))),
    (MOE, changed(job(expert=4), unfused=("rotary", "router", "loss"))),
    (replace(DENSE, attention_gate="element"), job()),
    (CHOOSING, job(context=2, context_kind="all-gather")),
    (BLOCKS, job(pipeline=2, virtual_pipeline=2)),
    (DELTA, job(pipeline=2, layers_per_stage=(5, 3), expert=4)),
]


def _written(case: tuple[object, TrainingJob], form: str) -> str:
    arch, one = case
    cluster = machine(2)
    # Only the head of an export is of the step, and these GPUs have no block scales.
    step = simulate(changed(one, dtype="bf16", dtype_also=()), arch, cluster)  # type: ignore[arg-type]
    return export(Candidate({}, one, step, 0.0, 0.0), arch, Hosts.of(one, cluster), form)  # type: ignore[arg-type]


CLUSTER = """\
railwright: 1
name: small
cluster: {servers: 1, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}"""


@pytest.mark.parametrize("case", CASES, ids=lambda c: "")
def test_names_are_the_frameworks_own(case: tuple[object, TrainingJob]) -> None:
    lines = [x for x in _written(case, "megatron").splitlines() if not x.startswith("#")]
    found = {name for line in lines for name in re.findall(r"--([a-z0-9-]+)", line)}
    assert found <= set(KNOWN["megatron"]["names"])
    for line in lines:
        name, _, value = line.removeprefix("--").partition(" ")
        allowed = KNOWN["megatron"].get(name.replace("-", "_"))
        assert allowed is None or value in allowed

    tree = ast.parse(_written(case, "nemo"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert {k.arg for call in calls for k in call.keywords} <= set(KNOWN["nemo"]["names"])

    written = tomllib.loads(_written(case, "torchtitan"))
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
    lines = _written(case, "megatron").splitlines()
    assert [x for x in lines if re.match("--(bf16|fp16|fp8|fp4)", x)] == arguments
    text = _written(case, "nemo")
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    given = {k.arg: ast.literal_eval(k.value) for call in calls for k in call.keywords}
    assert {k: v for k, v in given.items() if re.match("bf16|fp16|fp8|fp4|tp_only", str(k))} == fields
    titan = tomllib.loads(_written(case, "torchtitan"))
    assert titan.get("model", {}).get("converters", []) == converters
    assert ("# nvfp4: torchtitan" in _written(case, "torchtitan")) == (asked["dtype"] == "nvfp4")


def test_the_loss_is_fused_as_each_framework_takes_it() -> None:
    """Transformer Engine's kernel in NeMo; Megatron-LM's own where pretrain_gpt.py refuses that one."""
    plain = _written((DENSE, job()), "megatron")
    assert "--cross-entropy-loss-fusion\n--cross-entropy-fusion-impl native" in plain
    assert "# the loss is predicted as Transformer Engine's kernel" in plain
    assert "cross_entropy_fusion_impl='te'" in _written((DENSE, job()), "nemo")


def test_nemo_is_told_what_megatron_is() -> None:
    """Capacity, hidden all-to-alls and offload are fields there where they are arguments here."""
    turns = changed(job(expert=4, overlap=Overlap(ep=True)), expert_capacity=1.5)
    for field in ("overlap_moe_expert_parallel_comm=True", "moe_expert_capacity_factor=1.5"):
        assert field in _written((MOE, turns), "nemo")
    assert "--overlap-moe-expert-parallel-comm" in _written((MOE, turns), "megatron")
    assert "--delay-wgrad-compute" in _written((MOE, turns), "megatron")
    held = _written((DENSE, job(offload=("activations", "optimizer"))), "nemo")
    assert "cpu_offloading_num_layers=7" in held
    assert "optimizer_cpu_offload=True" in held


@pytest.mark.parametrize("layout", [{"pipeline": 2}, {"recompute": "full"}])
def test_turns_that_megatron_refuses_are_a_comment(layout: dict[str, object]) -> None:
    """overlap_moe_expert_parallel_comm wants virtual stages beside a pipeline, and no recomputed layers."""
    case = (MOE, job(expert=4, overlap=Overlap(ep=True), **layout))
    for form in ("megatron", "nemo"):
        text = _written(case, form)
        assert "# hidden expert all-to-all: Megatron's overlap_moe_expert_parallel_comm" in text
        assert "--overlap-moe" not in text
        assert "overlap_moe_expert_parallel_comm=" not in text


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan"])
def test_a_placement_says_what_the_launcher_must_do(form: str) -> None:
    """Ranks of a server are consecutive in torchrun, so no order of hosts spreads an expert group."""
    across = _written((MOE, job(expert=2, tensor=2, placement="expert-across")), form)
    assert "no order of hosts gives it" in across
    assert "srun --distribution=plane=2" in across
    spread = _written((MOE, job(expert=2, placement="spread")), form)
    assert "order the hosts so that neighbours are on different leaves" in spread
    assert "placement" not in _written((MOE, job(expert=2)), form)


def test_what_torchtitan_cannot_is_a_comment() -> None:
    text = _written((DENSE, job(tensor=2, overlap=OFF, offload=("activations",))), "torchtitan")
    for said in ("splits norms and residuals", "no switch for it", "offloaded activations"):
        assert said in text


def test_what_megatron_refuses_is_not_written() -> None:
    """Offloaded activations need one stage and no recomputation, overlapped products sequence parallelism."""
    staged = _written((DENSE, job(offload=("activations",), pipeline=2)), "megatron")
    assert "--cpu-offloading-num-layers" not in staged
    assert "allows no pipeline" in staged
    alone = _written((DENSE, job(offload=("activations",))), "megatron")
    assert "--cpu-offloading-num-layers 7" in alone
    # a field, but no argument: arguments.py excludes it and sets it where layers are named
    assert "--cpu-offloading\n" not in alone
    plain = _written((DENSE, job(overlap=ON, tensor=2)), "megatron")
    assert "--tp-comm-overlap" not in plain
    assert "needs sequence parallelism" in plain


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
    text = _written((arch, job(**layout)), "megatron")  # type: ignore[arg-type]
    [line] = [line for line in text.splitlines() if line.startswith("--hybrid-layer-pattern")]
    assert line.split(" ", 1)[1].strip("'") == written
    for other in ("num-virtual-stages", "pipeline-num-layers", "pipeline-model-parallel-layout"):
        assert f"--{other}" not in text
    assert "pretrain_hybrid.py" in text
    assert "pretrain_hybrid.py" in _written((arch, job(**layout)), "nemo")  # type: ignore[arg-type]
    other = _written((arch, job()), "torchtitan")
    assert "torchtitan does not run this: layers that are not attention" in other


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
        found = [line for line in _written((arch, job()), form).splitlines() if "multi-token" in line]
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
    text = _written((DENSE, changed(job(zero=zero), master="remainder", **states)), "megatron")
    found = [line for line in text.splitlines() if "master weights as remainders" in line]
    assert bool(found) == bool(told)
    assert all(line.endswith(told) for line in found)


def test_torchtitan_cuts_the_model_as_predicted() -> None:
    """Its own count of stages, ceil((layers + first less + last less) / layers per stage), is the layout's;
    uneven pieces are named module by module."""
    for pipeline, virtual in ((2, 1), (4, 1), (2, 2), (4, 2)):
        one = job(pipeline=pipeline, virtual_pipeline=virtual)
        p = tomllib.loads(_written((DENSE, one), "torchtitan"))["parallelism"]
        less = sum(p[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last"))
        assert -(-(DENSE.layers + less) // p["pipeline_parallel_layers_per_stage"]) == pipeline * virtual
    uneven = tomllib.loads(_written((DENSE, job(pipeline=2, layers_per_stage=(5, 3))), "torchtitan"))
    assert uneven["parallelism"]["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4"],
        ["layers.5", "layers.6", "layers.7", "norm", "output"],
    ]
    assert "pipeline_parallel_layers_per_stage" not in uneven["parallelism"]


def test_torchtitan_uses_every_gpu_once() -> None:
    """replicate x shard x tensor x context x pipeline is the number of GPUs."""
    for case in CASES:
        p = tomllib.loads(_written(case, "torchtitan"))["parallelism"]
        used = p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"]
        used *= p["tensor_parallel_degree"] * p["context_parallel_degree"] * p["pipeline_parallel_degree"]
        assert used == 16


@pytest.mark.parametrize(
    ("context", "shard", "written"),
    [(1, None, (1, 16)), (1, 4, (4, 4)), (4, None, (1, 4)), (4, 8, (2, 2)), (4, 4, (4, 1)), (2, 16, (1, 8))],
)
def test_torchtitan_shards_over_context_ranks_too(
    context: int, shard: int | None, written: tuple[int, int]
) -> None:
    """`shard` counts all ranks that share a copy, torchtitan's degree those of data parallelism alone."""
    text = _written((DENSE, job(zero=3, context=context, shard=shard)), "torchtitan")
    p = tomllib.loads(text)["parallelism"]
    assert (p["data_parallel_replicate_degree"], p["data_parallel_shard_degree"]) == written
    assert "sharded over" not in text


def test_torchtitan_cannot_shard_over_some_context_ranks() -> None:
    text = _written((DENSE, job(zero=3, context=4, shard=2)), "torchtitan")
    p = tomllib.loads(text)["parallelism"]
    assert (p["data_parallel_replicate_degree"], p["data_parallel_shard_degree"]) == (4, 1)
    assert "# parameters sharded over 2 ranks: torchtitan shards them over all 4 context ranks" in text


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
            {"cuda_graphs": ("step",)},
            ["--cuda-graph-impl full_iteration", "--no-check-for-nan-in-loss-and-grad"],
        ),
    ],
    ids=str,
)
def test_megatron_gets_types_of_states_and_graphs(asked: dict[str, object], arguments: list[str]) -> None:
    lines = _written((MOE, changed(job(), **asked)), "megatron").splitlines()
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
    found = FORMS["megatron"][1](one, DENSE, 1)
    assert [x for x in found if "-layers" in x or "-layout" in x] == lines
    assert any("virtual-stages" in x for x in found) == (one.layout.virtual_pipeline > 1 and not lines)
    text = "\n".join(FORMS["nemo"][1](one, DENSE, 1))
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    written = {str(k.arg): k.value for call in calls for k in call.keywords}
    assert {
        k: ast.literal_eval(v) for k, v in written.items() if re.search("_layers_in|_layout", k)
    } == fields


def test_nemo_is_told_what_it_takes_otherwise_by_default() -> None:
    """Megatron-FSDP wants its checkpoints' format; Megatron-Bridge takes experts whole unless told."""
    assert "save_ckpt_format='fsdp_dtensor'" in _written((DENSE, job(zero=2)), "nemo")
    assert "save_ckpt_format" not in _written((DENSE, job(zero=1)), "nemo")
    cut = _written((MOE, job(expert=2, tensor=2, sequence_parallel=True)), "nemo")
    assert "expert_tensor_parallel_size=2" in cut
    for form, words in (("nemo", "moe_grouped_gemm=True"), ("megatron", "--moe-grouped-gemm")):
        assert words in _written((MOE, job(expert=2)), form)
    lora = _written((DENSE, changed(job(), lora=Lora(rank=8, targets=("qkv", "mlp up")))), "nemo")
    assert "target_modules=['linear_qkv', 'linear_fc1']" in lora
    assert "dim=8" in lora


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
def test_megatron_is_told_its_connections(layout: dict[str, object], connections: str) -> None:
    """validate_args refuses a number above 1 beside tensor or context parallelism, and 1 beside FSDP."""
    lines = _written((MOE, job(**layout)), "megatron").splitlines()
    told = [line for line in lines if "CUDA_DEVICE_MAX_CONNECTIONS" in line]
    assert told == ([f"# {connections}"] if connections else [])


def test_torchtitan_compiles() -> None:
    """As it is predicted; asynchronous tensor parallelism is refused without."""
    both = tomllib.loads(_written((DENSE, job()), "torchtitan"))
    assert both["compile"] == {"enable": True, "components": ["model", "loss"]}
    for told in ({"unfused": ("loss",)}, {"software": "fsdp-2024"}):
        eager = tomllib.loads(_written((DENSE, changed(job(), **told)), "torchtitan"))
        assert eager["compile"]["components"] == ["model"]


@pytest.mark.parametrize("text", ["true", "123", "null", "1e3", 'a "b"', "a\\b", "a: b", "a #b", "a b", "07"])
def test_a_studys_text_is_read_as_it_was(text: str) -> None:
    """Names and paths of models that YAML would read as something else are quoted."""
    named = job(tensor=2).model_copy(update={"name": text, "model": f"{text}/config.json"})
    assert load_study_text("\n".join([CLUSTER, *study(named, DENSE, Hosts(4))])).jobs == (named,)
