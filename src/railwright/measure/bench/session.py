"""Torch's process group: opened, asked for its places, its clock read, and closed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

from railwright.errors import RailwrightError
from railwright.measure.bench.environment import World, world_of
from railwright.measure.bench.places import Place

TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Session:
    """An open process group; torch and dist are its modules (untyped: torch is optional)."""

    torch: Any
    dist: Any
    world: World
    backend: str
    device: Any
    places: tuple[Place, ...]

    def groups(self, members: Sequence[Sequence[int]]) -> list[Any]:
        """A process group per list of ranks; every rank makes all of them, in the same order."""
        return [self.dist.new_group(list(ranks)) for ranks in members]

    def wait(self) -> None:
        """Until this rank's device has done what it was asked."""
        if self.backend == "nccl":
            self.torch.cuda.synchronize(self.device)

    def timed(self, act: Callable[[], None], warmup: int, iterations: int) -> float:
        """Mean time of one call on this rank, all ranks started together. [s]"""
        for _ in range(warmup):
            act()
        self.wait()
        self.dist.barrier()
        self.wait()
        started = time.perf_counter()
        for _ in range(iterations):
            act()
        self.wait()
        return (time.perf_counter() - started) / iterations

    def share(self, value: float) -> list[float]:
        """This rank's number, and every other's, in rank order."""
        mine = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        all_of = [self.torch.zeros_like(mine) for _ in range(self.world.size)]
        self.dist.all_gather(all_of, mine)
        return [float(one.item()) for one in all_of]


@contextmanager
def open_session(backend: str | None = None) -> Iterator[Session]:
    """The process group of this job, closed at the end.

    backend  'nccl' or 'gloo'; None: nccl where torch sees GPUs
    Raises RailwrightError without torch, without a launcher, or where nccl is asked for and there is no GPU.
    """
    try:
        torch: Any = import_module("torch")
        dist: Any = import_module("torch.distributed")
    except ImportError:
        raise RailwrightError(
            "railwright bench measures with PyTorch, which is not installed here; install it into this "
            "environment: pip install torch"
        ) from None
    world = world_of(os.environ)
    gpus = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    chosen = backend or ("nccl" if gpus else "gloo")
    if chosen not in ("nccl", "gloo"):
        raise RailwrightError(f"--backend {chosen}: known are nccl and gloo")
    if chosen == "nccl" and not gpus:
        raise RailwrightError("--backend nccl needs GPUs, and torch sees none here; take --backend gloo")
    device = torch.device("cpu")
    if chosen == "nccl":
        # A launcher may show each process only its own GPU.
        device = torch.device("cuda", world.local % gpus)
        torch.cuda.set_device(device)
    dist.init_process_group(
        chosen,
        init_method=f"tcp://{world.address}:{world.port}" if world.launcher != "torchrun" else "env://",
        rank=world.rank,
        world_size=world.size,
        timeout=TIMEOUT,
    )
    try:
        yield Session(torch, dist, world, chosen, device, _places(torch, dist, world, chosen, device))
    finally:
        dist.destroy_process_group()


def _places(torch: Any, dist: Any, world: World, backend: str, device: Any) -> tuple[Place, ...]:
    name = torch.cuda.get_device_name(device) if backend == "nccl" else "CPU"
    mine = Place(world.rank, socket.gethostname(), world.local, os.getpid(), str(name))
    found: list[Any] = [None] * world.size
    dist.all_gather_object(found, mine)
    return tuple(found)
