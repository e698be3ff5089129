"""Which measured kernels a prediction stands on: shipped fits or a file, with their tables and errors."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.catalog.parts import Gpu
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.memory import ONLY_EXPERTS
from railwright.serving.engine.profiles import Engine
from railwright.serving.kernels.constants import Kernels, kernels_of, type_of
from railwright.spec.serving import ServingJob, Weights


@dataclass(frozen=True)
class Used:
    """One kernel of a step.

    kernel  'fp8 product';  table  engine and version it was measured with
    error   mean error [%]: of the fit; with points, at shapes left out of them
    points  whether measured points correct the fit
    """

    kernel: str
    table: str
    error: float
    points: bool


@dataclass(frozen=True)
class KernelSources:
    """Where a job's kernels come from.

    gpu     whose shipped rows: 'h100', or 'h100, carried to h20';  file  that was named, '' for none
    package  'aiconfigurator-core 0.12.0, h100_sxm' of a file, else ''
    note    what a reader should know: the profile is of another release than the tables; else ''
    """

    gpu: str
    file: str
    package: str
    note: str
    used: tuple[Used, ...]

    def line(self) -> str:
        """All of it in one line."""

        def named(points: bool) -> str:
            return ", ".join(f"{u.kernel} {u.table} {u.error:.0f} %" for u in self.used if u.points == points)

        parts = [f"{self.file} ({self.package}): {named(True)}"] if self.file else []
        if shipped := named(False):
            parts.append(f"shipped fits of {self.gpu}: {shipped}")
        return "; ".join(parts)


def kernel_sources(job: ServingJob, arch: Transformer, gpu: Gpu, engine: Engine) -> KernelSources:
    """The kernels of a job's steps. Raises as `kernels_of`."""
    kernels = kernels_of(gpu, engine.kernels, job.kernels, job.name)
    used = tuple(_used(job, arch, engine, kernels))
    file = kernels.file
    if file is None:
        row = kernels.row if kernels.exact else f"{kernels.row}, carried to {gpu.name}"
        return KernelSources(row, "", "", "", used)
    package = f"{file.package['name']} {file.package['version']}, {file.package['system']}"
    return KernelSources(kernels.row, file.path, package, release_note(engine, file.version), used)


def release_note(engine: Engine, version: str) -> str:
    """A sentence where an engine's tables are of another release than its profile; '' where they are not."""
    if not engine.first_release or _between(version, engine.first_release, engine.last_release):
        return ""
    until = f" to {engine.last_release}" if engine.last_release else " and later"
    until = "" if engine.last_release == engine.first_release else until
    return (
        f"kernels were measured with {engine.kernels} {version}, the profile {engine.name} is of "
        f"{engine.first_release}{until}."
    )


def _between(version: str, first: str, last: str) -> bool:
    def parts(text: str, most: int) -> tuple[int, ...]:
        return tuple(int(p) for p in text.split(".")[:most] if p.isdigit())

    low, high = first.count(".") + 1, last.count(".") + 1
    own = parts(version, 3)
    return own[:low] >= parts(first, low) and (not last or own[:high] <= parts(last, high))


def _used(job: ServingJob, arch: Transformer, engine: Engine, kernels: Kernels) -> list[Used]:
    dense: Weights = "bf16" if job.weights in ONLY_EXPERTS and arch.is_moe else job.weights
    name = kernels.gemm_name(dense, apart=engine.quantise_apart, static=engine.static_scales)
    found = [_one(f"{type_of(name)} product", kernels.tables["gemm"][name])]
    latent = arch.attention == "mla"
    for kind, kv in (("decode", job.kv), ("prefill", job.kv if engine.narrow_prefill else "bf16")):
        row = kernels.attention_row(f"mla_{kind}" if latent else kind, kv)[1]
        found.append(_one(f"{'latent ' if latent else ''}{kind} attention", row))
    if arch.is_moe:
        own, row = kernels.experts_row(job.weights)
        found.append(_one(f"{own} experts", row))
    return found


def _one(kernel: str, row: dict[str, object]) -> Used:
    points = "points" in row
    return Used(kernel, str(row["table"]), float(str(row["near" if points else "error"])), points)
