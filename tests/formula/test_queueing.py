"""Queues worked out by hand, Erlang's formula, and what spreading costs on narrow and wide fabrics."""

from __future__ import annotations

from functools import cache
from math import factorial

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.export.sheet import Sheet
from railwright.fabric import build
from railwright.network import Network
from railwright.queueing.jobs import Job, drawn, read_jobs
from railwright.queueing.network_cost import moments_of, spread
from railwright.queueing.place import Site, place, site_of
from railwright.queueing.simulate import Failures, Stay, simulate
from railwright.spec import load_study_text

TWO = Site(("a", "b"), 4, (0, 0), (0,))
UNITS = Site(tuple("abcdefgh"), 8, (0, 0, 0, 0, 1, 1, 1, 1), (0, 0))


def starts(run) -> dict[int, float]:
    return {s.job: s.start for s in run.stays}


def test_a_small_job_goes_first_only_where_it_delays_nobody():
    """8 GPUs.  Job 0 holds 4 for 10 s; job 1 wants 8; job 2 (4 GPUs, 10 s) fits beside 0 and ends with it."""
    jobs = [Job(0, 10, 4), Job(1, 5, 8), Job(2, 8, 4), Job(3, 20, 4)]
    run = simulate(TWO, jobs, "pack")
    assert starts(run) == {0: 0.0, 2: 2.0, 1: 10.0, 3: 15.0}


def test_a_gap_beside_the_reservation_is_used():
    """Job 1 wants 4 when job 0 (8 GPUs) ends at 10; job 2 wants the other 4 for long, and may have them."""
    jobs = [Job(0, 10, 6), Job(1, 100, 4), Job(2, 50, 2), Job(3, 50, 2)]
    run = simulate(TWO, jobs, "any")
    assert starts(run) == {0: 0.0, 2: 2.0, 1: 10.0, 3: 10.0}


def test_a_killed_job_repeats_what_it_did_since_its_checkpoint():
    """One host that fails often: the last stay has what was left after whole checkpoints."""
    site = Site(("a",), 1, (0,), (0,))
    run = simulate(site, [Job(0, 1000, 1)], "pack", Failures(1 / 300, 10, 100), seed=1)
    killed = [s for s in run.stays if s.killed]
    assert killed
    kept = sum((s.end - s.start) // 100 * 100 for s in killed)
    last = run.stays[-1]
    assert last.end - last.start == pytest.approx(1000 - kept)
    assert run.lost == pytest.approx(sum((s.end - s.start) % 100 for s in killed))
    assert run.kills == len(killed)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (8, 0.8)])
def test_single_gpu_jobs_wait_as_erlang_says(servers, load):
    """M/M/c: P(wait) of Erlang C, mean wait = P / (c (1 - rho)) service times (Kleinrock, vol. 1, 3.5)."""
    site = Site(("a",), servers, (0,), (0,))
    jobs = drawn({1: 1.0}, load, 100.0, servers, 40_000, seed=2)
    waits = simulate(site, jobs, "any").waits
    offered = servers * load
    top = offered**servers / factorial(servers) / (1 - load)
    queued = top / (sum(offered**k / factorial(k) for k in range(servers)) + top)
    assert waits.mean() == pytest.approx(queued * 100 / (servers * (1 - load)), rel=0.12)


def test_tree_takes_the_fullest_unit_that_has_room():
    free = [255] * 8
    free[4] = 0
    assert [h for h, _ in place(UNITS, free, 24, "tree")] == [5, 6, 7]
    assert [h for h, _ in place(UNITS, free, 24, "pack")] == [0, 1, 2]
    assert [h for h, _ in place(UNITS, free, 32, "block")] == [0, 1, 2, 3]
    free[0] = 1
    assert place(UNITS, free, 32, "block") is None  # one switch could hold it, so it waits for one
    assert len(place(UNITS, free, 32, "tree")) == 4
    assert len(place(UNITS, [255] * 8, 40, "block")) == 5  # no switch could: it may spread


def test_rails_are_the_same_on_every_host():
    free = [0b00111111, 0b11111100, 255, 255, 0, 0, 0, 0]
    found = place(UNITS, free, 12, "rails")
    assert len({bits for _, bits in found}) == 1
    assert all(bits.bit_count() == 6 for _, bits in found)
    torn = place(UNITS, free, 12, "any")
    assert len({bits for _, bits in torn}) > 1


def test_a_full_host_is_left_whole_by_small_jobs():
    free = [0b1111, 0b11111111] + [0] * 6
    assert place(UNITS, free, 2, "pack") == ((0, 0b11),)


def test_what_can_never_run_is_refused_with_its_reason():
    run = simulate(UNITS, [Job(0, 1, 65), Job(0, 1, 8)], "pack")
    assert run.refused == ((0, "65 GPUs of 64"),)
    assert simulate(UNITS, [Job(0, 1, 61), Job(0, 1, 8)], "rails").refused[0][0] == 0


