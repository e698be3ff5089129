"""What a kernel does, by its name: matrix product, attention, memory-bound, communication, copy.

Names: cuBLAS and CUTLASS ('sm90_xmma_gemm_…', 'nvjet_…', 'cutlass_…'), FlashAttention and cuDNN
('flash_fwd_…', '…fmha…'), Triton, Tensile on AMD ('Cijk_…'), NCCL and RCCL (NVIDIA/nccl,
src/device/generate.py; older ones 'ncclKernel_AllReduce_RING_LL_Sum_float').
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    r"flash|fmha|attention|attn|mha_|_mha|sdpa|fused_qkv_att|softmax_dropout", re.IGNORECASE
)
_OPTIMIZER = re.compile(r"adam|multi_tensor_apply|optimizer|lamb|sgd|l2norm|clip_grad", re.IGNORECASE)
_GEMM = re.compile(
    r"gemm|gemv|cutlass|cublas|xmma|nvjet|wgmma|matmul|cijk_|s\d{4,5}[a-z]*_|triton_mm|triton_tem_fused_mm|"
    r"^aten::(mm|bmm|addmm|baddbmm|linear|_scaled_mm|_grouped_mm|conv\w*|_?convolution\w*)$|splitkreduce|conv\d?d?_",
    re.IGNORECASE,
)


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
        return "memory" if "DtoD" in span.name or span.category == "gpu_memset" else "copy"
    if span.call is not None or _NCCL.match(span.name):
        return "communication"
    if _ATTENTION.search(span.name):
        return "attention"
    if _OPTIMIZER.search(span.name):
        return "optimizer"
    return "gemm" if _GEMM.search(span.name) else "memory"


def op_of(span: Span) -> Op | None:
    """The collective of a communication span: as recorded beside it, else by its kernel's name.

    An all-to-all runs as NCCL's SendRecv kernel, so the recorded name decides.
    """
    recorded = _op(span.call.name) if span.call is not None else None
    if recorded is not None:
        return recorded
    kernel = nccl_kernel(span.name)
    return kernel.op if kernel is not None else None


def _op(name: str) -> Op | None:
    return _OPS.get(re.sub(r"[^a-z]", "", name.lower()))
