"""Which layers, embedding and head each pipeline stage holds, and how many parameters that is per GPU.

Legend: p stages, v chunks per stage; chunk c of stage s is the (c p + s)-th of p v equal pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from railwright.model import GpuParameters, count_parameters, layer_parameters
from railwright.model.architecture import Transformer
from railwright.model.operators import Layer
from railwright.spec.study import Layout
from railwright.training.work import Chunk


@dataclass(frozen=True)
class StageShape:
    """One stage's chunks, and parameters of each on one GPU.

    first           number of the first layer of each chunk in the model
    dense, expert   per chunk, parameters of each layer on one GPU
    embedding, head parameters of the ends it holds (0 elsewhere), on one GPU
    """

    chunks: tuple[Chunk, ...]
    first: tuple[int, ...]
    dense: tuple[tuple[float, ...], ...]
    expert: tuple[tuple[float, ...], ...]
    embedding: float
    head: float

    @cached_property
    def dense_total(self) -> float:
        """Parameters replicated over all data-parallel ranks."""
        return sum(map(sum, self.dense)) + self.embedding + self.head

    @cached_property
    def expert_total(self) -> float:
        """Parameters replicated over the expert data-parallel ranks."""
        return sum(map(sum, self.expert))


def stage_shapes(arch: Transformer, layout: Layout) -> tuple[StageShape, ...]:
    """Cut the model into stages."""
    stages, chunks = layout.pipeline, layout.virtual_pipeline
    kinds: list[Layer] = [
        "moe" if arch.is_moe and i >= arch.dense_layers else "dense" for i in range(arch.layers)
    ]
    held: dict[Layer, GpuParameters] = {
        kind: layer_parameters(arch, kind, tp=layout.tensor, ep=layout.expert if kind == "moe" else 1)
        for kind in dict.fromkeys(kinds)
    }
    per_piece = arch.layers // (stages * chunks)
    found = []
    for stage in range(stages):
        firsts = [(c * stages + stage) * per_piece for c in range(chunks)]
        pieces = [kinds[first : first + per_piece] for first in firsts]
        found.append(
            StageShape(
                tuple(
                    Chunk(
                        tuple(piece),
                        embedding=stage == 0 and c == 0,
                        head=stage == stages - 1 and c == chunks - 1,
                    )
                    for c, piece in enumerate(pieces)
                ),
                tuple(firsts),
                tuple(tuple(held[k].dense for k in piece) for piece in pieces),
                tuple(tuple(held[k].expert for k in piece) for piece in pieces),
                embedding=_embedding(arch, layout) if stage == 0 else 0.0,
                head=_head(arch, layout) if stage == stages - 1 else 0.0,
            )
        )
    return tuple(found)


def tied_parameters(arch: Transformer, layout: Layout) -> float:
    """Parameters of a tied embedding that first and last stage both hold, on one GPU; 0 without."""
    if not arch.tied_embeddings or layout.pipeline == 1:
        return 0.0
    return count_parameters(arch).embedding / layout.tensor


def _embedding(arch: Transformer, layout: Layout) -> float:
    """Input table and positions; with a tied table on one stage also the final norm."""
    count = count_parameters(arch)
    norm = 0 if _matrix(arch, layout) else _final_norm(arch)
    return count.embedding / layout.tensor + count.positions + norm


def _head(arch: Transformer, layout: Layout) -> float:
    """Output matrix and final norm; 0 where the stage's own input table is the output matrix."""
    matrix = _matrix(arch, layout)
    return matrix / layout.tensor + _final_norm(arch) if matrix else 0.0


def _matrix(arch: Transformer, layout: Layout) -> int:
    """The output matrix; a tied one is a second copy only on another stage."""
    count = count_parameters(arch)
    return count.head or (count.embedding if layout.pipeline > 1 else 0)


def _final_norm(arch: Transformer) -> int:
    return arch.hidden * (1 + arch.norm_bias)
