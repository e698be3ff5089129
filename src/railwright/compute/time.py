"""The time of one operator on one GPU: a roofline with measured fractions and a fixed cost per kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from railwright.catalog.parts import Gpu
from railwright.compute.gemm import Shape, gemm_seconds
from railwright.compute.profile import BLOCK_SCALED, NVIDIA_ONLY, PEAK_OF, Profile, Row, profile_of
from railwright.errors import PlanError
from railwright.model.shape.architecture import Operator

GROUPED_STREAMS = 4
"""Expert GEMMs in flight at once: Transformer Engine's grouped linear layer issues one cuBLAS GEMM per expert
over four streams (memory)."""

GROUPED_ROWS = 137.0
"""Rows per expert at which a grouped GEMM takes twice the time of its matrix work: each expert's tiles start,
drain and round up on their own.  Least squares over 48 measured grouped GEMMs on H800 (infersim, bench_data/
grouped_gemm/prefill/h800: DeepGEMM fp8, 32 to 8,192 rows), together with compute 0.670, memory 0.736 and
15 us fixed: mean error 4.1 %, against 7.0 % without this term.  Taken for other kernels and GPUs too: an
estimate there."""

UNALIGNED = 2.0
"""Time of a product with a width that is no multiple of 16 bytes over that of an aligned one: an estimate.
Tensor cores then load by narrower instructions (NVIDIA, "Matrix Multiplication Background User's Guide",
section 3, for cuBLAS 11)."""

SCAN_WORK = 46.0
"""Time of kernels that work on chunks ('scan'), in fp32 FLOPs of the GPU for a byte that they move: between
small products they scale, mask and raise to powers what they load, on the multiprocessors' own lanes,
which a faster HBM does not help.  Geometric mean of three published measurements, 38 to 56:
TileLang's chunk scan of Mamba-2 on H800 (tile-ai/tilelang be9c08f6, benchmark/mamba2: 8 x 8,192 tokens, 80
heads, 1.278 ms for 1.80 GB) 47; flash-linear-attention's chunk kernels of a gated delta net on H20 (infersim,
bench_data/gdn/prefill/h20: 527 us for 0.60 GB) 38 and on B200 (flashinfer pull request 3001: 8,192 tokens, 16
heads, 0.424 ms for 0.60 GB) 56.  Single kernels are further off."""

DRAWING = 66.0 / 16
"""Integer operations for each score that may be dropped, forward and again backward.

One draw of Philox serves 16 scores: seven rounds of two wide multiplications (two operations each) and two
exclusive ors of three, then eight permutes, comparisons and ands of two scores each.  Counted in
flash-attention, csrc/flash_attn/src/philox.cuh and dropout.h (d9cbcfb, 1274ec3); cuDNN's kernels are not
public.  Held against published slowdowns: tests/validation/test_attention_published.py."""

INTEGER_LANES = {"volta": 1.0, "ampere": 1.0, "cdna2": 1.0}
"""Lanes for integers over those for fp32, by generation; half as many elsewhere.
Source: CUDA C++ Programming Guide, Arithmetic Instructions: 64 a multiprocessor, beside 64 for fp32 in 7.0
and 8.0 and 128 later.  AMD's by their fp32 peaks, an estimate."""

FULL_WIDTH = 128
"""Head width at which attention kernels reach their `compute` share (the rows' reference)."""


def kernel_time(operator: Operator, gpu: Gpu, profile: Profile | None = None) -> float:
    """Time of one operator on one GPU. [s]

    t = fixed + max(work, bytes / (memory * bandwidth)), with constants of the operator's kind and dtype from
    `profile` (default: the GPU's own, see `profile_of`); each launch pays `fixed`.  The work of a product is
    its waves of tiles or what power sustains (see `gemm`), of attention flop / (compute * peak).
    Grouped GEMMs work GROUPED_ROWS more rows for every expert, unless these run one after the other.
    Products of chunks ('scan') run in tiles as a library's do, or as fast as multiprocessors turn what they
    load (SCAN_WORK); where a state passes from chunk to chunk, in rounds, each with a tile's prologue.
    Short sequences slow attention, and the softmax bounds it in narrow heads (compute/data/attention.yaml);
    random numbers that drop scores come on top (DRAWING).
    Valid for training shapes; decode-time attention needs an occupancy term that is not here.
    Raises PlanError where the GPU has no peak for the dtype.
    Source: compute/data/*.yaml, row by row.
    """
    return _MODELS[operator.kind](operator, gpu, profile or profile_of(gpu))


