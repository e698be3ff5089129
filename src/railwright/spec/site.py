"""The part of a study file about the room: racks, power, cooling, cable trays and storage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Bandwidth, Duration, Length, Power, Size
from railwright.spec.section import Section

Count = Annotated[int, Field(gt=0)]


class RoomPower(Section):
    """How electricity reaches a server, and what may fail on the way."""

    pdu: str = Field(
        default="pdu-415v-60a", description="rack PDU (`railwright site parts`), e.g. 'apc-ap8966'"
    )
    pdus_per_rack: Annotated[int, Field(gt=0, le=8)] | None = Field(
        default=None, description="rack PDUs in every rack; default: the fewest that carry it"
    )
    redundancy: Literal["n", "n+1", "2n"] = Field(
        default="n",
        description="n: everything is needed; n+1: any one feed may die; 2n: two feeds, each able to carry "
        "everything",
    )
    feeds: Annotated[int, Field(gt=0, le=8)] | None = Field(
        default=None,
        description="independent feeds (UPS sides) that the PDUs of a rack, and the power shelves of a "
        "rack-scale server, are spread over; default: n 1, n+1 as many as PDUs (shelves: 3), 2n 2",
    )
    practice: Literal["nec", "iec"] = Field(
        default="nec",
        description="nec: a continuous load takes at most 80 % of a breaker; iec: all of it",
    )
    power_factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="real over apparent power of the machines' supplies"
    )
    busway: str | None = Field(
        default=None, description="busway over each row, one per feed; default: floor panels, unbounded"
    )
    feed_power: Power | None = Field(
        default=None, description="what each feed of the room delivers, e.g. '2 MW'; default: unbounded"
    )


class RoomCooling(Section):
    """How heat leaves the room."""

    air_rise: Annotated[float, Field(gt=0)] = Field(
        default=11.1, description="kelvins by which air warms in a rack (11.1 K is 20 °F)"
    )
    liquid_rise: Annotated[float, Field(gt=0)] = Field(
        default=10.0, description="kelvins by which coolant warms in a rack"
    )
    liquid_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="share of a server's heat its coolant takes; default: as catalogued"
    )
    air_limit: Power | None = Field(
        default=None,
        description="heat that air may carry away from one rack; default: any, and racks beyond a published "
        "limit are named",
    )
    pue: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="power of the site over the machines'; default: typical of the cooling"
    )


class StorageNeed(Section):
    """What the jobs ask of shared storage."""

    checkpoint: Size | None = Field(
        default=None, description="size of one, e.g. '1.5 TB'; default: 14 B per parameter of the 1st job"
    )
    checkpoint_interval: Duration = Field(
        default=3600.0, description="time between checkpoints, e.g. '30 min'"
    )
    checkpoint_time: Duration = Field(
        default=60.0, description="time a checkpoint may take to be written, e.g. '1 min'"
    )
    restart_time: Duration = Field(default=300.0, description="time a restart may take to read it back")
    kept: Count = Field(default=3, description="checkpoints that are kept")
    read_per_gpu: Bandwidth = Field(
        default=0.0, description="what one GPU reads of the dataset, sustained, e.g. '50 MB/s'"
    )
    dataset: Size = Field(default=0.0, description="size of the datasets, e.g. '200 TB'")
    options: tuple[str, ...] | None = Field(
        default=None, description="names of the storage systems to compare; default: all that are known"
    )


class Site(Section):
    """The room the cluster stands in."""

    rack: str = Field(default="rack-48u", description="name of the rack (`railwright site parts`)")
    rack_power: Power | None = Field(
        default=None,
        description="what the room powers and cools per rack, e.g. '40 kW'; default: what its PDUs carry",
    )
    room_power: Power | None = Field(
        default=None, description="what the room delivers to all machines together, e.g. '2 MW'"
    )
    servers_per_rack: Count | None = Field(
        default=None, description="servers in every rack; default: as many as height, power and room allow"
    )
    switches: Literal["auto", "in-rack", "middle", "end"] = Field(
        default="auto",
        description="where leaves stand: in-rack: on top of their servers (fails where they serve several "
        "racks); middle, end: in racks of their own amid or after the racks they serve; "
        "auto: in-rack for leaves of one rack, else middle",
    )
    racks_per_row: Count = Field(default=16, description="racks that stand side by side in one row")
    aisle: Length = Field(default=1.2, description="width of the aisle between two rows, e.g. '1.2 m'")
    tray_height: Length = Field(default=2.7, description="height of the cable trays above the floor")
    cross_trays: Count = Field(
        default=2, description="trays across the rows; 1: amid them; 2: at both ends; more: evenly"
    )
    slack: Annotated[float, Field(ge=0)] = Field(
        default=0.05, description="share of a cable's way that is added to it"
    )
    service_loop: Length = Field(default=0.5, description="cable coiled at each end, e.g. '50 cm'")
    power: RoomPower = RoomPower()
    cooling: RoomCooling = RoomCooling()
    storage: StorageNeed | None = Field(default=None, description="what the jobs ask of shared storage")
    parts: str | None = Field(
        default=None,
        description="your own PDUs, racks, supplies, … (YAML, relative to this file), over the shipped ones",
    )
