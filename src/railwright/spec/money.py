"""The part of a study file about money and carbon: who wants the GPUs when, where, and for how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Size
from railwright.spec.section import Section

Share = Annotated[float, Field(ge=0, le=1)]


class Level(Section):
    """For this share of the time this share of the GPUs is wanted."""

    time: Share = Field(description="share of the time, 0 to 1")
    gpus: Share = Field(description="share of the cluster's GPUs wanted then, 0 to 1")


class Use(Section):
    """When the GPUs are wanted."""

    profile: Literal["steady", "spiky", "deadline", "levels"] = Field(
        default="steady",
        description="steady: `share` of the GPUs all the time; spiky: `base` of them, and all of them for "
        "`peak` of the time; deadline: all of them for `days` a year, else none; levels: as listed",
    )
    share: Share = Field(default=0.8, description="steady: share of the GPUs wanted")
    base: Share = Field(default=0.3, description="spiky: share of the GPUs wanted between the peaks")
    peak: Share = Field(default=0.2, description="spiky: share of the time in which all are wanted")
    days: Annotated[float, Field(gt=0, le=365)] = Field(default=60.0, description="deadline: days a year")
    levels: tuple[Level, ...] = Field(default=(), description="levels: shares of time that add up to 1")


class Money(Section):
    """What money and carbon are reckoned from; prices are the price book's (`railwright cost --prices`)."""

    years: Annotated[float, Field(gt=0, le=15)] = Field(
        default=4.0, description="how long the machines serve"
    )
    use: Use = Use()
    region: str = Field(
        default="usa", description="where the machines stand: price and carbon of electricity, e.g. 'texas'"
    )
    interest: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.08, description="yearly cost of the money that is bound, e.g. 0.08"
    )
    staff: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="people who run owned machines, full-time; default: one for so many servers "
        "(`servers-per-person` in the price book), and half of one at least",
    )
    data: Size | None = Field(
        default=None,
        description="data kept for the jobs, e.g. '200 TB': on storage that is bought with owned machines, "
        "in a cloud paid by the month; default: what `site.storage` asks for, else none",
    )
    egress: Size = Field(default=0.0, description="data that leaves a cloud every month, e.g. '20 TB'")
    pue: Annotated[float, Field(ge=1, le=3)] | None = Field(
        default=None,
        description="power of the site over the machines'; default: that of the study's `site`, else of the "
        "price book",
    )
    prices: str | None = Field(
        default=None, description="your own prices (YAML, relative to this file), laid over the shipped book"
    )
    hours: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        default=None,
        description="24 factors on the region's carbon intensity, midnight first, from your grid's operator",
    )
