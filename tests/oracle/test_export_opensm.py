"""OpenSM routes our fabrics on ibsim: its fat-tree engine accepts them, spreads evenly, sees the same graph.

ibsim answers management packets as the fabric of the net file would; OpenSM and ibnetdiscover speak to it
through libumad2sim instead of a kernel.  Debian: ibsim-utils, libumad2sim0, opensm, infiniband-diags.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from export_fabrics import built, cables_by_name, small_parts
from railwright import export
from railwright.fabric import Fabric, Kind, apply_faults
from railwright.spec.study import Fault

PRELOAD = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MISSING = [tool for tool in ("ibsim", "opensm", "ibnetdiscover") if not shutil.which(tool, path=PATH)]
pytestmark = pytest.mark.skipif(
    bool(MISSING) or PRELOAD is None,
    reason=f"not installed: {', '.join([*MISSING, *([] if PRELOAD else ['libumad2sim'])])}",
)

TINY, SMALL, PAIRS = small_parts(8), small_parts(16), small_parts(8, nics=2)
DESIGNS = {
    "rails, 2 tiers, 8 servers": lambda: (built(8, "rail-optimised", "small", "tiny", TINY), TINY),
    "rails, 2 tiers, bundles": lambda: (
        built(8, "rail-optimised", "small", "tiny", SMALL, servers_per_group=4),
        SMALL,
    ),
    "rails, 3 tiers": lambda: (built(8, "rail-optimised", "dgx-h100", "tiny", TINY), TINY),
    "fat tree, 2 tiers": lambda: (built(8, "fat-tree", "small", "tiny", TINY), TINY),
    "fat tree, 3 tiers": lambda: (built(16, "fat-tree", "small", "tiny", TINY), TINY),
    "fat tree, 3 tiers, full": lambda: (built(32, "fat-tree", "small", "tiny", TINY), TINY),
    "DGX B200, 2 SU": lambda: (built(64, "rail-optimised", "dgx-b200"), None),
    "a CS7520 director as its modules": lambda: (
        built(54, "rail-optimised", "dgx-1-v100", "sb7800", spine_switch="cs7520", expand_directors=True),
        None,
    ),
}
"""Non-blocking, every leaf full: their up-links are to carry the same number of destinations."""

PART_FILLED = {
    "four racks of NVL72": lambda: (built(4, "rack-rails", "gb200-nvl72"), None),
    "rails, 6 of 8 servers": lambda: (
        built(6, "rail-optimised", "small", "tiny", TINY, servers_per_group=4),
        TINY,
    ),
    "fat tree, 7 servers on leaves for 2": lambda: (built(7, "fat-tree", "small", "tiny", PAIRS), PAIRS),
}
"""Non-blocking, with leaves that have fewer adapters than up-links."""


@dataclass
class Routed:
    """What OpenSM and ibnetdiscover said: log, switch -> port -> adapters behind it, discovery."""

    log: str
    behind: dict[str, dict[int, list[str]]]
    discovered: str


@pytest.fixture
def route(tmp_path) -> Iterator:
    started: list[subprocess.Popen] = []

    def run(f: Fabric, catalog) -> Routed:
        (net,) = export.write(f, "ibsim", tmp_path, catalog=catalog)
        # The simulator's socket is named, not a file: one name per process and test keeps instances apart.
        env = {**os.environ, "PATH": PATH, "OSM_TMP_DIR": str(tmp_path), "OSM_CACHE_DIR": str(tmp_path)}
        env["IBSIM_SOCKNAME"] = f"railwright-{os.getpid()}-{time.monotonic_ns()}"
        with (tmp_path / "ibsim.log").open("w") as log:
            # The file's own second line says how large a simulator it takes.
            sizes = re.findall(r"-[NSP]|\d+", net.read_text().splitlines()[1])
            started.append(
                subprocess.Popen(
                    ["ibsim", "-s", "-n", *sizes, str(net)],
                    env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=tmp_path,
                )
            )  # fmt: skip
        wait_for(tmp_path / "ibsim.log", "simulator ready", started[-1])
        env["LD_PRELOAD"] = str(PRELOAD)
        log_file = tmp_path / "opensm.log"
        opensm = ["opensm", "-o", "-R", "ftree", "-f", str(log_file), "-D", "0x43"]
        subprocess.run(opensm, env=env, cwd=tmp_path, capture_output=True, timeout=30, check=True)
        found = subprocess.run(
            ["ibnetdiscover"], env=env, cwd=tmp_path, capture_output=True, timeout=30, check=True, text=True
        )
        tables = tmp_path / "opensm-lfts.dump"
        return Routed(log_file.read_text(), forwarding(tables.read_text()), found.stdout)

    yield run
    for process in started:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(log: Path, words: str, process: subprocess.Popen) -> None:
    for _ in range(100):
        if words in log.read_text():
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"no '{words}' within 5 s: {log.read_text()}")


def forwarding(dump: str) -> dict[str, dict[int, list[str]]]:
    """Switch -> port -> adapters whose LIDs leave through it."""
    behind: dict[str, dict[int, list[str]]] = {}
    switch = ""
    for line in dump.splitlines():
        if match := re.match(r"Unicast lids .* guid \S+ \('(.+)'\)", line):
            switch = match[1]
            behind[switch] = {}
        elif match := re.match(r"0x\w+ (\d+) # Channel Adapter portguid \S+ '(.+)'", line):
            behind[switch].setdefault(int(match[1]), []).append(match[2])
    return behind


def up_ports(f: Fabric) -> dict[str, list[int]]:
    ports: dict[str, list[int]] = {}
    for a, port, role in zip(f.a.tolist(), f.port_a.tolist(), f.role.tolist(), strict=True):
        if role >= 3:
            ports.setdefault(f.device_name(a), []).append(port)
    return ports


def graph(text: str) -> set[tuple[str, int, str, int]]:
    """Both ends of every cable by name, as the dump's own lines say it, each way."""
    names: dict[str, str] = {}
    ends: list[tuple[str, int, str, int]] = []
    node = ""
    for line in text.splitlines():
        if match := re.match(r'(?:Switch|Ca)\s+\d+ "(\S+)"\s+# "([^"]+)"', line):
            node = match[1]
            names[node] = match[2]
        elif match := re.match(r'\[(\d+)\](?:\(\w+\))?\s*"(\S+)"\[(\d+)\]', line):
            ends.append((node, int(match[1]), match[2], int(match[3])))
    return {(names[a], p, names[b], q) for a, p, b, q in ends}


