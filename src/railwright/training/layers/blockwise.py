"""fp8 with a scale per block: DeepSeek-V3's recipe, Transformer Engine's Float8BlockScaling.

Activations and their gradients share a scale along 128 elements of a row, weights in squares of 128.
On Hopper products take as long as those with one scale per tensor: DeepGEMM's table of dense and grouped
products of DeepSeek-V3 on H800 (327ec92, April 2025, 4,096 rows and more) is met within 2 % in the mean by
the kernel model's fp8.  What differs are the casts: no norm or activation writes such blocks, so that each
input of a product is cast by a kernel of its own, along its rows and, for the gradient of the weights, along
its columns; and weights stay in 16 bits beside both copies.

Tokens may travel to experts in these formats too (`dispatch_dtype`): cast before they leave, and at their
expert only turned for the gradient of the weights.  What experts return stays in 16 bits.
Sources: DeepSeek-V3 (arXiv 2412.19437), sections 3.3.1 to 3.3.3; Transformer Engine, pytorch/tensor/
float8_blockwise_tensor.py and module/layernorm_linear.py (with_quantized_norm); Megatron-Bridge 067f987,
training/mixed_precision.py, bf16_with_fp8_subchannel_scaling_mixed (fp8_param_gather off);
Megatron-LM d98e8a64, transformer_config.py, moe_dispatch_fwd_dtype and moe_combine_bwd_dtype.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.catalog.parts import LIKE_BLACKWELL, Gpu
from railwright.errors import PlanError
from railwright.model.operators.kernels import ELEMENT, half
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Phase
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import sequence_ranks

DTYPE = "fp8_block"
"""What a job calls this format."""

SCALED = ("fp8_block", "mxfp8")
"""Formats whose tensors can travel by themselves: their scales lie beside each row."""

SENT = (1 + 4 / 128) / ELEMENT
"""Bytes of a token's element on its way to an expert over one in 16 bits: 8 bits, a scale of 4 bytes per 128
(MXFP8's byte per 32 is as much)."""

CAST = ELEMENT + 2 * (1 + 4 / 128)
"""HBM traffic of casting one element: read in 16 bits, written straight and transposed with its scales."""

GATHERED = (
    *("qkv projection", "query projection", "query up", "key/value up", "mixer projection"),
    *("mlp up", "shared expert up"),
)
"""Products that read rows of all tensor ranks, each of which casts its own before they travel (`gathers`)."""

OUTPUT_CASTS = {
    "attention output cast": "output projection",
    "mixer output cast": "mixer output projection",
}
"""Casts that are operators of every layer in 8 bits, and the product behind each."""

TO_EXPERTS = ("ep dispatch", "ep combine backward")
"""Exchanges that carry what a product of an expert multiplies next."""


def product_dtype(job: TrainingJob, gpu: Gpu) -> str:
    """What a job's linear layers multiply in on a GPU, as the kernel model calls it.

    From Blackwell on blocks are multiplied as MXFP8's, each with the scale of its own: cuBLAS has no products
    of blocks there.  Source: Transformer Engine d0067d0, pytorch/csrc/extensions/gemm.cpp
    (convert_block_scaling_to_mxfp8_tensor).
    """
    if job.dtype != DTYPE:
        return job.dtype
    return "mxfp8" if gpu.generation in LIKE_BLACKWELL else "fp8"


def sent_share(job: TrainingJob, purpose: str) -> float:
    """Bytes of an expert all-to-all over those in 16 bits."""
    return SENT if job.dispatch_dtype == "fp8" and purpose in TO_EXPERTS else 1.0


def check_dispatch(job: TrainingJob) -> None:
    """Refuse tokens in fp8 where experts multiply in something else (PlanError)."""
    if job.dispatch_dtype == "fp8" and job.dtype not in SCALED:
        raise PlanError(
            f"{job.name}: dispatch_dtype fp8 sends tokens in blocks with scales, and dtype {job.dtype} has "
            f"none; set dtype to {' or '.join(SCALED)}, or dispatch_dtype to bf16."
        )


def with_block_casts(operators: LayerOperators, job: TrainingJob, gpu: Gpu) -> LayerOperators:
    """A layer's operators with a cast before every product whose input no kernel casts yet."""
    narrow = product_dtype(job, gpu)

    def ahead(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        cast = {op.name.rsplit(", ", 1)[0] for op in found if op.name.endswith(", cast")}
        done = cast | {OUTPUT_CASTS[op.name] for op in found if op.name in OUTPUT_CASTS}
        return tuple(
            one
            for op in found
            for one in ((_cast(op, job), op) if op.dtype == narrow and op.name not in done else (op,))
        )

    return replace(operators, forward=ahead(operators.forward), recomputed=ahead(operators.recomputed))


def with_narrow_dispatch(operators: LayerOperators, job: TrainingJob) -> LayerOperators:
    """Experts' operators where tokens come in fp8: cast where they leave, moved at half the bytes, turned."""
    tokens = next(op for op in operators.forward if op.name == "permute")
    turned = {"sort by expert": SENT, "experts up, cast": 0.5}
    leaving = _moved("dispatch cast", 0.5 * tokens.bytes, job, "forward")
    returning = _moved("unpermute, gradient cast", 0.5 * tokens.bytes, job, "backward_input")

    def less(found: tuple[Operator, ...], shares: dict[str, float]) -> tuple[Operator, ...]:
        return tuple(replace(op, bytes=op.bytes * shares.get(op.name, 1.0)) for op in found)

    forward = less(operators.forward, turned)
    place = next(i for i, op in enumerate(forward) if op.name == "permute")
    back = less(operators.backward_input, {"experts down, gradient cast": 0.5})
    again = less(operators.recomputed, turned)
    return replace(
        operators,
        forward=(*forward[:place], leaving, *forward[place:]),
        backward_input=(returning, *back),
        recomputed=again,
    )


def _cast(op: Operator, job: TrainingJob) -> Operator:
    rows = op.m * op.batch / (sequence_ranks(job) if op.name in GATHERED else 1)
    return _moved(f"{op.name} input cast", CAST * rows * op.k, job, "forward")


def _moved(name: str, moved: float, job: TrainingJob, phase: Phase) -> Operator:
    return Operator(name, "memory", 0.0, moved, half(job.dtype), phase=phase)
