"""What published fine-tuning is set to: its adapters, and the samples packed into a sequence."""

from __future__ import annotations

from collections.abc import Mapping

from railwright.spec.lora import Lora

SAMPLE_CHARACTERS = 79_346_108 / 87_599 - 65 + 28
"""Characters of a sample of SQuAD 1.1, which NeMo and Megatron-Bridge pack (NeMo-Framework-Launcher,
examples/README.md; NeMo v2.1.0, collections/llm/gpt/data/squad.py; Megatron-Bridge v0.5.0,
recipes/utils/finetune_utils.py): bytes over examples of its train split (dataset card of rajpurkar/squad),
less identifier, title and offsets (estimate), with the prompt's."""

CHARACTERS = {"llama3": 3.94, "": 3.17}
"""Characters of a token of English by model's tokenizer: Llama 3's, and Llama 2's for all others.
Source: "The Llama 3 Herd of Models" (arXiv 2407.21783), section 3.2."""


def sample_length(record: Mapping[str, str]) -> int | None:
    """Tokens of a packed sample, where a publisher's fine-tuning packs SQuAD; MLPerf's documents are long."""
    if record["kind"] not in ("sft", "lora") or not record["family"].startswith(("nemo", "mbridge", "dgxc")):
        return None
    return round(SAMPLE_CHARACTERS / CHARACTERS["llama3" if record["model"].startswith("llama3") else ""])


ADAPTERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "mlperf": (16, ("qkv", "attention output")),
    "amd-mlperf": (16, ("qkv", "attention output")),
    "nemo": (32, ("qkv",)),
    "mbridge": (32, ("qkv",)),
    "dgxc-llama3-8b": (8, ("qkv",)),
    "dgxc-llama3-70b": (16, ("qkv",)),
}
"""Rank and targets of LoRA by how families begin: MLPerf training_policies, llama2_70b_lora; NeMo 24,
LoraPEFTConfig (adapter_dim 32, attention_qkv); Megatron-Bridge peft/lora.py (dim 32) and, at v0.5.0,
scripts/performance/configs/llama/llama3_llm_finetune.py (target_modules linear_qkv, where a user's default is
all four); NeMo v2.1.0, collections/llm/recipes/llama3_{8b,70b}.py (peft.dim, linear_qkv)."""


DROPOUT = {"mlperf": 0.1, "amd-mlperf": 0.1}
"""Share of adapters' inputs that dropout zeroes, by how families begin, where it is not 0.
Submissions to MLPerf 4.0 to 5.1, llama2_70b_lora: conf/megatron_gpt_peft_tuning_config.yaml (adapter_dropout:
${oc.env:LORA_DROPOUT,0.1}, which no script sets, and dropout_position: pre; AMD's too), later train.py
(LoRA(dropout=0.1, dropout_position="pre")).  Masks are kept: dropout_recompute, by Thunder, is off by default
and no script sets DROPOUT_RECOMPUTE; nothing reads NEMO_LORA_USE_THUNDER_DROPOUT.  Off in NeMo 24
(adapter_dropout: 0.0) and, by default, in NeMo 2 and Megatron-Bridge, whose recipes leave it so."""


def adapters(record: Mapping[str, str]) -> Lora | None:
    """The adapters of a record, or None where all weights train."""
    if record["kind"] != "lora":
        return None
    family = record["family"]
    rank, targets = next(found for begins, found in ADAPTERS.items() if family.startswith(begins))
    dropout = next((share for begins, share in DROPOUT.items() if family.startswith(begins)), 0.0)
    return Lora(rank=rank, targets=targets, dropout=dropout)  # type: ignore[arg-type]
