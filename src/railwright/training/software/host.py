"""What the host needs to launch a layer, and where the GPU waits for it.

PyTorch launches kernels ahead of the GPU.  The GPU waits only where launching takes longer than running:
over a whole pass where nothing stops the host, layer by layer where the host itself waits for the GPU.  With
CUDA_LAUNCH_BLOCKING=1 (`TrainingJob.launch_blocking`) the host waits for every kernel, and the GPU for every
launch.  CUDA graphs launch at once what they hold (`TrainingJob.cuda_graphs`), which costs the host nothing
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from railwright.catalog.parts import Gpu
from railwright.model.operators.layer import LayerOperators, second_block
from railwright.model.operators.looped import KERNELS, SORTED, WAITED
from railwright.model.operators.narrow import OUTPUT_IN_16_BITS, SUMMED
from railwright.model.operators.recompute import LATENT, OFFSETS, ROWS, SEARCH, STORING, SUMS
from railwright.model.shape.architecture import Operator
from railwright.training.lanes.tasks import PASSED_ON, Task
from railwright.training.software.constants import constant
from railwright.training.software.lora import DEQUANTISED, DROPOUT, SCALE, SUM, THIN, WIDENED_BY

Launcher = Literal["python", "inductor", "native"]
"""What launches a layer's kernels: PyTorch's modules one by one, the wrapper that torch.compile wrote of the
layer, or a compiled program without Python (XLA)."""

GRACE = ("gb", "gh")
"""How GPUs of a Grace CPU, which launches for them, begin their names.  Vera launches as the
sources' Xeon does: nothing is published of it but that NVIDIA calls it twice Grace."""


@dataclass(frozen=True)
class LaunchTimes:
    """Host time for one layer of one microbatch, without its collectives, and for one collective [s].

    input, weight  for gradients of inputs and of weights, which a split backward pass has apart
    again          for what selective recomputation runs again
    searches       times that the host waits in a forward pass for an expert's number of tokens (`looped`)
    search         what the GPU then waits for it
    """

    forward: float
    input: float
    weight: float
    collective: float
    again: float = 0.0
    searches: int = 0
    search: float = 0.0

    @property
    def backward(self) -> float:
        """Of a whole backward pass [s]."""
        return self.input + self.weight


ROUTER = frozenset({"mlp norm", "router", "expert choice", "expert counts", LATENT[0]})
"""What a graph of router and preprocessing holds (Megatron-LM, cuda_graph_scope: moe_router,
moe_preprocess)."""


EAGER = frozenset({"rotary", "key/value copies", "expert choice", "experts bias", OFFSETS, ROWS, SUMS})
"""Parts that run as many operations of PyTorch in a row, each of which takes the host what the source says of
one; `Pace.host` stands for what Python does around them.  So do norms of more kernels than fused ones have
(NORM), and activations: behind a fused one, whose backward function Python calls once, autograd's engine sums
up the gradient of its bias without Python (PyTorch, autograd/engine.cpp, validate_outputs)."""

WITHIN = frozenset({"attention casts", OUTPUT_IN_16_BITS})
"""Casts of an attention in 8 bits: operations one after another inside the call of the attention itself,
which is counted (Transformer Engine, FusedAttnFunc), as those of what SwiGLU reads are inside its call.  The
sum over heads behind attention is cuDNN's own."""

NORM = 2
"""Most kernels of fused norms: two in one block, or one with the sum of its gains' gradients beside it."""


AROUND = (SCALE, SUM)
"""Operations of PyTorch behind an adapter's two products, in the call of Python's that makes those; backward
they are autograd's own.  The products are plain ones, torch.nn.Linear or Megatron-core's ColumnParallelLinear
and RowParallelLinear, none of Transformer Engine's modules; one call of autograd's makes both gradients of
each (Megatron-LM d98e8a6, tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
Sources, read 2026-11-25: as `lora.SUM`'s."""


