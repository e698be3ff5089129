"""The page's audit of the design that the answer recommends, and the networks beside its compute network."""

from __future__ import annotations

from railwright import audit as room
from railwright.audit.result import MANY, Audit
from railwright.audit.settings import Setting
from railwright.catalog import load_catalog
from railwright.errors import RailwrightError
from railwright.fabric import build_networks, count_networks
from railwright.fabric.graph import Fabric
from railwright.fabric.networks import SERVICES
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.spec.study import Study
from railwright.study.evaluate import world
from railwright.study.result import Result
from railwright.traffic.demand import Communicator
from railwright.training import place
from railwright.units import show_bit_rate, show_count, show_share

NETWORKS = {"storage": "storage", "inband": "in-band management", "oob": "out-of-band management"}
LOSSES = 3
"""Classes of losses shown; the terminal's audit has them all."""


def networks_section(result: Result) -> Html | None:
    """What each network beside compute takes; None where the study asks for none."""
    cluster = result.design.cluster
    asked = [name for name in SERVICES if getattr(cluster, name) is not None]
    if not asked:
        return None
    try:
        catalog = load_catalog(result.design.catalog)
        networks = build_networks(cluster, catalog)
        counts = count_networks(networks, catalog)
    except RailwrightError as no:
        return tag("p", f"The networks beside compute cannot be built: {no}")
    rows: list[list[Child]] = []
    for name in asked:
        fabric, c = networks[name], counts[name]
        switches = show_count(c.leaves)
        switches += f" + {show_count(c.spines + c.cores)}" if c.spines else ""
        models = " + ".join(dict.fromkeys(fabric.parts[t] for t in MANY if t in fabric.parts))
        rows.append(
            [
                NETWORKS[name],
                show_count(c.servers),
                f"{switches} × {models}",
                show_count(c.node_leaf),
                show_count(c.leaf_spine + c.spine_core),
                show_bit_rate(c.bisection),
            ]
        )
    heads = ("network", "hosts", "switches", "cables to hosts", "between switches", "bisection")
    caption = "Beside compute; hosts are GPU servers and the machines beside them"
    return data_table(caption, heads, rows, numbers=(1, 3, 4, 5), wide=(2,))


def audit_section(result: Result) -> Html | None:
    """What the recommended variant's fabric is worth, and what NCCL has to be told on it."""
    variant = result.variants[result.recommended] if result.variants else None
    if variant is None or (fabric := variant.fabric) is None:
        return None
    try:
        catalog = load_catalog(result.design.catalog)
        found = room.audit(fabric, catalog)
        whose, groups = _groups(result.design, fabric)
        settings = room.nccl_settings(fabric, room.reachability(fabric, groups))
    except RailwrightError as no:
        return tag("p", f"This fabric cannot be audited: {no}")
    caption = f"{variant.name}, its faults counted; the command 'railwright fabric audit' says more"
    return join(
        [data_table(caption, ("figure", ""), _figures(found), wide=(1,)), *_settings(settings, whose)]
    )


def _groups(study: Study, fabric: Fabric) -> tuple[str, list[Communicator]]:
    """The groups of the first job, and its name; all GPUs as one group where no job can be placed."""
    for job in study.jobs[:1]:
        try:
            groups = place(job, fabric)
        except RailwrightError:
            break
        return f"the groups of {job.name}", [
            c for kind in (groups.tp, groups.ep, groups.dp, groups.pp) for c in kind
        ]
    return "one group of all GPUs", [world(fabric)]


def _figures(found: Audit) -> list[list[Child]]:
    rows: list[list[Child]] = []
    for tier in found.oversubscription:
        spread = f"{tier.most:.3g} : 1"
        if tier.most > tier.least:
            spread = f"{tier.least:.3g} to {tier.most:.3g} : 1, most at {tier.worst}"
        cut = f"; {len(tier.cut)} cut off" if tier.cut else ""
        rows.append([f"oversubscription of {MANY[tier.tier]}", spread + cut])
    if not found.oversubscription:
        rows.append(["oversubscription", "none: a single tier of switches"])
    of_nics = f"{show_share(found.bisection_share)} of what the NICs of half the servers send"
    if found.servers > 1:
        rows.append(["bisection, one direction", f"{show_bit_rate(found.bisection)}, {of_nics}"])
    pairs = max(found.gpus * (found.gpus - 1) // 2, 1)
    for switches, number in found.hops:
        where = (
            "inside a server" if not switches else f"{switches} switch{'es' if switches > 1 else ''} apart"
        )
        rows.append([f"pairs of GPUs {where}", f"{show_count(number)} ({show_share(number / pairs)})"])
    if found.pairs_unjoined:
        share = show_share(found.pairs_unjoined / pairs)
        rows.append(["pairs of GPUs joined by no way", f"{show_count(found.pairs_unjoined)} ({share})"])
    rows += [
        [f"loss of one {room.class_in_words(domain)}".replace(" nic ", " NIC "), room.loss_in_words(domain)]
        for domain in found.fault_domains[:LOSSES]
    ]
    return rows


def _settings(settings: list[Setting], whose: str) -> list[Html]:
    """The variables as /etc/nccl.conf takes them, to copy, and why each."""
    if not settings:
        return [tag("p", f"NCCL's defaults fit: for {whose} nothing has to be set.", class_="note")]
    lines = [f"{name}={value}" for name, value, _ in settings if value != "unset"]
    whys = (tag("li", tag("code", name), f": {why}.") for name, _, why in settings)
    return [
        tag("h3", "NCCL settings that follow"),
        tag("p", f"For {whose}, as lines of /etc/nccl.conf:", class_="note"),
        tag("pre", tag("code", "\n".join(lines)), class_="copy") if lines else Html(""),
        tag("ul", *whys, class_="note"),
    ]
