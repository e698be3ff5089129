"""Storage by hand: what checkpoints, restarts and datasets ask for, and what servers of each kind give."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.site.loading import load_site_parts
from railwright.site.storage import Requirement, plan_storage, requirement, server_rates, size_option
from railwright.spec.site import StorageNeed

PARTS = load_site_parts()
TB, GB = 1e12, 1e9


def need(**fields) -> Requirement:
    return requirement(StorageNeed(**fields), 32, 256, 1.5 * TB, None)


def test_a_checkpoint_of_1_5_tb_in_a_minute_takes_25_gb_a_second():
    asked = need(read_per_gpu="50 MB/s", dataset="200 TB")
    assert asked.write == pytest.approx(25 * GB)
    assert asked.mean_write == pytest.approx(1.5 * TB / 3600)
    assert asked.restart_read == pytest.approx(5 * GB)
    assert asked.dataset_read == pytest.approx(256 * 50e6)
    assert asked.capacity == pytest.approx(200 * TB + 4 * 1.5 * TB), "three kept and one being written"
    assert asked.per_node == pytest.approx(25 * GB / 32)


def test_68_ceph_servers_read_what_was_measured_on_68():
    """1.025 TiB/s from 68 servers of ten NVMe drives and two 100 GbE ports."""
    read, _ = server_rates(PARTS.storage["ceph-replicated"])
    assert 68 * read == pytest.approx(1.025 * 2**40, rel=2e-3)


def test_three_copies_cost_three_times_the_drives_and_the_wire():
    kind = PARTS.storage["ceph-replicated"]
    read, write = server_rates(kind)
    nics, drives = kind.nics * kind.nic, kind.drives * kind.drive_write
    assert write == pytest.approx(kind.software * min(nics / 3, drives / 3))
    assert read / write == pytest.approx(min(nics, kind.drives * kind.drive_read) / min(nics / 3, drives / 3))


def test_the_demand_that_binds_decides_the_servers():
    option = size_option(PARTS.storage["ceph-replicated"], need())
    assert option.binding == "checkpoint writes"
    _, write = server_rates(PARTS.storage["ceph-replicated"])
    assert (option.servers - 1) * write < 25 * GB <= option.servers * write
    big = size_option(PARTS.storage["lustre"], need(dataset="5000 TB"))
    assert big.binding == "capacity"
    assert big.usable >= 5006 * TB
    reading = size_option(PARTS.storage["lustre"], need(read_per_gpu="2 GB/s"))
    assert reading.binding == "dataset reads"
    assert reading.read >= 512 * GB


def test_one_nfs_server_is_refused_where_two_are_needed_and_slow_clients_too():
    # 150 GB/s, half of 2 x 100 Gb/s (12.5 GB/s) a server
    said = size_option(PARTS.storage["nfs-server"], need(checkpoint_time="10 s"))
    assert said.refusal == "checkpoint writes take 12 servers, and it works with 1 at most"
    few = requirement(StorageNeed(), 2, 16, 1.5 * TB, None)
    assert (
        "one client gets 10 GB/s of the 12.5 GB/s it needs"
        in size_option(PARTS.storage["ceph-replicated"], few).refusal
    )


def test_every_accepted_option_meets_every_demand():
    asked = need(read_per_gpu="200 MB/s", dataset="900 TB")
    plan = plan_storage(
        StorageNeed(read_per_gpu="200 MB/s", dataset="900 TB"), 32, 256, 1.5 * TB, None, PARTS
    )
    accepted = [option for option in plan.options if not option.refusal]
    assert accepted
    for option in accepted:
        assert option.read >= asked.read * (1 - 1e-9)
        assert option.write >= asked.write * (1 - 1e-9)
        assert option.usable >= asked.capacity * (1 - 1e-9)
    assert [o.servers for o in accepted] == sorted(o.servers for o in accepted)


def test_checkpoints_that_pile_up_and_unknown_options_are_refused():
    with pytest.raises(PlanError, match="pile up"):
        need(checkpoint_time="2 h")
    with pytest.raises(PlanError, match="no storage system 'lustr'; did you mean 'lustre'"):
        plan_storage(StorageNeed(options=("lustr",)), 1, 8, TB, None, PARTS)
