"""What runs outside the layers: the embedding and the LM head with its loss."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.operators.eager import LOSS_MOVED, Loss, Part
from railwright.model.operators.kernels import (
    CAST_DTYPES,
    ELEMENT,
    GRADIENT,
    Block,
    dropping,
    elementwise,
    half,
    linear,
)
from railwright.model.operators.layer import LayerOperators
from railwright.model.operators.norms import layer_norm, norm, splits_norms
from railwright.model.shape.architecture import Operator, Transformer


def embedding_operators(
    arch: Transformer,
    rows: int,
    *,
    tp: int = 1,
    sequence_parallel: bool = False,
    added: float = 0.0,
    dropped: bool = False,
) -> LayerOperators:
    """Looking up `rows` tokens in the vocabulary-parallel table, and the gradient of the table.

    added  traffic of adding one element of that gradient to those of earlier microbatches [byte]
    dropped  hidden states are dropped at random before the first layer, by a kernel of its own

    Each GPU of the tensor-parallel group writes all rows and sets those of words that it does not hold to
    zero, before they are reduced; and their gradients, in a copy.  The gradient of the table is dense: zeros,
    into which all rows go by way of partial sums in fp32 (words that a GPU does not hold count as its first);
    then all of it is added.
    Sources: PyTorch, aten/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu (compute_grad_weight,
    sum_and_scatter), derivatives.yaml (index_put_); Megatron-LM, core/tensor_parallel/layers.py,
    VocabParallelEmbedding.
    """
    h, table = arch.hidden, _table(arch, rows, tp, added)
    local = _local(rows, tp, sequence_parallel)
    blocks = [table]
    if arch.position_embeddings:
        here = rows // tp if sequence_parallel else rows
        blocks.append(elementwise("positions", here, reads=2 * h, writes=h, back=0))
    if arch.embedding_norm:
        blocks.append(elementwise("embedding norm", local, reads=h, writes=h, back=3 * h))
    if dropped:
        blocks.append(dropping("embedding dropout", local, h))
    forward = tuple(block.forward for block in blocks)
    inputs = tuple(op for block in reversed(blocks) for op in block.backward_input)
    return LayerOperators(forward, inputs, table.backward_weight, ())


def _table(arch: Transformer, rows: int, tp: int, added: float, name: str = "embedding") -> Block:
    """`rows` looked up, and the gradient of the table (`embedding_operators`)."""
    h = arch.hidden
    passes, back = (2, 4) if tp > 1 else (1, 0)
    table = elementwise(name, rows, reads=passes * h, writes=passes * h, back=back * h)
    elements = float(h * (padded_vocabulary(arch.vocab, tp, arch.vocab_multiple) // tp))

    def gradient(moved: float, launches: int) -> Operator:
        label = f"{name}, weight gradient"
        return Operator(label, "memory", 0.0, moved, "bf16", phase="backward_weight", launches=launches)

    made = [gradient(ELEMENT * elements + rows * h * (2 * ELEMENT + 2 * GRADIENT), 3)]
    made += [gradient(added * elements, 1)] if added else []
    return Block(table.forward, table.backward_input, tuple(made))


def head_operators(
    arch: Transformer,
    rows: int,
    *,
    tp: int = 1,
    sequence_parallel: bool = False,
    dtype: str = "bf16",
    narrow: bool = False,
    loss: Loss = "compiled",
    unfused: tuple[Part, ...] = (),
    added: float = 0.0,
) -> LayerOperators:
    """Final norm, the vocabulary-parallel LM head and the softmax cross-entropy loss.

    dtype  of the layers; the head's product runs in the 16-bit format beside it, also in most fp8 recipes
    narrow it runs in `dtype` too, and casts its input itself (Megatron-LM, TELMHeadColumnParallelLinear)
    loss   how its kernels pass over the logits (`eager.LOSS_MOVED`)
    unfused  parts that run one kernel per operation; of them the norms are here
    added  as in `embedding_operators`
    Columns per GPU are those of the padded vocabulary over tp.
    Each multi-token-prediction layer looks up the next tokens, norms their embeddings and its hidden states,
    joins both, and after its layer (one more of the last stage's) runs the shared head again (DeepSeek-V3,
    arXiv 2412.19437, section 2.2; Megatron-LM d98e8a64, core/transformer/multi_token_prediction.py).
    """
    if tp < 1:
        raise PlanError(f"tensor parallel {tp} must be at least 1.")
    product = dtype if narrow else half(dtype)
    blocks = _loss(arch, rows, tp, sequence_parallel, product, "", loss, unfused)
    for number in range(1, arch.mtp_layers + 1):
        name = f"mtp {number} "
        h, local = arch.hidden, _local(rows, tp, sequence_parallel)
        split = splits_norms(arch, unfused)
        blocks.append(_table(arch, rows, tp, added, f"{name}embedding"))
        blocks.append(norm(f"{name}norms", local, 2 * h, split, arch.norm_gain, (2, 1)))
        blocks.append(linear(f"{name}projection", rows, h // tp, 2 * h, dtype))
        blocks += _loss(arch, rows, tp, sequence_parallel, product, name, loss, unfused)
    return LayerOperators(
        tuple(b.forward for b in blocks),
        tuple(op for b in reversed(blocks) for op in b.backward_input),
        tuple(op for b in reversed(blocks) for op in b.backward_weight),
        (),
    )


def _loss(
    arch: Transformer,
    rows: int,
    tp: int,
    sequence_parallel: bool,
    dtype: str,
    name: str,
    loss: Loss,
    unfused: tuple[Part, ...],
) -> list[Block]:
    """Final norm, head and loss; `dtype` is the head's."""
    h, columns = arch.hidden, padded_vocabulary(arch.vocab, tp, arch.vocab_multiple) // tp
    final = layer_norm(f"{name}final norm", arch, _local(rows, tp, sequence_parallel), unfused)
    head = linear(f"{name}lm head", rows, columns, h, dtype)
    # its input is cast by itself: the norm before it writes 16 bits
    casts = [elementwise(f"{name}lm head, cast", rows, h, h, 0)] if dtype in CAST_DTYPES else []
    reads, writes, back = (times * columns for times in LOSS_MOVED[loss])
    return [final, *casts, head, elementwise(f"{name}softmax and loss", rows, reads, writes, back)]


def _local(rows: int, tp: int, sequence_parallel: bool) -> int:
    return -(-rows // tp) if sequence_parallel else rows


def padded_vocabulary(vocab: int, tp: int, multiple: int = 128) -> int:
    """Rows of the embedding table: the vocabulary rounded up so that every rank holds a multiple of so many.

    Source: Megatron-LM, arguments.py, make_vocab_size_divisible_by (128).
    """
    step = multiple * tp
    return -(-vocab // step) * step
