"""What the Trainer's arguments, LLaMA-Factory's and Axolotl's YAML say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from railwright.errors import RailwrightError
from railwright.runs import Asked, read_run
from railwright.spec.training import TrainingJob

FACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,k_proj,v_proj,o_proj
deepspeed: examples/deepspeed/ds_z3_config.json
template: llama3
cutoff_len: 2304
packing: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-4
max_steps: 100
bf16: true
"""
AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3.1-8B
adapter: qlora
lora_r: 32
lora_target_linear: true
lora_dropout: 0.05
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
max_steps: 10
optimizer: adamw_torch_fused
bf16: auto
gradient_checkpointing: true
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_offload_params: false
"""
TRAINER = """\
MODEL=Qwen/Qwen3-8B
torchrun --nproc_per_node 8 --nnodes 2 finetune.py --model_name_or_path $MODEL --model_max_length 2048 \\
  --fp16 True --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --packing True \\
  --gradient_checkpointing True --deepspeed "../config/ds.json" --max_steps 100
"""


RELEASE = "attention is PyTorch's own choice, predicted as of 2.11"


def read(text: str, file: str = "run.yaml", **asked: Any) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job, and what is told but for the release that is taken (`test_attention_s_kernel`)."""
    found = read_run(text, file, Asked(**{"gpus": 8, **asked}))
    notes = tuple(note for note in found.notes if not note.startswith(RELEASE))
    return TrainingJob.model_validate(found.fields), notes


def test_llama_factory() -> None:
    job, notes = read(FACTORY)
    assert (job.model, job.gpus, job.sequence, job.micro_batch, job.global_batch) == (
        "llama-3.1-8b",
        8,
        2304,
        2,
        64,
    )
    assert (job.layout.zero, job.layout.recompute, job.software) == (3, "full", "deepspeed-2026")
    assert job.lora is not None
    assert (job.lora.rank, job.lora.targets) == (16, ("qkv", "attention output"))
    assert (job.unfused, job.chunked_loss, job.tokens) == (
        ("rotary", "norm", "activation"),
        None,
        100 * 64 * 2304,
    )
    assert notes == ("'examples/deepspeed/ds_z3_config.json' is not beside it: ZeRO-3 is read from its name",)


def test_axolotl() -> None:
    job, notes = read(AXOLOTL, gpus=4)
    assert (job.model, job.gpus, job.sequence, job.global_batch) == ("llama-3.1-8b", 4, 4096, 32)
    assert (job.layout.zero, job.layout.recompute, job.software) == (3, "full", "fsdp-2026-eager")
    assert job.lora is not None
    assert (job.lora.rank, job.lora.dropout, job.lora.frozen_dtype) == (32, 0.05, "nf4")
    (apart,) = notes
    assert apart.startswith("without fsdp_version: 2 FSDP gathers every adapter apart")
    for asked in ("fsdp_version: 2\n", "  fsdp_version: 2\n", "  version: 2\n"):
        assert read(AXOLOTL + asked, gpus=4)[1] == ()


def test_adapters_under_the_first_fsdp_keep_inputs_of_layers_computed_again() -> None:
    again = AXOLOTL if "gradient_checkpointing" in AXOLOTL else AXOLOTL + "gradient_checkpointing: true\n"
    job, notes = read(again, gpus=4)
    assert job.lora is not None
    assert job.lora.inputs_stay
    assert "inputs of layers are predicted to stay" in notes[-1]
    lora = read(again + "fsdp_version: 2\n", gpus=4)[0].lora
    assert lora is not None
    assert not lora.inputs_stay


def test_pytorchs_own_adam_is_read_by_its_name() -> None:
    without = "".join(line for line in AXOLOTL.splitlines(True) if "lora" not in line and "optim" not in line)
    for named, told in (("adamw_torch", True), ("adamw_torch_fused", False)):
        job, _ = read(f"{without}optimizer: {named}\n", gpus=4)
        assert ("optimizer" in job.unfused) == told


def test_all_weights_have_one_gather_a_layer_under_either_fsdp() -> None:
    without = "".join(line for line in AXOLOTL.splitlines(True) if "lora" not in line)
    assert read(without, gpus=4)[1] == ()


