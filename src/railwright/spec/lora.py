"""A training job's section `lora`: adapters beside a frozen model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.section import Section

LoraTarget = Literal["qkv", "attention output", "mlp up", "mlp down"]


class Lora(Section):
    """Low-rank adapters: the model is frozen, and only two thin matrices beside each target are trained."""

    rank: Annotated[int, Field(gt=0)] = Field(description="inner width of the adapters")
    targets: tuple[LoraTarget, ...] = Field(
        min_length=1,
        default=("qkv", "attention output", "mlp up", "mlp down"),
        description="products that get an adapter (mlp: dense and shared ones, not routed experts)",
    )
