"""What a head asks of the allocator whose loss takes it in chunks of tokens, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import sequence_ranks, tokens_of
from railwright.training.memory.allocator import Tensor
from railwright.training.memory.chunked_kept import ChunkGradient, ChunkLogits, chunk_gradient, chunk_logits
from railwright.training.memory.end_activations import loss_kept
from railwright.training.software.chunked_loss import chunks_of

Flight = tuple[int, int]
"""Chunk of the model and microbatch of a pass."""


class Memory(Protocol):
    """What gives tensors and takes them back (`allocator.Requests`)."""

    def take(self, size: float) -> Tensor: ...

    def give(self, tensor: Tensor) -> None: ...


@dataclass
class ChunkedHead:
    """The chunks of one job's loss.

    rows      of each chunk, as shares of all
    whole     bytes of the head's input; part: of a sequence-parallel rank's
    logits    of one microbatch on this GPU
    """

    how: str
    rows: tuple[float, ...]
    whole: float
    part: float
    logits: float
    held: ChunkLogits
    gradient: ChunkGradient
    kept: dict[Flight, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, job: TrainingJob, arch: Transformer, waits: bool) -> ChunkedHead:
        """waits  whether the states count the head's gradient before it is reduced."""
        rows, whole = chunks_of(job, arch), ELEMENT * tokens_of(job) * arch.hidden
        columns = arch.vocab / job.layout.tensor
        return cls(
            how=job.chunked_loss or "",
            rows=tuple(r / sum(rows) for r in rows),
            whole=whole,
            part=whole / sequence_ranks(job),
            logits=tokens_of(job) * columns,
            held=chunk_logits(job, loss_kept(job)),
            gradient=chunk_gradient(job, len(rows), columns * arch.hidden, waits),
        )

    def forward(self, memory: Memory, output: Tensor, flight: Flight) -> list[Tensor]:
        """The forward pass of norm, head and loss; what it keeps but for chunks of logits.

        output  of the last layer
        """
        hidden = memory.take(self.part)
        gathered = [memory.take(self.whole)] if self.part < self.whole else []
        if self.how == "torchtune":
            self.kept[flight] = [self._ahead(memory, share) for share in self.rows]
            _give(memory, gathered)
            return [output, hidden]
        if self.how == "liger":
            found = memory.take(self.whole)
            self._at_once(memory)
        else:
            wide = memory.take(2 * self.whole)
            self._at_once(memory)
            found = memory.take(self.whole)
            memory.give(wide)
        _give(memory, [*gathered, hidden])
        return [output, found]

    def backward(self, memory: Memory, more: Sequence[Tensor], flight: Flight) -> Tensor:
        """The backward pass to the gradient of the last layer's output.

        more  what the forward pass kept
        """
        flowing = [self._graph(memory, flight)] if flight in self.kept else []
        gradient = memory.take(self.part)
        _give(memory, [*flowing, *more])
        return gradient

    def _graph(self, memory: Memory, flight: Flight) -> Tensor:
        """The chunks' backward passes, last one first, and the gradient of the head's input."""
        found: list[Tensor] = []
        stays: list[Tensor] = []
        for share, kept in reversed([*zip(self.rows, self.kept.pop(flight), strict=True)]):
            logits = share * self.logits
            beside = _pieces(memory, (self.held.work - ELEMENT) * logits, logits)
            own = memory.take(ELEMENT * logits)
            _give(memory, [*beside, kept])
            found.append(memory.take(share * self.whole))
            made = _pieces(memory, self.gradient.made, self.gradient.made)
            if self.gradient.stays and not stays:
                stays, made = made, []
            _give(memory, [own, *made])
        joined = memory.take(self.whole)
        _give(memory, [*found, *stays])
        return joined

    def _ahead(self, memory: Memory, share: float) -> Tensor:
        """A chunk's forward pass alone: what it keeps is made beside its logits and those in fp32."""
        logits = share * self.logits
        beside = memory.take(ELEMENT * logits) if self.held.kept > ELEMENT else None
        wide = memory.take(self.held.kept * logits) if beside is not None else None
        kept = memory.take(self.held.kept * logits)
        _give(memory, [one for one in (beside, wide) if one is not None])
        return kept

    def _at_once(self, memory: Memory) -> None:
        """All chunks forward and backward; a name holds the logits of one while the next one's are made."""
        stays = _pieces(memory, self.gradient.stays, self.gradient.stays)
        before: list[Tensor] = []
        for share in self.rows:
            logits = share * self.logits
            first = memory.take(ELEMENT * logits)
            _give(memory, before)
            beside = _pieces(memory, (self.held.work - 2 * ELEMENT) * logits, logits)
            # Liger's kernel writes the gradient over the logits
            own = [memory.take(ELEMENT * logits)] if self.held.work > ELEMENT else []
            _give(memory, beside)
            flowing = memory.take(share * self.whole)
            made = _pieces(memory, self.gradient.made, self.gradient.made)
            _give(memory, [*own, flowing, *made])
            before = [first]
        _give(memory, [*before, *stays])


def _pieces(memory: Memory, size: float, logits: float) -> list[Tensor]:
    """Tensors of 16 bits a logit, and what is left, that take so many bytes together."""
    one = ELEMENT * logits
    sizes = [one] * int(size / one + 1e-9) if one else []
    return [memory.take(each) for each in (*sizes, size - sum(sizes)) if each >= 1]


def _give(memory: Memory, tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        memory.give(tensor)
