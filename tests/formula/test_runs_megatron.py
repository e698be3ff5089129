"""What Megatron-LM's arguments say, wherever they stand: scripts, lists, YAML and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from railwright.errors import RailwrightError
from railwright.model import load_model
from railwright.runs import Asked, Run, read_run
from railwright.spec.training import TrainingJob

SCRIPT = (Path(__file__).parent.parent / "data" / "runs" / "pretrain_mixtral.sh").read_text()
DENSE = """\
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 128256
--seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --train-iters 100 --bf16
--cross-entropy-loss-fusion --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
--attention-dropout 0 --hidden-dropout 0
"""


def read(text: str, file: str = "run.args", **asked: Any) -> TrainingJob:
    return TrainingJob.model_validate(run(text, file, **asked).fields)


def run(text: str, file: str = "run.args", **asked: Any) -> Run:
    return read_run(text, file, Asked(**{"gpus": 64, **asked}))


def test_a_script_is_followed_from_its_variables_to_what_it_launches() -> None:
    found = run(SCRIPT, "pretrain_mixtral.sh", gpus=None)
    job = TrainingJob.model_validate(found.fields)
    assert (job.name, job.model, job.gpus) == ("pretrain_mixtral", "mixtral-8x7b", 32)
    assert (job.layout.tensor, job.layout.expert, job.layout.expert_tensor, job.layout.zero) == (2, 8, 1, 1)
    assert job.layout.sequence_parallel
    assert (job.dtype, job.unfused, job.tokens) == ("bf16", (), 1e6 * 4096)
    # what it hands on and was not looked at is told, what changes nothing is not
    assert found.notes == ("not read: --use-tp-pp-dp-mapping",)


def test_variables_that_are_set_outside_decide_as_they_would() -> None:
    job = read(SCRIPT, "pretrain_mixtral.sh", gpus=None, variables={"TP": "4", "1": "fp8"})
    assert (job.layout.tensor, job.dtype, job.amax_over) == (4, "fp8", "stage")


def test_launches_inside_strings_and_heredocs_are_found() -> None:
    launch = 'srun bash -c "cd x; torchrun --nnodes 2 --nproc-per-node 8 y.py $ARGS"\n'
    quoted = f'ARGS="{DENSE}"\n{launch}'.replace("\n--", " --")
    heredoc = """\
