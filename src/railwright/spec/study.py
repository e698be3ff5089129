"""The study file as typed, frozen values in base units.

One class per section of the YAML; field descriptions become the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from railwright.spec.money import Money
from railwright.spec.nccl import Nccl
from railwright.spec.quantity import Bandwidth, Length
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.reliability import Reliability
from railwright.spec.section import Name, Prose, Section, not_bool
from railwright.spec.serving import ServingJob
from railwright.spec.sharing import Sharing
from railwright.spec.site import Site
from railwright.spec.sweep import Sweep
from railwright.spec.training import TrainingJob


class CableLengths(Section):
    """How long the cables of each tier are."""

    node_leaf: Length = Field(default=10.0, description="server to leaf, e.g. '10 m'")
    leaf_spine: Length = Field(default=30.0, description="leaf to spine, e.g. '30 m'")
    spine_core: Length = Field(default=100.0, description="spine to core, e.g. '100 m'")


class SwitchedNetwork(Section):
    """What every network of the cluster is asked for: how its switches are sized and joined."""

    switch: str = Field(description="catalogue name of the switch, e.g. 'qm9700'")
    tiers: Annotated[Literal["auto", 1, 2, 3], BeforeValidator(not_bool)] = Field(
        default="auto", description="switch tiers; auto takes the fewest"
    )
    oversubscription: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="leaf down-link over up-link bandwidth; 1 is non-blocking"
    )
    servers_per_group: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="servers that share one set of leaves (scalable unit); default: as many as fit",
    )
    spare_spines: Annotated[int, Field(ge=0)] = Field(
        default=0, description="spines beyond the need (per plane)"
    )
    reserved_ports: Annotated[int, Field(ge=0)] = Field(
        default=0, description="leaf ports kept for the subnet manager, storage, …, over the whole fabric"
    )
    spine_switch: str | None = Field(
        default=None, description="catalogue name of the spine switch; default: the same as `switch`"
    )
    core_switch: str | None = Field(
        default=None, description="catalogue name of the core switch; default: the same as the spine"
    )
    spines: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="spines per pod and plane before spares; default: the fewest that fit"
    )
    groups_per_pod: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="server groups that share one pod of spines, with 3 tiers; default: chosen"
    )
    core_oversubscription: Annotated[float, Field(ge=1.0)] = Field(
        default=1.0, description="spine down-link over up-link bandwidth, with 3 tiers"
    )
    cores: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="cores per core set, with 3 tiers; default: the fewest that fit"
    )
    breakout: Annotated[int, Field(gt=0)] = Field(
        default=1, description="server cables per leaf port, by breakout cables; each runs at that share"
    )
    expand_directors: bool = Field(
        default=False,
        description="draw a director of the top tier as its modules; it is still bought and counted as one",
    )
    lengths: CableLengths = CableLengths()


class ComputeNetwork(SwitchedNetwork):
    """The network the GPUs talk over."""

    family: Literal[
        "single-switch", "fat-tree", "clos", "rail-optimised", "rail-only", "rack-rails", "dual-plane"
    ] = Field(
        description="single-switch: one for all; fat-tree: a leaf (ToR) per server group; clos: the same; "
        "rail-optimised: leaf i joins GPU i of every server; rail-only: the same without spines; "
        "rack-rails: leaf i joins NIC i of every tray of a rack; "
        "dual-plane: port p of every NIC goes to plane p, which has leaves and spines of its own"
    )
    nic_ports: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="ports each NIC is split into, its rate shared by them; default: as catalogued "
        "(dual-plane: 2)",
    )
    nics_per_tray: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="rails: NICs of one compute tray of a rack-scale server; default: every NIC is a rail "
        "(rack-rails: 4)",
    )
    routing: Literal["adaptive", "ecmp", "static"] = Field(
        default="adaptive",
        description="adaptive: per-packet spread; ecmp: one hashed path per flow; static: destination tables",
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of the ECMP hash")


class ServiceNetwork(SwitchedNetwork):
    """A network beside the compute network: storage, in-band or out-of-band management."""

    family: Literal["single-switch", "fat-tree", "clos", "rail-optimised", "dual-plane"] = Field(
        description="single-switch: one for all; fat-tree: a leaf (ToR) per server group; clos: the same; "
        "rail-optimised: port i of every server on leaf i of its group; "
        "dual-plane: the same, each with spines of its own"
    )
    ports_per_server: Annotated[int, Field(gt=0)] = Field(
        default=1, description="ports of every server on this network, e.g. 2"
    )
    rate: Bandwidth | None = Field(
        default=None, description="of a server's port, e.g. '25 Gb/s'; default: that of the switch port"
    )
    hosts: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="machines on it beside the GPU servers (storage, management), with as many ports each",
    )


class Fault(Section):
    """One thing that is broken or slow: a device, a port (with its cable), by its name in the drawing."""

    element: str = Field(
        description="'leaf-03', 'spine-01', 'server-07/nic-2', 'server-07', or 'leaf-03 port 37'"
    )
    state: Literal["failed", "slow"] = Field(
        default="failed", description="failed: carries nothing; slow: carries `rate`"
    )
    rate: Bandwidth | None = Field(default=None, description="what a slow element still carries per port")


class Cluster(Section):
    """The machines and their network."""

    servers: Annotated[int, Field(gt=0)] = Field(description="how many servers, e.g. 30")
    server: str = Field(description="catalogue name of the server, e.g. 'dgx-h100'")
    compute: ComputeNetwork = Field(
        description="the network the GPUs talk over; one server wants one too, which nothing crosses, e.g. "
        "{family: single-switch, switch: qm9700}"
    )
    storage: ServiceNetwork | None = Field(default=None, description="the network to the storage, if any")
    inband: ServiceNetwork | None = Field(
        default=None, description="the in-band management network (logins, scheduler, provisioning), if any"
    )
    oob: ServiceNetwork | None = Field(
        default=None, description="the out-of-band management network (BMCs), if any"
    )
    faults: tuple[Fault, ...] = Field(
        default=(), description="what is broken or slow; empty is a sound cluster"
    )


class Variant(Section):
    """The study with some fields changed, put beside the study as written."""

    name: Name = Field(description="what to call it, e.g. 'Fat tree'")
    why: Prose = Field(default="", description="what it is there to show")
    set: dict[str, Any] = Field(description="dotted field -> value, e.g. {nccl.pxn: false}")


class Study(Section):
    """One question about one cluster."""

    railwright: Annotated[Literal[1], BeforeValidator(not_bool)] = Field(
        description="1, the version of this file format"
    )
    name: Name = Field(description="what to call the study")
    question: Prose = Field(
        default="", description="what you want to know, in words; the report begins with it"
    )
    as_written: Name = Field(
        default="As written", description="what to call the study itself beside its variants"
    )
    catalog: str | None = Field(
        default=None, description="your own parts (YAML, relative to this file), merged over the shipped ones"
    )
    calibration: str | None = Field(
        default=None,
        description="a profile of `railwright calibrate` (YAML, relative to this file): "
        "collectives are predicted with the constants measured there",
    )
    cluster: Cluster = Field(description="the machines and their network")
    nccl: Nccl = Nccl()
    jobs: tuple[TrainingJob, ...] = Field(default=(), description="training jobs to predict")
    recommendations: tuple[RecommendationJob, ...] = Field(
        default=(), description="training jobs of recommendation models to predict"
    )
    serving: tuple[ServingJob, ...] = Field(default=(), description="models served to users, to predict")
    sweeps: tuple[Sweep, ...] = Field(default=(), description="collectives to predict over message sizes")
    money: Money | None = Field(default=None, description="prices, use over time, place, years")
    sharing: Sharing | None = Field(default=None, description="the people who share the machines")
    site: Site | None = Field(default=None, description="the room the cluster stands in")
    reliability: Reliability | None = Field(
        default=None, description="failures, recovery and checkpoints, for `railwright goodput`"
    )
    variants: tuple[Variant, ...] = Field(default=(), description="designs beside the study as written")
    sensitivity: tuple[Variant, ...] = Field(
        default=(),
        description="assumptions to change one at a time; the first job (of `jobs`, else of "
        "`recommendations`) is predicted under each",
    )
