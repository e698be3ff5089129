"""A small study with a reliability section, and its machine, for tests of goodput."""

from __future__ import annotations

from functools import cache
from typing import Any

from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.spec import load_study_text
from railwright.spec.reliability import Checkpoint, Recovery, Reliability
from railwright.spec.study import Study

TEXT = """
railwright: 1
name: Sixteen servers
cluster:
  servers: 18
  server: dgx-h100
  compute:
    family: clos
    switch: qm9700
    tiers: 2
    servers_per_group: 2
    spines: 4
    spare_spines: 1
  storage:
    family: clos
    switch: sn5600
    rate: 200 Gb/s
    hosts: 4
jobs:
  - name: small
    model: llama-3-8b
    gpus: 128
    sequence: 4096
    global_batch: 128
    tokens: 1.0e+12
    layout: {tensor: 2, sequence_parallel: true}
reliability:
  samples: 50
"""


@cache
def study() -> Study:
    """128 GPUs on 16 of 18 servers; five spines where four would do; 100 GB/s of storage."""
    return load_study_text(TEXT, "small.yaml")


def asking(recovery: Recovery | None = None, checkpoint: Checkpoint | None = None, **fields: Any) -> Study:
    """The same study with another reliability section."""
    section = Reliability.model_construct(
        **{
            **Reliability().__dict__,
            "samples": 50,
            "recovery": recovery or Recovery(),
            "checkpoint": checkpoint or Checkpoint(),
            **fields,
        }
    )
    return study().model_copy(update={"reliability": section})


@cache
def catalog() -> Catalog:
    """The shipped one."""
    return load_catalog()


@cache
def machine() -> Machine:
    """Of the study."""
    return Machine.of(study().cluster, catalog(), NcclSettings(pxn=True))
