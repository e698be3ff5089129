"""What the `run_config.yaml` of Megatron-Bridge's checkpoints says."""

from __future__ import annotations

from typing import Any

from railwright.runs import Asked, read_run
from railwright.spec.training import TrainingJob

CONFIG = """\
_target_: megatron.bridge.training.config.ConfigContainer
model:
  num_layers: 80
  hidden_size: 8192
  ffn_hidden_size: 28672
  num_attention_heads: 64
  num_query_groups: 8
  activation_func: {_target_: torch.nn.functional.silu, _call_: false}
  gated_linear_unit: true
  normalization: RMSNorm
  add_bias_linear: false
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  vocab_size: 128256
  seq_length: 8192
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  context_parallel_size: 2
  cp_comm_type: p2p
  sequence_parallel: true
  attention_dropout: 0.0
  hidden_dropout: 0.0
  apply_rope_fusion: true
  bias_activation_fusion: true
  cross_entropy_loss_fusion: true
  gradient_accumulation_fusion: true
  cuda_graph_impl: none
  cuda_graph_scope: [{_target_: x.CudaGraphScope, _call_: true, _args_: [1], _name_: attn}]
  num_moe_experts: null
train: {micro_batch_size: 1, global_batch_size: 128, train_iters: 50}
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: false
  overlap_param_gather: false
  grad_reduce_in_fp32: false
optimizer:
  optimizer: adam
  use_precision_aware_optimizer: true
  exp_avg_dtype: {_target_: torch.bfloat16, _call_: false}
dataset: {seq_length: 4096, num_workers: 2}
mixed_precision: bf16_mixed
comm_overlap: {tp_comm_overlap: true, overlap_grad_reduce: true, overlap_param_gather: true}
env_vars: {CUDA_LAUNCH_BLOCKING: 1}
"""


def read(text: str, **asked: Any) -> tuple[TrainingJob, tuple[str, ...]]:
    found = read_run(text, "run_config.yaml", Asked(**{"gpus": 64, **asked}))
    return TrainingJob.model_validate(found.fields), found.notes


def test_sections_are_megatron_cores_own() -> None:
    job, notes = read(CONFIG)
    assert (job.model, job.sequence, job.micro_batch, job.global_batch) == ("llama-3.1-70b", 4096, 1, 128)
    assert (job.layout.tensor, job.layout.pipeline, job.layout.virtual_pipeline) == (4, 4, 5)
    assert (job.layout.context, job.layout.context_kind, job.layout.sequence_parallel) == (2, "ring", True)
    # overlaps are set by their own section, which overrules the others
    assert (job.overlap.tp, job.overlap.dp, job.layout.zero) == (True, True, 1)
    assert (job.gradient_dtype, job.moment_dtype, job.master) == ("bf16", "bf16", "remainder")
    assert (job.unfused, job.cuda_graphs, job.lora, job.launch_blocking) == ((), (), None, True)
    assert job.tokens == 50 * 128 * 4096
    assert notes == ()


def test_buckets_of_gradients_have_the_size_it_says() -> None:
    assert read(CONFIG)[0].ddp_bucket is None
    assert read(CONFIG.replace("ddp:\n", "ddp:\n  bucket_size: 768000000\n"))[0].ddp_bucket == 768e6


def test_types_functions_and_enumerations_are_read_by_their_names() -> None:
    graphs = CONFIG.replace("cuda_graph_impl: none", "cuda_graph_impl: transformer_engine")
    assert read(graphs)[0].cuda_graphs == ("attention",)
    for name, dtype in {
        "bf16_with_mxfp8_mixed": "mxfp8",
        "bf16_with_fp8_current_scaling_mixed": "fp8",
    }.items():
        assert read(CONFIG.replace("bf16_mixed", name))[0].dtype == dtype
    whole = "{bf16: true, fp8: hybrid, fp8_recipe: delayed}"
    job = read(CONFIG.replace("bf16_mixed", whole))[0]
    assert (job.dtype, job.amax_over) == ("fp8", "stage")


def test_adapters() -> None:
    peft = "peft: {_target_: x.LoRA, dim: 16, dropout: 0.1, target_modules: [linear_qkv, linear_proj]}\n"
    lora = read(CONFIG + peft)[0].lora
    assert lora is not None
    assert (lora.rank, lora.targets, lora.dropout) == (16, ("qkv", "attention output"), 0.1)
    job, notes = read(CONFIG + "peft: {_target_: x.Other}\n")
    assert job.lora is None
    assert any("adapters of this kind are not modelled" in note for note in notes)


def test_gpus_are_not_in_it() -> None:
    job, notes = read(CONFIG, gpus=None)
    assert job.gpus is None
    assert any("--gpus" in note for note in notes)
