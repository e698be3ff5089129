"""How Megatron-LM cuts a model into stages and virtual stages, by its arguments.

Source, read 2026-11-29: Megatron-LM d98e8a6, megatron/training/arguments.py (validate_args) and
megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from typing import Any

from railwright.runs.given import Given


def cut(given: Given, layers: int) -> dict[str, Any]:
    """Fields of a layout for its stages. Raises RailwrightError for pieces that the layers do not fill."""
    stages = given.count("pipeline_model_parallel_size") or 1
    found: dict[str, Any] = {"pipeline": stages} if stages > 1 else {}
    if stages == 1:
        return found
    if written := given.text("pipeline_model_parallel_layout"):
        return found | _written(given, _unrolled(written), stages, layers)
    ends = _ends(given)
    counted = layers + {"none": 0, "both": 2}.get(ends, 1)
    virtual = _virtual(given, counted // stages)
    if virtual > 1:
        found["virtual_pipeline"] = virtual
    if ends != "none":
        found["ends_as_layers"] = ends
    first = given.count("decoder_first_pipeline_num_layers")
    last = given.count("decoder_last_pipeline_num_layers")
    if first is not None or last is not None:
        found["layers_per_stage"] = _uneven(given, layers, stages, virtual, first, last)
    return found


def _ends(given: Given) -> str:
    """Which ends count as a layer."""
    embedding = given.yes("account_for_embedding_in_pipeline_split")
    head = given.yes("account_for_loss_in_pipeline_split")
    return "both" if embedding and head else "embedding" if embedding else "head" if head else "none"


def _virtual(given: Given, per_stage: int) -> int:
    """Virtual stages of a stage."""
    count = given.count("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    each = given.count("num_layers_per_virtual_pipeline_stage")
    if count is not None or each is None:
        return count or 1
    if each < 1 or per_stage % each:
        raise given.refuse(
            "num_layers_per_virtual_pipeline_stage",
            f"{each} layers do not divide the {per_stage} of a stage; a divisor of these is expected",
        )
    return per_stage // each


def _uneven(
    given: Given, layers: int, stages: int, virtual: int, first: int | None, last: int | None
) -> tuple[int, ...]:
    """Layers of each piece where the first and the last stage have other numbers than the rest."""
    inner = stages - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    if inner < 0 or left < 0 or (left % inner if inner else left):
        raise given.refuse(
            "decoder_first_pipeline_num_layers" if first is not None else "decoder_last_pipeline_num_layers",
            f"{left} of {layers} layers are left for {inner} stages, which they do not fill evenly",
        )
    each = left // inner if inner else 0
    sizes = [each] * stages
    if first is not None:
        sizes[0] = first
    if last is not None:
        sizes[-1] = last
    if any(size % virtual for size in sizes):
        raise given.refuse(
            "num_virtual_stages_per_pipeline_rank", f"stages of {sizes} layers do not divide into {virtual}"
        )
    return tuple(size // virtual for _ in range(virtual) for size in sizes)


def _unrolled(written: str) -> str:
    """'Et*3|(tt|)*2L' without its multiplications and commas."""
    written = written.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        written = re.sub(pattern, lambda found: found[1] * int(found[2]), written)
    return written


def _written(given: Given, pieces: str, stages: int, layers: int) -> dict[str, Any]:
    """Virtual stages and layers of each piece of a layout that is written out."""
    parts = pieces.split("|")
    sizes = tuple(part.count("t") for part in parts)
    name = "pipeline_model_parallel_layout"
    if odd := set(pieces) - set("EtmL|"):
        raise given.refuse(name, f"'{min(odd)}' is no layer; E, t, m, L and | are")
    if len(parts) % stages:
        raise given.refuse(name, f"it has {len(parts)} pieces, which {stages} stages do not divide")
    if sum(sizes) != layers:
        raise given.refuse(name, f"it has {sum(sizes)} layers (t), the model {layers}")
    virtual = len(parts) // stages
    found: dict[str, Any] = {"layers_per_stage": sizes}
    if virtual > 1:
        found["virtual_pipeline"] = virtual
    # the extra layers of multi-token prediction stand with the head here
    for i, part in enumerate(parts[:-1]):
        if "m" in part:
            given.doubts.append(
                f"multi-token prediction runs in piece {i + 1} of {len(parts)}; it is predicted in the last"
            )
    return found
