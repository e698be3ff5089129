"""How often Python's collector looks through everything while a model trains, and for how long.

Needs no GPU: how many objects live, and how many passes lie between two full collections, does not depend on
the size of tensors.  Needs torch (its CPU wheel does) and transformers.

    python benchmarks/torch_garbage.py [layers]

With 32 layers that compute everything again: 4 in 160 passes, of 0.17 s (Python 3.11.7, PyTorch 2.14.1,
transformers 5, 388,000 objects, an idle machine, 2026-11-30); with nothing computed again none.
"""

from __future__ import annotations

import gc
import sys
import time
from statistics import mean

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WIDTH, TOKENS, PASSES = 32, 16, 160


def collections(layers: int, again: bool) -> list[float]:
    """How long each time took in which all objects were looked through. [s]"""
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=128,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).train()
    if again:
        model.gradient_checkpointing_enable()
    tokens = torch.randint(0, 128, (1, TOKENS))
    seconds: list[float] = []
    begun = 0.0

    def watch(phase: str, info: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.perf_counter()
        elif info["generation"] == 2:
            seconds.append(time.perf_counter() - begun)

    gc.collect()
    gc.callbacks.append(watch)
    for _ in range(PASSES):
        model(input_ids=tokens, labels=tokens).loss.backward()
    gc.callbacks.remove(watch)
    return seconds


def main() -> None:
    """Print both cases."""
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    for again, what in ((True, "everything"), (False, "nothing")):
        seconds = collections(layers, again)
        if not seconds:
            print(f"{layers} layers, {what} computed again: not once in {PASSES} passes")
            continue
        print(
            f"{layers} layers, {what} computed again: {len(seconds)} in {PASSES} passes, "
            f"{mean(seconds):.2f} s each, {len(gc.get_objects()):,} objects"
        )


if __name__ == "__main__":
    main()