def test_a_trainers_script() -> None:
    ds = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    job, notes = read(TRAINER, "run.sh", gpus=None, beside={"../config/ds.json": json.dumps(ds)}.get)
    assert (job.model, job.gpus, job.global_batch, job.dtype) == ("qwen3-8b", 16, 128, "fp16")
    assert (job.layout.zero, job.layout.offload, job.layout.recompute) == (2, ("optimizer",), "full")
    assert notes == ()


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("torchrun --nproc_per_node 4", 4),
        ("deepspeed --num_gpus=8 --num_nodes 2", 16),
        ("accelerate launch --num_processes 32", 32),
        ("srun -N 2 --gres=gpu:8 python", 16),
        ("accelerate launch --num_machines 2 --num_processes 16", 16),
        ("#SBATCH -N 4\n#SBATCH --gres=gpu:h100:8\n#SBATCH --ntasks-per-node=1\nsrun python", 32),
    ],
)
def test_gpus_are_the_launchers(launcher: str, gpus: int) -> None:
    text = TRAINER.replace("torchrun --nproc_per_node 8 --nnodes 2", launcher).replace(
        "ds.json", "zero1.json"
    )
    assert read(text, "run.sh", gpus=None)[0].gpus == gpus


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("enable_liger_kernel: true", {"unfused": (), "chunked_loss": "liger"}),
        ("disable_gradient_checkpointing: true", {"recompute": "none"}),
        ("quantization_bit: 4", {"frozen": "nf4"}),
        ("lora_target: all", {"targets": ("qkv", "attention output", "mlp up", "mlp down")}),
        ("finetuning_type: full\nlora_rank: null", {"lora": None}),
        ("optim: adamw_8bit", {"moment_dtype": "fp8"}),
    ],
)
def test_what_a_line_more_changes(added: str, expected: dict[str, Any]) -> None:
    keys = {line.split(":")[0] for line in added.splitlines()}
    kept = [line for line in FACTORY.splitlines() if line.split(":")[0] not in keys]
    job, _ = read("\n".join([*kept, added]))
    lora = {} if job.lora is None else {"frozen": job.lora.frozen_dtype, "targets": job.lora.targets}
    assert {**job.model_dump(), **job.layout.model_dump(), **lora}.items() >= expected.items()


@pytest.mark.parametrize(
    ("without", "added", "told"),
    [
        ("packing", "", "without packing a sequence is as long as its samples"),
        ("max_steps", "", "one step is predicted"),
        ("lora_target", "lora_target: [q_proj, v_proj]", "of queries, keys and values some have adapters"),
        ("stage", "stage: dpo", "stage dpo is not modelled"),
        ("optim", "optim: adafactor", "optimizer adafactor is not modelled"),
        ("deepspeed", "", "every GPU holds a copy of the model"),
        ("x", "new_key: 1", "not read: new_key"),
    ],
)
def test_what_is_read_otherwise_is_told(without: str, added: str, told: str) -> None:
    kept = [line for line in FACTORY.splitlines() if line.split(":")[0] != without]
    assert any(told in note for note in read("\n".join([*kept, added]))[1])


