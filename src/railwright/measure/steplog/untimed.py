"""Logs of training whose lines time no steps of the optimizer: what they hold, and what to give instead.

Source: Lightning-AI/pytorch-lightning 7f0c3436 (callbacks/progress/tqdm_progress.py: BAR_FORMAT, smoothing=0,
and rich_progress.py); Lightning-AI/litgpt 26857050 (pretrain.py, finetune/lora.py); pytorch/torchtune
bd2a0fc7 (training/metric_logging.py; recipes/full_finetune_distributed.py, current_num_tokens).
Of lines whose time is no number: as `formats`.
"""

from __future__ import annotations

import re

LIGHTNING = (
    "Lightning's progress bar, which counts batches, of which a step of the optimizer may take several "
    "(accumulate_grad_batches), and gives their mean rate since the epoch began; give a PyTorch profile to "
    "`railwright trace compare`, or log the time of every step as NeMo does (train_step_timing in s)"
)
LITGPT = (
    "LitGPT's time of an iteration, which is one microbatch, and of a step only its last one; give a PyTorch "
    "profile to `railwright trace compare`"
)
TORCHTUNE = (
    "torchtune's tokens a second, which count those with a label alone, so that they time no step; give the "
    "job's output with its progress bar (both streams, 2>&1)"
)

_UNTIMED: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("tokens_per_second_per_gpu", re.compile(r"\bStep \d+ \| .*\btokens_per_second_per_gpu:"), TORCHTUNE),
    ("iter time:", re.compile(r"\biter \d+ step \d+ ?\|.*\biter time: [\d.]+ ms"), LITGPT),
    ("Epoch ", re.compile(r"\bEpoch \d+(?:/-?\d+)?:?\s.*\d+/\d+ .*\d(?:it/s|s/it)"), LIGHTNING),
)
"""(words without which a line is none of these, what it looks like, what it holds)."""


_UNREADABLE: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "elapsed time per iteration",
        re.compile(r"\biteration\s+\d+\s*/\s*\d+\s*\|.*elapsed time per iteration \(m?s\):\s*\S"),
        "Megatron-LM",
    ),
    ("step:", re.compile(r"\bstep:\s*\d+\s+loss:.*\b(?:tps|wps):\s*\S"), "torchtitan"),
    (
        "time_per_iteration_ms:",
        re.compile(r"\biteration: \d+ / \d+ \|.*time_per_iteration_ms: \S"),
        "nanotron",
    ),
)
"""(words without which a line is none of these, what numbers and times a step, framework)."""


def unreadable(text: str) -> str | None:
    """The framework of a line that numbers a step and has something else than a number where its time stands
    ('nan'), given that no reader has a step of it; None of other lines."""
    return next((name for words, line, name in _UNREADABLE if words in text and line.search(text)), None)


def untimed(text: str) -> str | None:
    """What a line tells of training without timing its steps; None where it is none that is known."""
    return next((told for words, line, told in _UNTIMED if words in text and line.search(text)), None)
