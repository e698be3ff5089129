"""The study file's section `sweeps`: collectives over message sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Size
from railwright.spec.section import Section


class Sweep(Section):
    """One nccl-tests-style sweep over all GPUs: sizes from `begin` to `end`, times `factor`."""

    op: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"] = Field(
        description="the collective, e.g. 'all_reduce'"
    )
    begin: Size = Field(default=1024.0, description="smallest total size, e.g. '1 KiB'")
    end: Size = Field(default=float(2**30), description="largest total size, e.g. '1 GiB'")
    factor: Annotated[int, Field(ge=2)] = Field(
        default=2, description="each size is this many times the one before"
    )
