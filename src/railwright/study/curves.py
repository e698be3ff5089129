"""One collective over sizes, for the study as written and with fields changed: `railwright perf`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railwright.catalog import find
from railwright.catalog.parts import Catalog
from railwright.collectives import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.fabric.graph import Fabric
from railwright.network.routing.solution import Network
from railwright.spec import override
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop, curve
from railwright.study.result import Curve


def perf(
    study: Study, op: str, sizes: Iterable[float], compare: Sequence[Mapping[str, Any]] = ()
) -> list[Curve]:
    """Curves of `op` over all GPUs: the study first, then one per set of changed fields.

    sizes    total buffer sizes, as nccl-tests counts them [byte]
    compare  dotted field -> value, e.g. [{'nccl.pxn': False}]
    """
    workshop = Workshop.of(study)
    at = tuple(sizes)
    curves = [curve(workshop.machine(study), op, at, study.as_written)]
    for changes in compare:
        label = ", ".join(f"{field}={value}" for field, value in changes.items())
        curves.append(curve(workshop.machine(override(study, changes)), op, at, label))
    return curves


def busbw_on(fabric: Fabric, catalog: Catalog, op: str, size: float) -> float:
    """Bus bandwidth of one collective over all GPUs, adaptive routing and NCCL's defaults. [byte/s]

    fabric  of any origin; its `parts` must be in the catalogue
    """
    server = find(catalog.servers, fabric.parts["server"])
    gpu, nic = find(catalog.gpus, server.gpu), find(catalog.nics, server.nic)
    machine = Machine(Network(fabric), NcclSettings(), gpu, nic, server)
    return curve(machine, op, (size,), "").points[0].busbw
