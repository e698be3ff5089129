"""One study, evaluated: its fabric, its sweeps, its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.collectives import Machine, sweep
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.fabric import build, count
from railwright.fabric.graph import Fabric
from railwright.measure.fitting.profile import profile_of
from railwright.model import load_model
from railwright.model.recommendation.dlrm import Recommender, load_recommender
from railwright.model.shape.architecture import Transformer
from railwright.network.routing.solution import Network
from railwright.reliability.checkpointing import storage_bandwidth
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.study import Cluster, Study
from railwright.spec.sweep import Sweep
from railwright.spec.training import TrainingJob
from railwright.study.result import Curve, JobResult, VariantResult
from railwright.traffic.demand import Communicator
from railwright.training import simulate
from railwright.training.lanes.critical import critical_path
from railwright.training.lanes.result import Memory
from railwright.training.layout.sizes import domain_of, job_gpus
from railwright.training.memory.cached import Reserved, crowded, reserved
from railwright.training.recommendation.dlrm import simulate_recommendation
from railwright.training.step.events import MAX_EVENTS
from railwright.training.whatif.repeats import idle_recompute
from railwright.units import show_rate

Tell = Callable[[str], None]

EVENTS_DRAWN = 90_000
"""Events of the timeline that is drawn and written: 20 to 35 MB of trace.json."""

EVENTS_OF_ENDS = 60_000
"""Events inside passes of such a timeline where the step has more than are drawn."""

EVENTS_OF_A_PATH = 400_000
"""Events of a timeline that is made only to find a critical path: about two seconds' worth."""


@dataclass
class Workshop:
    """What the variants of one run share: the catalogue, machines already built, jobs already simulated.

    Two variants with the same cluster and NCCL settings get the same Machine, with the same cluster the same
    Network, and so its solved traffic; where it is only routed otherwise, the same Fabric.
    """

    catalog: Catalog
    sub_message_share: float | None = None
    machines: dict[str, Machine] = field(default_factory=dict)
    jobs: dict[tuple[str, str], JobResult] = field(default_factory=dict)
    compared: dict[tuple[str, str], JobResult] = field(default_factory=dict)
    others: dict[float, Workshop] = field(default_factory=dict)
    fabrics: dict[str, Fabric] = field(default_factory=dict)
    networks: dict[str, Network] = field(default_factory=dict)
    replayed: dict[str, list[tuple[Memory, Reserved | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, study: Study) -> Workshop:
        return cls(load_catalog(study.catalog))

    def machine(self, study: Study) -> Machine:
        """The machine of a study, calibrated where it names a profile.

        Raises PlanError when its fabric is impossible, SpecError for a broken profile.
        """
        key = _key(study)
        if key not in self.machines:
            settings = replace(NcclSettings.of(study.nccl), sub_message_share=self.sub_message_share)
            profile = profile_of(study)
            network = self._network(study.cluster)
            self.machines[key] = Machine.of(study.cluster, self.catalog, settings, profile, network)
        return self.machines[key]

    def _network(self, cluster: Cluster) -> Network:
        """The network of a cluster, on a fabric that those routed otherwise share."""
        key = cluster.model_dump_json()
        if key not in self.networks:
            routed = cluster.compute
            bare = routed.model_copy(update={"routing": "adaptive", "seed": 0})
            wired = cluster.model_copy(update={"compute": bare}).model_dump_json()
            if wired not in self.fabrics:
                self.fabrics[wired] = build(cluster, self.catalog)
            self.networks[key] = Network(self.fabrics[wired], routed.routing, routed.seed)
        return self.networks[key]

    def assuming(self, sub_message_share: float | None) -> Workshop:
        """The same catalogue under another cost of aggregated messages; itself under the usual one."""
        if sub_message_share is None:
            return self
        if sub_message_share not in self.others:
            self.others[sub_message_share] = Workshop(
                self.catalog, sub_message_share, fabrics=self.fabrics, networks=self.networks
            )
        return self.others[sub_message_share]

    def run(self, job: TrainingJob, study: Study, drawn: bool = True) -> JobResult:
        """A job on the machine of a study; simulated once, however many questions ask for it.

        drawn  False: its step is only compared with others, so a timeline of whole passes will do
        Raises as `machine` does.
        """
        key = (_key(study), job.model_dump_json())
        for known in (self.jobs, {} if drawn else self.compared):
            if key in known:
                return known[key]
        done = run_job(job, self.machine(study), MAX_EVENTS if drawn else 0)
        (self.jobs if drawn else self.compared)[key] = done
        return done

    def reserved(self, job: TrainingJob, machine: Machine, memory: Memory) -> Reserved | None:
        """What PyTorch's allocator holds of a job; replayed once for the same tensors, on whatever fabric.

        memory  `peak_memory` of the job
        """
        known = self.replayed.setdefault(job.model_dump_json(), [])
        for tensors, held in known:
            if tensors == memory:
                return held
        held = reserved(job, architecture(job.model), machine.network.fabric, memory)
        known.append((memory, held))
        return held


def _key(study: Study) -> str:
    """What the machine of a study hangs on."""
    return f"{study.cluster.model_dump_json()}{study.nccl.model_dump_json()}{study.calibration}"


@lru_cache(maxsize=64)
def architecture(name: str) -> Transformer:
    """The model of a job, read once."""
    return load_model(name)


@lru_cache(maxsize=64)
def recommender(name: str) -> Recommender:
    """The recommendation model of a job, read once."""
    return load_recommender(name)


def build_fabric(study: Study) -> Fabric:
    """The fabric of a study, faults applied. Raises PlanError when it is impossible."""
    return build(study.cluster, load_catalog(study.catalog))


def world(fabric: Fabric) -> Communicator:
    """All GPUs, server by server, as nccl-tests ranks them."""
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32), "world")


