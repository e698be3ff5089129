"""No GPU runs two jobs, every job ends, and nothing runs on a host that is down."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.queueing.jobs import Job
from railwright.queueing.place import POLICIES, Site, check_size, fits, place
from railwright.queueing.simulate import Failures, simulate


def _site(units: int, per: int, gpus: int) -> Site:
    hosts = units * per
    return Site(
        tuple(f"h{i}" for i in range(hosts)), gpus, tuple(i // per for i in range(hosts)), (0,) * units
    )


SITES = st.builds(_site, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2, 4, 8]))
JOBS = st.lists(
    st.builds(Job, st.integers(0, 50), st.integers(1, 30), st.integers(1, 24)), min_size=1, max_size=25
)


@settings(max_examples=150)
@given(SITES, JOBS, st.sampled_from(list(POLICIES)), st.sampled_from([0.0, 0.01]), st.integers(0, 5))
def test_every_gpu_has_one_job_at_a_time_and_every_job_ends(site, jobs, policy, rate, seed):
    fit = [i for i, job in enumerate(jobs) if not check_size(site, job.gpus, policy)]
    if not fit:
        return
    run = simulate(site, jobs, policy, Failures(rate, 5.0, 4.0), seed)
    assert {i for i, _ in run.refused} == set(range(len(jobs))) - set(fit)
    assert not np.isnan(run.done[fit]).any()
    for s in run.stays:
        assert s.start >= jobs[s.job].submit
        assert sum(bits.bit_count() for _, bits in s.where) == jobs[s.job].gpus
        assert all(bits <= site.whole for _, bits in s.where)
    for host in range(len(site.hosts)):
        own = [(s.start, s.end, bits) for s in run.stays for h, bits in s.where if h == host]
        for i, (start, end, bits) in enumerate(own):
            for other_start, other_end, other_bits in own[i + 1 :]:
                if max(start, other_start) < min(end, other_end):
                    assert not bits & other_bits
    worked = dict.fromkeys(fit, 0.0)
    for s in run.stays:
        worked[s.job] += s.end - s.start
    for i in fit:  # every job did all of its work, and repeated what failures took
        assert worked[i] >= jobs[i].duration - 1e-9
    total = sum(worked[i] * jobs[i].gpus for i in fit)
    assert np.isclose(total, sum(jobs[i].duration * jobs[i].gpus for i in fit) + run.lost)


@settings(max_examples=100)
@given(
    SITES,
    st.lists(st.integers(0, 255), min_size=9, max_size=9),
    st.integers(1, 72),
    st.sampled_from(list(POLICIES)),
)
def test_more_free_gpus_never_make_a_placement_impossible(site, bits, gpus, policy):
    """What the reservation's search by halves relies on."""
    if check_size(site, gpus, policy):
        return
    free = [bits[i] & site.whole for i in range(len(site.hosts))]
    placed = place(site, free, gpus, policy) is not None
    if sum(own.bit_count() for own in free) >= gpus:
        assert fits(site, free, gpus, policy) == placed
    if not placed:
        return
    for host in range(len(site.hosts)):
        more = [site.whole if i == host else f for i, f in enumerate(free)]
        assert place(site, more, gpus, policy) is not None


@settings(max_examples=50)
@given(SITES, JOBS)
def test_nobody_waits_where_everything_fits(site, jobs):
    one = [Job(job.submit, job.duration, 1) for job in jobs][: site.capacity]
    run = simulate(site, one, "pack")
    assert not run.waits.any()
