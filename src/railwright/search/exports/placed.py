"""How ranks are told where to run, in words: what a launcher does for each placement."""

from __future__ import annotations

from railwright.spec.training import TrainingJob


def placed_by(job: TrainingJob) -> tuple[str, ...]:
    """What a placement other than `packed` asks of the launcher, as comments of an export.

    torchrun, and mpirun and srun by default, give consecutive ranks to the GPUs of one server, whatever the
    order of servers.  Source: Slurm, srun(1), --distribution (plane=<size>: blocks of tasks, server by
    server, in turn).
    """
    layout = job.layout
    if layout.placement == "spread":
        return ("placement spread: order the hosts so that neighbours are on different leaves",)
    if layout.placement == "packed":
        return ()
    size = "rank" if layout.tensor == 1 else f"{layout.tensor} ranks"
    whose = "servers" if layout.pipeline == 1 else "servers of a pipeline stage"
    how = f"srun --distribution=plane={layout.tensor} or a" if layout.pipeline == 1 else "a"
    return (
        f"placement expert-across: no order of hosts gives it: ranks go round the {whose}, the next {size} "
        f"to the next server ({how} rank file); torchrun, which fills one server after the other, cannot",
    )
