"""Jobs, machines and simple prices for tests of training: closed forms in place of network and kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, NcclSettings, Op, Term
from railwright.errors import PlanError
from railwright.model.shape.architecture import LinearMixer, Operator, Transformer
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.traffic.demand import Communicator
from railwright.training import simulate
from railwright.training.layers.communication import Predict
from railwright.training.layout.route import Unit

DENSE = Transformer(
    name="dense-8",
    layers=8,
    hidden=1024,
    vocab=32000,
    heads=16,
    kv_heads=4,
    head_dim=64,
    ffn=4096,
    max_positions=4096,
)
MOE = Transformer(
    name="moe-8",
    layers=8,
    hidden=1024,
    vocab=32000,
    heads=16,
    kv_heads=4,
    head_dim=64,
    ffn=4096,
    experts=8,
    experts_per_token=2,
    expert_ffn=4096,
    max_positions=4096,
)

LATENTS = replace(MOE, name="latent-8", gated=False, expert_latent=256, shared_experts=1, shared_ffn=1024)
"""Experts that read and write latents, beside a shared one that reads hidden states (Nemotron 3 Super)."""

BLOCKS = replace(
    DENSE,
    name="blocks-8",
    gated=False,
    rotary=False,
    pattern=("linear", "mlp", "linear", "attention", "mlp", "linear", "mlp", "linear"),
    linear=LinearMixer("mamba2", heads=32, value_dim=64, key_heads=8, key_dim=128, conv_bias=True, chunk=128),
)
"""Layers of one block each (Nemotron-H)."""

DELTA = replace(
    MOE,
    name="delta-8",
    shared_experts=1,
    shared_ffn=1024,
    shared_gate=True,
    qk_norm=True,
    attention_gate="element",
    pattern=("linear moe", "linear moe", "linear moe", "moe") * 2,
    linear=LinearMixer("gated_deltanet", heads=16, value_dim=64, key_heads=8, key_dim=64),
)
"""Gated delta nets but for every fourth layer, with experts (Qwen3-Next)."""

KIMI = replace(
    MOE,
    name="kimi-8",
    shared_experts=1,
    shared_ffn=1024,
    dense_layers=1,
    attention="mla",
    kv_heads=16,
    kv_lora=128,
    rope_dim=32,
    v_head_dim=64,
    rotary=False,
    pattern=("linear dense", "linear moe", "linear moe", "moe", *("linear moe",) * 3, "moe"),
    linear=LinearMixer("kda", heads=16, value_dim=64, key_heads=16, key_dim=64),
)
"""Kimi delta attention but for every fourth layer, whose attention is latent, with experts (Kimi Linear)."""

LIGHTNING = replace(
    MOE,
    name="lightning-8",
    pattern=(*("linear moe",) * 7, "moe"),
    linear=LinearMixer("lightning", heads=16, value_dim=64, key_heads=16, key_dim=64, conv=0),
)
"""Lightning attention but for the last layer of eight (MiniMax-01)."""

MIXED = replace(
    DELTA,
    name="mixed-8",
    pattern=("linear", "experts", "attention", "experts", "linear dense", "mlp", "linear moe", "dense"),
    linear=BLOCKS.linear,
)
"""Every kind of layer but attention with experts."""


@cache
def machine(servers: int = 4, pxn: bool = True, server: str = "dgx-h100") -> Machine:
    """A rail-optimised cluster of 8-GPU servers, those of AWS on Ethernet."""
    switch = "th4-400g" if server.startswith("aws") else "qm9700"
    network = ComputeNetwork(family="rail-optimised", switch=switch)
    cluster = Cluster(servers=servers, server=server, compute=network)
    return Machine.of(cluster, load_catalog(), NcclSettings(pxn=pxn))


def job(
    *,
    overlap: Overlap | None = None,
    gpus: int | None = None,
    sequence: int = 1024,
    batch: int = 64,
    micro_batch: int = 1,
    imbalance: float = 1.0,
    dtype: str = "bf16",
    **layout: object,
) -> TrainingJob:
    """A small job; keywords not named here are the layout's."""
    return TrainingJob(
        name="case",
        model="case",
        gpus=gpus,
        sequence=sequence,
        global_batch=batch,
        micro_batch=micro_batch,
        tokens=1e9,
        dtype=dtype,  # type: ignore[arg-type]
        layout=Layout(**layout),  # type: ignore[arg-type]
        overlap=overlap or Overlap(),
        expert_imbalance=imbalance,
    )


def wide(**layout: object) -> TrainingJob:
    """Sequences long enough for activations to count."""
    return job(gpus=32, sequence=4096, batch=128, micro_batch=2, **layout)


def changed(one: TrainingJob, **fields: object) -> TrainingJob:
    """The same job with other values of some fields."""
    return one.model_copy(update=fields)


def priced(bandwidth: float, latency: float = 20e-6) -> Predict:
    """Every collective takes latency + wire bytes / bandwidth; a bandwidth of 0 means a free network."""

    def predict(
        machine: Machine, op: Op, size: float, groups: Sequence[Communicator]
    ) -> CollectivePrediction:
        n = len(groups[0])
        factor = {"all_reduce": 2 * (n - 1) / n, "sendrecv": 1.0}.get(op, (n - 1) / n)
        wire = size * factor / bandwidth if bandwidth else 0.0
        time = latency + wire if bandwidth else 0.0
        terms = (Term("steps", time - wire, ""), Term("bandwidth", wire, ""))
        return CollectivePrediction(
            op, size, n, len(groups), time, 0.0, 0.0, "ring", "simple", terms, None, 0.9, 1.2
        )

    return predict


def sent(wanted: TrainingJob, arch: Transformer) -> tuple[dict[str, float], dict[str, float]]:
    """Per purpose: how often, and nccl-tests' sizes added up [byte]."""
    counts: dict[str, float] = defaultdict(float)
    sizes: dict[str, float] = defaultdict(float)
    result = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline)
    for one in result.collectives:
        counts[one.purpose] += one.count
        sizes[one.purpose] += one.count * one.prediction.size
    return counts, sizes


def roofline(operator: Operator) -> float:
    """Kernel time: 500 Tflop/s or 3 TB/s, whichever is slower, after 4 us. [s]"""
    return 4e-6 + max(operator.flops / 500e12, operator.bytes / 3e12)


def refusal(wanted: TrainingJob, arch: Transformer = DENSE, servers: int = 4) -> str:
    """What is said of a job that cannot run: one sentence that begins with its name."""
    with pytest.raises(PlanError) as caught:
        simulate(wanted, arch, machine(servers), predict=priced(50e9), kernel=roofline)
    text = str(caught.value)
    assert text.startswith("case: ")
    assert text.endswith(".")
    return text


def in_flight(order: tuple[Unit, ...]) -> int:
    """Most forward passes whose backward pass is still to come: sets of activations a stage holds
    (`in_flight.held_sets`, counted plainly).

    With a split backward pass they are held until the weight gradients are done.
    """
    held = most = 0
    for unit in order:
        held += unit.kind in ("F", "FB")
        most = max(most, held)
        held -= unit.kind in ("B", "W", "FB")
    return most
