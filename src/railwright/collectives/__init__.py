"""Collectives as NCCL runs them: its choice, the traffic on the fabric, and the time as terms that add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Machine": "machine",
    "NcclSettings": "prediction",
    "CollectivePrediction": "prediction",
    "Op": "prediction",
    "Term": "prediction",
    "predict": "predicting",
    "sweep": "predicting",
    "bus_factor": "rates",
    "ranks_of_ratio": "rates",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.collectives.machine import Machine as Machine
    from railwright.collectives.predicting import predict as predict
    from railwright.collectives.predicting import sweep as sweep
    from railwright.collectives.prediction import CollectivePrediction as CollectivePrediction
    from railwright.collectives.prediction import NcclSettings as NcclSettings
    from railwright.collectives.prediction import Op as Op
    from railwright.collectives.prediction import Term as Term
    from railwright.collectives.rates import bus_factor as bus_factor
    from railwright.collectives.rates import ranks_of_ratio as ranks_of_ratio


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.collectives.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.collectives' has no attribute '{name}'")
