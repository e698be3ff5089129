"""Programs of Megatron-LM's that take the arguments of a training run and do something else.

Source: Megatron-LM d98e8a6, the names of its scripts (pretrain_*.py, examples, tools) and MODE of its
functional tests; megatron/training/tokenizer (BertWordPiece*, of BERT and T5 alone).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from railwright.errors import RailwrightError
from railwright.runs.given import Given

TRAINING = ("pretrain", "train", "finetune", "sft")
"""First words of the names of scripts that train."""

GENERATING = re.compile(r"text_gen|_generat|inference|run_mcore_engine")
"""What names of scripts have that generate text."""

MODELS = {
    "bert": "BERT, whose attention looks both ways,",
    "t5": "a model of an encoder and a decoder",
    "retro": "a model that looks passages up",
    "ict": "a pair of encoders",
    "biencoder": "a pair of encoders",
    "vlm": "a model that sees",
    "mimo": "a model of more than text",
    "vision": "a model that sees",
}
"""Words in names of scripts that train something else than a decoder of text, and what."""


def refuse_others(given: Given) -> None:
    """Raise RailwrightError, naming file, line and program, where what is launched trains no decoder of text.

    A program that is not named is taken for one that does, unless its tokenizer is BERT's.
    """
    path = "" if given.program is None else given.program.words[0]
    # modules are named with dots (python -m examples.inference.offline_inference)
    name = PurePosixPath(path.removesuffix(".py").replace(".", "/")).name.lower().replace("-", "_")
    words = name.split("_")
    trains = words[0] in TRAINING
    if not trains and GENERATING.search(name):
        raise _refused(
            given, "it generates text, which railwright serve predicts; a run that trains is expected"
        )
    model = next((MODELS[word] for word in words if trains and word in MODELS), None)
    if model is not None:
        raise _refused(given, f"{model} is not modelled; a decoder of text alone is expected")
    if not path and given.told("tokenizer_type").startswith("BertWordPiece"):
        raise given.refuse(
            "tokenizer_type", "neither BERT nor T5 is modelled; a decoder of text alone is expected"
        )
    if "rl" in words:
        given.doubts.append("texts that it generates between steps are not predicted; steps of training are")


def _refused(given: Given, message: str) -> RailwrightError:
    """An error about the program, naming file and line."""
    assert given.program is not None
    place = f"{given.file}:{given.program.line}" if given.program.line else given.file
    return RailwrightError(f"{place}: {given.program.written}: {message}")