def sizes(wanted: Sweep) -> tuple[float, ...]:
    """The sizes of a sweep: begin, begin*factor, … up to end [byte]."""
    found, size = [], wanted.begin
    while size <= wanted.end * (1 + 1e-9):
        found.append(size)
        size *= wanted.factor
    return tuple(found)


def curve(machine: Machine, op: str, at: tuple[float, ...], label: str) -> Curve:
    """One collective over sizes on all GPUs of a machine."""
    return Curve(op, label, sweep(machine, op, at, (world(machine.network.fabric),)))  # type: ignore[arg-type]


def run_job(job: TrainingJob, machine: Machine, most_events: int = MAX_EVENTS) -> JobResult:
    """One job's step, or why it cannot run; `most_events` as in `training.simulate`."""
    try:
        step = simulate(job, architecture(job.model), machine, most_events=most_events)
        return JobResult(job.name, step)
    except PlanError as no:
        return JobResult(job.name, None, str(no).removeprefix(f"{job.name}: "))


def with_timeline(job: JobResult, asked: TrainingJob | None, machine: Machine) -> JobResult:
    """The job with the timeline to draw and its critical path; a long step is simulated once more for each.

    asked   None for a job whose timeline always has every event
    """
    step = job.step
    if step is None:
        return job
    timeline = step.timeline
    if timeline.coarse is not None and asked is not None:
        arch = architecture(asked.model)
        drawn = simulate(asked, arch, machine, most_events=EVENTS_DRAWN, end_events=EVENTS_OF_ENDS)
        timeline, step = drawn.timeline, replace(step, timeline=drawn.timeline)
        if timeline.coarse is not None:
            timeline = simulate(asked, arch, machine, most_events=EVENTS_OF_A_PATH).timeline
    return replace(job, step=step, critical=critical_path(timeline))


def with_reserved(
    job: JobResult, asked: TrainingJob | None, machine: Machine, workshop: Workshop
) -> JobResult:
    """The job with what PyTorch's allocator holds, and a warning where a GPU has no room for that.

    asked   None for a job of another kind
    """
    if job.step is None or asked is None:
        return job
    step = job.step
    held = workshop.reserved(asked, machine, step.memory)
    told = crowded(held, step.memory.capacity) if held else ""
    if told:
        step = replace(step, warnings=(*step.warnings, told))
    return replace(job, step=step, reserved=held)


def with_repeats(job: JobResult, asked: TrainingJob | None, machine: Machine) -> JobResult:
    """The job with a warning where selective recomputation costs time and saves nothing.

    asked   None for a job of another kind
    """
    if job.step is None or asked is None:
        return job
    told = idle_recompute(asked, architecture(asked.model), machine, job.step)
    return replace(job, step=replace(job.step, warnings=(*job.step.warnings, told))) if told else job


def with_storage(
    job: JobResult, asked: TrainingJob | RecommendationJob, study: Study, catalog: Catalog, fabric: Fabric
) -> JobResult:
    """The job with a warning where it reads its data faster than the study's storage hosts can send it."""
    step, storage = job.step, study.cluster.storage
    if step is None or step.feed is None or storage is None or not storage.hosts:
        return job
    if isinstance(asked, TrainingJob):
        servers = -(-job_gpus(asked, fabric) // domain_of(asked, fabric))
    else:
        servers = -(-(asked.gpus or fabric.num_gpus) // fabric.gpus_per_server)
    rate = step.feed.read / step.step_time
    most, limit = storage_bandwidth(study.cluster, catalog, servers)
    if rate <= most:
        return job
    told = (
        f"The job reads {show_rate(rate)} of its data set, but the storage network carries {show_rate(most)} "
        f"({limit}): its steps take {rate / most:.3g} times as long at least."
    )
    return replace(job, step=replace(step, warnings=(*step.warnings, told)))


def run_recommendation(job: RecommendationJob, machine: Machine) -> JobResult:
    """One recommendation job's step, or why it cannot run."""
    try:
        return JobResult(job.name, simulate_recommendation(job, recommender(job.model), machine))
    except PlanError as no:
        return JobResult(job.name, None, str(no).removeprefix(f"{job.name}: "))


def evaluate(study: Study, name: str, why: str, workshop: Workshop, tell: Tell) -> VariantResult:
    """Everything the study asks about one variant; an impossible part is told with its reason."""
    try:
        tell(f"{name}: fabric")
        machine = workshop.machine(study)
    except PlanError as no:
        return VariantResult(name, why, None, None, (), (), infeasible=str(no))
    fabric = machine.network.fabric
    result = VariantResult(name, why, fabric, count(fabric, workshop.catalog), (), (), notes=fabric.notes)
    curves: list[Curve] = []
    for wanted in study.sweeps:
        tell(f"{name}: {wanted.op}")
        try:
            curves.append(curve(machine, wanted.op, sizes(wanted), name))
        except PlanError as no:
            result = replace(result, notes=(*result.notes, f"{wanted.op}: {no}"))
    jobs = []
    for job in study.jobs:
        tell(f"{name}: {job.name}")
        jobs.append(workshop.run(job, study))
    for recommendation in study.recommendations:
        tell(f"{name}: {recommendation.name}")
        jobs.append(run_recommendation(recommendation, machine))
    return replace(result, curves=tuple(curves), jobs=tuple(jobs))
