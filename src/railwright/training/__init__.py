"""Training: one step of a transformer on a machine, as a timeline of compute and communication."""

from railwright.training.lanes.critical import CriticalPath, critical_path
from railwright.training.lanes.result import Memory, StepResult, UsedCollective
from railwright.training.lanes.timeline import Event, Share, Timeline
from railwright.training.layout.placement import Groups, place
from railwright.training.layout.route import Unit
from railwright.training.layout.schedule import SCHEDULES, schedule
from railwright.training.memory.peak import peak_memory
from railwright.training.recommendation.dlrm import simulate_recommendation
from railwright.training.software.constants import Constant, ErrorBand, constants, error_band
from railwright.training.step.simulating import simulate
from railwright.training.whatif.changes import WhatIf, what_ifs

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
