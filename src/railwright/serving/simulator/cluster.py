"""Replicas on a cluster: their GPUs, and keys and values as flows between them.

Legend: G GPUs of a replica, in order tensor (fastest), attention data, context, pipeline; L links.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.fabric.faults import INSTEAD, check_joins
from railwright.fabric.names import numbered
from railwright.model.shape.architecture import Transformer
from railwright.network.routing.paths import find_routes
from railwright.network.routing.routes import Routes
from railwright.serving.engine.memory import kv_token_bytes
from railwright.serving.engine.profiles import Engine
from railwright.serving.simulator.fleet import Transfers
from railwright.spec.serving import ServingJob, ServingLayout
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


def places(job: ServingJob, machine: Machine) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    """GPUs (G,) of each prefill replica, and of each other one; packed, prefill first.

    A replica that fits in a server does not cross its edge, and a larger one begins at a server.
    Raises PlanError where the job's servers, or the cluster's, have too few GPUs, or it takes one that cannot
    join.
    """
    fabric, per_server = machine.network.fabric, machine.server.gpus
    servers = list(job.servers) if job.servers is not None else list(range(fabric.num_servers))
    outside = [s for s in servers if s >= fabric.num_servers]
    if outside:
        raise PlanError(
            f"{job.name}: servers names number {outside[0]}, but the {fabric.num_servers} servers of the "
            f"cluster have {numbered(fabric.num_servers)}."
        )
    sizes = [job.prefill.layout.gpus] * job.prefill.replicas if job.prefill else []
    num_prefill = len(sizes)
    sizes += [job.layout.gpus] * job.replicas
    gpus = np.concatenate([np.flatnonzero(fabric.server[: fabric.num_gpus] == s) for s in servers])
    found: list[Ints] = []
    at = 0
    for size in sizes:
        if at % per_server and at % per_server + size > per_server:
            at += per_server - at % per_server
        found.append(gpus[at : at + size].astype(np.int32))
        at += size
    if at > len(gpus):
        raise PlanError(
            f"{job.name}: {len(sizes)} replicas need {at} GPUs ({sum(sizes)}, not cut by servers' edges) and "
            f"there are {len(gpus)} on its {len(servers)} servers; take fewer replicas, a smaller layout or "
            "more servers."
        )
    check_joins(fabric, np.concatenate(found), job.name, INSTEAD)
    return tuple(found[:num_prefill]), tuple(found[num_prefill:])


def transfers(
    job: ServingJob,
    arch: Transformer,
    machine: Machine,
    engine: Engine,
    others: Sequence[Traffic] = (),
) -> Transfers:
    """What a request's keys and values cross, for every pair of a prefill and a decode replica.

    others  standing traffic of other jobs, each a pattern whose demands offer `size` bytes a second

    Every rank that decodes fetches the layers and heads it holds from the ranks that computed them; all those
    flows of one request end together.  Other jobs' traffic slows down with what shares its links.
    Raises PlanError where ranks have no live path.
    """
    assert job.prefill is not None
    prefill, decode = places(job, machine)
    shares = _shares(arch, job.prefill.layout, job.layout)
    src_rank, dst_rank, fraction = shares
    pairs = [(p, d) for p in prefill for d in decode]
    src = np.concatenate([p[src_rank] for p, _ in pairs])
    dst = np.concatenate([d[dst_rank] for _, d in pairs])
    none = np.full(len(src), -1, np.int32)
    fabric = machine.network.fabric
    routes = find_routes(
        machine.network,
        Traffic(src.astype(np.int32), dst.astype(np.int32), none, np.tile(fraction, len(pairs))),
    )
    rows = [_loads(routes, k * len(fraction), fraction) for k in range(len(pairs))]
    bounds: list[float] = []
    for other in others:
        load = find_routes(machine.network, other).carried(other.size, fabric.num_links)
        mean = float(other.size.mean())
        rows.append({int(y): float(load[y]) / mean for y in np.flatnonzero(load)})
        bounds.append(mean)
    ptr, link, weight, capacity, names = _classes(rows, fabric.capacity, bounds, machine)
    plain = ServingLayout()
    return Transfers(
        ptr,
        link,
        weight,
        capacity,
        float(routes.latency.max(initial=0.0)),
        kv_token_bytes(arch, job, engine, plain),
        names,
    )


def _shares(
    arch: Transformer, source: ServingLayout, target: ServingLayout
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Ranks of a prefill and of a decode replica, and the part of a request's keys and values between them.

    Where attention data parallelism puts a request on one of several groups each has its part of them all.
    Latent keys and values, and heads fewer than tensor ranks, lie on several ranks: each fetches a copy.
    """
    heads = 1 if arch.attention == "mla" else arch.kv_heads
    senders, receivers = _holdings(source, heads), _holdings(target, heads)
    found: list[tuple[int, int, float]] = []
    for to, (layers, has, part, copy) in enumerate(receivers):
        for from_, (layers_from, has_from, part_from, copy_from) in enumerate(senders):
            copies = max(1, source.tensor // heads)
            if copy_from != copy % copies:
                continue
            common = _overlap(layers, layers_from) * _overlap(has, has_from) * part * part_from
            if common > 0:
                found.append((from_, to, common))
    src, dst, fraction = zip(*found, strict=True)
    return np.array(src), np.array(dst), np.array(fraction)


def _holdings(
    layout: ServingLayout, heads: int
) -> list[tuple[tuple[float, float], tuple[float, float], float, int]]:
    """Of each rank: layers and heads it holds, as parts of all; the part of requests' tokens; which copy."""
    copies = max(1, layout.tensor // heads)
    held = max(1, layout.tensor // copies)
    part = 1.0 / (layout.attention_data * layout.context)
    return [
        (
            (p / layout.pipeline, (p + 1) / layout.pipeline),
            (t // copies / held, (t // copies + 1) / held),
            part,
            t % copies,
        )
        for p in range(layout.pipeline)
        for _ in range(layout.context * layout.attention_data)
        for t in range(layout.tensor)
    ]


def _overlap(a: tuple[float, float], b: tuple[float, float]) -> float:
    return max(min(a[1], b[1]) - max(a[0], b[0]), 0.0)


def _loads(routes: Routes, first: int, fraction: Floats) -> dict[int, float]:
    """Bytes on each link for one byte of a request's keys and values."""
    ptr, link, weight = routes.flat()
    found: dict[int, float] = {}
    for k, part in enumerate(fraction):
        for e in range(ptr[first + k], ptr[first + k + 1]):
            found[int(link[e])] = found.get(int(link[e]), 0.0) + float(part * weight[e])
    return found


def _classes(
    rows: list[dict[int, float]], capacity: Floats, bounds: list[float], machine: Machine
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats, tuple[str, ...]]:
    """CSR of the rows over links that differ: of those loaded alike only the tightest can hold up.

    bounds  of the last rows, each a link of its own [byte/s]
    """
    loads: dict[int, list[tuple[int, float]]] = {}
    for row, links in enumerate(rows):
        for y, w in links.items():
            loads.setdefault(y, []).append((row, w / capacity[y]))
    tightest: dict[tuple[tuple[int, float], ...], tuple[float, int]] = {}
    for y, entries in sorted(loads.items()):
        scale = max(w for _, w in entries)
        alike = tuple((row, round(w / scale, 9)) for row, w in entries)
        if alike not in tightest or tightest[alike][0] < scale * (1 - 1e-9):
            tightest[alike] = (scale, y)
    held: list[list[tuple[int, float]]] = [[] for _ in rows]
    limits: list[float] = []
    names: list[str] = []
    for alike, (scale, y) in tightest.items():
        for row, w in alike:
            held[row].append((len(limits), w))
        limits.append(1.0 / scale)
        names.append(machine.network.fabric.link_name(y))
    for k, bound in enumerate(bounds):
        held[len(rows) - len(bounds) + k].append((len(limits), 1.0))
        limits.append(bound)
        names.append(f"what job {k} offers")
    ptr = np.concatenate([[0], np.cumsum([len(entries) for entries in held])]).astype(np.int64)
    flat = [entry for entries in held for entry in entries]
    return (
        ptr,
        np.array([y for y, _ in flat], np.int64),
        np.array([w for _, w in flat], np.float64),
        np.array(limits, np.float64),
        tuple(names),
    )
