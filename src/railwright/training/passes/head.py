"""The head of a model as tasks: its product and loss, and multi-token prediction's in front of its own.

Each extra prediction looks up the next tokens, which tensor ranks reduce, norms and joins them with hidden
states, multiplies both by one column-parallel product, whose columns are gathered, and runs the head once
more; its layer is among those of the chunk.
Source: Megatron-LM d98e8a64, core/transformer/multi_token_prediction.py, _concat_embeddings
(gather_from_tensor_model_parallel_region, whose gradient is cut, and scatter_to_sequence_parallel_region,
whose gradient is gathered); core/tensor_parallel/mappings.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.training.layers.costs import Cost, gradients_of, head_split
from railwright.training.layers.gathers import head_gathers
from railwright.training.passes.blocks import Blocks
from railwright.training.passes.chain import Chain

NAME, KIND = "head", "head"


class Joining(NamedTuple):
    """What an extra prediction runs in front of the head."""

    lookup: Cost
    norms: Cost
    projection: Cost


def parts_of(found: Sequence[Cost]) -> Iterator[tuple[Joining | None, list[Cost]]]:
    """The head's operators, and those of every extra prediction, each with what joins its inputs."""
    starts = [i for i, cost in enumerate(found) if cost.name.endswith(" embedding")]
    ends = [*starts, len(found)]
    yield None, list(found[: ends[0]])
    for start, end in zip(starts, ends[1:], strict=True):
        yield Joining(*found[start : start + 3]), list(found[start + 3 : end])


def head_forward(chain: Chain, blocks: Blocks, found: Sequence[Cost]) -> None:
    """The head's forward pass.

    found  what its operators cost
    """
    exchange, share = blocks.exchange, head_gathers(blocks.job).inputs
    for joining, own in parts_of(found):
        if joining:
            blocks.compute(chain, NAME, KIND, joining.lookup.forward)
            chain.communicate(exchange.reduction())
            blocks.compute(chain, NAME, KIND, joining.norms.forward)
            seconds, width = joining.projection.forward, 2 * exchange.arch.hidden
            blocks.gather(chain, NAME, KIND, seconds, width, exchange.gathers.inputs)
            chain.communicate(exchange.gathering())
        pre, first, rest = head_split(own)
        blocks.compute(chain, NAME, KIND, sum(c.forward for c in pre))
        blocks.gather(chain, NAME, KIND, first.forward, share=share)
        blocks.compute(chain, NAME, KIND, sum(c.forward for c in rest))


def head_backward(chain: Chain, blocks: Blocks, found: Sequence[Cost], whole: bool) -> None:
    """Backwards through `head_forward`; `whole` says whether weight gradients are computed too."""
    exchange, name = blocks.exchange, f"{NAME} backward"
    for joining, own in reversed(list(parts_of(found))):
        pre, first, rest = head_split(own)
        blocks.compute(chain, name, KIND, gradients_of(rest, whole))
        blocks.column_backward(chain, name, KIND, first, whole, exchange.head_again)
        blocks.compute(chain, name, KIND, gradients_of(pre, whole))
        if not joining:
            continue
        if exchange.sp:
            chain.communicate(exchange.gathering())
        projection, width = joining.projection, 2 * exchange.arch.hidden
        blocks.column_backward(chain, name, KIND, projection, whole, exchange.joining_again, width)
        blocks.compute(chain, name, KIND, gradients_of([joining.norms], whole))
        if exchange.sp and not blocks.job.lora:
            chain.communicate(exchange.gathering())
        blocks.compute(chain, name, KIND, gradients_of([joining.lookup], whole))


def gathered_for_weights(blocks: Blocks, found: Sequence[Cost]) -> Iterator[tuple[int | None, float]]:
    """Width (None: hidden) and share of 16 bits of what the head's weight gradients gather again."""
    exchange = blocks.exchange
    if not exchange.head_again:
        return
    for joining, own in parts_of(found):
        if joining and joining.projection.learns:
            yield 2 * exchange.arch.hidden, exchange.joining_again
        if any(cost.learns for cost in own):
            yield None, exchange.head_again
