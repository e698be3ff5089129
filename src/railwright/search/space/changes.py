"""What differs between two layouts of a job in effect, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.search.space.axes import SHARDING
from railwright.spec.training import Layout
from railwright.training.layout.schedule import schedule_name

NEEDS = {
    "context_kind": "context",
    "overlap_cp": "context",
    "overlap_tp": "tensor",
    "sequence_parallel": "tensor",
    "overlap_ep": "expert",
    "overlap_pp": "pipeline",
}
"""Axes that do nothing where another is 1."""


def changed(own: Mapping[str, Any], best: Mapping[str, Any]) -> tuple[str, ...]:
    """Axes that are changed in effect: choices of what is not there do not count."""
    return tuple(axis for axis in best if _differs(axis, own, best))


def told(own: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """The axes that are changed, with both values."""
    before, after = _effective(own), _effective(best)
    found = [f"{a} {show(before[a])} -> {show(after[a])}" for a in changed(own, best)]
    return ", ".join(found) or "nothing but the order of ranks"


def _differs(axis: str, own: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    if axis in NEEDS and own[NEEDS[axis]] == 1 and best[NEEDS[axis]] == 1:
        return False
    if max(own["zero"], best["zero"]) < SHARDING.get(axis, 0):
        return False
    return bool(own[axis] != best[axis] and _effective(own)[axis] != _effective(best)[axis])


def _effective(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting with what its defaults stand for: auto is 1F1B or interleaved, experts that name no cut of
    their own are cut like the rest, and layers are counted where whole ones are computed again."""
    inside = setting["expert_tensor"] or setting["tensor"]
    layers = setting["recompute_layers"] if setting["recompute"] == "full" else None
    return {**setting, "schedule": schedule_of(setting), "expert_tensor": inside, "recompute_layers": layers}


def schedule_of(setting: Mapping[str, Any]) -> str:
    """The schedule that a setting's stages run: what auto stands for."""
    names = ("schedule", "pipeline", "virtual_pipeline")
    layout = Layout(**{name: setting[name] for name in names})
    return schedule_name(layout)


def show(value: Any) -> str:
    """A value of an axis in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "all"  # of shard: every rank shares one copy; other axes have none in effect
    return "+".join(value) or "none" if isinstance(value, tuple) else str(value)
