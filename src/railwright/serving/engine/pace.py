"""What prompts take in engines of 2023 and 2024 over the kernels of 2026, whose times the rows hold."""

from __future__ import annotations

from functools import cache

from railwright.catalog.parts import Gpu
from railwright.serving.engine.profiles import Engine
from railwright.shipped import read_data


def prompt_pace(engine: Engine, gpu: Gpu, kind: str) -> float:
    """Time of prefill over that of the kernels measured: of a TensorRT plan of 2024 (data/plans.yaml), or of
    eager PyTorch of 2023 (data/eager.yaml).

    kind  'collectives', else the type of the weights outside experts
    """
    if engine.eager:
        return eager_row(gpu)["prompts"]
    return _plan_row(engine, gpu).get(kind, 1.0)


def prompt_bus(engine: Engine, gpu: Gpu) -> float:
    """Bus bandwidth of all-reduces of prompts between cards that meet over PCIe [byte/s]; 0: unknown."""
    return _plan_row(engine, gpu).get("bus", 0.0)


def _plan_row(engine: Engine, gpu: Gpu) -> dict[str, float]:
    if not engine.plans:
        return {}
    rows = _rows("plans.yaml")
    own = [name for name in rows if gpu.name == name or gpu.name.startswith(name + "-")]
    return rows[max(own, key=len)] if own else {}


def eager_row(gpu: Gpu) -> dict[str, float]:
    """What prompts cost in eager PyTorch of 2023 on GPUs of this generation (data/eager.yaml)."""
    rows = _rows("eager.yaml")
    return rows.get(gpu.generation, rows["others"])


@cache
def _rows(name: str) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = read_data("serving", name)
    return rows
