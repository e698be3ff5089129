"""Traffic on a fabric: paths under a routing, max-min fluid finish times, latency, and the bottleneck."""

from railwright.network.ecmp.sampled import EcmpDistribution as EcmpDistribution
from railwright.network.ecmp.sampled import ecmp_distribution as ecmp_distribution
from railwright.network.fluid.events import Schedule as Schedule
from railwright.network.fluid.events import Simulation as Simulation
from railwright.network.fluid.events import sequence as sequence
from railwright.network.fluid.events import side_by_side as side_by_side
from railwright.network.fluid.events import together as together
from railwright.network.fluid.events_run import load_over_time as load_over_time
from railwright.network.fluid.events_run import simulate as simulate
from railwright.network.routing.solution import Bottleneck as Bottleneck
from railwright.network.routing.solution import Engine as Engine
from railwright.network.routing.solution import Network as Network
from railwright.network.routing.solution import Solution as Solution
from railwright.network.routing.tables import Tables as Tables
from railwright.network.routing.tables import own_tables as own_tables
from railwright.network.solve import solve as solve
