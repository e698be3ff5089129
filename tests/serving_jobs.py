"""Serving jobs on whole machines, for tests of the engine's step."""

from __future__ import annotations

from functools import cache

from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.model import Transformer, load_model
from railwright.spec.serving import Client, ServingJob, ServingLayout
from railwright.spec.study import Cluster, ComputeNetwork


@cache
def machine(server: str = "dgx-h100", servers: int = 1) -> Machine:
    """Servers under one switch."""
    network = ComputeNetwork(family="single-switch", switch="qm9700")
    return Machine.of(
        Cluster(servers=servers, server=server, compute=network), load_catalog(), NcclSettings()
    )


def job(model: str = "llama-3.1-70b", tensor: int = 8, **fields: object) -> ServingJob:
    """A job of eight H100 unless said otherwise."""
    layout = fields.pop("layout", None) or ServingLayout(tensor=tensor)
    client = fields.pop("client", None) or Client(concurrency=8)
    return ServingJob.model_validate(
        {"name": "chat", "model": model, "layout": layout, "client": client, **fields}
    )


@cache
def arch(name: str = "llama-3.1-70b") -> Transformer:
    return load_model(name)
