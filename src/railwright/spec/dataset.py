"""What a training job reads, and who loads it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from railwright.spec.quantity import Bandwidth, Duration, Size
from railwright.spec.section import Section


class Data(Section):
    """The data set of a job: by default it never holds up a step."""

    size: Annotated[Size, Field(gt=0)] | None = Field(
        default=None,
        description="what one sequence (of a recommendation job: one sample) takes in storage, e.g. "
        "'1.2 MB'; default: its tokens, in 2 bytes each below a vocabulary of 65,500, else in 4 (a sample's "
        "numbers and indices in 4)",
    )
    storage: Annotated[Bandwidth, Field(gt=0)] | None = Field(
        default=None, description="what one server reads of storage, e.g. '5 GB/s'; default: no limit"
    )
    prepare: Duration = Field(
        default=0.0,
        description="time a loader process needs for one sequence or sample (decoding, tokenising), "
        "e.g. '20 ms'",
    )
    workers: Annotated[int, Field(ge=0)] = Field(
        default=2,
        description="loader processes of a rank that loads, each with a core of its own; 0: the rank loads "
        "itself, before every microbatch",
    )
