"""How long the samples are that published fine-tuning packs into a sequence."""

from __future__ import annotations

from collections.abc import Mapping

SAMPLE_CHARACTERS = 79_346_108 / 87_599 - 65 + 28
"""Characters of a sample of SQuAD 1.1, which NeMo and Megatron-Bridge pack (NeMo-Framework-Launcher,
examples/README.md; Megatron-Bridge v0.5.0, recipes/utils/finetune_utils.py): bytes over examples of its train
split (dataset card of rajpurkar/squad), less identifier, title and offsets (estimate), with the prompt's."""

CHARACTERS = {"llama3": 3.94, "": 3.17}
"""Characters of a token of English by model's tokenizer: Llama 3's, and Llama 2's for all others.
Source: "The Llama 3 Herd of Models" (arXiv 2407.21783), section 3.2."""


def sample_length(record: Mapping[str, str]) -> int | None:
    """Tokens of a packed sample, where a publisher's fine-tuning packs SQuAD; MLPerf's documents are long."""
    if record["kind"] not in ("sft", "lora") or not record["family"].startswith(("nemo", "mbridge")):
        return None
    return round(SAMPLE_CHARACTERS / CHARACTERS["llama3" if record["model"].startswith("llama3") else ""])
