"""Words of other frameworks for what a study says, and what to write instead.

Nearest spellings do not find 'tp' in 'tensor'.  Sources: Megatron-LM, training/arguments.py;
torchtitan, config/job_config.py; Hugging Face, training_args.py; DeepSpeed's configuration; PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping


def _of(words: Mapping[str, str]) -> dict[str, str]:
    """One entry for each of the words that stand, with blanks between them, before what they mean."""
    return {word: said for many, said in words.items() for word in many.split()}


_SIZES = {
    "tp tensor_parallel tensor_model_parallel_size tensor_parallel_degree": "write 'tensor'",
    "pp pipeline_parallel pipeline_model_parallel_size pipeline_parallel_degree": "write 'pipeline'",
    "vp vpp virtual_pipeline_model_parallel_size": "write 'virtual_pipeline'",
    "cp context_parallel context_parallel_size context_parallel_degree": "write 'context'",
    "ep expert_parallel expert_model_parallel_size expert_parallel_degree": "write 'expert'",
    "etp expert_tensor_parallel_size expert_tensor_parallel_degree": "write 'expert_tensor'",
    "sp": "write 'sequence_parallel'",
    "dp data data_parallel data_parallel_size": "data parallelism is what the other sizes leave of the job's "
    "GPUs, so leave it out",
    "fsdp fully_shard fsdp2": "write 'zero: 3'",
    "hsdp dp_shard data_parallel_shard_degree": "write 'zero: 3', and in 'shard' how many ranks share a copy",
    "ddp": "write 'zero: 0'",
    "zero_stage use_distributed_optimizer": "write 'zero', 0 to 3 (Megatron has 1)",
    "cpu_offload enable_cpu_offload": "write 'offload', a list of optimizer, activations or weights",
    "gradient_checkpointing activation_checkpointing activation_checkpoint": "write 'recompute', full or "
    "selective",
}

FIELDS: Mapping[str, Mapping[str, str]] = {
    "Layout": _of(_SIZES),
    "TrainingJob": _of(
        {
            word: f"{said} in the section 'layout'" if said.startswith("write") else said
            for word, said in _SIZES.items()
        }
        | {
            "gradient_accumulation gradient_accumulation_steps grad_accum": "it follows from global_batch, "
            "micro_batch and the data-parallel ranks, so leave it out",
            "micro_batch_size local_batch_size per_device_train_batch_size mbs": "write 'micro_batch'",
            "batch batch_size global_batch_size train_batch_size gbs": "write 'global_batch', in sequences",
            "seq_len seq_length sequence_length max_seq_length context_length max_length max_seq_len "
            "model_max_length cutoff_len sequence_len block_size": "write 'sequence'",
            "steps epochs max_steps train_iters num_train_epochs num_epochs": "write 'tokens', of all steps "
            "and epochs together",
            "samples num_samples max_samples examples dataset_size": "write 'tokens': samples times their "
            "length, of all epochs together",
            "packing sample_packing": "write 'sample_length', the mean length of what is packed into a "
            "sequence; without packing leave it out, and write that length in 'sequence'",
            "precision mixed_precision": "write 'dtype'",
            "framework engine trainer backend": "write 'software' (railwright catalog list software)",
            "nodes num_nodes": "write 'gpus', or 'servers' with the numbers of the servers",
            "gpus_per_node nproc_per_node": "write 'gpus_per_server' where a job has a part of each, and "
            "'gpus' for all of its GPUs",
            "num_gpus world_size": "write 'gpus'",
            "torch_compile compile": "write 'software', fsdp-2026 for torch.compile of layers and loss",
            "deepspeed deepspeed_config": "write 'software', deepspeed-2026, and the stage in 'layout' as "
            "'zero'",
            "peft adapter adapters": "write 'lora'",
            "overlap_comm": "write overlap: {dp: true}, or false",
            "offload_optimizer": "write layout: {offload: [optimizer]}",
            "offload_param": "write layout: {offload: [weights]}, which takes the optimizer along",
            "liger use_liger_kernel": "write chunked_loss: liger, and leave 'unfused' out; without Liger it "
            "is [rotary, norm, activation]",
            "experts_implementation moe_implementation": "write `unfused: [experts]` for Hugging Face's loop "
            "over experts (eager, and all releases before transformers 5); else leave it out",
            "loss loss_fn fused_linear_cross_entropy cut_cross_entropy": "write 'chunked_loss' where "
            "the loss takes the head's product in chunks (liger, torchtitan, torchtune); else leave it out",
            "attention_kernel attn_implementation flash_attn use_flash_attn flash_attention": "write "
            "'attention_backend', fused or flash; left out, it is what the software chooses",
            "fp8_params fp8_param": "write 'fp8_param_gather'",
            "bucket_cap_mb distributed_fused_adam": "write 'apex_bucket', with its unit, e.g. 125 MiB",
            "ddp_bucket_size bucket_size": "write 'ddp_bucket', in parameters, e.g. 40e6",
            "dropout": "write 'hidden_dropout' and 'attention_dropout'",
            "resid_pdrop embd_pdrop hidden_dropout_prob": "write 'hidden_dropout'",
            "attn_pdrop attn_dropout attention_probs_dropout_prob": "write 'attention_dropout'",
            "num_chunks num_output_chunks": "write 'loss_chunks', beside 'chunked_loss'",
            "qlora load_in_4bit quantization quantize": "write 'lora', with 'frozen_dtype: nf4' in it",
            "lr learning_rate weight_decay warmup warmup_steps warmup_ratio lr_scheduler lr_scheduler_type "
            "scheduler seed neftune neftune_noise_alpha": "it changes neither time nor memory, so leave it "
            "out",
            "eval evaluation eval_steps eval_interval eval_iters eval_strategy evaluation_strategy do_eval": (
                "a step has no evaluation in it, and what yours take is not predicted; leave it out"
            ),
            "checkpoint checkpointing save_steps save_interval checkpoint_interval checkpoint_every": (
                "a step has no checkpoint in it; write reliability: {checkpoint: {interval: 1 h}} beside the "
                "jobs, and ask railwright goodput"
            ),
            "freeze freeze_layers frozen frozen_layers trainable": "a job trains all weights, or adapters "
            "beside frozen ones ('lora')",
            "dpo rlhf ppo grpo kto orpo reference_model ref_model reward_model": "a step is that of training "
            "on tokens: passes of a second model (DPO) and generated samples (GRPO, PPO) are not predicted",
        }
    ),
    "Lora": _of(
        {
            "r lora_r lora_rank dim": "write 'rank'",
            "target_modules lora_target_modules modules target": "write 'targets'",
            "lora_dropout": "write 'dropout'",
            "load_in_4bit bnb_4bit_quant_type quant_type quantize quantize_base": "write 'frozen_dtype: nf4'",
            "load_in_8bit": "weights in 8 bits are not modelled; leave it out, or write 'frozen_dtype: nf4'",
            "bnb_4bit_use_double_quant double_quant": "frozen_dtype nf4 has scales in 8 bits (double "
            "quantization), so leave it out",
            "alpha lora_alpha use_rslora": "it changes neither time nor memory, so leave it out",
            "dora use_dora": "adapters of other kinds than LoRA are not predicted",
        }
    ),
    "Cluster": _of(
        {
            "nodes num_nodes hosts": "write 'servers'",
            "gpus num_gpus": "the GPUs are those of the servers: write 'servers' and 'server'",
            "gpu node_type instance": "write 'server' (railwright catalog list servers)",
            "network fabric backend": "write 'compute'",
        }
    ),
    "ComputeNetwork": _of({"topology type": "write 'family'", "leaf spine switches tor": "write 'switch'"}),
}
"""By section: what to write instead of a word that is no field of it."""

VALUES: Mapping[str, Mapping[str, str]] = {
    "software": _of(
        {
            "torchtitan fsdp fsdp2 pytorch": "write 'fsdp-2026' (since October 2025), 'fsdp-2025' (since "
            "April 2025), or 'fsdp-2024'",
            "megatron megatron-lm megatron-core megatron-bridge mcore": "write 'megatron-2025' (of 2025 and "
            "later), or 'nemo-2024' (of 2023 and 2024)",
            "nemo nemo2": "write 'megatron-2025' (25.01 and later), or 'nemo-2024'",
            "maxtext jax": "write 'xla-2025'",
            "llm-foundry composer mosaicml": "write 'fsdp-2023'",
            "deepspeed zero zero1 zero2 zero3": "write 'deepspeed-2026' ('deepspeed-2024' before PyTorch "
            "2.11), and unfused: [rotary, norm, activation] where the model comes from Hugging Face without "
            "Liger kernels",
            "megatron-deepspeed": "write 'megatron-2021'",
            "transformers huggingface hf trl axolotl accelerate llama-factory": "write 'deepspeed-2026' for "
            "ZeRO of DeepSpeed, 'fsdp-2026-eager' for FSDP of which nothing is compiled, 'fsdp-2026' with "
            "torch.compile; and unfused: [rotary, norm, activation] without Liger kernels, with experts "
            "too for mixtures of experts before transformers 5",
            "unsloth torchtune": "no era is fitted to it; write 'fsdp-2026-eager', FSDP of which nothing is "
            "compiled, or 'fsdp-2026', with torch.compile",
        }
    ),
    "optimizer": _of(
        {
            "adamw adamw_torch adamw_torch_fused fused_adam": "write 'adam', whose kernels decay weights too",
            "adamw_8bit adamw_bnb_8bit paged_adamw_8bit": "write 'adam' and moment_dtype: fp8, which keeps "
            "moments in 8 bits as Transformer Engine does",
        }
    ),
    "dtype": _of(
        {
            "bfloat16": "write 'bf16'",
            "float16 half": "write 'fp16'",
            "fp32 float32 tf32": "products in 32 bits are not predicted; write 'bf16', whose master weights "
            "are fp32 anyway (master)",
            "int4 nf4 qlora": "write 'bf16', in which products are multiplied then, and frozen_dtype: nf4 in "
            "the section lora (QLoRA)",
            "int8": "write 'bf16', in which products are multiplied then; weights stored in 8 bits are not "
            "modelled",
        }
    ),
    "frozen_dtype": _of(
        {
            "bfloat16 float16 fp16": "write 'bf16', of 2 bytes as well",
            "float32": "write 'fp32'",
            "int4 fp4 4bit qlora": "write 'nf4', whose time and memory fp4's are too",
            "int8 8bit": "weights stored in 8 bits are not modelled; write 'nf4' or 'bf16'",
        }
    ),
}
"""By field: what to write instead of a value."""
