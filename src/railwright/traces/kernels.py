"""What a kernel does, by its name: matrix product, attention, memory-bound, communication, copy.

Names: cuBLAS and CUTLASS ('sm90_xmma_gemm_…', 'nvjet_…', 'cutlass_…'), FlashAttention and cuDNN
('flash_fwd_…', '…fmha…'), Triton, Tensile on AMD ('Cijk_…'), NCCL and RCCL (NVIDIA/nccl,
src/device/generate.py; older ones 'ncclKernel_AllReduce_RING_LL_Sum_float'), DeepEP (deepseek-ai/DeepEP,
csrc/kernels; for other NICs UCCL's, uccl-project/uccl, ep/src), MORI (ROCm/mori, src/ops/dispatch_combine),
Transformer Engine's user buffers (common/comm_gemm_overlap/userbuffers/userbuffers.cu) and PyTorch's
symmetric memory (CUDASymmetricMemoryOps.cu; the barriers around its copies, CUDASymmetricMemory.cu; its
all-to-alls by NVSHMEM, nvshmem_extension.cu).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from railwright.collectives.prediction import Op
from railwright.traces.kineto import Span

Work = Literal["gemm", "attention", "memory", "optimizer", "communication", "copy"]

_NCCL = re.compile(
    r"^(?:void )?(?:nccl|rccl|gloo)[:_]?(?:SymkDevKernel|SymDevKernel|DevKernel|Kernel|SymKernel)?[_:]?"
    r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAllv?|Generic|all_reduce|allreduce|"
    r"all_gather|_?allgather(?:_base)?|reduce_scatter|_?reduce_scatter_base|broadcast|all_to_all|alltoall|"
    r"send|recv)",
)
_OPS: dict[str, Op] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allreducecoalesced": "all_reduce",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "sendrecv": "sendrecv",
    "send": "sendrecv",
    "recv": "sendrecv",
}
_REDUCTIONS = {
    "Sum",
    "Prod",
    "Min",
    "Max",
    "MinMax",
    "PreMulSum",
    "SumPostDiv",
    "Avg",
    "sum",
    "prod",
    "min",
    "max",
}
_ALGORITHMS = {"RING", "TREE", "NVLS", "NVLSTREE", "COLLNETDIRECT", "COLLNETCHAIN", "PAT", "COLLNET"}
_PROTOCOLS = {"LL", "LL128", "SIMPLE"}
_TYPES = {
    "f16", "f32", "f64", "bf16", "i8", "u8", "i32", "u32", "i64", "u64", "f8e4m3", "f8e5m2", "half", "float",
    "double", "int8", "uint8", "int32", "int64", "uint32", "uint64", "bfloat16",
}  # fmt: skip

_ATTENTION = re.compile(
    r"flash(?!infer)|(?:prefill|decode|pod)with\w*kvcache|flashinfer::\w*mergestate|"
    r"fmha|attention|attn|mha_|_mha|sdpa|fused_qkv_att|softmax_dropout",
    re.IGNORECASE,
)
"""FlashInfer is a library of norms, activations, rotary embeddings and sampling too; its attention is called
BatchPrefillWithRaggedKVCacheKernel and the like (include/flashinfer/attention)."""
_OPTIMIZER = re.compile(
    r"multi_tensor(?!.*\bCopy(?:Functor)?<)|adam(?!ard)|(?<![a-z])sgd|(?<![a-z])lamb(?![a-z])|lamb\w*functor|optimizer|clip_grad",
    re.IGNORECASE,
)
"""'adam' is in Hadamard: transforms of Transformer Engine's NVFP4 (hadamard_transform.cu) and of Dao-AILab's
fast-hadamard-transform."""
_GEMM = re.compile(
    r"(?<!fb)gemm|gemv|(?<!^kernel_)cutlass(?!::(?:b?float|half|tfloat))|tiledmma|cublas|xmma|nvjet|wgmma|matmul|cijk_|"
    r"s\d{4,5}[a-z]*_|triton_mm|triton_tem_fused_\w*mm(?![a-z])|"
    r"^aten::(mm|bmm|addmm|baddbmm|linear|_scaled_mm|_grouped_mm|conv\w*|_?convolution\w*)$|splitkreduce|"
    r"(?<!causal_)conv\d?d?_",
    re.IGNORECASE,
)
"""fbgemm_gpu is a library of embeddings and permutations too; a type of CUTLASS's is in many names, and
whatever CuTe DSL compiles is called 'kernel_cutlass_…' (norms of quack, Liger and FlashInfer), of which
products have a TiledMMA where their function has no name for it."""

_PARAMETERS = re.compile(r"\([^()]*\)")
_LAMBDA = re.compile(r"\{lambda[^{}]*\}")

_MOVERS: tuple[tuple[re.Pattern[str], Op | None, str], ...] = (
    (
        re.compile(r"\b(?:deep_ep|hybrid_ep|uccl)::(?!layout::)(?:\w+::)*\w*(?:dispatch|combine|notify)"),
        "all_to_all",
        "ep",
    ),
    (re.compile(r"(?:\bmori::moe::|^(?:void )?)Ep(?:Dispatch|Combine)[A-Z]\w*"), "all_to_all", "ep"),
    # RCCL's kernel for collectives of MSCCL; its name says the reduction alone (src/device/msccl_kernel.h)
    (re.compile(r"\bmscclKernel_"), None, ""),
    (re.compile(r"\bk?userbuffers_(?:push|pull|send|recv)"), "sendrecv", "tp"),
    (re.compile(r"\buserbuffers_\w+_(?:rr|mc|rw)_rs"), "reduce_scatter", "tp"),
    (re.compile(r"\buserbuffers_\w+_(?:rr|mc|rw)_ag"), "all_gather", "tp"),
    (re.compile(r"\buserbuffers_\w+_(?:rr|mc|rw)\b"), "all_reduce", "tp"),
    (re.compile(r"\b(?:multimem|one_shot|two_shot)\w*_all_reduce"), "all_reduce", ""),
    (re.compile(r"\b(?:multimem|two_shot)\w*_all_gather"), "all_gather", ""),
    (re.compile(r"\b(?:multimem|two_shot)\w*_reduce_scatter"), "reduce_scatter", ""),
    (re.compile(r"\b(?:allToAllV|exchangeSplitAndOffset)(?:_\w+)?\b"), "all_to_all", ""),
    (re.compile(r"\bsymmetric_memory::(?:barrier|put_signal|wait_signal)_kernel"), None, ""),
)
"""Kernels that move data between GPUs without NCCL: their collective, and the parallelism that they alone
serve ('' for any).  DeepEP and MORI send tokens to experts; user buffers overlap tensor parallelism."""


@dataclass(frozen=True)
class NcclKernel:
    """What an NCCL kernel's name says; '' for what it does not.

    NCCL compiles few kernels of their own and enters all other variants through one of them, so algorithm and
    protocol are those of the kernel's entry and no evidence of what ran.
    """

    op: Op | None
    reduction: str = ""
    dtype: str = ""
    algorithm: str = ""
    protocol: str = ""


def nccl_kernel(name: str) -> NcclKernel | None:
    """The parts of an NCCL (or RCCL, gloo) kernel's name; None for any other kernel."""
    match = _NCCL.match(name)
    if match is None:
        return None
    found = {"op": _op(match[1]), "reduction": "", "dtype": "", "algorithm": "", "protocol": ""}
    tokens = re.split(r"[_\W]+", name.split("(")[0].split("<")[0][match.end() :])
    for first, second in zip(tokens, [*tokens[1:], ""], strict=True):
        if first + second in _ALGORITHMS and second:
            found["algorithm"] = first + second
    for token in tokens:
        if token in _REDUCTIONS:
            found["reduction"] = token
        elif token in _TYPES:
            found["dtype"] = token
        elif token in _ALGORITHMS and not found["algorithm"]:
            found["algorithm"] = token
        elif token in _PROTOCOLS:
            found["protocol"] = token
    return NcclKernel(**found)  # type: ignore[arg-type]


