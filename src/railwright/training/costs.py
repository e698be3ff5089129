"""Times of a layer's operators, and the sections of a layer between which communication sits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.architecture import Operator
from railwright.model.operators import LayerOperators, second_block
from railwright.model.recompute import CORE

KernelTime = Callable[[Operator], float]
ContextKind = Literal["ring", "all-to-all", "all-gather"]

_EXPERTS_START, _EXPERTS_END = ("sort by expert", "experts up"), "unpermute"
_SHARED = "shared expert"


@dataclass(frozen=True)
class Cost:
    """One operator's times: forward, input gradient, weight gradient [s]."""

    name: str
    product: bool
    forward: float
    input: float
    weight: float


NONE = Cost("", False, 0.0, 0.0, 0.0)


def costs(operators: LayerOperators, kernel_time: KernelTime) -> list[Cost]:
    """Forward order; gradients are joined to their forward operator by name."""
    gradients: dict[str, float] = {}
    for op in operators.backward_input:
        name = op.name.rsplit(", ", 1)[0]
        gradients[name] = gradients.get(name, 0.0) + kernel_time(op)
    weights: dict[str, float] = {}
    for op in operators.backward_weight:
        name = op.name.rsplit(", ", 1)[0]
        weights[name] = weights.get(name, 0.0) + kernel_time(op)
    found: list[Cost] = []
    for op in operators.forward:
        seconds = kernel_time(op)
        if found and found[-1].name == op.name:
            found[-1] = replace(found[-1], forward=found[-1].forward + seconds)
            continue
        product = op.kind in ("gemm", "grouped_gemm") and op.name not in CORE
        found.append(Cost(op.name, product, seconds, gradients.pop(op.name, 0.0), weights.pop(op.name, 0.0)))
    lost = [*gradients, *weights]
    assert not lost, f"gradients without a forward operator: {lost}"
    return found


def gradients_of(found: list[Cost], whole: bool) -> float:
    """Seconds of the gradients of some operators, those of weights only where the pass is `whole`."""
    return sum(c.input + (c.weight if whole else 0.0) for c in found)


def on_context_ranks(
    operators: LayerOperators, how: ContextKind, ranks: int, sequences: int, heads: int
) -> LayerOperators:
    """The core attention as one of `ranks` context-parallel ranks runs it; the rest stays as it is.

    sequences, heads  of the microbatch (packed samples count one by one), and query heads of this GPU
    ring        its queries against `ranks` blocks of keys in turn, each a kernel of its own: a share of the
                FLOPs, but all queries and outputs in memory traffic.  Blocks are equally long under a causal
                mask because every rank holds one early and one late part of the sequence.
    all-to-all  whole sequences of 1/ranks of the heads
    all-gather  its queries against all keys at once
    """

    def split(op: Operator) -> list[Operator]:
        if op.name.rsplit(", ", 1)[0] not in CORE:
            return [op]
        if how == "all-to-all":
            return [replace(op, batch=max(sequences * heads // ranks, 1))]
        here = replace(op, batch=sequences * heads, m=max(op.m // ranks, 1))
        if how == "all-gather":
            return [here]
        moved = op.bytes / (1 if op.kind == "attention" else ranks)
        keys = max(op.n // ranks, 1) if op.n == op.m else op.n
        return [replace(here, n=keys, flops=op.flops / ranks, bytes=moved)] * ranks

    def each(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        return tuple(one for op in found for one in split(op))

    return replace(
        operators,
        forward=each(operators.forward),
        backward_input=each(operators.backward_input),
        recomputed=each(operators.recomputed),
    )


def products(found: list[Cost]) -> tuple[list[Cost], Cost, list[Cost], Cost, list[Cost]]:
    """Before the first product, it, between, the last product, after it."""
    at = [i for i, c in enumerate(found) if c.product]
    if len(at) < 2:
        return found, NONE, [], NONE, []
    first, last = at[0], at[-1]
    return found[:first], found[first], found[first + 1 : last], found[last], found[last + 1 :]


def around_core(found: list[Cost]) -> tuple[list[Cost], list[Cost], list[Cost]]:
    """Before the core attention, it, and after it; without one all is before."""
    at = [i for i, c in enumerate(found) if c.name in CORE]
    if not at:
        return found, [], []
    return found[: at[0]], found[at[0] : at[-1] + 1], found[at[-1] + 1 :]


def head_split(found: list[Cost]) -> tuple[list[Cost], Cost, list[Cost]]:
    """Before the head's product, it, and after it."""
    at = next(i for i, c in enumerate(found) if c.product)
    return found[:at], found[at], found[at + 1 :]


def sections(found: list[Cost]) -> tuple[list[Cost], list[Cost]]:
    """Attention, and the MLP or experts."""
    at = second_block([c.name for c in found])
    return found[:at], found[at:]


def shared_halves(shared: list[Cost]) -> tuple[list[Cost], list[Cost]]:
    """Shared experts up to the activation, and from their last product on."""
    last = max(i for i, c in enumerate(shared) if c.product)
    return shared[:last], shared[last:]


def expert_sections(found: list[Cost]) -> tuple[list[Cost], list[Cost], list[Cost], list[Cost]]:
    """Router, this GPU's experts, shared experts, the rest."""
    start = next(i for i, c in enumerate(found) if c.name in _EXPERTS_START)
    end = next(i for i, c in enumerate(found) if c.name == _EXPERTS_END)
    shared = [c for c in found[end:] if c.name.startswith(_SHARED)]
    after = [c for c in found[end:] if not c.name.startswith(_SHARED)]
    return found[:start], found[start:end], shared, after
