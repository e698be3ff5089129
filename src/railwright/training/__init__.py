"""Training: one step of a transformer on a machine, as a timeline of compute and communication."""

from railwright.training.constants import Constant, ErrorBand, constants, error_band
from railwright.training.critical import CriticalPath, critical_path
from railwright.training.dlrm import simulate_recommendation
from railwright.training.memory import peak_memory
from railwright.training.placement import Groups, place
from railwright.training.result import Memory, StepResult, UsedCollective
from railwright.training.route import Unit
from railwright.training.schedule import SCHEDULES, schedule
from railwright.training.step import simulate
from railwright.training.timeline import Event, Share, Timeline
from railwright.training.whatif import WhatIf, what_ifs

__all__ = [
    "SCHEDULES",
    "Constant",
    "CriticalPath",
    "ErrorBand",
    "Event",
    "Groups",
    "Memory",
    "Share",
    "StepResult",
    "Timeline",
    "Unit",
    "UsedCollective",
    "WhatIf",
    "constants",
    "critical_path",
    "error_band",
    "peak_memory",
    "place",
    "schedule",
    "simulate",
    "simulate_recommendation",
    "what_ifs",
]
