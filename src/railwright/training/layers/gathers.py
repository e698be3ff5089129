"""In how many bytes tensor-parallel ranks gather what products read, under sequence parallelism.

Transformer Engine's linear layers gather operands as they multiply them: in their 8 or 4 bits, with scales of
blocks.  One scale per tensor lets a rank turn what arrives, so that the gradient of an output travels once;
scales of blocks differ along rows and columns, and it travels with both.  What a linear layer gathers again
for weight gradients it needs along columns alone.  torchao gathers in fp8 where a scale is one per tensor.
What modules of Megatron's own gather (embedding, a head in 16 bits, experts' dispatchers, the rotary part of
latent keys, shared experts beside all-to-alls) travels in 16 bits, and so does what is reduced.
JAX's eras gather in 16 bits here: nothing that we read says what XLA does.
Sources: Transformer Engine d0067d0, pytorch/distributed.py, gather_along_first_dim (_all_gather_fp8, …_mxfp8,
…_nvfp4, …_fp8_blockwise; that of one scale per tensor since its first releases, scales per block of 128 since
2.5, MXFP8's along columns since 2.2); pytorch/module/layernorm_linear.py and base.py, grad_output_preprocess;
pytorch/ao, torchao/float8/float8_tensor_parallel.py.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, Layer
from railwright.spec.training import TrainingJob
from railwright.training.layers.blockwise import SENT
from railwright.training.layers.casts import compiled_casts
from railwright.training.layers.costs import STAYING
from railwright.training.software.eras import era_of
from railwright.training.software.lora import PRODUCTS, THIN


class Gathers(NamedTuple):
    """Bytes of a gathered element over those of 16 bits.

    inputs     what a column-parallel product reads, forward
    again      the same for its weight gradient
    gradients  those of what a row-parallel product writes
    """

    inputs: float = 1.0
    again: float = 1.0
    gradients: float = 1.0


WHOLE = Gathers()
"""All in 16 bits."""

ONE_SCALE = Gathers(1 / ELEMENT, 1 / ELEMENT, 1 / ELEMENT)
"""One byte an element."""
FOUR_BITS = (4 / 8 + 1 / 16) / ELEMENT
"""NVFP4: half a byte, and a scale of one per 16 elements."""

OPERANDS = {
    "fp8": ONE_SCALE,
    "fp8_block": Gathers(SENT, SENT, 2 * SENT),
    "mxfp8": Gathers(SENT, SENT, 2 * SENT),
    "nvfp4": Gathers(FOUR_BITS, FOUR_BITS, 2 * FOUR_BITS),
}
"""What Transformer Engine gathers, by the format of products."""


def gathers_of(job: TrainingJob) -> Gathers:
    """What the linear layers of a job gather.

    No weight gradient reads those of frozen layers along columns (Transformer Engine, module/linear.py).
    """
    if compiled_casts(job):
        return ONE_SCALE if job.dtype == "fp8" else WHOLE
    found = OPERANDS.get(job.dtype, WHOLE) if era_of(job).framework == "megatron" else WHOLE
    return found._replace(gradients=found.inputs) if job.lora else found


def head_gathers(job: TrainingJob) -> Gathers:
    """What the head gathers: in 8 bits only where it multiplies in them."""
    return gathers_of(job) if "head" in job.dtype_also else WHOLE


DTENSORS = ("pytorch", "torchtitan")
"""Frameworks whose tensor parallelism is PyTorch's own, whose autograd keeps what a product reads."""


def gathers_again(job: TrainingJob, of_head: bool = False) -> bool:
    """Whether inputs of column-parallel products are gathered again for their weight gradients, or those of
    the head.

    Megatron-LM's layers do.  PyTorch's DTensors keep what they gathered, compiled or not, and where a layer
    is computed again whole that gather serves, also under XLA, which else keeps a rank's own part; where
    operators are computed again, gathers are among them.
    Source: PyTorch, torch/_functorch/partitioners.py, force_save_collectives; both counted in
    tests/oracle/test_training_checkpoint_pytorch.py.
    """
    era, layout = era_of(job), job.layout
    if era.framework in DTENSORS:
        return layout.recompute == "selective" and "ops" in layout.recompute_modules and not of_head
    reused = not era.repeats and layout.recompute == "full" and layout.recompute_layers is None
    return of_head or not reused


def gathered_whole(job: TrainingJob, arch: Transformer, kind: Layer) -> tuple[str, ...]:
    """Outputs of norms that a layer keeps as its products gathered them, where these keep what they read:
    those of grouped attention and of a dense MLP, each with a norm of its own."""
    layout = job.layout
    keeps = era_of(job).framework in DTENSORS and layout.sequence_parallel and layout.tensor > 1
    if not keeps or arch.norms_per_layer == 1:
        return ()
    mixer, mlp = PARTS[kind]
    attention = mixer == "attention" and arch.attention == "gqa"
    return ("attention norm output",) * attention + ("mlp norm output",) * (mlp == "dense")


def input_share(job: TrainingJob, product: str) -> float:
    """Bytes of what a column-parallel product of a layer gathers, over those of 16 bits.

    product  its name, or that of an adapter's in front of it; '' where what is gathered goes straight to the
             attention
    All of them where modules of Megatron's own gather, and where an adapter reads what its target gathered
    (NeMo 8cfedd7, collections/llm/peft/utils.py, return_layernorm_output_gathered).
    """
    targets = job.lora.targets if job.lora else ()
    adapted = product.endswith(THIN[0]) or any(product in PRODUCTS[target] for target in targets)
    return 1.0 if adapted or not product or product in STAYING else gathers_of(job).inputs