def launch_times(
    operators: LayerOperators,
    gpu: Gpu,
    factor: float = 1.0,
    graphs: tuple[str, ...] = (),
    launcher: Launcher = "python",
) -> LaunchTimes:
    """Host time to launch a layer's kernels, `factor` times that of the sources (`eras.Pace.host`).

    factor  0 where no launch takes any time, what follows the first of a row of operations neither
    graphs  parts of the layer that CUDA graphs hold (`TrainingJob.cuda_graphs`)

    Under Python a product or attention is one call through a framework module, its weight gradient one more
    operation; each expert of a grouped product adds its own part; an adapter's products are operations, and
    what follows them only its operations (AROUND); all else, collectives too, costs one operation
    per kernel, but for Triton's kernels in linear mixers (`Operator.tuned`), and for those that one operation
    launches many of (`looped.KERNELS`), of which all but the first take no Python.  `factor` leaves out
    these, and what follows the first of a row of PyTorch's operations (EAGER): they are launched one after
    another, inside one call; so are the products of experts that run one after the other, plain linear
    layers.  Compiled layers take the same for every other kernel, which `factor` does not
    multiply, and with `inductor` a call of the compiled graph for a forward pass; its collectives, which
    FSDP's hooks begin, stay Python's.  Embedding, head and optimizer are left out: few launches, long
    kernels.
    Sources: training/data/constants.yaml, host_*.
    """
    if "step" in graphs or factor == 0:
        return LaunchTimes(0.0, 0.0, 0.0, 0.0)
    cpu = cpu_factor(gpu)
    held = _held(operators, graphs)

    def launched(found: Iterable[Operator]) -> float:
        named = ((op.name.rsplit(", ", 1)[0], op) for op in found)
        kept = [(name, op) for name, op in named if name not in held]
        if launcher == "python":
            return sum(_seconds(op, cpu, factor, name) for name, op in kept)
        tuned = sum(op.tuned for _, op in kept)
        others = sum(op.launches for _, op in kept) - tuned
        each = constant(f"host_{launcher}_seconds")
        return cpu * (each * others + constant("host_tuned_seconds") * tuned)

    called = cpu * constant("host_compiled_seconds") if launcher == "inductor" else 0.0
    collective = factor * constant("host_operation_seconds")
    searches = next((op.launches // KERNELS[SEARCH] for op in operators.forward if op.name == SEARCH), 0)
    return LaunchTimes(
        called + launched(operators.forward),
        launched(operators.backward_input),
        launched(operators.backward_weight),
        cpu * (constant("host_native_seconds") if launcher == "native" else collective),
        launched(operators.recomputed),
        searches,
        cpu * WAITED * constant("host_operation_seconds"),
    )


def cpu_factor(gpu: Gpu) -> float:
    """Time of the CPU that launches for a GPU over that of the sources' CPU (Xeon)."""
    return constant("host_grace_ratio") if gpu.name.lower().startswith(GRACE) else 1.0


def _held(operators: LayerOperators, graphs: tuple[str, ...]) -> frozenset[str]:
    """Names of the operators that CUDA graphs of some parts of a layer hold."""
    names = [op.name for op in operators.forward]
    between = second_block(names)
    mixer = "mixer" if "mixer norm" in names else "attention"
    parts = {mixer: frozenset(names[:between])}
    if "router" in names:
        parts["router"] = ROUTER
    else:
        parts["mlp"] = frozenset(names[between:])
    return frozenset(name for graph in graphs for name in parts.get(graph, ()))


WHOLE_PASS, CATCHING_UP = "launching the pass", "catching up"
"""Names of the tasks in which a host that runs ahead launches all layers of a pass, or ends in a backward
pass what it began before the forward one."""

AHEAD = (WHOLE_PASS, CATCHING_UP)
"""Both: what a host that is further ahead has launched already."""


def launched_ahead(tasks: Iterable[Task]) -> float:
    """What of a pass waits for a host that could have been ahead. [s]"""
    return sum(task.duration for task in tasks if task.name in AHEAD)


def relieved(tasks: Sequence[Task], seconds: float) -> list[Task]:
    """A pass of which the host has launched that much before, while others took longer than alone. [s]"""
    return [
        task._replace(duration=max(0.0, task.duration - seconds)) if task.name in AHEAD else task
        for task in tasks
    ]


def launching(known: LaunchTimes, seconds: float, tasks: Sequence[Task], blocking: bool = False) -> float:
    """Host time of some tasks, or 0 where the GPU never waits for it. [s]

    seconds   host time of their kernels; their collectives are added
    blocking  the GPU always waits (`TrainingJob.launch_blocking`)
    """
    total = host_seconds(known, seconds, tasks)
    return total if blocking or binds(total, tasks) else 0.0


def binds(seconds: float, tasks: Sequence[Task]) -> bool:
    """Whether launching some tasks takes longer than their compute alone, so that the GPU waits.

    The test leaves the network out, so that a faster one never makes a step longer.
    """
    return seconds > sum(task.duration for task in tasks if task.lane == "compute")


def host_seconds(known: LaunchTimes, seconds: float, tasks: Sequence[Task]) -> float:
    """Host time of some tasks: `seconds` of their kernels, and their collectives. [s]"""
    sent = [task for task in tasks if task.size and task.lane not in ("compute", "host")]
    return seconds + sum(not task.name.endswith(PASSED_ON) for task in sent) * known.collective


def shared_out(launched: Sequence[float], run: Sequence[float]) -> tuple[float, ...]:
    """How long the passes of one microbatch take whose host runs ahead from one into the next, microbatch
    after microbatch. [s]

    launched  host time of each; run  what each takes without it

    Each takes its launches, less what the host is ahead when it begins: as much as passes before ran longer
    than they were launched.  Where the host needs longer for all than they run, together they take all
    launches.  This is a queue (Lindley's recursion), which the first microbatch brings into the state that
    all others find: it is that of the last passes, whatever was before them.
    """
    ahead, takes = 0.0, [0.0] * len(run)
    for _microbatch in range(2):
        for i, (needs, lasts) in enumerate(zip(launched, run, strict=True)):
            takes[i] = max(lasts, needs - ahead)
            ahead = max(0.0, ahead + lasts - needs)
    return tuple(takes)


def _seconds(operator: Operator, cpu: float, factor: float, name: str) -> float:
    """Host time of one operator, `factor` times the sources'; of rows of operations only the first call. [s]

    name  without its phase
    """
    one = constant("host_operation_seconds")
    if kernels := KERNELS.get(SORTED if operator.name.endswith(SORTED) else name):
        others = operator.launches * (1 - 1 / kernels)
        return cpu * (one * operator.launches / kernels + constant("host_native_seconds") * others)
    if name.endswith(AROUND):
        return cpu * one
    if name.endswith(DROPOUT):
        # a module of Python's forward, and autograd's engine alone backward
        return cpu * one * (factor if operator.phase == "forward" else 1.0)
    if operator.kind in ("memory", "scan"):
        if name in WITHIN or name.endswith(STORING):
            return cpu * one * operator.launches
        if operator.name.endswith(SUMMED):
            return 0.0
        plain = operator.launches - operator.tuned
        calls = min(plain, 1) if _in_a_row(operator, name) else plain
        if operator.name.endswith(DEQUANTISED):
            calls = plain // WIDENED_BY
        tuned = operator.tuned * constant("host_tuned_seconds")
        return cpu * (one * (factor * calls + plain - calls) + tuned)
    if operator.kind == "attention" and not operator.launches:
        return 0.0  # full layers' share of the call that windowed ones count (kernels.windowed_attention)
    thin, last = name.endswith(THIN), operator.phase == "backward_weight"
    if thin and last:
        return cpu * one  # by the call that made the gradient of its input
    if operator.kind == "grouped_gemm" and operator.steps > 1:
        return cpu * one * operator.launches
    call = one if thin or last else constant("host_module_seconds")
    if operator.kind == "grouped_gemm":
        call += constant("host_expert_seconds") * operator.launches
    return cpu * factor * call


def _in_a_row(operator: Operator, name: str) -> bool:
    """Whether an operator's kernels are operations of PyTorch that follow one another."""
    if name.endswith(" activation"):
        return True
    if name.endswith((" norm", " norms")):
        return operator.launches > NORM
    return name in EAGER
