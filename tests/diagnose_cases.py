"""Small fabrics, made-up dumps and published samples for the tests of `diagnose`."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import pytest

from railwright.catalog import load_catalog
from railwright.cli.studies import open_study
from railwright.diagnose import Elements, Routing, elements_of
from railwright.fabric import build
from railwright.fabric.graph import Fabric
from railwright.spec import override

STATIC = Routing("static")
SAMPLES = Path("/work/shared/data/reliability")
DATA = Path(__file__).parent / "data" / "diagnose"

needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the published samples of /work/shared/data/reliability are not here"
)


@cache
def rails(servers: int = 64) -> Fabric:
    """`servers` x 8 GPUs on rails, two scalable units from 33 servers on."""
    study = override(open_study("superpod-h100"), {"cluster.servers": servers})
    return build(study.cluster, load_catalog())


def machine(servers: int = 64) -> Elements:
    return elements_of(rails(servers))


def entry(group: str, number: int, name: str = "all_reduce", local: int = 0, p2p: bool = False) -> dict:
    return {
        "pg_id": local,
        "process_group": (group, f"group {group}"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{name}",
        "state": "scheduled",
        "is_p2p": p2p,
    }


def dump(groups: dict[str, list[int]], entries: list[dict], status: dict | None = None) -> dict:
    """A flight-recorder dump of one rank, as PyTorch 2.9 writes it."""
    return {
        "version": "2.9",
        "pg_config": {n: {"name": n, "desc": f"group {n}", "ranks": str(r)} for n, r in groups.items()},
        "pg_status": {
            str(i): {"last_enqueued_collective": a, "last_completed_collective": b}
            for i, (a, b) in (status or {}).items()
        },
        "entries": entries,
    }  # fmt: skip


def write_dumps(folder: Path, dumps: dict[int, dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, value in dumps.items():
        (folder / f"_dump_{rank}").write_bytes(pickle.dumps(value, protocol=2))
    return folder
