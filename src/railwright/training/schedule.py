"""Pipeline schedules: in which order each stage runs the forward and backward passes of its chunks.

Legend: p stages, v model chunks per stage, m microbatches; F, B, W times of a stage's forward pass, of its
whole backward pass, and of the weight gradients in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from railwright.spec.training import Layout, TrainingJob

Kind = Literal["F", "B", "I", "W", "FB"]

PASS_NAMES: dict[Kind, str] = {
    "F": "forward pass",
    "B": "backward pass",
    "I": "input gradients",
    "W": "weight gradients",
    "FB": "forward and backward pass",
}
"""What a reader is told of a kind of pass."""


class Unit(NamedTuple):
    """One pass of one microbatch through one chunk of a stage.

    kind         'F' forward, 'B' backward; split backward passes are 'I', input gradients, and 'W', weight
                 gradients; 'FB' is a forward run together with a backward
    other, back  microbatch and chunk of that backward; -1 where there is none
    """

    kind: Kind
    chunk: int
    microbatch: int
    other: int = -1
    back: int = -1

    @property
    def backward_chunk(self) -> int:
        """Chunk whose gradients this unit computes."""
        return self.back if self.kind == "FB" else self.chunk

    @property
    def passes(self) -> tuple[Unit, ...]:
        """Itself, or the forward and the backward that run together."""
        if self.kind != "FB":
            return (self,)
        return Unit("F", self.chunk, self.microbatch), Unit("B", self.back, self.other)


Orders = tuple[tuple[Unit, ...], ...]
Shape = Literal["loop", "mirror"]


@dataclass(frozen=True)
class Route:
    """Which stage holds which piece of the model, and in which order pieces follow one another.

    shape  'loop': chunk c of stage s is the (c p + s)-th of p v equal pieces.
           'mirror': two copies of the model; chunk 0 of stage s is piece s of the first one, chunk 1 piece
           p - 1 - s of the second, whose microbatches run the other way (pieces p .. 2p - 1).
    """

    stages: int
    chunks: int
    shape: Shape = "loop"

    @property
    def pieces(self) -> int:
        return self.stages * self.chunks

    def piece(self, stage: int, chunk: int) -> int:
        """Number of the piece that a stage holds as its chunk."""
        if self.shape == "mirror" and chunk == 1:
            return 2 * self.stages - 1 - stage
        return chunk * self.stages + stage

    def stage(self, piece: int) -> int:
        """The stage that holds a piece."""
        if self.shape == "mirror" and piece >= self.stages:
            return 2 * self.stages - 1 - piece
        return piece % self.stages

    def layers_of(self, stage: int, chunk: int) -> int:
        """Which of the equal pieces of the model a chunk is, counted from the embedding."""
        piece = self.piece(stage, chunk)
        return piece % self.stages if self.shape == "mirror" else piece

    @property
    def model_pieces(self) -> int:
        """Pieces that the model is cut into."""
        return self.stages if self.shape == "mirror" else self.pieces

    def first(self, piece: int) -> bool:
        """Whether a piece holds the embedding."""
        return piece == 0 or (self.shape == "mirror" and piece == self.stages)

    def last(self, piece: int) -> bool:
        """Whether a piece holds the head."""
        return piece == self.pieces - 1 or (self.shape == "mirror" and piece == self.stages - 1)


def one_f_one_b(stages: int, chunks: int, microbatches: int) -> Orders:
    """1F1B: stage s runs p - s - 1 forwards, then alternates, then drains; bubble (p-1)(F+B).

    Source: Narayanan et al., SC'21 (arXiv 2104.04473), section 2.2.1 (PipeDream-Flush).
    """
    assert chunks == 1, "1F1B has one chunk per stage"
    forward = [Unit("F", 0, i) for i in range(microbatches)]
    backward = [Unit("B", 0, i) for i in range(microbatches)]
    return tuple(_alternate(forward, backward, stages - s - 1) for s in range(stages))


def gpipe(stages: int, chunks: int, microbatches: int) -> Orders:
    """GPipe: all forwards, then all backwards in reverse; bubble (p-1)(F+B), m sets of activations.

    Source: Huang et al., NeurIPS 2019 (arXiv 1811.06965), section 2.3.
    """
    assert chunks == 1, "GPipe has one chunk per stage"
    order = [Unit("F", 0, i) for i in range(microbatches)]
    order += [Unit("B", 0, i) for i in reversed(range(microbatches))]
    return (tuple(order),) * stages


def interleaved(stages: int, chunks: int, microbatches: int) -> Orders:
    """Interleaved 1F1B: v chunks per stage, bubble (p-1)(F+B)/v; m must be a multiple of p.

    Microbatches advance in groups of p: all chunks of one group before the next group.
    Source: Narayanan et al., SC'21, section 2.2.2; Megatron-LM, core/pipeline_parallel/schedules.py
    (warm-up of 2 (p - s - 1) + (v - 1) p passes).
    """
    assert microbatches % stages == 0, "interleaving needs a multiple of the stages"
    steps = [
        (chunk, group + i)
        for group in range(0, microbatches, stages)
        for chunk in range(chunks)
        for i in range(stages)
    ]
    forward = [Unit("F", chunk, i) for chunk, i in steps]
    backward = [Unit("B", chunks - 1 - chunk, i) for chunk, i in steps]
    return tuple(
        _alternate(forward, backward, 2 * (stages - s - 1) + (chunks - 1) * stages) for s in range(stages)
    )


def paired(stages: int, chunks: int, microbatches: int) -> Orders:
    """1F1B or interleaved 1F1B whose steady passes are a forward of one microbatch run together with a
    backward of another: each computes while the other is in its expert all-to-all.

    One more forward pass than in the schedule without goes ahead, so that the two never need each other.  As
    many passes as that stand alone, at the beginning and at the end.
    Source: Megatron-LM core 0.14, core/pipeline_parallel/combined_1f1b.py, and schedules.py,
    get_pp_rank_microbatches (overlap_moe_expert_parallel_comm).
    """
    plain = interleaved if chunks > 1 else one_f_one_b
    return tuple(_together(order) for order in plain(stages, chunks, microbatches))


def zero_bubble(stages: int, chunks: int, microbatches: int) -> Orders:
    """ZB-H1: 1F1B whose weight gradients fill the drain; bubble (p-1)(F+B-2W), memory of 1F1B's first stage.

    Stage s computes the weight gradients of a microbatch s microbatches after its input gradients, so every
    stage holds p sets of activations.
    Source: Qi et al., ICLR 2024 (arXiv 2401.10241), section 2.3 and table 1.
    """
    assert chunks == 1, "ZB-H1 has one chunk per stage"
    found = []
    for s in range(stages):
        warm_up = min(stages - s - 1, microbatches)
        order = [Unit("F", 0, i) for i in range(warm_up)]
        for i in range(microbatches):
            if warm_up + i < microbatches:
                order.append(Unit("F", 0, warm_up + i))
            order.append(Unit("I", 0, i))
            if i >= s:
                order.append(Unit("W", 0, i - s))
        order += [Unit("W", 0, i) for i in range(max(microbatches - s, 0), microbatches)]
        found.append(tuple(order))
    return tuple(found)


def dualpipe(stages: int, chunks: int, microbatches: int) -> Orders:
    """DualPipe: microbatches enter from both ends; a forward of one runs with a backward of the other.

    Bubble (p/2-1)(FB + B - 3W), FB the time of a forward and a backward run together; p + 1 sets of
    activations and twice the parameters.  Needs an even number of stages and of microbatches, and at least
    2 p of these.  Microbatches below m/2 belong to the first direction.
    Source: DeepSeek-AI, DualPipe, README and the eight steps of its schedule; arXiv 2412.19437, 3.2.1.
    """
    half = microbatches // 2
    assert (chunks, stages % 2, microbatches % 2) == (2, 0, 0), "DualPipe needs even numbers"
    assert half >= stages, "DualPipe needs 2 p microbatches"
    found = []
    for s in range(stages):
        found.append(_both_ways(s, stages, half))
    return tuple(found)


SCHEDULES: dict[str, Callable[[int, int, int], Orders]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "interleaved": interleaved,
    "paired": paired,
    "zb-h1": zero_bubble,
    "dualpipe": dualpipe,
}

TOGETHER = ("paired", "dualpipe")
"""Orders in which a forward and a backward run together."""


def schedule_name(layout: Layout) -> str:
    """The schedule a layout asks for; by default interleaved when a stage has several chunks."""
    if layout.schedule != "auto":
        return layout.schedule
    return "interleaved" if layout.virtual_pipeline > 1 else "1f1b"


def route_of(layout: Layout) -> Route:
    """Which stage holds which piece under a layout."""
    if schedule_name(layout) == "dualpipe":
        return Route(layout.pipeline, 2, "mirror")
    return Route(layout.pipeline, layout.virtual_pipeline)


def order_name(job: TrainingJob) -> str:
    """The schedule whose order a job's stages run passes in: its own, or `paired` where that hides expert
    all-to-alls.

    Megatron-LM pairs passes without a pipeline and in interleaved ones (TransformerConfig, __post_init__:
    overlap_moe_expert_parallel_comm).
    """
    layout, name = job.layout, schedule_name(job.layout)
    alternating = name == "interleaved" or (name == "1f1b" and layout.pipeline == 1)
    hidden = job.overlap.ep and layout.expert > 1 and layout.zero < 3
    return "paired" if hidden and alternating else name


def orders_of(job: TrainingJob, microbatches: int) -> Orders:
    """Units of every stage in the order it runs them, of a job that passed `plan.check`."""
    return schedule(job.layout.pipeline, route_of(job.layout).chunks, microbatches, order_name(job))


@lru_cache(maxsize=64)
def schedule(stages: int, chunks: int, microbatches: int, name: str = "auto") -> Orders:
    """Units of every stage in the order it runs them: interleaved when a stage has several chunks."""
    if name == "auto":
        name = "interleaved" if chunks > 1 else "1f1b"
    return SCHEDULES[name](stages, chunks, microbatches)


def in_flight(order: tuple[Unit, ...]) -> int:
    """Most forward passes whose backward pass is still to come: sets of activations a stage holds.

    With a split backward pass they are held until the weight gradients are done.
    """
    held = most = 0
    for unit in order:
        held += unit.kind in ("F", "FB")
        most = max(most, held)
        held -= unit.kind in ("B", "W", "FB")
    return most


def finishing(order: tuple[Unit, ...], chunks: int) -> frozenset[Unit]:
    """The last unit of each chunk that adds to its gradients."""
    last = {u.backward_chunk: u for u in order if u.kind in ("B", "W", "FB")}
    return frozenset(last[c] for c in range(chunks) if c in last)


def finishing_of(job: TrainingJob, microbatches: int) -> tuple[frozenset[Unit], ...]:
    """`finishing` of every stage of a job."""
    return _finishing(job.layout.pipeline, route_of(job.layout).chunks, microbatches, order_name(job))


@lru_cache(maxsize=64)
def _finishing(stages: int, chunks: int, microbatches: int, name: str) -> tuple[frozenset[Unit], ...]:
    return tuple(finishing(order, chunks) for order in schedule(stages, chunks, microbatches, name))


def _alternate(forward: list[Unit], backward: list[Unit], warm_up: int) -> tuple[Unit, ...]:
    """Warm-up forwards, then one forward and one backward in turn, then the remaining backwards."""
    count = len(forward)
    warm_up = min(warm_up, count)
    order = forward[:warm_up]
    for i in range(count - warm_up):
        order += (forward[warm_up + i], backward[i])
    return tuple(order + backward[count - warm_up :])


def _together(order: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """An order of forwards and backwards with one more forward ahead, and then one of each at a time."""
    forward = [unit for unit in order if unit.kind == "F"]
    backward = [unit for unit in order if unit.kind == "B"]
    ahead = min(next(i for i, unit in enumerate(order) if unit.kind == "B"), len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    merged = [Unit("FB", f.chunk, f.microbatch, b.microbatch, b.chunk) for f, b in pairs]
    return (*forward[:ahead], *merged, *backward[len(merged) :])


def _both_ways(stage: int, stages: int, half: int) -> tuple[Unit, ...]:
    """DualPipe's eight steps on one stage; `near` is the direction whose first piece is the nearer one."""
    inner = min(stage, stages - 1 - stage)
    near = 0 if stage < stages // 2 else 1
    outer = stages // 2 - 1 - inner
    base = (0, half)
    forward, backward = [0, 0], [0, 0]
    waiting: deque[tuple[int, int]] = deque()
    order: list[Unit] = []

    def chunk(direction: int) -> int:
        return direction ^ near

    def run_forward(direction: int) -> None:
        c = chunk(direction)
        order.append(Unit("F", c, base[c] + forward[c]))
        forward[c] += 1

    def run_backward(direction: int, split: bool = False) -> None:
        c = chunk(direction)
        order.append(Unit("I" if split else "B", c, base[c] + backward[c]))
        if split:
            waiting.append((c, base[c] + backward[c]))
        backward[c] += 1

    def run_weight() -> None:
        order.append(Unit("W", *waiting.popleft()))

    def run_both(ahead: int, back: int) -> None:
        f, b = chunk(ahead), chunk(back)
        order.append(Unit("FB", f, base[f] + forward[f], base[b] + backward[b], b))
        forward[f] += 1
        backward[b] += 1

    for _ in range(2 * outer):
        run_forward(0)
    for _ in range(inner + 1):
        run_forward(0)
        run_forward(1)
    for _ in range(outer):
        run_backward(1, split=True)
        run_weight()
        run_forward(1)
    for i in range(half - stages + inner + 1):
        if i == 0 and inner == stages // 2 - 1:
            # The middle stages have no forward of the other direction under way that early.
            run_forward(0)
            run_backward(1)
        else:
            run_both(0, 1)
        run_both(1, 0)
    for _ in range(outer):
        run_backward(1)
        run_both(1, 0)
    split = False
    for i in range(inner + 1):
        if i == (inner + 1) // 2 and inner % 2 == 1:
            split = True
        run_backward(1, split)
        if i == (inner + 1) // 2 and inner % 2 == 0:
            split = True
        run_backward(0, split)
    for _ in range(outer):
        run_weight()
        run_backward(0, split=True)
    while waiting:
        run_weight()
    return tuple(order)