def kernel_times(operators: Iterable[Operator], gpu: Gpu, profile: Profile | None = None) -> float:
    """Time of operators run one after the other on one GPU. [s]"""
    chosen = profile or profile_of(gpu)
    return sum(kernel_time(op, gpu, chosen) for op in operators)


def efficiency_source(operator: Operator, gpu: Gpu, profile: Profile | None = None) -> str:
    """Where the constants behind `kernel_time` of this operator come from."""
    return _row(operator, profile or profile_of(gpu)).source


def constants(gpu: Gpu, profile: Profile | None = None) -> list[tuple[str, float, str]]:
    """Every constant of the kernel model for one GPU: (name with unit, value, source), for the report."""
    chosen = profile or profile_of(gpu)
    found: list[tuple[str, float, str]] = []
    for dtype, row in chosen.gemm.items():
        found += [
            (f"{dtype} GEMM: share of peak", row.compute, row.source),
            (f"{dtype} GEMM: share of HBM bandwidth", row.memory, row.source),
            (f"{dtype} GEMM: fixed time [s]", row.fixed, row.source),
        ]
        if row.sustained < inf:
            found.append((f"{dtype} GEMM: share of peak that power sustains", row.sustained, row.source))
    for phase, row in chosen.attention.items():
        found += [
            (f"attention {phase}: share of peak", row.compute, row.source),
            (f"attention {phase}: sequence of half speed [token]", row.short, row.source),
            (f"attention {phase}: keys of half speed without a mask [token]", row.unmasked, row.source),
            (f"attention {phase}: softmax over products at head width 128", row.softmax, row.source),
        ]
    found.append(("memory-bound kernels: share of HBM bandwidth", chosen.memory.memory, chosen.memory.source))
    return found


def _gemm(operator: Operator, gpu: Gpu, profile: Profile) -> float:
    row = profile.gemm_row(operator.dtype)
    longer = 1.0 if _aligned(operator) else UNALIGNED
    return _product(
        operator, gpu, row, Shape(operator.m, operator.n, operator.k, operator.batch), row.fixed, longer
    )


def _aligned(operator: Operator) -> bool:
    """Whether both widths of a product are whole 16-byte rows: what tensor cores load at full speed.

    The widths are columns of matrices in memory, so not the rows of a microbatch.
    """
    step = 16 if operator.dtype.startswith(("fp8", "mxfp8")) else 8
    other = operator.m if operator.phase == "backward_weight" else operator.k
    return operator.n % step == 0 and other % step == 0