@pytest.mark.parametrize("design", DESIGNS)
def test_ftree_accepts_the_design_and_every_uplink_carries_as_much(route, design):
    f, catalog = DESIGNS[design]()
    routed = route(f, catalog)
    assert "ftree tables configured on all switches" in routed.log
    for switch, ports in up_ports(f).items():
        loads = [len(routed.behind[switch].get(port, [])) for port in ports]
        assert max(loads) - min(loads) <= 1, f"{switch}: {loads}"
        assert sum(loads) + below(f, switch) == len(f.devices(Kind.NIC))


def below(f: Fabric, switch: str) -> int:
    """Adapters that the switch reaches downwards."""
    names = [f.device_name(d) for d in range(f.num_devices)]
    level = {names.index(switch)}
    for role in (4, 3, 2):
        cables = f.role == role
        down = {a for a, b in zip(f.a[cables].tolist(), f.b[cables].tolist(), strict=True) if b in level}
        level = down or level
    return len(level)


@pytest.mark.parametrize("design", PART_FILLED)
def test_with_leaves_part_filled_each_leafs_adapters_still_spread_over_all_uplinks(route, design):
    """ftree gives the i-th adapter of every leaf the i-th way up, so what is missing is missing on the same
    way; from any leaf to any other no up-link carries more than one destination more than another."""
    f, catalog = PART_FILLED[design]()
    routed = route(f, catalog)
    assert "ftree tables configured on all switches" in routed.log
    leaf_of = {a: b for a, _, b, _ in cables_by_name(f) if b.startswith("leaf")}
    for switch, ports in up_ports(f).items():
        if switch.startswith("leaf"):
            for other in set(leaf_of.values()) - {switch}:
                ways = Counter(
                    p for p in ports for n in routed.behind[switch].get(p, []) if leaf_of[n] == other
                )
                loads = [ways[p] for p in ports]
                assert max(loads) - min(loads) <= 1, f"{switch} to {other}: {loads}"


def test_a_part_filled_pod_breaks_the_rule_that_ftree_has(route):
    """opensm(8), "Fat-tree Routing": switches of a rank, leaves aside, need as many down-going port
    groups.  13 servers leave the last pod with one leaf of two, so OpenSM falls back to its minimum hops."""
    routed = route(built(13, "fat-tree", "small", "tiny", TINY), TINY)
    assert "Different number of downward port groups on switches" in routed.log
    assert "minhop tables configured on all switches" in routed.log


@pytest.mark.parametrize("design", ["rails, 3 tiers", "fat tree, 3 tiers", "DGX B200, 2 SU", *PART_FILLED])
def test_the_simulated_fabric_is_discovered_as_the_identical_graph(route, design):
    f, catalog = (DESIGNS | PART_FILLED)[design]()
    routed = route(f, catalog)
    cables = cables_by_name(f)
    assert graph(routed.discovered) == cables | {(b, q, a, p) for a, p, b, q in cables}
    text = export.render(f, "ibnetdiscover", catalog=catalog)["fabric.ibnetdiscover"]
    assert graph(text) == graph(routed.discovered)


def test_a_failed_cable_is_absent_from_the_simulated_fabric(route):
    whole, catalog = DESIGNS["rails, 2 tiers, 8 servers"]()
    broken = apply_faults(whole, (Fault(element="leaf-03 port 5"),))
    found = graph(route(broken, catalog).discovered)
    (gone,) = {c for c in cables_by_name(whole) if ("leaf-03", 5) in (c[:2], c[2:])}
    assert {(a, p, b, q) for a, p, b, q in cables_by_name(whole) if (a, p, b, q) not in found} == {gone}


def test_rails_that_never_meet_are_subnets_of_their_own(route):
    """Rail-only: from the subnet manager's adapter only its rail is seen, 4 servers and one leaf."""
    f = built(4, "rail-only", "small", "tiny", TINY)
    seen = {name for name, *_ in graph(route(f, TINY).discovered)}
    assert len(seen) == 5
    assert len({name.split()[-1] for name in seen if name.startswith("server")}) == 1