@cache
def fabric(oversubscription: float):
    text = (
        "railwright: 1\nname: t\ncluster:\n  servers: 16\n  server: dgx-h100\n"
        "  compute: {family: rail-optimised, switch: qm9700, servers_per_group: 4, "
        f"oversubscription: {oversubscription}}}\n"
    )
    study, catalog = load_study_text(text), load_catalog()
    made = build(study.cluster, catalog)
    return made, site_of(Sheet(made, catalog, "t"))


def test_units_are_the_fabrics():
    _, site = fabric(1.0)
    assert site.unit == tuple(i // 4 for i in range(16))
    assert site.pod == (0, 0, 0, 0)
    assert site.capacity == 128


@pytest.mark.parametrize(("oversubscription", "alone"), [(1.0, 1.0), (4.0, 1.0)])
def test_a_spread_ring_costs_what_the_spines_lack(oversubscription, alone):
    """Two jobs of a host in each of two units: their rings cross the spines once a rail, an up-link's worth
    each; with 4:1 spines (one up-link per four hosts and rail) the two share it and get half."""
    made, site = fabric(oversubscription)
    where = [((0, 255), (4, 255)), ((1, 255), (5, 255))]
    from railwright.queueing.simulate import Run

    run = Run(
        np.zeros(2),
        np.ones(2),
        tuple(Stay(i, w, 0, 1, False) for i, w in enumerate(where)),
        (),
        0,
        1,
        1,
        0,
        0,
    )
    found = spread(run, site, Network(made), pxn=True)
    assert found.one_unit == 0.0
    assert found.fewest == 2.0
    assert found.alone == pytest.approx(alone)
    assert found.bandwidth == pytest.approx(1.0 if oversubscription == 1.0 else 0.5)


def test_moments_fall_into_the_time_in_which_large_jobs_run():
    """Ten hours of idleness between two jobs of an hour: at four moments each job is met at two."""
    stays = [Stay(0, ((0, 1),), 0.0, 1.0, False), Stay(1, ((0, 1),), 11.0, 12.0, False)]
    assert moments_of(stays, 4) == pytest.approx([0.4, 0.8, 11.2, 11.6])
    inside = [Stay(0, ((0, 1),), 0.0, 10.0, False), Stay(1, ((1, 1),), 2.0, 3.0, False)]
    assert moments_of(inside, 4) == pytest.approx([2.0, 4.0, 6.0, 8.0])


def test_a_packed_ring_costs_nothing():
    made, site = fabric(4.0)
    run = simulate(site, [Job(0, 10, 32), Job(0, 10, 32), Job(0, 10, 32)], "tree")
    found = spread(run, site, Network(made), pxn=True)
    assert (found.one_unit, found.bandwidth) == (1.0, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("submit,gpus,duration\n5,8,10\n3,1,2.5\n", [(0, 2.5, 1), (2, 10, 8)]),
        ("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,x\n", [(0, 66, 1)]),
        (
            "name,num_gpu,creation_time,deletion_time,scheduled_time\na,2,10,110,30\nb,2,10,,\nc,0,1,9,2\n",
            [(0, 80, 2)],
        ),
        (
            "JobID|Submit|ElapsedRaw|AllocTRES\n1|2026-01-01T00:00:00|60|cpu=4,gres/gpu=2,node=1\n"
            "2|2026-01-01T00:01:00|60|cpu=4,node=1\n",
            [(0, 60, 2)],
        ),
        (  # steps of job 1 stand on its GPUs; a site that accounts for types of GPUs alone
            "JobID|Submit|ElapsedRaw|AllocTRES\n1|2026-01-01T00:00:00|60|billing=4,gres/gpu:h100=2,node=1\n"
            "1.batch|2026-01-01T00:00:01|60|gres/gpu:h100=2,node=1\n"
            "1.extern|2026-01-01T00:00:01|60|billing=4,gres/gpu:h100=2,node=1\n"
            "2|2026-01-01T00:01:00|9|billing=4,gres/gpu=3,gres/gpu:a100=1,gres/gpu:h100=2,node=1\n",
            [(0, 60, 2), (60, 9, 3)],
        ),
        (  # the end of summer time: 02:30 twice, an hour apart
            "submit,gpus,duration\n2026-10-25T02:30:00+02:00,1,5\n2026-10-25T02:30:00+01:00,1,5\n",
            [(0, 5, 1), (3600, 5, 1)],
        ),
    ],
)
def test_files_of_jobs_are_known_by_their_header(tmp_path, text, jobs):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    assert [(j.submit, j.duration, j.gpus) for j in read_jobs(path)] == jobs
