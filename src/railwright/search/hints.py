"""What a search says of layouts that its space did not hold."""

from __future__ import annotations

from railwright.model.architecture import Transformer
from railwright.search.space import Space
from railwright.spec.training import TrainingJob
from railwright.training.stages import largest_piece


def some_layers(best: TrainingJob, arch: Transformer, space: Space) -> tuple[str, ...]:
    """That fewer layers could be computed again, where the best layout does so of all and none were tried;
    torchtitan cannot.

    best  the job with the best layout
    """
    layout = best.layout
    every = layout.recompute == "full" and layout.recompute_layers is None
    if not every or space.fsdp or space.of_axis("recompute_layers") or largest_piece(arch, layout) == 1:
        return ()
    return (
        "All layers are computed again; with recompute_layers: [null, quarters] in its space the search "
        "tries a quarter, a half and three quarters of those of each stage too.",
    )
