"""What an emulation found: times predicted and measured, what was missing, and who is suspected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """What one engine says.

    engine  its name
    time    of the pattern on the emulated fabric [s]
    ratio   predicted over measured; 0 where nothing was measured
    """

    engine: str
    time: float
    ratio: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; negative: predicted too fast."""
        return self.ratio - 1.0


@dataclass(frozen=True)
class Suspect:
    """A device or cable that would explain what is missing.

    name      as in the drawing
    missing   pairs that cross it and miss data, of `crossing` pairs that cross it
    score     missing pairs that cross it, over pairs that are missing or cross it: 1 explains all
    """

    name: str
    missing: int
    crossing: int
    score: float


@dataclass(frozen=True)
class Emulation:
    """The outcome of one pattern on one emulated fabric.

    fabric     name of the design
    block      [byte]
    nic_rate   what the fastest NIC cable ran at [byte/s]
    scale      emulated rate over real rate
    setup      building namespaces, wires and routes [s]
    times      of the repetitions, begin to last byte at the last GPU [s]
    measured   their median; 0 where data went missing [s]
    load       average before and after (1 minute) on `cores` cores
    missing    pairs of GPUs that miss data, by name
    suspects   best first, where data is missing
    resent     TCP segments sent again in the measured repetitions
    notes      what a reader of the figures has to know
    """

    fabric: str
    pattern: str
    order: str
    gpus: int
    block: int
    nic_rate: float
    scale: float
    setup: float
    times: tuple[float, ...]
    measured: float
    predictions: tuple[Prediction, ...]
    load: tuple[float, float]
    cores: int
    missing: tuple[tuple[str, str], ...] = ()
    pairs: int = 0
    suspects: tuple[Suspect, ...] = ()
    resent: int = 0
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """Slowest over fastest repetition, less 1."""
        return max(self.times) / min(self.times) - 1.0 if self.times else 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything, in SI units."""
        values = asdict(self)
        for row, prediction in zip(values["predictions"], self.predictions, strict=True):
            row["error"] = prediction.error
        return values
