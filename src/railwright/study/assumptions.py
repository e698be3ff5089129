"""What an answer rests on: the parts' figures, the kernel constants and the choices, each with its source."""

from __future__ import annotations

from pathlib import Path

from railwright.catalog import find, source_of
from railwright.catalog.parts import Gpu, Nic, Switch
from railwright.collectives.group import generation_of
from railwright.compute import constants
from railwright.measure.fitting.profile import read_profile
from railwright.measure.fitting.text import shown, source
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop
from railwright.study.result import Assumption
from railwright.study.training_assumptions import trained
from railwright.units import show_bit_rate, show_flop_rate, show_rate, show_size, show_time

ROUTING_MEANS = {
    "adaptive": "an even spread over all shortest paths: the ideal of adaptive routing, never reached quite",
    "ecmp": "one hashed shortest path per flow; one seed of many",
    "static": "one destination-based table, as a fat-tree subnet manager fills it",
}


def assumptions(study: Study, workshop: Workshop) -> tuple[Assumption, ...]:
    """In the order: parts, choices, software and pace of training jobs, their kernel constants, those of the
    cluster's own profile."""
    catalog, cluster = workshop.catalog, study.cluster
    server = find(catalog.servers, cluster.server)
    gpu, nic = find(catalog.gpus, server.gpu), find(catalog.nics, server.nic)
    switch = find(catalog.switches, cluster.compute.switch)
    found = [
        Assumption(f"{gpu.name} HBM", show_size(gpu.hbm_bytes), cited(gpu, "hbm_bytes")),
        Assumption(f"{gpu.name} HBM bandwidth", show_rate(gpu.hbm_bandwidth), cited(gpu, "hbm_bandwidth")),
        Assumption(
            f"{gpu.name} scale-up bandwidth, one direction",
            show_rate(gpu.scale_up_bandwidth),
            cited(gpu, "scale_up_bandwidth"),
        ),
        Assumption(f"{nic.name} rate", show_bit_rate(nic.rate), cited(nic, "rate")),
        Assumption(f"{nic.name} latency, one side", show_time(nic.latency), cited(nic, "latency")),
        Assumption(f"{switch.name} latency", show_time(switch.latency), cited(switch, "latency")),
    ]
    dtypes = dict.fromkeys(job.dtype for job in study.jobs)
    found += [
        Assumption(
            f"{gpu.name} dense peak, {dtype}",
            show_flop_rate(gpu.peak_flops[dtype]),
            cited(gpu, f"peak_flops.{dtype}"),
        )
        for dtype in dtypes
        if dtype in gpu.peak_flops
    ]
    found.append(Assumption("routing", cluster.compute.routing, ROUTING_MEANS[cluster.compute.routing]))
    if study.jobs:
        found += trained(study, workshop)
        found += [Assumption(name, f"{value:.3g}", source) for name, value, source in constants(gpu)]
    if study.calibration is not None:
        found += calibrated(study.calibration, gpu)
    return tuple(found)


def calibrated(path: str, gpu: Gpu) -> list[Assumption]:
    """Every constant of a profile with its error, the shipped value and its logs. Raises SpecError."""
    name, profile = Path(path).name, read_profile(path)
    generation = generation_of(gpu)
    mine = {f: r for f, r in profile.families.items() if f.split(" ")[0] == generation}
    where = f"{name}, measured on {profile.server} with {profile.nic}"
    if not mine:
        use = f"unused: its families are {', '.join(profile.families)}; {gpu.name} is {generation}"
        return [Assumption("calibration", use, where)]
    found = []
    for family, record in mine.items():
        for constant, measured in record.measured().items():
            value, error, shipped = (
                shown(constant, v) for v in (measured.value, measured.standard_error, measured.shipped)
            )
            found.append(
                Assumption(
                    f"calibrated {family}: {constant}",
                    f"{value} ± {error} (shipped: {shipped})",
                    f"{where}; {source(measured, record, profile)}",
                )
            )
    return found


def cited(part: Gpu | Nic | Switch, field: str) -> str:
    """The source of one field in a line: document, place, and how far it was checked."""
    source = source_of(part, field)
    place = f", {source.where}" if source.where else ""
    return f"{source.document}{place} ({source.status.replace('_', ' ')})"
