"""What is doubtful about the networks of a study, its variants and its sensitivity, before anything runs."""

from __future__ import annotations

from itertools import chain

from railwright.catalog import load_catalog
from railwright.fabric.designs.doubting import Doubt, idle, slow_ports, unused
from railwright.spec import override
from railwright.spec.study import Study

WITHOUT_UPLINKS = ("single-switch", "rail-only")
"""Families that a variant changes to in order to leave the spines out, with all that is said of them."""


def network_doubts(study: Study) -> tuple[str, ...]:
    """Each doubt once, behind its network's section and the first variant or row that has it, where the study
    as written has not."""
    found: dict[Doubt, str] = {}
    changed = [(v.name, override(study, v.set)) for v in (*study.variants, *study.sensitivity)]
    for name, one in [("", study), *changed]:
        catalog = load_catalog(one.catalog)
        always = slow_ports(one.cluster, catalog), unused(one.cluster, catalog)
        for doubt in chain(*always):
            found.setdefault(doubt, name)
        if not _leaves_spines_out(one, study):
            for doubt in idle(one.cluster, catalog):
                found.setdefault(doubt, name)
    return tuple(
        f"{section} ('{name}'): {text}" if name else f"{section}: {text}"
        for (section, text), name in found.items()
    )


def compute_doubts(study: Study) -> tuple[str, ...]:
    """What makes a collective of a study slower than its parts would, or leaves some of them out."""
    catalog = load_catalog(study.catalog)
    found = (*slow_ports(study.cluster, catalog), *unused(study.cluster, catalog))
    return tuple(text for section, text in found if section == "cluster.compute")


def _leaves_spines_out(changed: Study, study: Study) -> bool:
    """Whether a variant's network is another one without uplinks."""
    family = changed.cluster.compute.family
    return family in WITHOUT_UPLINKS and family != study.cluster.compute.family
