"""Whether the NICs and switches of a network can be cabled together: InfiniBand and Ethernet cannot."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric.plan import Order
from railwright.spec.study import ServiceNetwork

SPOKEN = {"infiniband": "InfiniBand", "ethernet": "Ethernet"}
NAMED = 5
"""Parts that a refusal names as fitting."""


def need_same_protocol(asked: Order, catalog: Catalog) -> None:
    """Raise PlanError, with the field, where the parts of a network speak different protocols.

    Adapters of both (VPI) take either; nothing crosses the network of one machine, whatever its switch.
    """
    if asked.servers < 2:
        return
    nic, leaf = asked.nic, asked.leaf
    if not nic.speaks(leaf.technology):
        whose = "" if isinstance(asked.network, ServiceNetwork) else f" of server '{asked.server.name}'"
        raise PlanError(
            f"switch '{leaf.name}' is {SPOKEN[leaf.technology]}, and NIC '{nic.name}'{whose} speaks "
            f"{SPOKEN[nic.technology]} only, so they cannot be cabled together; "
            f"{_fitting(nic.technology, nic.rate, catalog)}, or name a server with other NICs.",
            "switch",
        )
    for field, switch in (("spine_switch", asked.spine), ("core_switch", asked.core)):
        if getattr(asked.network, field) is not None and switch.technology != leaf.technology:
            raise PlanError(
                f"{field} '{switch.name}' is {SPOKEN[switch.technology]}, and switch '{leaf.name}' "
                f"{SPOKEN[leaf.technology]}, so they cannot be cabled together; "
                f"{_fitting(leaf.technology, leaf.rate, catalog)}.",
                field,
            )


def _fitting(technology: str, rate: float, catalog: Catalog) -> str:
    """Switches of a protocol, those nearest to a port rate [byte/s] first."""
    able = [switch for switch in catalog.switches.values() if switch.technology == technology]
    able.sort(key=lambda switch: (switch.rate < rate, abs(switch.rate - rate)))
    if not able:
        return f"the catalogue has no {SPOKEN[technology]} switch: add one"
    return f"{SPOKEN[technology]} switches are {_listed(switch.name for switch in able)}"


def _listed(names: Iterable[str]) -> str:
    """The first names, and whether there are more."""
    known = [f"'{name}'" for name in names]
    more = ", … (`railwright catalog list switches`)" if len(known) > NAMED else ""
    return ", ".join(known[:NAMED]) + more
