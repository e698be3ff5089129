"""Inside a director: a chassis that is itself a two-tier Clos of modules, sold and counted as one switch."""

from __future__ import annotations

from math import ceil

from railwright.errors import PlanError


def director_spines(ports: int, module_ports: int) -> int:
    """Spine modules that make a director of `ports` external ports non-blocking.

    ports         external ('southbound') ports; as many internal ones go up
    module_ports  ports of a switch module: a leaf module faces out with half of them

    The fewest spines whose ports take all internal links with an equal number from every leaf module.
    Raises PlanError when the external ports do not fill whole leaf modules, or outgrow two internal tiers.
    """
    half = module_ports // 2
    if module_ports < 2 or ports % half:
        raise PlanError(
            f"a director of {ports} ports cannot be built of {module_ports}-port modules: each leaf module "
            f"faces out with {half} ports, so the count has to be a multiple of {half}"
        )
    leaves = ports // half
    for spines in range(ceil(ports / module_ports), half + 1):
        if half % spines == 0 and leaves * (half // spines) <= module_ports:
            return spines
    raise PlanError(
        f"a director of {ports} ports needs {leaves} leaf modules, more than the {module_ports} a spine "
        f"module of {module_ports} ports joins; at most {module_ports * half} ports"
    )
