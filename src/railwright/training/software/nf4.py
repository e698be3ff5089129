"""Frozen weights in 4 bits (NF4, as QLoRA trains beside them): their bytes, and the kernels that widen them.

Linear layers of the blocks, routed experts and routers among them, are stored as codes of 4 bits with a scale
per block; embedding, head, norms and biases keep 16 bits.  No kernel multiplies codes in training: every
product, forward, computed again and backward, first makes 16 bits of its weight, which it frees behind it.
Sources: Dettmers et al., QLoRA (arXiv 2305.14314), sections 2 and 3; bitsandbytes 0.43, autograd/
_functions.py (MatMul4Bit) and functional.py (dequantize_4bit); torchao 0598012, dtypes/nf4tensor.py
(LinearNF4, fsdp_pre_all_gather); transformers, integrations/bitsandbytes.py (linear layers but the head);
torchtune 031d89b, modules/peft/lora.py and modules/low_precision/nf4_linear.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt

from railwright.catalog.parts import Gpu
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.layer import LayerOperators
from railwright.model.operators.recompute import CORE
from railwright.model.shape.architecture import Operator
from railwright.model.tensors.tensor_lists import LayerTensors, Makes
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of
from railwright.training.software.lora import DEQUANTISED, WIDENED_BY, Apart

BLOCK, SCALES = 64, 256
"""Weights that share a scale, and scales that share one of their own (double quantization).
Source: bitsandbytes, quantize_4bit (blocksize, compress_statistics) and torchao, to_nf4, by default."""

CODE, SCALE, WIDE_SCALE = 0.5, (1 + 4 / SCALES) / BLOCK, 4 / BLOCK
"""Bytes of a weight's code, and of its share of scales: in 8 bits with an fp32 one for SCALES of them
(torchao's is in 16 bits, 0.0001 bytes less), and widened to fp32."""

NF4_BYTES = CODE + SCALE
"""Bytes of one weight: 4.127 bits, 0.373 fewer than without double quantization (QLoRA, section 3)."""

BRANCHES = sqrt(1.36 * 2.07)
"""Time of bitsandbytes' kernel on an A100 or Hopper over that of moving its bytes, until release 0.48 (fall
of 2025): each code walked a tree of branches.  Table look-ups made it 1.36 to 2.07 times as fast there, of
all sizes measured (geometric mean), and no faster on Ada, whose memory limits it at the sizes of MLPs.
Source: bitsandbytes, pull requests 1746 and 1747; arXiv 2604.02556 finds 2.0 to 2.2 on an A100."""

BRANCHING = ("ampere", "hopper")
"""How generations of GPUs begin that these branches slow."""


def is_nf4(job: TrainingJob) -> bool:
    """Whether a job's frozen weights are stored in 4 bits."""
    return job.lora is not None and job.lora.frozen_dtype == "nf4"


def scales_stay(job: TrainingJob) -> bool:
    """Whether every GPU holds all scales, of which FSDP then gathers none.

    bitsandbytes keeps them beside its weights (Params4bit.quant_state), where FSDP does not see them; with
    `quant_storage` codes are cut and gathered as if they were 16-bit numbers.  torchao's tensors cut both.
    Source: answer.ai, fsdp_qlora 85fe872, train.py (load_param); torchao, _INNER_TENSOR_NAMES_FOR_SHARDING.
    """
    return is_nf4(job) and era_of(job).launcher == "python"


def stored_bytes(job: TrainingJob, wide: float) -> float:
    """Bytes of a frozen weight of a layer in a rank's share of them.

    wide  where they are not in 4 bits
    """
    if not is_nf4(job):
        return wide
    return CODE if scales_stay(job) else NF4_BYTES


def gathered_bytes(job: TrainingJob) -> float:
    """Bytes of a frozen weight of a layer as FSDP gathers it: of one in 4 bits what it cuts, as it is."""
    return stored_bytes(job, ELEMENT)


@dataclass(frozen=True)
class Widening:
    """How a weight is made 16 bits.

    bytes     of HBM traffic a weight, or as many as take its time
    launches  kernels
    """

    bytes: float
    launches: int


def widening(job: TrainingJob, gpu: Gpu) -> Widening:
    """The kernels of a job's software.

    bitsandbytes widens scales by one kernel, adds their mean by another, and then codes; torchao's operations
    are taken to be one kernel, where torch.compile has the layer: codes and scales read, 16 bits written.
    """
    if not scales_stay(job):
        return Widening(NF4_BYTES + ELEMENT, 1)
    slower = BRANCHES if gpu.generation.startswith(BRANCHING) else 1.0
    return Widening(SCALE + 3 * WIDE_SCALE + slower * (CODE + WIDE_SCALE + ELEMENT), WIDENED_BY)


def with_dequantised(
    operators: LayerOperators, frozen: LayerOperators, job: TrainingJob, gpu: Gpu, apart: Apart
) -> LayerOperators:
    """A layer's operators with kernels that widen weights in front of its products and of the gradients of
    their inputs.

    frozen  the layer's operators without adapters, and with gradients of weights
    apart   as in `lora.linears`: so many linear layers, each of which is widened for itself
    """
    each, products = widening(job, gpu), {_product(op) for op in frozen.backward_weight if _multiplies(op)}

    def wider(found: Iterable[Operator]) -> tuple[Operator, ...]:
        return tuple(one for op in found for one in (*ahead(op), op))

    def ahead(op: Operator) -> tuple[Operator, ...]:
        product = _product(op)
        if product not in products or not _multiplies(op):
            return ()
        moved = each.bytes * op.n * op.k * op.batch
        launches = each.launches * apart.get(product, 1) * op.batch
        name = f"{product}{DEQUANTISED}"
        return (Operator(name, "memory", 0.0, moved, op.dtype, phase=op.phase, launches=launches),)

    return replace(
        operators,
        forward=wider(operators.forward),
        backward_input=wider(operators.backward_input),
        recomputed=wider(operators.recomputed),
    )


def widest(products: Iterable[Operator], apart: Apart) -> float:
    """16 bits of the largest linear layer among some, as they are while it multiplies. [byte]

    products  that make the gradients of its weights
    """
    sizes = (op.m * op.n / apart.get(_product(op), 1) for op in products if _multiplies(op))
    return ELEMENT * max(sizes, default=0.0)


def with_widened(tensors: LayerTensors, largest: float) -> LayerTensors:
    """A layer's tensors where products have 16 bits of their weights beside them, forward and backward.

    largest  of them [byte]: an operator with several weights widens one after the other
    """

    def beside(op: Makes) -> Makes:
        if not op.weights:
            return op
        size = min(ELEMENT * max(op.weights), largest)
        return replace(op, beside=(op.beside[0] + size, op.beside[1] + size))

    return replace(tensors, operators=tuple(map(beside, tensors.operators)))


def _product(op: Operator) -> str:
    """Name of an operator without its phase."""
    return op.name.rsplit(", ", 1)[0]


def _multiplies(op: Operator) -> bool:
    """Whether an operator is a product, of whatever else than scores."""
    return op.kind in ("gemm", "grouped_gemm") and _product(op) not in CORE
