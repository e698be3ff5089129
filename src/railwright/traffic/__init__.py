"""Who sends how many bytes to whom: demands, communicators, and the patterns collectives are made of."""

from railwright.traffic.demand import Communicator as Communicator
from railwright.traffic.demand import Traffic as Traffic
from railwright.traffic.demand import join as join
from railwright.traffic.groups import Groups as Groups
from railwright.traffic.groups import together as together
from railwright.traffic.patterns import all_to_all as all_to_all
from railwright.traffic.patterns import send_recv as send_recv
from railwright.traffic.placement import can_relay as can_relay
from railwright.traffic.placement import domain_of_gpu as domain_of_gpu
from railwright.traffic.placement import rail_of_gpu as rail_of_gpu
from railwright.traffic.rings import broadcast as broadcast
from railwright.traffic.rings import ring as ring
from railwright.traffic.trees import double_tree as double_tree
from railwright.traffic.trees import tree as tree
from railwright.traffic.trees import tree_across as tree_across
