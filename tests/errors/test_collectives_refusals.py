"""What cannot be predicted is refused in one sentence that says what would work."""

from dataclasses import replace

import numpy as np
import pytest

from collectives_machines import machine, world
from railwright.collectives import NcclSettings, predict
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator


def test_unknown_op_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"'allreduce' is not a collective; the known ones are all_reduce"):
        predict(machine(1), "allreduce", 1e6, world(machine(1)))


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf")])
def test_sizes_must_be_positive(size: float) -> None:
    with pytest.raises(PlanError, match="give a size above zero"):
        predict(machine(1), "all_reduce", size, world(machine(1)))


def test_no_group() -> None:
    with pytest.raises(PlanError, match="give at least one group"):
        predict(machine(1), "all_reduce", 1e6, [])


def test_a_gpu_twice_in_one_group() -> None:
    with pytest.raises(PlanError, match="3 ranks on 2 different GPUs"):
        predict(machine(1), "all_reduce", 1e6, [Communicator(np.array([0, 1, 1], np.int32), "twice")])


def test_a_gpu_in_two_groups() -> None:
    groups = [Communicator(np.array([0, 1], np.int32)), Communicator(np.array([1, 2], np.int32))]
    with pytest.raises(PlanError, match="GPU 1 is in 2 of the 2 groups"):
        predict(machine(1), "all_reduce", 1e6, groups)


def test_forced_nvls_on_a100_says_why_and_what_would_do() -> None:
    on = machine(1, server="dgx-a100", switch="qm8700", nccl=NcclSettings(algorithm="nvls"))
    with pytest.raises(PlanError, match=r"nvls: NVLS needs NVSwitch of Hopper.*it can with ring, tree"):
        predict(on, "all_reduce", 1e6, world(on))


def test_forced_protocol_that_the_algorithm_lacks() -> None:
    on = machine(1, nccl=NcclSettings(algorithm="nvls", protocol="ll"))
    with pytest.raises(PlanError, match="protocol 'll'"):
        predict(on, "all_reduce", 1e6, world(on))


def test_sharp_needs_a_switch_that_reduces() -> None:
    with pytest.raises(PlanError, match=r"nccl\.sharp asks for in-network reduction"):
        machine(2, switch="sn5600", nccl=NcclSettings(sharp=True))


def test_more_messages_than_can_be_solved() -> None:
    listed = machine(1024)
    on = replace(listed, network=replace(listed.network, routing="ecmp"))
    with pytest.raises(PlanError, match=r"67,100,672 messages; under routing 'ecmp'.*smaller or fewer"):
        predict(on, "all_to_all", 1e9, world(on))


def test_rail_only_without_pxn_has_pairs_out_of_reach() -> None:
    on = machine(2, family="rail-only", nccl=NcclSettings(pxn=False))
    with pytest.raises(PlanError, match="cannot reach"):
        predict(on, "all_to_all", 1e6, world(on))