def _grouped(operator: Operator, gpu: Gpu, profile: Profile) -> float:
    """All experts' rows as one product with the weights of all, GROUPED_ROWS more of them for each expert; or
    as `steps` products after one another."""
    row = profile.gemm_row(operator.dtype)
    m, n, k, batch = operator.m, operator.n, operator.k, operator.batch
    if operator.steps == batch:
        one = replace(operator, flops=operator.flops / batch, bytes=operator.bytes / batch, batch=1)
        return batch * _gemm(one, gpu, profile)
    fixed = row.fixed * -(-batch // GROUPED_STREAMS)
    if operator.phase == "backward_weight":
        return _product(operator, gpu, row, Shape(m, n, k + GROUPED_ROWS, batch), fixed, _more(k))
    return _product(operator, gpu, row, Shape((m + GROUPED_ROWS) * batch, n, k), fixed, _more(m))


def _more(rows: int) -> float:
    return 1.0 + GROUPED_ROWS / max(rows, 1)


def _product(
    operator: Operator, gpu: Gpu, row: Row, shape: Shape, fixed: float, longer: float = 1.0
) -> float:
    return float(
        gemm_seconds(
            shape,
            operator.bytes,
            operator.flops * longer,
            fixed=fixed,
            compute=row.compute * peak_rate(gpu, operator.dtype),
            memory=row.memory * gpu.hbm_bandwidth,
            depth=row.depth,
            square=row.square,
            small=row.tiny,
            sms=gpu.sms,
            sustained=row.sustained * peak_rate(gpu, operator.dtype),
        )
    )


def _scan(operator: Operator, gpu: Gpu, profile: Profile) -> float:
    """Rounds of tiles, HBM traffic, or what is done to every element between products (SCAN_WORK): tiles and
    HBM at the rates of a product in 16 bits, of whose tiles these are.

    Held against published kernels and steps: tests/validation/test_mixers_published.py.
    """
    row, rounds = profile.gemm_row(operator.dtype), operator.steps
    shape = Shape(operator.m, operator.n, operator.k, operator.batch)
    one = replace(operator, flops=operator.flops / rounds, bytes=0.0)
    compute = rounds * _product(one, gpu, row, shape, 0.0)
    moved = operator.bytes / (row.memory * gpu.hbm_bandwidth)
    lanes = gpu.peak_flops.get("fp32")
    worked = operator.bytes * SCAN_WORK / lanes if lanes else 0.0
    return row.fixed * operator.launches + max(compute, moved, worked)


def _attention(operator: Operator, gpu: Gpu, profile: Profile) -> float:
    row = profile.attention_row(operator.phase, operator.dtype)
    slowed = row.slowed(operator.n, operator.masked)
    bound = max(1.0, row.softmax * FULL_WIDTH / max(operator.k, 1))
    worked = _roofline(operator, gpu, row, operator.flops * slowed * bound)
    return row.fixed * operator.launches + worked + _drawing(operator, gpu)


def _drawing(operator: Operator, gpu: Gpu) -> float:
    """Time to draw a random number for every score of an attention that drops some; none on GPUs whose fp32
    peak is not told. [s]"""
    lanes = gpu.peak_flops.get("fp32", 0.0) / 2 * INTEGER_LANES.get(gpu.generation, 0.5)
    if not operator.dropped or not lanes:
        return 0.0
    products = 5 if operator.phase == "backward_input" else 2
    scores = operator.flops / (products * 2.0 * operator.k)
    return DRAWING * scores / lanes


def _memory(operator: Operator, gpu: Gpu, profile: Profile) -> float:
    row = profile.memory
    return row.fixed * operator.launches + operator.bytes / (row.memory * gpu.hbm_bandwidth)


def _roofline(operator: Operator, gpu: Gpu, row: Row, flops: float) -> float:
    peak = peak_rate(gpu, operator.dtype)
    return max(flops / (row.compute * peak), operator.bytes / (row.memory * gpu.hbm_bandwidth))


def peak_rate(gpu: Gpu, dtype: str) -> float:
    """Dense peak of a GPU in a number format; scaled formats run at the peak of their width. [flop/s]

    Raises PlanError where the GPU has none.
    """
    # A GPU's own entry counts without more; one that stands for it, only where the cores scale as it needs.
    own, needed = gpu.peak_flops.get(dtype), BLOCK_SCALED.get(dtype)
    if own:
        return own
    peak = gpu.peak_flops.get(PEAK_OF.get(dtype, ""))
    ours = dtype not in NVIDIA_ONLY or gpu.vendor == "nvidia"
    if peak and ours and (needed is None or gpu.peak_flops.get(needed)):
        return peak
    have = ", ".join(sorted(d for d, p in gpu.peak_flops.items() if p))
    raise PlanError(f"{gpu.name} has no {dtype} tensor cores; dtypes it has: {have}.")


def _row(operator: Operator, profile: Profile) -> Row:
    if operator.kind == "memory":
        return profile.memory
    if operator.kind == "attention":
        return profile.attention_row(operator.phase, operator.dtype)
    return profile.gemm_row(operator.dtype)


_MODELS: dict[str, Callable[[Operator, Gpu, Profile], float]] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped,
    "attention": _attention,
    "scan": _scan,
    "memory": _memory,
}
