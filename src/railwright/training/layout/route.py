"""Passes of a pipeline's stages, and which stage holds which piece of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from railwright.model.shape.pattern import Layer

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


@dataclass(frozen=True)
class Chunk:
    """What one chunk of a stage holds: its layers in order, and the ends of the model."""

    layers: tuple[Layer, ...]
    embedding: bool
    head: bool


Orders = tuple[tuple[Unit, ...], ...]
Shape = Literal["loop", "mirror", "fold"]


@dataclass(frozen=True)
class Route:
    """Which stage holds which piece of the model, and in which order pieces follow one another.

    shape  'loop': chunk c of stage s is the (c p + s)-th of p v equal pieces.
           'fold': of 2 p equal pieces chunk 0 of stage s is the s-th, chunk 1 the (2 p - 1 - s)-th.
           'mirror': folded likewise, but as two copies of a model of p pieces, whose microbatches run
           opposite ways: pieces p .. 2 p - 1 are the second copy.
    """

    stages: int
    chunks: int
    shape: Shape = "loop"

    @property
    def pieces(self) -> int:
        """Chunks of all stages; under 'mirror' those of both copies."""
        return self.stages * self.chunks

    def piece(self, stage: int, chunk: int) -> int:
        """Number of the piece that a stage holds as its chunk."""
        if self.shape != "loop" and chunk == 1:
            return 2 * self.stages - 1 - stage
        return chunk * self.stages + stage

    def stage(self, piece: int) -> int:
        """The stage that holds a piece."""
        if self.shape != "loop" and piece >= self.stages:
            return 2 * self.stages - 1 - piece
        return piece % self.stages

    def model_piece(self, stage: int, chunk: int) -> int:
        """Which of the equal pieces of the model a chunk is, counted from the embedding."""
        return self.piece(stage, chunk) % self.model_pieces

    @property
    def model_pieces(self) -> int:
        """Pieces that the model is cut into."""
        return self.stages if self.shape == "mirror" else self.pieces

    def first(self, piece: int) -> bool:
        """Whether a piece holds the embedding."""
        return piece % self.model_pieces == 0

    def last(self, piece: int) -> bool:
        """Whether a piece holds the head."""
        return piece % self.model_pieces == self.model_pieces - 1

    @property
    def ends_apart(self) -> bool:
        """Whether embedding and head lie on different stages; folded, both ends lie on the first."""
        return self.stages > 1 and self.shape == "loop"
