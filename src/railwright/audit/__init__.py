"""What a fabric is worth as it stands: its figures, what each loss costs, and who can reach whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "audit": "auditing",
    "blast_radius": "blast",
    "fault_domains": "domains",
    "findings": "judging",
    "class_in_words": "text",
    "lines": "text",
    "loss_in_words": "text",
    "reach_lines": "text",
    "nccl_settings": "settings",
    "reachability": "reach",
    "Audit": "result",
    "Blast": "result",
    "FaultDomain": "result",
    "Reach": "result",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.audit.auditing import audit as audit
    from railwright.audit.blast import blast_radius as blast_radius
    from railwright.audit.domains import fault_domains as fault_domains
    from railwright.audit.judging import findings as findings
    from railwright.audit.reach import reachability as reachability
    from railwright.audit.result import Audit as Audit
    from railwright.audit.result import Blast as Blast
    from railwright.audit.result import FaultDomain as FaultDomain
    from railwright.audit.result import Reach as Reach
    from railwright.audit.settings import nccl_settings as nccl_settings
    from railwright.audit.text import class_in_words as class_in_words
    from railwright.audit.text import lines as lines
    from railwright.audit.text import loss_in_words as loss_in_words
    from railwright.audit.text import reach_lines as reach_lines


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: figures need scipy, the CLI's help does not."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.audit' has no attribute '{name}'")
