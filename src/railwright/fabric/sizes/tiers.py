"""Two tiers or three: the fewest that reach, or the refusal that says what would."""

from __future__ import annotations

from dataclasses import replace

from railwright.errors import PlanError
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.sizing import PodChoice, down_ports, spare_spines_fit, three_tiers, two_tiers


def with_tiers(order: Order, draft: Plan, prefer: PodChoice, planes_of_three: int = 1) -> Plan:
    """The draft's leaves with the spines (and cores) they need, in as many tiers as asked for.

    planes_of_three  planes per pod when there are three tiers (one per rail in rail-optimised fabrics)
    Raises PlanError when the tiers asked for do not reach all leaves.
    """
    tiers = order.network.tiers
    if tiers == "auto" and draft.leaves == 1:
        return draft
    draft_of_three = replace(draft, planes=planes_of_three)
    if tiers in ("auto", 2):
        if found := two_tiers(order, draft):
            return found
        if spare_spines_fit(order, draft, 2, prefer):
            raise no_room_for_spares(order, draft)
        if tiers == 2:
            raise _two_too_few(order, draft, three_tiers(order, draft_of_three, prefer))
    if found := three_tiers(order, draft_of_three, prefer):
        return found
    if spare_spines_fit(order, draft_of_three, 3, prefer):
        raise no_room_for_spares(order, draft)
    raise _three_too_few(order, draft_of_three)


def largest_first(groups_per_pod: int) -> tuple[int, ...]:
    return (-groups_per_pod,)


def no_room_for_spares(order: Order, draft: Plan) -> PlanError:
    """Each spare spine takes an uplink of every leaf; say how many the leaves have left."""
    network = order.network
    face_servers = order.whole_ports(draft.leaf_ports)
    free = order.leaf.ports - face_servers
    return PlanError(
        f"{draft.family}: spare_spines {network.spare_spines} needs ports the leaves do not have: "
        f"'{order.leaf.name}' has {order.leaf.ports} ports, {face_servers} face servers and the {free} "
        "left for uplinks are too few for spares as well; put fewer servers in a group (servers_per_group), "
        "or take a switch with more ports",
        field="spare_spines",
    )


def _two_too_few(order: Order, draft: Plan, three: Plan | None) -> PlanError:
    network = order.network
    field = "tiers" if network.spines is None else "spines"
    down = down_ports(order)
    most = order.spine.ports * down * draft.planes
    head = (
        f"{draft.family}: 2 tiers cannot join {order.endpoints} NIC ports at oversubscription "
        f"{network.oversubscription:g}: "
    )
    if network.spines is not None:
        head += (
            f"{network.spines} spines '{order.spine.name}' with {order.spine.ports} ports do not take "
            f"{draft.leaves} leaves with an equal number of cables to each"
        )
    else:
        head += (
            f"a spine '{order.spine.name}' reaches at most {order.spine.ports} leaves of {down} "
            f"server-facing ports, {most} NIC ports, and these servers take {draft.leaves} leaves"
        )
    if three is None:
        return PlanError(f"{head}; take switches with more ports", field)
    return PlanError(
        f"{head}; 3 tiers would do with {three.leaves} leaves, {three.spines} spines and {three.cores} cores "
        f"({three.switches} switches): set tiers to 3 or 'auto'",
        field,
    )


def _three_too_few(order: Order, draft: Plan) -> PlanError:
    network = order.network
    most = down_ports(order) * (order.spine.ports // 2) * order.core.ports
    head = (
        f"{draft.family}: 3 tiers cannot join {order.endpoints} NIC ports at oversubscription "
        f"{network.oversubscription:g}"
    )
    if network.groups_per_pod or network.spines or network.cores:
        asked = [
            f"{name} {value}"
            for name, value in (
                ("groups_per_pod", network.groups_per_pod),
                ("spines", network.spines),
                ("cores", network.cores),
            )
            if value
        ]
        return PlanError(
            f"{head} with {' and '.join(asked)}: the {draft.groups} groups do not mesh evenly through "
            f"switches of {order.spine.ports} and {order.core.ports} ports; "
            "leave the setting out to let it be chosen",
            asked[0].split()[0],
        )
    reach = order.spine.ports // 2
    if order.endpoints <= most and draft.leaves_per_group > reach:
        return PlanError(
            f"{head}: a group has {draft.leaves_per_group} leaves, one for each rail, and a spine "
            f"'{order.spine.name}' with half of its {order.spine.ports} ports downwards reaches {reach}; "
            "take nics_per_tray, where a server is a rack of trays whose NICs are the rails, "
            "family fat-tree, whose leaves take every NIC, or switches with more ports",
            "family",
        )
    return PlanError(
        f"{head}: switches of {order.leaf.ports}, {order.spine.ports} and {order.core.ports} ports join at "
        f"most {most}, non-blocking above the leaves; take switches with more ports",
        "switch",
    )
