"""What losses in chunks take, in PyTorch's own allocations; each loop as its source has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from railwright.spec.lora import Lora
from railwright.training.memory.chunked_kept import head_in_chunks, inputs_of_head
from railwright.training.memory.end_activations import loss_kept
from railwright.training.software.chunked_loss import chunks_of
from training_cases import DENSE, changed, job

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

ROWS, VOCAB, HIDDEN = 1024, 2048, 128
ARCH = replace(DENSE, vocab=VOCAB, hidden=HIDDEN)
HEAD_INPUT = 2 * ROWS * HIDDEN

Loss = Callable[[Any, Any], Any]


def cross_entropy(logits: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")


COMPILED = torch.compile(cross_entropy)


def torchtune(hidden: Any, weight: Any, targets: Any, rows: tuple[int, ...], inner: Loss) -> None:
    """LinearCrossEntropyLoss.forward, then the recipe's backward."""
    found = hidden.index_select(0, torch.arange(ROWS))
    total = torch.tensor(0.0)
    for chunk, target in zip(found.split(rows), targets.split(rows), strict=True):
        total += inner(torch.nn.functional.linear(chunk, weight), target)
    del found, chunk
    total.backward()


def torchtitan(hidden: Any, weight: Any, targets: Any, rows: tuple[int, ...], inner: Loss) -> None:
    """ChunkedLossWrapper.__call__ with its GradAccumulator; the head is not FSDP's."""
    chunks = [chunk.detach().requires_grad_() for chunk in hidden.split(rows)]
    sums = torch.zeros_like(hidden, dtype=torch.float32)
    start = 0
    for chunk, target in zip(chunks, targets.split(rows), strict=True):
        logits = torch.nn.functional.linear(chunk, weight)
        inner(logits, target).backward()
        sums[start : start + len(chunk)] = chunk.grad.to(torch.float32)
        chunk.grad, start = None, start + len(chunk)
    del logits
    hidden.backward(sums.to(hidden.dtype))


def liger(hidden: Any, weight: Any, targets: Any, rows: tuple[int, ...], inner: Loss) -> None:
    """fused_linear_cross_entropy_forward; a kernel that writes over its input stands for Triton's."""
    with torch.no_grad():
        gradient = torch.zeros_like(hidden)
        of_weight = torch.zeros_like(weight) if weight.requires_grad else None
        start = 0
        for count in rows:
            chunk = hidden[start : start + count]
            logits = chunk @ weight.t()
            logits.mul_(1 / VOCAB)
            gradient[start : start + count] = logits @ weight
            if of_weight is not None:
                torch.addmm(of_weight, logits.t(), chunk, out=of_weight)
            start += count
    del logits
    hidden.backward(gradient)


LOSSES = {"torchtune": torchtune, "torchtitan": torchtitan, "liger": liger}


def measured(loss: Callable[..., None], rows: tuple[int, ...], inner: Loss, learns: bool) -> int:
    """Bytes that are allocated at most beside inputs, weight and its sums of gradients. [byte]"""
    from torch.profiler import ProfilerActivity, profile

    weight = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=learns)
    leaf = torch.randn(ROWS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    hidden, targets = leaf * 1.0, torch.randint(VOCAB, (ROWS,))
    loss(hidden, weight, targets, rows, inner)
    hidden, leaf.grad = leaf * 1.0, None
    # oneDNN's products of 16 bits take scratch on some CPUs (AMD's with AVX-512), which no GPU's are charged
    without = torch.backends.mkldnn.flags(enabled=False)
    with without, profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss(hidden, weight, targets, rows, inner)
    now = most = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


@pytest.mark.parametrize("learns", [True, False], ids=["head learns", "head frozen"])
@pytest.mark.parametrize(
    ("how", "software"),
    [
        ("torchtune", "fsdp-2024-eager"),
        ("torchtune", "fsdp-2025"),
        ("torchtitan", "fsdp-2024"),
        ("torchtitan", "fsdp-2025"),
        ("liger", "fsdp-2024-eager"),
    ],
)
def test_a_loss_in_chunks_takes_what_we_say(how: str, software: str, learns: bool) -> None:
    """The head's input, which is there before, apart; torchtune copies it, and keeps that for the gradient of
    a weight."""
    wanted = changed(
        job(sequence=ROWS, zero=0),
        software=software,
        chunked_loss=how,
        loss_chunks=None if how == "liger" else 4,
        lora=None if learns else Lora(rank=8),
    )
    inner = cross_entropy
    if software == "fsdp-2025":
        if shutil.which("g++") is None:
            pytest.skip("torch.compile needs a C++ compiler for CPUs")
        inner = COMPILED
    rows = chunks_of(wanted, ARCH)
    parts = head_in_chunks(wanted, ARCH, 2 * VOCAB * HIDDEN * learns, loss_kept(wanted))
    said = sum(parts.values()) - inputs_of_head(wanted, ARCH) + HEAD_INPUT * (how == "torchtune" and learns)
    found = measured(LOSSES[how], rows, inner, learns)
    assert said == pytest.approx(found, rel=0.03)