@pytest.mark.parametrize(
    ("text", "asked", "told"),
    [
        (FACTORY, {"gpus": None}, "run.yaml:1: model_name_or_path: how many GPUs it runs on is not told"),
        (FACTORY.replace("meta-llama/Llama-3.1-8B-Instruct", "mine"), {}, "'mine' is no bundled model"),
        (FACTORY.replace("ds_z3_config", "my"), {}, "its name does not say ZeRO's stage"),
        (
            FACTORY,
            {"beside": {"examples/deepspeed/ds_z3_config.json": "["}.get},
            "no configuration of DeepSpeed's",
        ),
        (FACTORY.replace("q_proj,k_proj,v_proj,o_proj", "lm_head"), {}, "none of lm_head is a product"),
        (
            FACTORY.replace("finetuning_type: lora", "finetuning_type: oft"),
            {},
            "run.yaml:3: finetuning_type: 'oft' is not modelled; one of full, lora, qlora, freeze is",
        ),
        (AXOLOTL.replace("adapter: qlora", "adapter: mora"), {}, "run.yaml:2: adapter: 'mora' is not"),
        (FACTORY.replace("rank: 16", "rank: many"), {}, "run.yaml:4: lora_rank: 'many' is given"),
        (AXOLOTL.replace("sequence_len: 4096\n", ""), {}, "the tokens of a sequence are not given"),
    ],
)
def test_what_is_missing_or_wrong_has_its_place(text: str, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(RailwrightError) as error:
        read(text, **asked)
    assert told in str(error.value)
    assert str(error.value).startswith("run.yaml")


SHARDED = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: 1
max_steps: 100
bf16: true
optimizer: adamw_torch
fsdp_version: 2
"""


@pytest.mark.parametrize("before", ["", "fsdp_"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("activation_checkpointing: true", {"recompute": "full"}),
        ("reshard_after_forward: false", {"reshard": False}),
        ("offload_params: true", {"offload": ("weights",)}),
        ("sharding_strategy: SHARD_GRAD_OP", {"zero": 2}),
        ("sharding_strategy: 3", {"zero": 0}),
    ],
)
def test_keys_of_fsdps_section_mean_the_same_with_fsdp_before_them(
    before: str, line: str, expected: dict[str, Any]
) -> None:
    """Axolotl, utils/schemas/validation.py, check_fsdp_config_kwargs_prefix."""
    plain = read(SHARDED)[0].layout.model_dump()
    job, notes = read(f"{SHARDED}fsdp_config:\n  {before}{line}\n")
    assert (job.layout.model_dump(), notes) == (plain | {"zero": 3} | expected, ())


def test_fsdps_section_alone_shards_in_axolotl() -> None:
    """core/builders/base.py: `if self.cfg.fsdp_config or self.cfg.fsdp`."""
    text = SHARDED.replace("fsdp_version: 2\n", "fsdp_config:\n  reshard_after_forward: true\n")
    assert read(text)[0].layout.zero == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("totally_new_key: 7", "not read: fsdp_config.totally_new_key"),
        ("fsdp_mixed_precision_policy: fp16", "not read: fsdp_config.fsdp_mixed_precision_policy"),
        ("fsdp_limit_all_gathers: false", "FSDP gathers without a limit"),
        ("backward_prefetch: BACKWARD_POST", "FSDP gathers late in the backward pass"),
        ("fsdp_forward_prefetch: true", "FSDP's forward prefetch"),
    ],
)
def test_what_is_not_read_of_fsdps_section_is_told(line: str, told: str) -> None:
    (note,) = read(f"{SHARDED}fsdp_config:\n  {line}\n")[1]
    assert note.startswith(told)


@pytest.mark.parametrize(
    ("added", "loss", "told"),
    [
        (
            "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n",
            "liger",
            "Cut Cross",
        ),
        (
            "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
            "cut_cross_entropy: false\n",
            None,
            "",
        ),
        ("plugins: [axolotl.integrations.liger.LigerPlugin]\n", None, ""),
        (
            "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n",
            None,
            "what KernelsPlugin changes is not modelled",
        ),
    ],
)
def test_a_plugin_that_is_listed_does_what_it_does_by_default(
    added: str, loss: str | None, told: str
) -> None:
    """Axolotl, integrations/cut_cross_entropy/args.py: on once its plugin is there."""
    job, notes = read(SHARDED + added)
    assert job.chunked_loss == loss
    assert [note.startswith(told) for note in notes] == ([True] if told else [])


@pytest.mark.parametrize(
    "line", ["lora_modules_to_save: [embed_tokens, lm_head]", "additional_target: embed_tokens,lm_head"]
)
def test_modules_that_train_whole_beside_adapters_are_told(line: str) -> None:
    assert any(note.startswith("embed_tokens, lm_head train whole") for note in read(f"{FACTORY}{line}\n")[1])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("flash_attn: disabled", "attention that writes its scores (flash_attn: disabled)"),
        ("attn_implementation: eager", "attention that writes its scores (attn_implementation: eager)"),
        ("eager_attention: true", "attention that writes its scores (eager_attention: true)"),
        ("attn_implementation: flex_attention", "attention by flex_attention is predicted as Flash"),
        ("flash_attn: fa2", ""),
        ("attn_implementation: sdpa", ""),
        ("flash_attn: fa3", "attention by fa3 is predicted as cuDNN's"),
    ],
)
def test_attention_that_is_predicted_as_another_is_told(line: str, told: str) -> None:
    notes = read(f"{FACTORY}{line}\n")[1]
    assert [note for note in notes if "attention" in note and note.startswith(told)] == (
        [note for note in notes if "attention" in note]
    )
    assert any("attention" in note for note in notes) == bool(told)


@pytest.mark.parametrize(
    ("line", "backend", "release"),
    [
        ("", None, True),
        ("attn_implementation: sdpa", None, True),
        ("flash_attn: auto", None, True),
        ("torch_compile: true", "fused", True),  # no era of 2026 leaves the loss as it is
        ("flash_attn: fa2", "flash", False),
        ("flash_attention: true", "flash", False),
        ("attn_implementation: flash_attention_2", "flash", False),
        ("attn_implementation: flash_attention_3", "fused", False),
        ("attn_implementation: kernels-community/vllm-flash-attn3", "fused", False),
        ("flex_attention: true", "flash", False),
        ("attn_implementation: eager", None, False),
    ],
)
def test_attention_s_kernel(line: str, backend: str | None, release: bool) -> None:
    """What a script names; left to PyTorch, cuDNN's on Hopper since 2.11 (sdp_utils.cpp,
    check_prefer_cudnn_attention; transformers pull request 48163)."""
    found = read_run(f"{SHARDED}{line}\n", "run.yaml", Asked(gpus=8))
    assert TrainingJob.model_validate(found.fields).attention_backend == backend
    told = [note for note in found.notes if note.startswith(RELEASE)]
    assert len(told) == release
    assert not told or told[0].endswith(
        "--software fsdp-2024-eager" if "compile" not in line else "attention_backend: flash"
    )


def test_attention_with_sinks_is_no_kernel_of_pytorchs() -> None:
    """transformers, models/gpt_oss/modeling_gpt_oss.py: _supports_sdpa = False."""
    text = SHARDED.replace("meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b")
    for line, told in (("", True), ("attn_implementation: flash_attention_3", False)):
        notes = read_run(f"{text}{line}\n", "run.yaml", Asked(gpus=8, model="gpt-oss-20b")).notes
        assert any(note.startswith("attention with sinks writes its scores") for note in notes) is told
        assert not any(note.startswith(RELEASE) for note in notes)


def test_without_a_format_the_trainer_runs_in_fp32_and_axolotl_in_bf16() -> None:
    for text, file, told in (
        (TRAINER.replace("--fp16 True ", "").replace("ds.json", "z2.json"), "run.sh", True),
        (TRAINER.replace("--fp16 True", "--bf16 False").replace("ds.json", "z2.json"), "run.sh", True),
        (FACTORY.replace("bf16: true\n", ""), "run.yaml", True),
        (SHARDED.replace("bf16: true\n", ""), "run.yaml", False),
    ):
        notes = read(text, file)[1]
        assert any(note.startswith("neither bf16 nor fp16 is asked for") for note in notes) is told


def test_blocks_of_a_text_are_packed_sequences() -> None:
    """transformers, examples/pytorch/language-modeling/run_clm.py: texts are joined and cut."""
    text = TRAINER.replace("--model_max_length", "--block_size").replace("--packing True", "")
    job, notes = read(text.replace("ds.json", "z2.json"), "run.sh")
    assert (job.sequence, [note for note in notes if "packing" in note]) == (2048, [])


def test_layers_that_are_kept_on_the_host_to_be_computed_again_are_told() -> None:
    job, notes = read(f"{SHARDED}gradient_checkpointing: offload\n")
    assert job.layout.recompute == "full"
    assert any("goes to the host" in note for note in notes)


def test_pure_bf16_under_fsdp_has_no_master_weights() -> None:
    whole = AXOLOTL.replace("adapter: qlora\nlora_r: 32\nlora_target_linear: true\nlora_dropout: 0.05\n", "")
    assert read(whole.replace("bf16: auto", "bf16: full"))[0].master == "none"
    assert read(whole)[0].master == "fp32"
    away = whole.replace("fsdp_offload_params: false", "fsdp_offload_params: true")
    assert read(away.replace("bf16: auto", "bf16: full"))[0].master == "fp32"
