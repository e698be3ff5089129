"""Which rank this process is, from what torchrun, srun or mpirun tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from railwright.errors import RailwrightError

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)  # fmt: skip
PORT = 29400


@dataclass(frozen=True)
class World:
    """This process among all."""

    launcher: str
    rank: int
    size: int
    local: int
    address: str
    port: int


def world_of(environ: Mapping[str, str]) -> World:
    """This process's place. Raises RailwrightError, with what to type, where no launcher started it."""
    for launcher, rank, size, local, per_host in _LAUNCHERS:
        if rank not in environ or size not in environ:
            continue
        try:
            numbers = [int(environ[rank]), int(environ[size]), int(environ.get(local, "0"))]
            port = int(environ.get("MASTER_PORT", str(PORT)))
        except ValueError:
            raise RailwrightError(
                f"{launcher} set {rank}={environ[rank]} and {size}={environ[size]}, which are no rank and "
                "size; start it again in a clean environment"
            ) from None
        address = environ.get("MASTER_ADDR", "")
        if not address:
            one_host = numbers[1] == 1 or environ.get(per_host, "") == environ[size] or (
                environ.get("SLURM_NNODES") == "1"
            )  # fmt: skip
            if not one_host:
                raise RailwrightError(
                    f"{launcher} started {numbers[1]} processes on several hosts, but MASTER_ADDR is not "
                    "set; export MASTER_ADDR=<a host of rank 0 that all can reach> (and MASTER_PORT, if "
                    "29400 is taken)"
                )
            address = "127.0.0.1"
        return World(launcher, numbers[0], numbers[1], numbers[2], address, port)
    raise RailwrightError(
        "This process was not started by a launcher, so it has no ranks to talk to; start it as "
        "torchrun --nproc-per-node 8 --no-python railwright bench …, or under srun or mpirun."
    )
