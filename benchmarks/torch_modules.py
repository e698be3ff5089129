"""Host time of a layer of Hugging Face's Llama over what is counted of it (`Era.plain_modules`).

Needs no GPU: tensors are so small that a CPU's kernels take nothing beside PyTorch's and Python's own time.
The unit is torch.nn.Linear's forward call in the same run, whose 13.5 us on a DGX H100 are
`host_operation_seconds`.  Needs torch (its CPU wheel does) and transformers (4.57.1).

    python benchmarks/torch_modules.py

Ratios of one run, which on a shared machine scatter by a third: of five, medians count.  Three runs gave
1.31 to 1.36 forward, 0.81 to 0.84 backward and 1.00 to 1.03 of both (2026-11-29).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from railwright.catalog import load_catalog
from railwright.model import Cut, layer_operators, load_model
from railwright.training.software.constants import constant
from railwright.training.software.host import launch_times

WIDTH, TOKENS, FEW, MANY, RUNS, ROUNDS = 64, 8, 4, 20, 5, 12


def fastest_quarter(run: Callable[[], float]) -> float:
    """Of a number of calls the time at the first quartile: a shared machine only adds. [s]"""
    return sorted(run() for _ in range(ROUNDS))[ROUNDS // 4]


def linear() -> float:
    """One forward call of torch.nn.Linear. [s]"""
    module, rows = torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.randn(TOKENS, WIDTH, requires_grad=True)
    calls = 200

    def run() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            module(rows)
        return (time.perf_counter() - began) / calls

    return fastest_quarter(run)


def passes(layers: int) -> tuple[float, float]:
    """Forward and backward pass of a model of so many layers. [s]"""
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=32,
            attn_implementation="sdpa",
        )
    )
    tokens = torch.randint(0, 32, (1, TOKENS))
    backward: list[float] = []

    def run() -> float:
        began = time.perf_counter()
        out = model(input_ids=tokens, labels=tokens, use_cache=False)
        made = time.perf_counter()
        out.loss.backward()
        backward.append(time.perf_counter() - made)
        model.zero_grad(set_to_none=True)
        return made - began

    return fastest_quarter(run), sorted(backward)[ROUNDS // 4]


def main() -> None:
    """Print a layer's passes in linear layers, measured and counted."""
    torch.set_num_threads(1)
    found: list[tuple[float, float]] = []
    for _ in range(RUNS):
        few, one, many = passes(FEW), linear(), passes(MANY)
        found.append(tuple((b - a) / (MANY - FEW) / one for a, b in zip(few, many, strict=True)))  # type: ignore[arg-type]
    arch, cut = load_model("llama-3-8b"), Cut(unfused=("rotary", "norm", "activation"), rotation="halves")
    known = launch_times(layer_operators(arch, "dense", TOKENS, TOKENS, cut), load_catalog().gpus["h100-sxm"])
    counted = [seconds / constant("host_operation_seconds") for seconds in (known.forward, known.backward)]
    measured = [median(run[which] for run in found) for which in (0, 1)]
    for name, there, here in zip(("forward", "backward"), measured, counted, strict=True):
        print(f"{name:<9} measured {there:5.1f} linear layers, counted {here:5.1f}: {there / here:.2f}")
    print(f"both      {sum(measured) / sum(counted):.2f}")


if __name__ == "__main__":
    main()
