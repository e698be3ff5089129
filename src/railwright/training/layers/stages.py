"""Which layers, embedding and head each pipeline stage holds, and how many parameters that is per GPU.

Legend: p stages, v chunks per stage; `route.Route` says which piece of the model a chunk is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from railwright.model import GpuParameters, count_parameters, layer_parameters, mtp_end_parameters
from railwright.model.counts.parameters import norm_parameters
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, layer_kinds
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import route_of
from railwright.training.layout.sizes import weights_cut
from railwright.training.software.eras import era_of
from railwright.training.software.lora import adapter_parameters


@dataclass(frozen=True)
class StageShape:
    """One stage's chunks, and parameters of each on one GPU.

    first           number of the first layer of each chunk in the model
    dense, expert   per chunk, parameters of each layer on one GPU, adapters included
    embedding, head parameters of the ends it holds (0 elsewhere), on one GPU
    adapters        per chunk, parameters of each layer's adapters; None where all weights train
    tied            whether the head's matrix is the embedding's
    """

    chunks: tuple[Chunk, ...]
    first: tuple[int, ...]
    dense: tuple[tuple[float, ...], ...]
    expert: tuple[tuple[float, ...], ...]
    embedding: float
    head: float
    adapters: tuple[tuple[float, ...], ...] | None = None
    tied: bool = False

    @cached_property
    def dense_total(self) -> float:
        """Parameters replicated over all data-parallel ranks."""
        return sum(map(sum, self.dense)) + self._ends

    @cached_property
    def expert_total(self) -> float:
        """Parameters replicated over the expert data-parallel ranks."""
        return sum(map(sum, self.expert))

    @property
    def trained_dense(self) -> tuple[tuple[float, ...], ...]:
        """Per chunk, parameters of each layer that have gradients, experts aside."""
        return self.dense if self.adapters is None else self.adapters

    @property
    def trained_expert(self) -> tuple[tuple[float, ...], ...]:
        """Per chunk, expert parameters of each layer that have gradients: none beside adapters."""
        if self.adapters is None:
            return self.expert
        return tuple(tuple(0.0 for _ in layers) for layers in self.expert)

    @cached_property
    def trained_dense_total(self) -> float:
        """Parameters with gradients and optimizer states, replicated over all data-parallel ranks."""
        ends = self._ends if self.adapters is None else 0.0
        return sum(map(sum, self.trained_dense)) + ends

    @cached_property
    def trained_expert_total(self) -> float:
        """Expert parameters with gradients and optimizer states."""
        return sum(map(sum, self.trained_expert))

    def trained_shard(self, over: int, expert_over: int) -> float:
        """Parameters with gradients and states of one GPU, dense and expert ones divided among so many ranks
        (`Sizes.over`)."""
        return self.trained_dense_total / over + self.trained_expert_total / expert_over

    @cached_property
    def _ends(self) -> float:
        held = self.embedding * sum(chunk.embedding for chunk in self.chunks)
        return held + self.head * sum(chunk.head for chunk in self.chunks)


def shapes_of(job: TrainingJob, arch: Transformer) -> tuple[StageShape, ...]:
    """`stage_shapes` of a job."""
    return stage_shapes(arch, job.layout, job.lora, era_of(job).adapts_apart)


def stage_shapes(
    arch: Transformer, layout: Layout, lora: Lora | None = None, apart: bool = False
) -> tuple[StageShape, ...]:
    """Cut the model into stages; multi-token-prediction layers follow the last piece's own.

    apart  as in `lora.linears`
    """
    route = route_of(layout)
    kinds = layer_kinds(arch)
    held: dict[Layer, GpuParameters] = {
        kind: layer_parameters(arch, kind, weights_cut(layout, kind)) for kind in dict.fromkeys(kinds)
    }
    added: dict[Layer, float] = {
        kind: adapter_parameters(arch, kind, layout, lora, apart) if lora else 0.0
        for kind in dict.fromkeys(kinds)
    }
    sizes = layers_per_piece(arch.layers, route.model_pieces, layout, arch.mtp_layers)
    sizes = (*sizes[:-1], sizes[-1] + arch.mtp_layers)
    firsts = [sum(sizes[:i]) for i in range(len(sizes))]
    found = []
    for stage in range(layout.pipeline):
        order = [route.model_piece(stage, c) for c in range(route.chunks)]
        pieces = [kinds[firsts[i] : firsts[i] + sizes[i]] for i in order]
        places = [route.piece(stage, c) for c in range(route.chunks)]
        chunks = tuple(
            Chunk(tuple(piece), embedding=route.first(place), head=route.last(place))
            for piece, place in zip(pieces, places, strict=True)
        )
        found.append(
            StageShape(
                chunks,
                tuple(firsts[i] for i in order),
                tuple(tuple(held[k].dense + added[k] for k in piece) for piece in pieces),
                tuple(tuple(held[k].expert for k in piece) for piece in pieces),
                embedding=_embedding(arch, layout) if any(c.embedding for c in chunks) else 0.0,
                head=_head(arch, layout) if any(c.head for c in chunks) else 0.0,
                adapters=tuple(tuple(added[k] for k in piece) for piece in pieces) if lora else None,
                tied=arch.tied_embeddings,
            )
        )
    return tuple(found)


def layers_per_piece(layers: int, pieces: int, layout: Layout, mtp: int = 0) -> tuple[int, ...]:
    """Layers of each piece of the model, in its order, without the `mtp` extra ones; as even as can be.

    Where they do not divide, the last piece is the first to get one less (it has the head), then the first
    (embedding), then the others from the end.  An end that counts as a layer takes the place of one, as both
    do where there are fewer layers than pieces.  Multi-token-prediction layers then count too, each with a
    head of its own beside the main one: DeepSeek-V3's 61 layers on 16 stages are 15 times 4 and 1.
    Sources: Megatron-LM, arguments.py, account_for_embedding_in_pipeline_split and account_for_loss_in_
    pipeline_split; Megatron-Bridge, recipes/deepseek/deepseek_v3.py (its layouts of 4, 8 and 16 pieces).
    """
    if layout.layers_per_stage is not None:
        return layout.layers_per_stage
    few = layers < pieces
    embedding = int(few or layout.ends_as_layers in ("embedding", "both"))
    head = int(few or layout.ends_as_layers in ("head", "both"))
    if mtp and (layers % pieces or few):
        head = 2 * mtp + 1
    sizes = _even(layers + embedding + head, pieces, bool(embedding), bool(head))
    sizes[0] -= embedding
    sizes[-1] -= head
    if sizes[-1] < 0:
        sizes = [*_even(layers + embedding, pieces - 1, bool(embedding), False), 0]
        sizes[0] -= embedding
    return tuple(sizes)


def largest_piece(arch: Transformer, layout: Layout) -> int:
    """Layers of the largest piece of the model, without those of multi-token prediction."""
    return max(layers_per_piece(arch.layers, route_of(layout).model_pieces, layout, arch.mtp_layers))


def quarters(layers: int) -> list[int]:
    """A quarter, a half and three quarters of so many layers, each at least one and not all."""
    return sorted({-(-layers * part // 4) for part in (1, 2, 3)} - {0, layers})


def _even(total: int, pieces: int, embedding: bool, head: bool) -> list[int]:
    most, light = -(-total // pieces), -total % pieces
    sizes = [most] * pieces
    for index in _lighter(pieces, embedding, head)[:light]:
        sizes[index] -= 1
    return sizes


def tied_parameters(arch: Transformer, layout: Layout) -> float:
    """Parameters of an embedding that two stages hold, on one GPU; 0 without.

    The last one reads it as output matrix, or for multi-token prediction, or both.
    Source: Megatron-LM, language_module.py, setup_embeddings_and_output_layer.
    """
    if not (arch.tied_embeddings or arch.mtp_layers) or not route_of(layout).ends_apart:
        return 0.0
    return count_parameters(arch).embedding / layout.tensor


def _lighter(pieces: int, embedding: bool, head: bool) -> list[int]:
    """Pieces in the order in which they get one less; ends that count as a layer are as heavy as any."""
    inner = list(reversed(range(pieces)))
    first = [] if head else [pieces - 1]
    if not embedding:
        first.append(0)
    # A piece that would be left without anything comes last.
    return list(dict.fromkeys([*first, *[i for i in inner if 0 < i < pieces - 1], *inner]))


def _embedding(arch: Transformer, layout: Layout) -> float:
    """Input table and positions; with a tied table on one stage also the final norm."""
    count = count_parameters(arch)
    norms = (0 if _matrix(arch, layout) else 1) + arch.embedding_norm
    return count.embedding / layout.tensor + count.positions + norms * norm_parameters(arch)


def _head(arch: Transformer, layout: Layout) -> float:
    """Output matrix, final norm and the ends of multi-token prediction, with its own copy of an input table
    that lies elsewhere; no matrix where the stage's own input table is it."""
    matrix = _matrix(arch, layout)
    extra = mtp_end_parameters(arch, tp=layout.tensor)
    if not arch.tied_embeddings:
        extra += tied_parameters(arch, layout)
    return extra + (matrix / layout.tensor + norm_parameters(arch) if matrix else 0.0)


def _matrix(arch: Transformer, layout: Layout) -> int:
    """The output matrix; a tied one is a second copy only on another stage."""
    count = count_parameters(arch)
    return count.head or (count.embedding if route_of(layout).ends_apart else 0)
