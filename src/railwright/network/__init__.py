"""Traffic on a fabric: paths under a routing, max-min fluid finish times, latency, and the bottleneck."""

from railwright.network.ecmp import EcmpDistribution as EcmpDistribution
from railwright.network.ecmp import ecmp_distribution as ecmp_distribution
from railwright.network.events import Schedule as Schedule
from railwright.network.events import Simulation as Simulation
from railwright.network.events import sequence as sequence
from railwright.network.events import side_by_side as side_by_side
from railwright.network.events import together as together
from railwright.network.events_run import load_over_time as load_over_time
from railwright.network.events_run import simulate as simulate
from railwright.network.solution import Bottleneck as Bottleneck
from railwright.network.solution import Engine as Engine
from railwright.network.solution import Network as Network
from railwright.network.solution import Solution as Solution
from railwright.network.solve import solve as solve
from railwright.network.tables import Tables as Tables
from railwright.network.tables import own_tables as own_tables
