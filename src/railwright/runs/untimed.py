"""Arguments that change neither the time nor the memory of a step, as they are predicted.

What is on no list and was read by nobody is told: it may matter.
"""

from __future__ import annotations

BEGINNINGS = {
    "learning": (
        "lr", "min_lr", "decoupled_", "warmup", "override_opt", "use_checkpoint_opt", "clip_grad",
        "adam_", "sgd_", "weight_decay", "start_weight_decay", "end_weight_decay", "init_method",
        "apply_layernorm_1p", "loss_scale", "initial_loss_scale", "min_loss_scale", "hysteresis",
    ),
    "data": (
        "data_", "split", "train_data", "valid_data", "test_data", "mock_data", "tokenizer", "vocab",
        "merge_file", "tiktoken", "mmap_", "no_mmap", "create_attention", "no_create_attention", "reset_",
        "eod_", "dataloader", "num_dataset", "mid_level", "sft", "legacy_tokenizer",
    ),
    "files": (
        "save", "load", "no_save", "no_load", "ckpt", "use_dist_ckpt", "dist_ckpt", "auto_detect",
        "async_save", "finetune", "use_persistent_ckpt", "non_persistent", "pretrained_checkpoint",
        "exit_", "eval_", "skip_train", "use_checkpoint_args", "verify_integrity",
    ),
    "telling": (
        "log_", "logging_", "timing_", "tensorboard", "wandb", "one_logger", "enable_one_logger", "profile",
        "use_pytorch_profiler", "nvtx", "record_memory", "straggler_", "moe_per_layer_logging", "check_",
        "rerun", "enable_msc", "disable_msc", "result_rejected", "error_injection", "no_check_for_nan",
    ),
    "launching": (
        "distributed_", "local_rank", "seed", "manual_gc", "use_mcore_models",
        "enable_experimental", "nccl_communicator",
        "high_priority_stream", "init_model_with_meta_device", "rank", "world_size",
    ),
    "numbers alone": (
        "rotary_", "use_rotary", "rope_", "use_rope", "mscale", "norm_epsilon", "attention_softmax",
        "apply_query_key", "moe_aux_loss", "moe_z_loss", "moe_router_score", "moe_router_pre_softmax",
        "moe_router_topk_scaling", "moe_router_enable_expert_bias", "moe_router_bias_update",
        "moe_router_dtype", "moe_router_load_balancing", "moe_router_force", "moe_router_num_groups",
        "mtp_loss", "fp8_amax", "fp8_margin", "fp8_interval", "calculate_per_token", "glu_linear_offset",
        "activation_func_clamp", "disable_bf16_reduced", "yarn_", "test_mode",
    ),
    "implied by what is read": (
        "use_flash_attn", "moe_grouped_gemm", "moe_permute_fusion", "moe_enable_deepep",
        "cross_entropy_fusion_impl", "reuse_grad_buf", "delay_wgrad", "make_vocab",
        "position_embedding", "use_rotary", "bf16", "fp16", "qk_l", "gradient_accumulation_fusion",
        "persist_layer_norm", "no_persist", "bias_", "masked_softmax", "no_masked", "ffn_hidden",
        "num_query_groups", "kv_channels", "swiglu", "squared_relu", "untie", "normalization", "add_",
        "max_position", "expert_", "train_", "accumulate_allreduce", "use_precision", "exp_avg", "main_",
        "optimizer_", "moe_pad", "moe_router_group_topk", "moe_flex_dispatcher", "ddp_",
        "moe_router_topk_limited", "fp4_param", "account_for", "recompute_",
        "group_query", "megatron_fsdp_main", "window_", "softmax_type", "enable_gpt_oss", "quick_geglu",
    ),
}  # fmt: skip
"""First letters of their names, by what they are about."""

MEGATRONS = tuple(one for names in BEGINNINGS.values() for one in names)

TRAINERS = (
    "adam_", "adapter", "auto_resume", "bf16", "bos_", "chat_template", "cleanup_", "cosine_", "data", "ddp_",
    "debug", "disable_gradient", "do_", "early_stopping", "eos_", "eval", "finetuning_type",
    "flash_attention", "fp16", "fsdp_config.auto_wrap", "fsdp_config.cpu_ram", "fsdp_config.final_state_dict",
    "fsdp_config.state_dict", "fsdp_config.sync_module", "fsdp_config.transformer_layer",
    "fsdp_config.use_orig", "fsdp_config.version", "fsdp_transformer_layer_cls_to_wrap", "fsdp_version",
    "gradient_checkpointing", "greater_is_better", "group_by_length", "hub_", "is_", "lazy_preprocess",
    "learning_rate", "load_best", "load_in", "local_rank", "logging_", "lora_alpha", "lora_fan_in",
    "lora_model_dir", "loraplus", "loss_watchdog", "lr_", "max_grad", "max_samples", "metric_", "mlflow",
    "model_name_or_path", "model_type", "neftune", "num_train_epochs", "output_dir", "overwrite_",
    "pad_to_sequence", "per_device_eval", "plot_loss", "plugins", "preprocessing_", "push_to", "report_to",
    "resume", "run_name", "s2_", "sample_packing_", "save", "sdp_attention", "seed", "shuffle",
    "special_tokens", "stage", "strict", "template", "test_", "tf32", "tokenizer", "tokens", "train_on",
    "trust_remote", "type_of_model", "unk_", "use_fast", "val_", "wandb", "warmup", "weight_decay",
    "xformers",
)  # fmt: skip
"""First letters of keys of the Trainer, LLaMA-Factory and Axolotl that change neither, so too."""


def is_untimed(name: str, trainers: bool = False) -> bool:
    """Whether an argument is on a list: Megatron-LM's, or that of a Trainer's run."""
    return name.startswith(TRAINERS if trainers else MEGATRONS)
