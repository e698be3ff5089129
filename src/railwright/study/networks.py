"""What is doubtful about the networks of a study, its variants and its sensitivity, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.catalog import load_catalog
from railwright.fabric import doubts
from railwright.spec import override
from railwright.spec.study import Study

WITHOUT_UPLINKS = ("single-switch", "rail-only")
"""Families that a variant changes to in order to leave the spines out, with all that is said of them."""


def network_doubts(study: Study) -> tuple[str, ...]:
    """Each doubt once, behind its network's section and the first variant or row that has it, where the study
    as written has not."""
    found: dict[tuple[str, str], str] = {}
    for name, one in _every(study):
        for doubt in doubts(one.cluster, load_catalog(one.catalog)):
            found.setdefault(doubt, name)
    return tuple(
        f"{section} ('{name}'): {text}" if name else f"{section}: {text}"
        for (section, text), name in found.items()
    )


def _every(study: Study) -> Iterator[tuple[str, Study]]:
    """The study under '', and every variant and row whose network is asked for more than to be flat."""
    yield "", study
    for variant in (*study.variants, *study.sensitivity):
        changed = override(study, variant.set)
        family = changed.cluster.compute.family
        if family == study.cluster.compute.family or family not in WITHOUT_UPLINKS:
            yield variant.name, changed
