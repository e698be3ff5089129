"""Flat against rail-first all-to-all: whether rails and PXN really work.

Rail-first does by hand what PXN does: data first move inside the host to the GPU on the destination's rail,
then over the network along that rail.  Where PXN and the fabric work, flat is about as fast; where flat is
clearly slower, PXN is off, or traffic between rails collides on the spines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from railwright.errors import RailwrightError
from railwright.measure.bench.places import Place, hosts_of, split
from railwright.measure.bench.session import Session
from railwright.units import show_size

CLEAR = 1.15
"""Flat over rail-first time that is no noise."""
LARGE = 4 * 2.0**20
"""Sizes from this on decide: below, the second step's launch hides the gain. [byte]"""


@dataclass(frozen=True)
class RailProbe:
    """What was measured.

    rows  (S [byte], flat [s], rail-first [s], wrong elements) by size
    """

    hosts: int
    ranks: int
    rows: tuple[tuple[int, float, float, int], ...]

    def lines(self) -> list[str]:
        """A table and what it means, as text of 80 columns."""
        out = [
            f"# all-to-all over {self.ranks} ranks on {self.hosts} host(s): flat against rail-first "
            "(two steps)",
            f"#{'size':>11} {'flat':>11} {'rail-first':>11} {'flat/rail':>10} {'#wrong':>7}",
            f"#{'':>11} {'(us)':>11} {'(us)':>11} {'':>10} {'':>7}".rstrip(),
        ]
        for size, flat, rail, wrong in self.rows:
            out.append(f" {size:>11} {flat * 1e6:>11.1f} {rail * 1e6:>11.1f} {flat / rail:>10.2f} {wrong:>7}")
        return out + wrap(f"# {self.verdict()}", 80, subsequent_indent="# ")

    def verdict(self) -> str:
        """One sentence."""
        if self.hosts < 2:
            return "One host: nothing crosses a rail, so this says nothing about PXN; run it on two or more."
        large = [row for row in self.rows if row[0] >= LARGE]
        if not large:
            return f"No size of {show_size(LARGE)} or more: too small to tell; run it with -e 1G."
        worst = max(large, key=lambda row: row[1] / row[2])
        ratio = worst[1] / worst[2]
        if ratio > CLEAR:
            return (
                f"Rail-first is {ratio:.2f} times as fast as flat at {show_size(worst[0])}: traffic "
                "between rails is slow, so PXN is off or does not work (NCCL_PXN_DISABLE, "
                "NCCL_P2P_PXN_LEVEL), or the spines collide; run flat again with NCCL_PXN_DISABLE=1, and if "
                "nothing changes, PXN did not work before."
            )
        return f"Flat is as fast as rail-first (at most {ratio:.2f} times its time): rails and PXN work."

    def as_json(self) -> dict[str, Any]:
        """Plain values. SI units."""
        keys = ("size", "flat", "rail_first", "wrong")
        return {
            "hosts": self.hosts,
            "ranks": self.ranks,
            "rows": [dict(zip(keys, row, strict=True)) for row in self.rows],
            "verdict": self.verdict(),
        }


def grid(places: Sequence[Place]) -> tuple[int, int]:
    """(hosts, ranks per host). Raises RailwrightError unless every host has as many ranks, host by host."""
    hosts = hosts_of(places)
    each = len(places) // len(hosts)
    want = [(host, local) for host in hosts for local in range(each)]
    if [(p.host, p.local) for p in places] != want:
        counts = sorted({sum(p.host == h for p in places) for h in hosts})
        raise RailwrightError(
            f"the rail probe needs the same number of ranks on every host, in order; here {len(places)} "
            f"ranks sit on {len(hosts)} hosts with {', '.join(map(str, counts))} each: start as many "
            "processes on each host, ranks placed by host (torchrun does)"
        )
    return len(hosts), each


def bench_rails(
    session: Session, sizes: Iterable[float], *, warmup: int = 5, iterations: int = 20,
    hosts: int | None = None,
) -> RailProbe:  # fmt: skip
    """Measure both ways at every size; every rank calls this and gets the same probe.

    hosts  take the ranks as if on that many hosts (to try the probe on one)
    """
    places = list(session.places)
    if hosts is not None:
        if hosts < 1 or len(places) % hosts:
            raise RailwrightError(f"--hosts {hosts}: {len(places)} ranks do not divide into {hosts} hosts")
        each = len(places) // hosts
        places = [Place(p.rank, f"host-{p.rank // each}", p.rank % each) for p in places]
    count, each = grid(places)
    n, me = len(places), session.world.rank
    inside_of, along_of = split("host", places), split("rail", places)
    inside = session.groups(inside_of)[me // each]
    along = session.groups(along_of)[me % each]
    rows = []
    for elements in sorted({max(1, int(size) // (4 * n)) for size in sizes}):
        rows.append(_measure(session, elements, (count, each), (inside, along), warmup, iterations))
    return RailProbe(count, n, tuple(rows))


def _measure(
    session: Session,
    elements: int,
    shape: tuple[int, int],
    groups: tuple[Any, Any],
    warmup: int,
    iterations: int,
) -> tuple[int, float, float, int]:
    torch, dist = session.torch, session.dist
    hosts, each = shape
    n, me = hosts * each, session.world.rank
    source = torch.arange(n * elements, dtype=torch.float32, device=session.device) % 1021 + 1024 * me
    flat, staged, target = (torch.zeros_like(source) for _ in range(3))

    def go_flat() -> None:
        dist.all_to_all_single(flat, source)

    def go_rails() -> None:
        # [host, rail] of the destination -> [rail, host]: one block for each neighbour on that rail.
        by_rail = source.view(hosts, each, elements).transpose(0, 1).contiguous()
        dist.all_to_all_single(staged, by_rail.view(-1), group=groups[0])
        # [rail of the source, host of the destination] -> [host, rail]: one block for each host.
        by_host = staged.view(each, hosts, elements).transpose(0, 1).contiguous()
        dist.all_to_all_single(target, by_host.view(-1), group=groups[1])

    go_flat()
    go_rails()
    session.wait()
    wrong = int(sum(session.share(float((flat != target).sum().item()))))
    times = [sum(session.share(session.timed(go, warmup, iterations))) / n for go in (go_flat, go_rails)]
    return n * elements * 4, times[0], times[1], wrong
