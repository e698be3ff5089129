"""Time of one stage of DeepEP's kernels, as terms that add up; the fabric's seconds per byte are given.

n ranks in N domains of L; T tokens per rank, k experts per token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from typing import Any

from railwright.collectives.constants import load
from railwright.collectives.group import Group
from railwright.collectives.moe_routing import Copies
from railwright.collectives.prediction import Term
from railwright.errors import PlanError
from railwright.network.routing.solution import Bottleneck


@dataclass(frozen=True)
class Layer:
    """What a layer moves: T tokens per rank, their elements, k of E experts, bytes per element, imbalance.

    constants  what the kernels' layout costs; `moe_facts` unless others are tried
    """

    tokens: int
    hidden: int
    topk: int
    experts: int
    dispatch_bytes: int
    combine_bytes: int
    imbalance: float
    constants: Mapping[str, Any] = field(compare=False)

    def token_bytes(self, stage: str) -> float:
        """One copy of one token; one byte per element is FP8 and brings its scales. [byte]"""
        each = self.dispatch_bytes if stage == "dispatch" else self.combine_bytes
        block = self.constants["scale_block"]
        scales = self.constants["scale_bytes"] / block if each == 1 else 0.0
        return float(self.hidden * (each + scales))

    def check(self) -> None:
        """Raises PlanError for a layer that makes no sense."""
        for name in ("tokens", "hidden", "topk", "experts"):
            if getattr(self, name) < 1:
                raise PlanError(f"A layer with {name} = {getattr(self, name)} moves nothing; give 1 or more.")
        if self.topk > self.experts:
            raise PlanError(f"A token cannot go to {self.topk} of {self.experts} experts; lower topk.")
        for name in ("dispatch_bytes", "combine_bytes"):
            if getattr(self, name) not in (1, 2, 4):
                raise PlanError(
                    f"{name} = {getattr(self, name)} is not a number format here; allowed are 1 (FP8), "
                    "2 (BF16) and 4 (FP32) bytes per element."
                )
        if not (isfinite(self.imbalance) and self.imbalance >= 1):
            raise PlanError(
                f"imbalance = {self.imbalance:g} is the busiest rank over the mean, "
                "which cannot be below 1; give 1 for balanced experts."
            )
        most = self.experts / self.topk
        if self.imbalance > most:
            raise PlanError(
                f"imbalance = {self.imbalance:g} is more than a rank can get: every token once, "
                f"{self.experts} / {self.topk} = {most:g} times the mean; give 1 to {most:g}."
            )


@dataclass(frozen=True)
class Wire:
    """One pattern solved on the fabric: seconds per byte of each message, latency beyond one switch [s]."""

    seconds_per_byte: float
    beyond: float
    bottleneck: Bottleneck | None


@dataclass(frozen=True)
class Stage:
    """Dispatch or combine.

    time            [s]
    terms           parts that add up to `time`
    bottleneck      busiest link of the fabric, None where no NIC is used
    network_bytes   leaving the busiest rank for other domains [byte]
    scale_up_bytes  leaving the busiest rank over NVLink [byte]
    logical_bytes   what DeepEP's tests divide by the time: copies to the own node (normal kernels; in one
                    node, to the own GPU) included [byte]
    messages        posted by one rank to its NIC
    error_low, error_high   band of measured/predicted over the published tables
    """

    name: str
    time: float
    terms: tuple[Term, ...]
    bottleneck: Bottleneck | None
    network_bytes: float
    scale_up_bytes: float
    logical_bytes: float
    messages: float
    error_low: float
    error_high: float
    notes: tuple[str, ...] = field(default=())

    @property
    def logical_bandwidth(self) -> float:
        """As DeepEP prints it. [byte/s]"""
        return self.logical_bytes / self.time if self.time else 0.0


def nothing(stage: str) -> Stage:
    """One rank holds all experts: nothing to send."""
    return Stage(
        stage, 0.0, (), None, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, ("one rank holds all experts: nothing to send",)
    )


def normal(stage: str, layer: Layer, group: Group, width: int, average: Copies, wire: Wire) -> Stage:
    """DeepEP's normal kernels: one copy per domain along the rail, then NVLink to the GPUs; combine reversed.

    The two hops are a pipeline of chunks: the longer one sets the time, the shorter one adds its first chunk,
    and the finite buffer between them blocks the first now and then (`blocked`).
    Source: deepseek-ai/DeepEP README, csrc/kernels/internode.cu, tests/test_internode.py.
    """
    facts = layer.constants
    own = facts["normal"]
    each = layer.tokens * layer.token_bytes(stage) * layer.imbalance
    remote, lane = each * average.remote_nodes, each * average.lane
    network, messages = 0.0, 0.0
    if group.nodes > 1:
        per_message = remote / (group.nodes - 1)
        chunk = int(own["rdma_chunk_tokens"])
        messages = layer.tokens * average.remote_nodes * layer.imbalance / chunk
        network = per_message * wire.seconds_per_byte / _efficiency(facts, own, group)
        network += messages * float(facts["message"][group.transport])
    inside = lane / (group.scale_up * group.reach * float(own["scale_up_efficiency"][group.generation]))
    slow, fast = max(network, inside), min(network, inside)
    slots = int(own["rdma_buffer_tokens"]) // int(own["rdma_chunk_tokens"])
    chunks = max(1.0, layer.tokens / (int(own["rdma_chunk_tokens"]) * int(own["channels"])))
    waiting = slow * (1 / (1 - blocked(fast / slow, slots)) - 1) if fast else 0.0
    launch = _launch(own, stage, group.nodes > 1)
    terms = (
        Term("launch", launch, f"launch, notify and barriers of the {stage} kernel"),
        Term("steps", wire.beyond if network else 0.0, "path beyond one switch"),
        Term("bandwidth", slow, "RDMA, solved on the fabric" if network >= inside else "NVLink fan-out"),
        Term("ramp", fast / chunks, "the first chunk through the shorter hop"),
        Term("blocking", waiting, f"the hops wait for each other: {slots} chunks of buffer between them"),
    )
    notes = _notes(group) + (("one domain: no NIC is used",) if group.nodes == 1 else ())
    return Stage(
        stage,
        sum(term.seconds for term in terms),
        terms,
        wire.bottleneck if network else None,
        remote,
        lane,
        each * (average.nodes if group.nodes > 1 else average.ranks),
        messages,
        *_band(own, group),
        notes,
    )


def blocked(ratio: float, slots: int) -> float:
    """Share of its time that the slower of two hops stands still for the other.

    ratio  shorter hop's time over the longer's, 0..1
    slots  chunks that fit between them
    The loss probability of a queue with exponential service and K places, (1-r) r^K / (1 - r^(K+1)), which
    is 1/(K+1) for equal hops.  That chunk times vary like exponential ones is an assumption of ours.
    Source: M/M/1/K, e.g. Kleinrock, Queueing Systems I, section 3.6.
    """
    if ratio >= 1.0:
        return 1 / (slots + 1)
    power: float = ratio**slots
    return (1 - ratio) * power / (1 - ratio * power)


def low_latency(stage: str, layer: Layer, group: Group, width: int, average: Copies, wire: Wire) -> Stage:
    """DeepEP's low-latency kernels: every copy in a message of its own, straight to the expert's GPU.

    RDMA and NVLink run side by side: the longer sets the time.
    Source: deepseek-ai/DeepEP README, tests/test_low_latency.py (bytes of a message, NVLink by default).
    """
    return _direct(stage, layer, group, width, wire, nvlink=bool(group.scale_up))


def low_latency_rdma(
    stage: str, layer: Layer, group: Group, width: int, average: Copies, wire: Wire
) -> Stage:
    """The same without NVLink, as in DeepEP's first release: the own node's copies leave by the NIC too."""
    return _direct(stage, layer, group, width, wire, nvlink=False)


def _direct(stage: str, layer: Layer, group: Group, width: int, wire: Wire, nvlink: bool) -> Stage:
    facts = layer.constants
    own = facts["low_latency"]
    header = int(own["header"]) if stage == "dispatch" else 0
    token = layer.token_bytes(stage) + header
    count = layer.tokens * layer.topk * layer.imbalance  # copies, of which each rank gets 1/n
    across = count * (group.ranks - width) / group.ranks
    near = count * (width - 1) / group.ranks
    efficiency = _efficiency(facts, own, group)
    network = count / group.ranks * token * wire.seconds_per_byte / efficiency
    messages = across if nvlink else across + near
    if not nvlink:
        share = group.nic_rate * group.nics / width  # several GPUs may share a NIC
        network = max(network, messages * token / (share * efficiency))
    network += messages * float(facts["message"][group.transport])
    rate = group.scale_up * group.reach * float(own["scale_up_efficiency"][group.generation])
    inside = near * token / rate if nvlink else 0.0
    launch = _launch(own, stage, messages > 0)
    terms = (
        Term("launch", launch, f"launch, flags and first message of the {stage} kernel"),
        Term("steps", wire.beyond if messages else 0.0, "path beyond one switch"),
        Term(
            "bandwidth",
            max(network, inside),
            f"{messages:.0f} messages of {token:.0f} bytes over RDMA" if network >= inside else "NVLink",
        ),
    )
    notes = _notes(group)
    if not nvlink and near:
        notes += ("copies for the own node leave and enter by the NIC; its leaf is taken as unhindered",)
    return Stage(
        stage,
        sum(term.seconds for term in terms),
        terms,
        wire.bottleneck if across else None,
        messages * token,
        near * token if nvlink else 0.0,
        count * token,
        messages,
        *_band(own, group),
        notes,
    )


@cache
def moe_facts() -> dict[str, Any]:
    """What the kernels' layout costs (data/moe.yaml)."""
    return load("moe.yaml")


def _efficiency(facts: Mapping[str, Any], own: Mapping[str, Any], group: Group) -> float:
    """What a NIC's payload reaches of its rate."""
    return float(facts["efa_efficiency"] if group.transport == "efa" else own["network_efficiency"])


def _launch(own: Mapping[str, Any], stage: str, network: bool) -> float:
    return float(own["launch"][stage]["network" if network else "one_node"])


def _band(own: Mapping[str, Any], group: Group) -> tuple[float, float]:
    """80 % of measured/predicted; wider where another library than DeepEP itself was measured."""
    band = own["error"]["port" if group.transport == "efa" or group.generation == "cdna" else "own"]
    return float(band["low"]), float(band["high"])


def _notes(group: Group) -> tuple[str, ...]:
    notes: list[str] = []
    if group.transport == "efa":
        notes.append("EFA: DeepEP itself needs verbs; UCCL-EP's proxy threads are not modelled, only its NIC")
    if group.generation == "cdna":
        notes.append("AMD: rates of UCCL-EP's port; its proxy threads are not modelled")
    return tuple(notes)