ARGS="$1"
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes 2
#SBATCH --gpus-per-node 8
srun python y.py ${ARGS}
EOF
""".replace("$1", DENSE.replace("\n", " "))
    for text in (quoted, heredoc):
        job = read(text, "x.sh", gpus=None)
        assert (job.model, job.gpus, job.sequence) == ("llama-3.1-8b", 16, 8192)


@pytest.mark.parametrize(
    "told", ["echo $run", 'echo "$run"', 'printf "%s" "$run"', "echo running: ${run} >> log"]
)
def test_a_script_that_prints_its_command_launches_it_once(told: str) -> None:
    """training/benchmarks/llama3_8B/megatron/pretrain_llama3.sh of FlagPerf does so."""
    words = DENSE.replace("\n", " ")
    text = f'run="torchrun --nproc_per_node 8 pretrain_gpt.py {words}"\n{told}\neval $run\n'
    assert read(text, "x.sh", gpus=None) == read(text.replace(f"{told}\n", ""), "x.sh", gpus=None)
    # a script that only prints it says as much
    assert read(text.replace("eval $run\n", ""), "x.sh", gpus=None).gpus == 8


def test_yaml_and_a_logs_list_say_the_same_as_the_arguments() -> None:
    pairs = [
        one.split(None, 1) for one in DENSE.replace("\n", " ").replace(" --", "\n--").strip().splitlines()
    ]
    yaml = "ENV_VARS: {LAYERS: 32}\nMODEL_ARGS:\n" + "".join(
        f"  {name}: {rest[0].strip() if rest else 'true'}\n" for name, *rest in pairs
    ).replace("--num-layers: 32", "--num-layers: ${LAYERS}")
    assert read(yaml, "x.yaml") == read(DENSE, "x.args")

    negated = {"disable_bias_linear": ("add_bias_linear", "False")}
    rows = []
    for name, *rest in pairs:
        own = name.removeprefix("--").replace("-", "_")
        own, value = negated.get(own, (own, rest[0].strip() if rest else "True"))
        rows.append(f"0:   {own} {'.' * (48 - len(own))} {value}")
    rows += ["  fp8 ................ None", "  world_size ......... 64", "  fp16 .............. False"]
    log = "\n".join(
        [
            "starting",
            f"{'-' * 24} arguments {'-' * 24}",
            *rows,
            f"{'-' * 20} end of arguments {'-' * 21}",
            "x .. 1",
        ]
    )
    assert read(log, "x.args", gpus=None, name="x") == read(DENSE, "x.args")
    # a list has number formats by Torch's names (arguments.py: map_dtype)
    kept = ["  use_precision_aware_optimizer ... True", "  exp_avg_dtype .... torch.bfloat16"]
    marked = log.replace("  fp16 ..", "\n".join([*kept, "  fp16 .."]))
    assert read(marked, "x.args", gpus=None).moment_dtype == "bf16"


LLAMA = load_model("llama-3.1-8b")


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("--pipeline-model-parallel-size 4", {"pipeline": 4}),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            {"pipeline": 4, "virtual_pipeline": 4},
        ),
        (
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            {"pipeline": 4, "virtual_pipeline": 2},
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5 "
            "--decoder-last-pipeline-num-layers 7",
            {"pipeline": 4, "layers_per_stage": (5, 10, 10, 7)},
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*7|(t*8|)*2t*9L'",
            {"pipeline": 2, "virtual_pipeline": 2, "layers_per_stage": (7, 8, 8, 9)},
        ),
        ("--recompute-activations", {"recompute": "selective"}),
        (
            "--recompute-granularity selective --recompute-modules core_attn mlp",
            {"recompute": "selective", "recompute_modules": ("core_attn", "mlp")},
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            {"recompute": "full"},
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            {"recompute": "full", "recompute_layers": 3},
        ),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"context": 2, "context_kind": "all-to-all"}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"zero": 3}),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero": 3, "reshard": False}),
        ("--num-distributed-optimizer-instances 4", {"shard": 16}),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 1.0", {"offload": ("optimizer",)}),
    ],
)
def test_layouts(added: str, expected: dict[str, Any]) -> None:
    layout = read(f"{DENSE} {added}").layout
    plain = read(DENSE).layout.model_dump()
    assert layout.model_dump() == plain | expected


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (
            "--fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather",
            {"dtype": "fp8", "amax_over": "none"},
        ),
        ("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", {"dtype": "mxfp8"}),
        ("--fp8-format e4m3 --fp8-recipe blockwise", {"dtype": "fp8_block"}),
        ("--fp4-format e2m1", {"dtype": "nvfp4"}),
        ("--grad-reduce-in-bf16", {"gradient_dtype": "bf16"}),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype bf16",
            {"moment_dtype": "bf16", "master": "remainder"},
        ),
        ("--no-rope-fusion", {"unfused": ("rotary",)}),
        ("--no-bias-swiglu-fusion", {"unfused": ("activation",)}),
        (
            "--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp",
            {"cuda_graphs": ("attention", "mlp")},
        ),
        ("--cuda-graph-impl full_iteration", {"cuda_graphs": ("step",)}),
        ("--num-workers 8", {"data": {"workers": 8}}),
        ("--ddp-bucket-size 768000000", {"ddp_bucket": 768e6}),
        ("--optimizer muon --muon-num-ns-steps 6", {"optimizer": "muon", "muon": {"steps": 6}}),
        ("--global-batch-size 128", {"global_batch": 128, "tokens": 100 * 128 * 8192}),
    ],
)
def test_formats_kernels_and_batches(added: str, expected: dict[str, Any]) -> None:
    # the last of two arguments of one name counts
    base = read(DENSE).model_dump()
    changed = {
        key: base[key] | value if isinstance(value, dict) else value for key, value in expected.items()
    }
    assert read(f"{DENSE} {added}").model_dump() == base | changed


@pytest.mark.parametrize(
    ("added", "narrow"),
    [
        ("--fp8-recipe mxfp8", False),
        ("--fp8-recipe delayed", False),
        ("--fp8-recipe delayed --fp8-param-gather", None),
        ("--fp8-recipe blockwise", None),  # has 16 bits whatever is asked for
        # nor could Megatron-LM do without them here
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", None),
        ("--fp8-recipe mxfp8 --optimizer-cpu-offload", None),
        ("--fp8-recipe delayed --optimizer-cpu-offload", False),
    ],
)
def test_weights_have_16_bits_beside_those_in_8_unless_megatron_is_told(
    added: str, narrow: bool | None
) -> None:
    """`--fp8-param-gather` is off by default."""
    assert read(f"{DENSE} --fp8-format hybrid {added}").fp8_param_gather is narrow


@pytest.mark.parametrize(("gpus", "narrow"), [(8, False), (16, None)])
def test_one_replica_needs_no_distributed_optimizer_for_weights_in_8_bits(
    gpus: int, narrow: bool | None
) -> None:
    """Nor has it 8 bits alone without the argument; several replicas never have."""
    text = DENSE.replace("--use-distributed-optimizer", "--tensor-model-parallel-size 8")
    assert read(f"{text} --fp8-format hybrid", gpus=gpus).fp8_param_gather is narrow


def test_experts_that_get_one_copy_a_server_need_to_know_the_servers() -> None:
    text = SCRIPT.replace("--moe-token-dispatcher-type alltoall", "--moe-token-dispatcher-type flex")
    assert read(text, "x.sh").expert_nodes == 1  # eight ranks that are not cut: one server of 8
    assert read(text, "x.sh", per_server=4).expert_nodes == 2
    limited = text.replace("--moe-router-fusion", "--moe-router-num-groups 8 --moe-router-group-topk 4")
    assert read(limited, "x.sh", per_server=1).expert_nodes == 4


def test_a_model_that_is_not_bundled_becomes_a_config_json() -> None:
    small = DENSE.replace("--num-layers 32", "--num-layers 12")
    found = run(small)
    assert found.fields["model"] == ""
    assert found.config is not None
    assert found.config["model_type"] == "llama"
    assert (found.arch.layers, found.arch.vocab, found.arch.ffn) == (12, 128256, 14336)
    # widths that follow from others (arguments.py): 4 h, or two thirds of that in 64s where gated
    gated = run(small.replace("--ffn-hidden-size 14336", "")).arch
    assert gated.ffn == 10880
    gpt = run(
        "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --max-position-embeddings 1024 "
        "--tokenizer-type GPT2BPETokenizer --seq-length 1024 --global-batch-size 64 --bf16"
    )
    assert gpt.fields["model"] == "gpt2"


def test_leading_dense_layers_and_prediction_layers_are_read() -> None:
    text = """--num-layers 4 --hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --swiglu
    --multi-latent-attention --q-lora-rank 512 --kv-lora-rank 256 --qk-head-dim 64 --qk-pos-emb-head-dim 32
    --v-head-dim 64 --num-experts 16 --moe-layer-freq ([0]*1+[1]*3) --moe-ffn-hidden-size 512
    --moe-router-topk 4 --moe-shared-expert-intermediate-size 1024 --mtp-num-layers 1 --bf16
    --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --qk-layernorm
    --position-embedding-type rope --seq-length 4096 --global-batch-size 64 --vocab-size 32000"""
    arch = run(text).arch
    assert (arch.dense_layers, arch.shared_experts, arch.mtp_layers, arch.q_lora) == (1, 2, 1, 512)


def test_dropout_is_megatrons_own_where_nothing_is_told() -> None:
    told = "--attention-dropout 0 --hidden-dropout 0"
    assert told in DENSE
    for text, shares in (
        (DENSE, (None, None)),
        (DENSE.replace(told, ""), (0.1, 0.1)),
        (f"{DENSE} --hidden-dropout 0.2", (0.2, None)),
        (DENSE.replace(told, "--hidden-dropout 0"), (None, 0.1)),
    ):
        fields = run(text).fields
        assert (fields.get("hidden_dropout"), fields.get("attention_dropout")) == shares


@pytest.mark.parametrize(
    ("before", "argument", "backend"),
    [
        ("", "", None),
        ("", "--attention-backend auto", None),
        ("", "--attention-backend fused", "fused"),
        ("", "--attention-backend flash", "flash"),
        ("export NVTE_FUSED_ATTN=0\n", "", "flash"),
        ("export NVTE_FLASH_ATTN=0\n", "", "fused"),
        ("export NVTE_FUSED_ATTN=1\n", "", None),
        # an argument decides: Megatron-LM sets the variables itself
        ("export NVTE_FUSED_ATTN=0\n", "--attention-backend fused", "fused"),
    ],
)
def test_whose_kernel_runs_attention(before: str, argument: str, backend: str | None) -> None:
    arguments = " ".join(f"{DENSE} {argument}".split())
    found = read_run(f"{before}torchrun pretrain_gpt.py {arguments}", "run.sh", Asked())
    assert found.fields.get("attention_backend") == backend


def test_dropout_of_all_is_refused() -> None:
    with pytest.raises(RailwrightError, match=r"--hidden-dropout: 1 is no share from 0 to below 1"):
        run(f"{DENSE} --hidden-dropout 1")


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("--rampup-batch-size 8 8 1000", "the batch grows to 64"),
        ("--cp-comm-type a2a+p2p --context-parallel-size 2", "a2a+p2p is not modelled"),
        ("--pipeline-model-parallel-size 3 --num-layers 33 --vocab-size 100", "no multiple of the 3"),
        ("--optimizer sgd", "optimizer sgd is not modelled"),
        ("--deterministic-mode", "deterministic kernels"),
        ("--attention-backend unfused", "attention that writes its scores (unfused)"),
        ("--transformer-impl local", "--transformer-impl local: local layers write the scores of attention"),
        ("--empty-unused-memory-level 1", "unused memory goes back to the driver every step"),
        ("--no-gradient-accumulation-fusion", "without gradient accumulation fusion"),
        ("--recompute-granularity selective --recompute-modules new_module", "new_module is not modelled"),
        ("--tp-comm-unheard-of", "not read: --tp-comm-unheard-of"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", "50 % of the optimizer"),
        ("--ddp-num-buckets 4", "so many buckets of gradients (--ddp-num-buckets)"),
    ],
)
def test_what_is_read_otherwise_or_not_is_told(added: str, told: str) -> None:
    assert any(told in note for note in run(f"{DENSE} {added}").notes)
    assert not run(DENSE).notes


def test_settings_at_megatrons_default_are_not_told() -> None:
    added = "--transformer-impl transformer_engine --empty-unused-memory-level 0"
    assert run(f"{DENSE} {added}").notes == run(DENSE).notes


def test_layers_of_several_kinds_are_the_named_models() -> None:
    """As those of a hybrid pattern; attention to chosen keys alone (dsa) is of one kind."""
    added = "--experimental-attention-variant gated_delta_net --linear-attention-freq 4"
    text = f"{DENSE} {added} --attention-output-gate"
    found = run(text, model="qwen3-next-80b-a3b")
    assert found.fields["model"] == "qwen3-next-80b-a3b"
    assert run(f"{DENSE} --experimental-attention-variant dsa").fields["model"] == "llama-3.1-8b"


def test_a_module_that_is_launched_is_the_program() -> None:
    words = " ".join(DENSE.split())
    launched = f"python -m torch.distributed.run --nproc_per_node 8 -m my.pretrain {words}"
    assert run(launched, "x.sh", gpus=None).fields["gpus"] == 8


def test_parameters_of_virtual_stages_are_gathered_at_once_unless_a_script_says_no() -> None:
    """arguments.py: align_param_gather is on by default, and off without virtual stages."""
    staged = f"{DENSE} --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4"
    assert read(staged).overlap.aligned
    assert not read(f"{staged} --no-align-param-gather").overlap.aligned
    assert read(f"{DENSE} --pipeline-model-parallel-size 4 --no-align-param-gather").overlap.aligned
