"""Schedules of two pieces a stage that meet in the middle: DualPipe, DualPipeV and ZB-V.

Legend as in `schedule`.  DualPipe keeps two copies of the model, whose microbatches enter at either end; the
other two fold one copy of 2 p pieces, so that stage s holds the s-th piece from the front as chunk 0 and the
s-th from the back as chunk 1, and the first stage has both embedding and head.
"""

from __future__ import annotations

from collections import Counter, deque

from railwright.training.layout.route import Kind, Orders, Unit


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
        inner = min(s, stages - 1 - s)
        near = 0 if s < stages // 2 else 1
        found.append(_both_ways(inner, stages // 2 - 1 - inner, half, near, (0, half)))
    return tuple(found)


def dualpipe_v(stages: int, chunks: int, microbatches: int) -> Orders:
    """DualPipeV: DualPipe of 2 p stages cut in half, with one copy of the model folded over p.

    Bubble and activations are those of DualPipe on 2 p stages, whose pieces are half as large: bubble
    (p-1)(FB + B - 3W)/2 of a whole stage's times.  Needs at least 2 p microbatches.
    Source: DeepSeek-AI, DualPipe, dualpipev.py (after Sea AI Lab's "cut-in-half").
    """
    assert chunks == 2, "DualPipeV has two chunks per stage"
    assert microbatches >= 2 * stages, "DualPipeV needs 2 p microbatches"
    return tuple(_both_ways(s, stages - 1 - s, microbatches, 0, (0, 0)) for s in range(stages))


def zb_v(stages: int, chunks: int, microbatches: int) -> Orders:
    """ZB-V: the folded model's backward passes split, so that each stage's passes follow one another.

    With F, I and W of a chunk equal nothing but the way in is idle: (p-1) F of a chunk, half of a stage's.
    Every stage holds 2 p passes of a chunk at most: as many activations as 1F1B's first stage, on all alike.
    Source: Qi et al., ICLR 2024 (arXiv 2401.10241), section 6, in the fixed order of PyTorch
    (torch.distributed.pipelining, ScheduleZBVZeroBubble); the paper's own places passes by their lengths.
    """
    assert chunks == 2, "ZB-V has two chunks per stage"
    kinds: tuple[Kind, ...] = ("F", "I", "W")
    f0, i0, w0, f1, i1, w1 = ((kind, chunk) for chunk in (0, 1) for kind in kinds)
    # fewer microbatches run in the order of 2 p - 1, without those that are not there
    count = max(microbatches, 2 * stages - 1)
    found = []
    for s in range(stages):
        after = stages - s
        passes: list[tuple[Kind, int]] = [
            *[f0] * (2 * after - 1),
            *[f1, f0] * s,
            *[f1, i1, w1] * after,
            *[f0, i0, w0, f1, i1, w1] * (count - stages - after + 1),
            *[i0, w0, f1, i1, w1] * (after - 1),
            *[i0, i1] * s,
            *[i0, w0] * after,
            *[w1] * s,
            *[w0] * s,
        ]
        done: Counter[tuple[Kind, int]] = Counter()
        order = []
        for kind, chunk in passes:
            if done[kind, chunk] < microbatches:
                order.append(Unit(kind, chunk, done[kind, chunk]))
            done[kind, chunk] += 1
        found.append(tuple(order))
    return tuple(found)


def _both_ways(inner: int, outer: int, half: int, near: int, base: tuple[int, int]) -> tuple[Unit, ...]:
    """DualPipe's eight steps on one stage, a loop each; direction 0 comes from the nearer end.

    inner, outer  stages from the nearer end, and to the middle
    half   microbatches of each direction
    near   chunk of the direction whose first piece is the nearer one
    base   first microbatch of each chunk
    """
    stage = _Order(near, base)
    for _ in range(2 * outer):
        stage.forward(0)
    for _ in range(inner + 1):
        stage.forward(0)
        stage.forward(1)
    for _ in range(outer):
        stage.backward(1, split=True)
        stage.weights()
        stage.forward(1)
    for i in range(half - inner - 2 * outer - 1):
        if i == 0 and outer == 0:
            # The middle stages have no forward of the other direction under way that early.
            stage.forward(0)
            stage.backward(1)
        else:
            stage.together(0, 1)
        stage.together(1, 0)
    for _ in range(outer):
        stage.backward(1)
        stage.together(1, 0)
    # Of these the second half leaves its weight gradients to the time that is idle at the end.
    for i in range(2 * (inner + 1)):
        stage.backward(1 - i % 2, split=i > inner)
    for _ in range(outer):
        stage.weights()
        stage.backward(0, split=True)
    while stage.waiting:
        stage.weights()
    return tuple(stage.units)


class _Order:
    """The passes of one stage of DualPipe, put one behind the other.

    near     chunk of direction 0
    base     first microbatch of each chunk
    waiting  (chunk, microbatch) of backward passes whose weight gradients are still to be computed
    """

    def __init__(self, near: int, base: tuple[int, int]) -> None:
        self.near = near
        self.units: list[Unit] = []
        self.waiting: deque[tuple[int, int]] = deque()
        self.forwards, self.backwards = list(base), list(base)

    def forward(self, direction: int) -> None:
        """The next microbatch of a direction forward."""
        self.units.append(Unit("F", *self._next(self.forwards, direction)))

    def backward(self, direction: int, split: bool = False) -> None:
        """The next one backward; `split`: without its weight gradients."""
        one = self._next(self.backwards, direction)
        self.units.append(Unit("I" if split else "B", *one))
        if split:
            self.waiting.append(one)

    def together(self, ahead: int, back: int) -> None:
        """A forward of one direction together with a backward of the other."""
        forward = self._next(self.forwards, ahead)
        chunk, microbatch = self._next(self.backwards, back)
        self.units.append(Unit("FB", *forward, microbatch, chunk))

    def weights(self) -> None:
        """Weight gradients of the backward pass that has waited longest."""
        self.units.append(Unit("W", *self.waiting.popleft()))

    def _next(self, following: list[int], direction: int) -> tuple[int, int]:
        """Chunk and microbatch that come next in a direction."""
        chunk = direction ^ self.near
        following[chunk] += 1
        return chunk, following[chunk] - 1
