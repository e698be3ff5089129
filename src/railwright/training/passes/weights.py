"""Weight gradients in a pass of their own, as zero-bubble schedules run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from railwright.model.shape.pattern import PARTS, Layer
from railwright.training.layers.costs import Cost, expert_sections, gathered_again, sections
from railwright.training.passes.chain import Chain
from railwright.training.passes.exchange import Exchange

AGAIN = "tp all-gather again"
"""Purpose of a gather of inputs that the forward pass gathered before: for weight gradients alone."""

MIXERS = {"attention": "attention", "linear": "mixer", "": ""}
"""What the first block of a layer is called in a timeline."""

LAST_WEIGHTS = "attention weights"
"""Name of the weight gradients behind a pass's result."""


def weight_gradients(
    kinds: Sequence[Layer],
    layers: Mapping[Layer, list[Cost]],
    head: list[Cost] | None,
    exchange: Exchange,
    widths: Mapping[str, int | None],
    of_head: Iterable[tuple[int | None, float]],
) -> Chain:
    """The weight gradients of a chunk alone.

    kinds     of its layers in order; layers  what they cost
    head      what the head costs, where it is in the chunk
    widths    of latent attention (`costs.latent_widths`)
    of_head   width and share of 16 bits of what the head gathers again (`head.gathered_for_weights`)
    """
    chain = Chain()
    blocks: list[tuple[int, str, str, list[Cost]]] = []
    if head is not None:
        blocks.append((len(kinds), "head weights", "head", head))
    for i in reversed(range(len(kinds))):
        attention, rest = sections(layers[kinds[i]])
        mixer, mlp = PARTS[kinds[i]]
        if mlp == "dense":
            blocks.append((i, "mlp weights", "mlp", rest))
        elif mlp == "moe":
            route, experts, shared, after = expert_sections(rest)
            blocks.append((i, "shared expert weights", "experts", shared))
            blocks.append((i, "expert weights", "grouped", [*route, *experts, *after]))
        if mixer:
            blocks.append((i, f"{MIXERS[mixer]} weights", MIXERS[mixer], attention))
    for layer, name, kind, found in blocks:
        chain.at_layer(layer)
        seconds = sum(c.weight for c in found)
        again: Iterable[tuple[int | None, float]] = of_head if kind == "head" else ()
        if exchange.again and kind not in ("grouped", "head"):
            again = [(width, exchange.again) for width in gathered_again(found, widths)]
        for width, share in again:
            chain.communicate(exchange.gathering(AGAIN, width, share))
        chain.compute(name, "experts" if kind == "grouped" else kind, seconds)
    chain.flush()
    return chain
