"""Small fabrics of every family, for the tests of emulation, and whether this machine can emulate at all."""

from __future__ import annotations

from functools import cache

from railwright.catalog import load_catalog
from railwright.emulate import find_tools
from railwright.errors import RailwrightError
from railwright.fabric import build
from railwright.network import Network
from railwright.spec import load_study_text

FAMILIES = {
    "single-switch": ("hgx-h100", 2, "single-switch", ""),
    "fat-tree": ("mi250x-4", 4, "fat-tree", "servers_per_group: 1, tiers: 2"),
    "fat-tree, three tiers": (
        "mi250x-4", 4, "fat-tree", "servers_per_group: 1, tiers: 3, groups_per_pod: 2, oversubscription: 2.0",
    ),
    "clos": ("hgx-h100", 4, "clos", "servers_per_group: 1, tiers: 2, spines: 4"),
    "rail-optimised": (
        "mi250x-4", 4, "rail-optimised", "servers_per_group: 2, tiers: 2, oversubscription: 2.0",
    ),
    "rail-only": ("mi250x-4", 4, "rail-only", "servers_per_group: 4"),
    "rack-rails": ("gb300-nvl72", 1, "rack-rails", "nics_per_tray: 4"),
    "dual-plane": ("mi250x-4", 4, "dual-plane", "servers_per_group: 2, tiers: 2"),
    "one NIC for four GPUs": ("workstation-4x-l40s", 3, "single-switch", ""),
}  # fmt: skip
SWITCH = {
    "hgx-h100": "qm8700",
    "mi250x-4": "slingshot-64",
    "gb300-nvl72": "q3400-ra",
    "workstation-4x-l40s": "qm8700",
}


@cache
def network(family: str, routing: str = "adaptive") -> Network:
    """A small cluster of a family."""
    server, servers, name, more = FAMILIES[family]
    return _network(server, servers, name, more, routing, SWITCH[server])


@cache
def sixteen(family: str, oversubscription: float) -> Network:
    """The study of the documentation: 4 servers of 4 GPUs."""
    groups = 4 if family == "rail-optimised" else 1
    more = f"servers_per_group: {groups}, tiers: 2, oversubscription: {oversubscription}"
    return _network("mi250x-4", 4, family, more, "adaptive", SWITCH["mi250x-4"])


def _network(server: str, servers: int, family: str, more: str, routing: str, switch: str) -> Network:
    text = f"""railwright: 1
name: emulated
cluster:
  servers: {servers}
  server: {server}
  compute: {{family: {family}, switch: {switch}, routing: {routing}{", " + more if more else ""}}}
"""
    study = load_study_text(text, "case")
    return Network(build(study.cluster, load_catalog()), routing, 1)


def why_not(loss: bool = False) -> str:
    """Why this machine cannot emulate, or ''."""
    try:
        find_tools(loss)
    except RailwrightError as error:
        return str(error)
    return ""
