"""What runs outside the layers: the embedding and the LM head with its loss."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.architecture import Operator, Transformer
from railwright.model.eager import LOSS_MOVED, Loss, Part
from railwright.model.kernels import CAST_DTYPES, ELEMENT, Block, elementwise, half, linear
from railwright.model.norms import layer_norm, norm, splits_norms
from railwright.model.operators import LayerOperators


def embedding_operators(
    arch: Transformer, rows: int, *, tp: int = 1, sequence_parallel: bool = False
) -> LayerOperators:
    """Looking up `rows` tokens in the vocabulary-parallel table, and scattering their gradients back.

    Each GPU of the tensor-parallel group writes all rows (zeros for words it does not hold), then they are
    reduced.  The gradient is a scatter-add into the fp32 table: only the rows met.
    """
    h = arch.hidden
    table = elementwise("embedding", rows, reads=h, writes=h, back=0)
    scatter = Operator(
        "embedding, weight gradient",
        "memory",
        0.0,
        rows / tp * h * (ELEMENT + 8.0),
        "bf16",
        phase="backward_weight",
    )
    forward = [table.forward]
    if arch.position_embeddings:
        local = rows // tp if sequence_parallel else rows
        forward.append(elementwise("positions", local, reads=2 * h, writes=h, back=0).forward)
    if not arch.embedding_norm:
        return LayerOperators(tuple(forward), (), (scatter,), ())
    norm = elementwise("embedding norm", _local(rows, tp, sequence_parallel), reads=h, writes=h, back=3 * h)
    return LayerOperators((*forward, norm.forward), norm.backward_input, (scatter,), ())


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
) -> LayerOperators:
    """Final norm, the vocabulary-parallel LM head and the softmax cross-entropy loss.

    dtype  of the layers; the head's product runs in the 16-bit format beside it, also in most fp8 recipes
    narrow it runs in `dtype` too, and casts its input itself (Megatron-LM, TELMHeadColumnParallelLinear)
    loss   how its kernels pass over the logits (`eager.LOSS_MOVED`)
    unfused  parts that run one kernel per operation; of them the norms are here
    Columns per GPU are those of the padded vocabulary over tp.
    Each multi-token-prediction layer norms its hidden states and the next token's embedding, joins both, and
    after its layer (one more of the last stage's) runs the shared head again (DeepSeek-V3, arXiv 2412.19437,
    section 2.2).
    """
    if tp < 1:
        raise PlanError(f"tensor parallel {tp} must be at least 1.")
    product = dtype if narrow else half(dtype)
    blocks = _loss(arch, rows, tp, sequence_parallel, product, "", loss, unfused)
    for number in range(1, arch.mtp_layers + 1):
        name = f"mtp {number} "
        h, local = arch.hidden, _local(rows, tp, sequence_parallel)
        split = splits_norms(arch, unfused)
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
