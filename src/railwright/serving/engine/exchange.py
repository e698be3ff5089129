"""What the GPUs of one replica tell each other in a step: all-reduces, experts' tokens, stage to stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.collectives.machine import Machine
from railwright.collectives.moe import Kernel, predict_dispatch
from railwright.collectives.predict import sweep
from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.profiles import Engine
from railwright.serving.kernels.constants import KNOTS, Kernels
from railwright.serving.kernels.times import Floats
from railwright.spec.serving import ServingJob, ServingLayout
from railwright.traffic.demand import Communicator

EXCHANGES: dict[str, Kernel] = {"all-to-all": "deepep", "low-latency": "deepep-low-latency"}
MOST_LOW_LATENCY = 256
"""Tokens per GPU above which DeepEP's low-latency buffers are not used (its README tests 128)."""


@dataclass(frozen=True, eq=False)
class Place:
    """The GPUs of one replica on a machine, and what they run there."""

    machine: Machine
    engine: Engine
    kernels: Kernels
    first: int

    def group(self, ranks: int) -> Communicator:
        """The first `ranks` GPUs of the replica."""
        gpus = np.arange(self.first, self.first + ranks, dtype=np.int32)
        if gpus[-1] >= self.machine.network.fabric.num_gpus:
            have = self.machine.network.fabric.num_gpus
            raise PlanError(
                f"One replica needs GPU number {int(gpus[-1])}, but the cluster has {have} GPUs; "
                "raise cluster.servers or make the layout smaller."
            )
        return Communicator(gpus, "replica")


def all_reduce_seconds(place: Place, ranks: int, sizes: Floats) -> Floats:
    """One all-reduce over `ranks` neighbouring GPUs, by size of the buffer [byte]. [s]

    The engine's own kernel as measured where all ranks are in one server with NVLink, else NCCL's: without it
    engines use their own for two GPUs at most (vllm custom_all_reduce.py).
    """
    if ranks == 1:
        return np.zeros_like(sizes)
    own = None
    joined = place.machine.gpu.scale_up_bandwidth > 0 or ranks == 2
    if place.engine.all_reduce == "custom" and joined and ranks <= place.machine.server.gpus:
        own = place.kernels.all_reduce(ranks, sizes)
        other = place.kernels.all_reduce(ranks, sizes, place.engine.reduces)
        if own is not None and other is not None:
            own = np.where(sizes * ranks <= place.engine.fused_bytes, other, own)
    return own if own is not None else nccl_seconds(place, "all_reduce", ranks, sizes)


def bus_seconds(place: Place, ranks: int, sizes: Floats, bus: float) -> Floats:
    """One all-reduce at a bus bandwidth that is known [byte/s], after what NCCL takes for no bytes. [s]"""
    if ranks == 1:
        return np.zeros_like(sizes)
    return nccl_seconds(place, "all_reduce", ranks, 0.0 * sizes) + sizes * 2.0 * (ranks - 1) / ranks / bus


def nccl_seconds(place: Place, op: Op, ranks: int, sizes: Floats) -> Floats:
    """A collective of NCCL over neighbouring GPUs, by total size [byte]: predicted at KNOTS. [s]"""
    if ranks == 1:
        return np.zeros_like(sizes)
    found = [answer.time for answer in sweep(place.machine, op, KNOTS, [place.group(ranks)])]
    beyond = np.maximum(sizes / KNOTS[-1], 1.0)
    between = np.interp(np.log(np.maximum(sizes, 1.0)), np.log(KNOTS), np.log(found))
    return np.asarray(np.exp(between) * beyond)


def _exchange(place: Place, layout: ServingLayout) -> str:
    asked = layout.expert_exchange
    return asked if asked != "auto" else place.engine.expert_exchange


def gathers(place: Place, layout: ServingLayout) -> bool:
    """Whether attention-data groups give each other all their tokens (all-gather and reduce-scatter)."""
    if layout.attention_data == 1:
        return False
    whole = layout.expert < layout.tensor * layout.attention_data
    return whole or _exchange(place, layout) == "all-gather"


def expert_seconds(
    place: Place, job: ServingJob, arch: Transformer, layout: ServingLayout, tokens: Floats
) -> Floats:
    """Tokens to experts on other GPUs and back, one layer, by tokens of the whole replica's step. [s]

    Without attention data parallelism every GPU has all tokens and the layer ends in one all-reduce, counted
    there; this is then zero.  Raises PlanError where DeepEP cannot run on the machine.
    """
    group = layout.tensor * layout.attention_data
    if layout.attention_data == 1 or not arch.is_moe:
        return np.zeros_like(tokens)
    kind = _exchange(place, layout)
    if gathers(place, layout):
        sizes = tokens * arch.hidden * 2.0
        gather = nccl_seconds(place, "all_gather", group, sizes)
        return gather + nccl_seconds(place, "reduce_scatter", group, sizes)
    grid = np.unique(np.round(np.geomspace(1, max(float(tokens.max()) / group, 2.0), 10))).astype(int)
    found = []
    for each in grid:
        kernel = EXCHANGES[kind]
        if each > MOST_LOW_LATENCY:
            kernel = "deepep"
        answer = predict_dispatch(
            place.machine,
            [place.group(group)],
            int(each),
            arch.hidden,
            arch.experts_per_token,
            arch.experts,
            kernel=kernel,
            dispatch_bytes=1 if job.weights.startswith(("fp8", "nvfp4")) else 2,
            imbalance=job.expert_load(layout.expert),
        )
        found.append(answer.time)
    return np.asarray(np.interp(tokens / group, grid, found))


def hop_seconds(place: Place, layout: ServingLayout, size: float) -> float:
    """Activations from one pipeline stage to the next: the same rank of two neighbouring groups. [s]"""
    if layout.pipeline == 1:
        return 0.0
    stage = layout.tensor * layout.attention_data * layout.context
    place.group(2 * stage)
    pair = Communicator(np.array([place.first, place.first + stage], np.int32), "stages")
    return sweep(place.machine, "sendrecv", (size,), [pair])[0].time