def work_of(span: Span) -> Work:
    """What a span on a device, or a CPU operator, does; what nothing else names is bound by memory."""
    if span.category in ("gpu_memcpy", "gpu_memset"):
        # CUPTI calls a copy to another GPU PtoP: user buffers and symmetric memory move data so too
        if "PtoP" in span.name:
            return "communication"
        return "memory" if "DtoD" in span.name or span.category == "gpu_memset" else "copy"
    return "communication" if span.call is not None else _work(span.name)


def op_of(span: Span) -> Op | None:
    """The collective of a communication span: as recorded beside it, else by its kernel's name.

    An all-to-all runs as NCCL's SendRecv kernel, so the recorded name decides; so do gather and scatter,
    which have no price.
    """
    recorded = _op(span.call.name) if span.call is not None else None
    if recorded is not None or (span.call is not None and span.call.name in ("gather", "scatter")):
        return recorded
    kernel = nccl_kernel(span.name)
    return kernel.op if kernel is not None else _mover(span.name)[0]


def served_by(span: Span) -> str:
    """'ep' or 'tp' where a communication's library serves that parallelism alone, else ''."""
    return _mover(span.name)[1]


@lru_cache(maxsize=10_000)
def _work(name: str) -> Work:
    """By the name alone; a trace repeats few names by the hundred thousand."""
    function = _function(name)
    if _NCCL.match(name) or any(pattern.search(function) for pattern, _, _ in _MOVERS):
        return "communication"
    if _ATTENTION.search(function):
        return "attention"
    if _OPTIMIZER.search(function):
        return "optimizer"
    return "gemm" if _GEMM.search(function) else "memory"


@lru_cache(maxsize=10_000)
def _mover(name: str) -> tuple[Op | None, str]:
    function = _function(name)
    return next(((op, serves) for pattern, op, serves in _MOVERS if pattern.search(function)), (None, ""))


def _function(name: str) -> str:
    """A kernel's name without lambdas and parameters: the types of its arguments say nothing of its work.

    'f<g(int)::{lambda(float)#1}>(a)' is 'f<g::>'; what follows a parenthesis that is cut off goes too.
    """
    name, before = _LAMBDA.sub("", name), ""
    while name != before:
        before, name = name, _PARAMETERS.sub("", name)
    return name.split("(")[0]


def _op(name: str) -> Op | None:
    return _OPS.get(re.sub(r"[^a-z]", "", name.lower()))
