"""Host time of Triton's launches in a linear layer over a kernel of 19 arguments (`host_tuned_seconds`).

Needs no GPU: Triton's driver and compiler are replaced by ones that do nothing, so that what is left is
its Python, the autotuner included.  The kernel of 19 arguments runs in a loop of its own, as tritonbench
times it, the others in their layer.  Needs torch (its CPU wheel does), triton and einops; for `mamba` a
checkout of state-spaces/mamba (2.2.4), for `kda` and `lightning` fla-core 0.6.0, unpacked.

    python benchmarks/triton_launches.py mamba PATH
    python benchmarks/triton_launches.py kda PATH

Ratios of one run, which on a shared machine scatter by half: run it several times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
import triton.compiler
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

ROUNDS = 300


class NullDriver:
    """H100's, without one."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        def once(run: Callable[[], object], **_: object) -> list[float]:
            run()
            return [1.0, 1.0, 1.0]

        return once


class NullKernel:
    """What a compiled kernel has that launching asks for."""

    function, packed_metadata, module, n_regs = 1, (1,), 1, 0

    def launch_metadata(self, *_: object) -> None:
        return None

    def run(self, *_: object) -> None:
        return None


class NullDevice:
    """torch.cuda.device."""

    def __init__(self, _: object) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def nothing_runs() -> None:
    driver.set_active(NullDriver())
    triton.compiler.compile = lambda *_, **__: NullKernel()
    if hasattr(JITFunction, "_do_compile"):  # from Triton 3.3 on

        def compiled(self: Any, key: object, _: object, device: int, *__: object) -> NullKernel:
            return self.device_caches[device][0].setdefault(key, NullKernel())

        JITFunction._do_compile = compiled
    torch.cuda.device = NullDevice
    gpu = SimpleNamespace(
        multi_processor_count=132, name="NVIDIA H100", total_memory=80 << 30, major=9, minor=0
    )
    torch.cuda.get_device_properties = lambda *_: gpu
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True


@triton.jit
def nineteen(
    t1, t2, t3, t4, t5, i1, i2, i3, i4, i5, i6, i7, i8, i9,
    c1: tl.constexpr, c2: tl.constexpr, c3: tl.constexpr, c4: tl.constexpr, c5: tl.constexpr,
):  # fmt: skip
    """As many pointers, numbers and constants as the kernel of tritonbench's launch_latency."""


def launches() -> dict[str, list[float]]:
    """Seconds of every outermost launch from now on, by kernel."""
    found: dict[str, list[float]] = {}
    inside = [False]

    def watched(kind: type) -> None:
        plain = kind.run

        def run(self: Any, *args: object, **kwargs: object) -> object:
            if inside[0]:
                return plain(self, *args, **kwargs)
            inside[0], start = True, time.perf_counter()
            try:
                return plain(self, *args, **kwargs)
            finally:
                inside[0], name = False, self
                while not hasattr(name, "__name__"):
                    name = name.fn
                found.setdefault(name.__name__, []).append(time.perf_counter() - start)

        kind.run = run

    for kind in (Autotuner, Heuristics, JITFunction):
        watched(kind)
    return found


def mamba(path: str) -> Callable[[], None]:
    """Mamba-2's fused function forward and backward on two heads; its CUDA convolution does nothing."""
    sys.path.insert(0, path)
    package = ModuleType("mamba_ssm")  # without its __init__, which wants compiled extensions
    package.__path__ = [f"{path}/mamba_ssm"]
    conv = ModuleType("causal_conv1d")
    conv.causal_conv1d_fn = conv.causal_conv1d_update = None
    cuda = ModuleType("causal_conv1d_cuda")
    cuda.causal_conv1d_fwd = lambda x, *_: x
    cuda.causal_conv1d_bwd = lambda x, weight, bias, *_: (x, weight, bias, None)
    functions = ModuleType("causal_conv1d.cpp_functions")
    functions.causal_conv1d_fwd_function = cuda.causal_conv1d_fwd
    functions.causal_conv1d_bwd_function = cuda.causal_conv1d_bwd
    functions.causal_conv1d_update_function = None
    for module in (package, conv, cuda, functions):
        sys.modules[module.__name__] = module
    from mamba_ssm.ops.triton.ssd_combined import MambaSplitConv1dScanCombinedFn as Scan

    heads, width, state, tokens, chunk = 2, 16, 16, 64, 32
    inner, wide = heads * width, heads * width + 2 * state

    def bf16(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=torch.bfloat16)

    rows, each = bf16(1, tokens, inner + wide + heads), torch.zeros(heads)
    context = SimpleNamespace()
    context.save_for_backward = lambda *kept: setattr(context, "saved_tensors", kept)

    def layer() -> None:
        Scan.forward(
            context, rows, bf16(wide, 4), bf16(wide), each, each, each, chunk, None, None,
            (0.0, float("inf")), False, "silu", bf16(inner), 1e-5, None, None, width, 1, False,
        )  # fmt: skip
        Scan.backward(context, bf16(1, tokens, inner))

    return layer


def linear_attention(kind: str, path: str) -> Callable[[], None]:
    """flash-linear-attention's function forward and backward on two heads."""
    sys.path.insert(0, path)
    if kind == "kda":
        from fla.ops.kda import chunk_kda as attend
    else:
        from fla.ops.lightning_attn import chunk_lightning_attn as attend
    heads, width, tokens = 2, 64, 128

    def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, requires_grad=True)

    inputs = [zeros(1, tokens, heads, width) for _ in range(3)]
    options: dict[str, object] = {"layer_idx": 0, "num_layers": 4}
    if kind == "kda":
        inputs += [zeros(1, tokens, heads, width, dtype=torch.float32), zeros(1, tokens, heads)]
        decay = {
            "A_log": zeros(heads, dtype=torch.float32),
            "dt_bias": zeros(heads * width, dtype=torch.float32),
        }
        options = {**decay, "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True}

    def layer() -> None:
        output, _ = attend(*inputs, **options)
        torch.autograd.grad(output, inputs, torch.zeros_like(output))

    return layer


def main(kind: str, path: str) -> None:
    nothing_runs()
    layer = mamba(path) if kind == "mamba" else linear_attention(kind, path)
    arguments = [*[torch.zeros(1)] * 5, *[1] * 9, *[32] * 5]
    found = launches()
    for rounds in (20, ROUNDS):  # the first to compile and warm up
        found.clear()
        for _ in range(rounds):
            layer()
        for _ in range(rounds):
            nineteen[1,](*arguments)
    one = sorted(found.pop("nineteen"))[ROUNDS // 2]
    told = {name: sorted(times)[len(times) // 2] / one for name, times in found.items()}
    counts = {name: len(times) // ROUNDS for name, times in found.items()}
    for name, ratio in told.items():
        print(f"{counts[name]} x {ratio:5.2f}  {name}")
    total = sum(counts.values())
    mean = sum(counts[name] * ratio for name, ratio in told.items()) / total
    print(f"Triton {triton.__version__}: {total} launches, each {mean:.1f} times the kernel of 19 arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
