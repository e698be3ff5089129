"""Whether the GPUs that a job asks for are there, and its groups divide them."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, server_name
from railwright.fabric.names import numbered
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.tensor_sizes import straddles, working_sizes
from railwright.training.layout.divisors import divisors, listed, working
from railwright.training.layout.sizes import domain_of, job_gpus
from railwright.units import number


def check_gpus(job: TrainingJob, arch: Transformer, fabric: Fabric) -> None:
    """Refuse GPUs that are not there, and groups that do not divide them (PlanError)."""
    _check_servers(job, fabric)
    gpus = job_gpus(job, fabric)
    usable = fabric.num_servers * domain_of(job, fabric)
    if usable < gpus <= fabric.num_gpus:
        raise PlanError(
            f"{job.name}: gpus is {gpus}, but with gpus_per_server {job.gpus_per_server} the cluster of "
            f"{number(fabric.num_servers, 'server')} gives {usable}; ask for at most that many."
        )
    if gpus > fabric.num_gpus:
        raise PlanError(
            f"{job.name}: gpus is {gpus}, but the cluster has {fabric.num_gpus}; ask for at most that many."
        )
    _check_sizes(job, arch, fabric, gpus)


def _check_servers(job: TrainingJob, fabric: Fabric) -> None:
    if domain_of(job, fabric) > fabric.gpus_per_server:
        raise PlanError(
            f"{job.name}: gpus_per_server is {job.gpus_per_server}, but a server has "
            f"{number(fabric.gpus_per_server, 'GPU')}; ask for at most that many."
        )
    if job.servers is None:
        return
    wrong = [s for s in job.servers if s >= fabric.num_servers]
    if wrong:
        raise PlanError(
            f"{job.name}: servers names number {wrong[0]}, but the cluster has "
            f"{number(fabric.num_servers, 'server')}, with {numbered(fabric.num_servers)}."
        )
    twice = [s for i, s in enumerate(job.servers) if s in job.servers[:i]]
    if twice:
        raise PlanError(
            f"{job.name}: servers names number {twice[0]} ({server_name(twice[0])}) twice; name each server "
            "once."
        )
    held = len(job.servers) * domain_of(job, fabric)
    if (job.gpus or 1) > held:
        raise PlanError(
            f"{job.name}: gpus is {job.gpus}, but it names {number(len(job.servers), 'server')} with "
            f"{number(held, 'GPU')}; name more servers or ask for fewer GPUs."
        )


def of_servers(job: TrainingJob, fabric: Fabric) -> list[str]:
    """That a job names whole servers of which it takes no GPU."""
    domain, named = domain_of(job, fabric), job.servers
    if named is None or job.gpus is None or len(named) * domain - job.gpus < domain:
        return []
    return [
        f"servers names {number(len(named), 'server')} with {number(len(named) * domain, 'GPU')}, of which "
        f"gpus takes {job.gpus}; the others stay idle. Leave gpus out, or name fewer servers."
    ]


def _check_sizes(job: TrainingJob, arch: Transformer, fabric: Fabric, gpus: int) -> None:
    tensor, pipeline, context = job.layout.tensor, job.layout.pipeline, job.layout.context
    domain = domain_of(job, fabric)
    if straddles(tensor, domain, gpus):
        why = (
            f"is more than the {number(domain, 'GPU')} of a server and not a multiple of them"
            if tensor > domain
            else f"does not divide the {domain} GPUs of a server, so a group would straddle two servers"
        )
        raise PlanError(
            f"{job.name}: layout.tensor {tensor} {why}; {working(working_sizes(job, arch, fabric))}."
        )
    unit = tensor * context * pipeline
    if gpus % unit:
        fit = gpus // unit * unit
        what = "tensor x pipeline" if context == 1 else "tensor x context x pipeline"
        sizes = f"{tensor} x {pipeline}" if context == 1 else f"{tensor} x {context} x {pipeline}"
        raise PlanError(
            f"{job.name}: {number(gpus, 'GPU')} {'is' if gpus == 1 else 'are'} not a multiple of "
            f"{what} = {sizes} = {unit}; "
            + (f"set gpus to {fit}, or " if fit else "")
            + f"choose {_dividing(job, arch, fabric, gpus)}."
        )


def _dividing(job: TrainingJob, arch: Transformer, fabric: Fabric, gpus: int) -> str:
    """Sizes with which a job's GPUs divide: of the pipeline if that alone is in the way, else of the ranks of
    a stage, and where no size of these helps alone, of both."""
    layout = job.layout
    left, odd = divmod(gpus, layout.tensor * layout.context)
    if not odd:
        return f"pipeline from {listed([stages for stages in divisors(left) if stages <= arch.layers])}"
    inside = "tensor" if layout.context == 1 else "tensor x context"

    def sizes(of: int) -> list[int]:
        tensors = working_sizes(job, arch, fabric) if layout.context == 1 else divisors(of)
        return [size for size in tensors if of % size == 0]

    if gpus % layout.pipeline == 0 and (alone := sizes(gpus // layout.pipeline)):
        return f"{inside} from {listed(alone)}"
    return f"{inside} from {listed(sizes(gpus))}, and a pipeline that divides what that leaves"
