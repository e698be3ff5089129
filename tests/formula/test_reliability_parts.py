"""Parts are counted as they stand, checkpoints cost bytes over bandwidth, and the answer hangs together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.model import count_parameters, load_model
from railwright.reliability import goodput, part_rates
from railwright.reliability.basis import basis_of, recovery_times
from railwright.reliability.checkpointing import (
    PUBLISHED,
    checkpoint_size,
    checkpoint_times,
    storage_bandwidth,
    written_at,
)
from railwright.reliability.constants import constants, restart_time
from railwright.reliability.fabric_faults import Mending, network_faults, step_time
from railwright.reliability.lemons import worst_tenth
from railwright.reliability.montecarlo import within_band
from railwright.reliability.parts import age_factor, components, fatal_flaps, stalls, stock
from railwright.reliability.replay import Trace, concurrent, shortage, spares
from railwright.reliability.result import NetworkFault
from railwright.reliability.words import fate
from railwright.spec import load_study_text
from railwright.spec.reliability import Checkpoint, Flaps, Recovery, Reliability
from railwright.spec.starters import template
from railwright.units import DAY, YEAR, show_amount, show_count, show_time
from reliability_cases import asking, catalog, machine, study


def test_every_rate_and_constant_has_a_range_and_a_source() -> None:
    for part in part_rates():
        assert part.low <= part.rate <= part.high
        assert part.source
    for one in constants():
        assert one.low <= one.value <= one.high
        assert one.source
        assert one.status in ("read", "read_third_party", "memory", "estimated")


def test_the_jobs_parts_are_counted_on_its_fabric() -> None:
    # 16 of 18 servers, two to a leaf: 8 leaves; 16 GPUs a leaf, 4 spines and a spare above.
    held = stock(machine().network.fabric, study().jobs[0])
    assert (held.gpus, held.servers, held.nodes) == (128, 16, 16.0)
    assert held.units["nic"] == held.units["link"] == 128
    assert held.units["leaf"] == 8
    assert held.units["spine"] == 5
    assert held.leaf_servers == 2


def test_a_spread_jobs_parts_are_those_of_its_own_servers() -> None:
    """Eight servers of nine pairs, one under each leaf but the last, are not the first eight."""
    fabric, job = machine().network.fabric, study().jobs[0]
    layout = job.layout.model_copy(update={"placement": "spread"})
    spread = job.model_copy(update={"gpus": 64, "global_batch": 128, "layout": layout})
    named = job.model_copy(update={"servers": tuple(range(0, 16, 2)), "gpus": None, "global_batch": 128})
    assert stock(fabric, spread) == stock(fabric, named)
    assert stock(fabric, spread).units["leaf"] == 8


def test_component_rates_add_up_to_the_jobs() -> None:
    held = stock(machine().network.fabric, study().jobs[0])
    parts = components(held, Reliability())
    assert sum(p.share for p in parts) == pytest.approx(1.0)
    per_year = sum(YEAR / p.mtti for p in parts if p.stops and p.rate)
    rate = sum(p.per_1000_node_days for p in parts if p.stops)
    # 16 nodes for a year at so many per 1,000 node-days.
    assert per_year == pytest.approx(rate * 16 * YEAR / DAY / 1000)


def test_ones_own_count_sets_the_sum_and_keeps_the_shares() -> None:
    held = stock(machine().network.fabric, study().jobs[0])
    pooled, own = components(held, Reliability()), components(held, Reliability(interruptions=10.0))
    assert sum(p.per_1000_node_days for p in own if p.stops) == pytest.approx(10.0)
    assert [p.share for p in own] == pytest.approx([p.share for p in pooled])


def test_factors_and_correlation_multiply() -> None:
    held = stock(machine().network.fabric, study().jobs[0])
    plain = {p.name: p.rate for p in components(held, Reliability())}
    changed = {p.name: p.rate for p in components(held, Reliability(factors={"gpu": 0.5}, correlated=2.8))}
    assert changed["gpu"] == pytest.approx(1.4 * plain["gpu"])
    assert changed["link"] == pytest.approx(2.8 * plain["link"])


def test_a_young_cluster_fails_more() -> None:
    assert age_factor(None) == 1.0
    assert age_factor(180 * DAY) == pytest.approx(1.0)
    # (30/180)^(0.79 - 1)
    assert age_factor(30 * DAY) == pytest.approx(6**0.21)


def test_flaps_end_a_job_when_they_outlast_the_transport() -> None:
    # p99 at 30.1 s, the transport's patience: one flap in a hundred ends the job.
    flaps = Flaps.model_construct(per_link_day=0.01, median=2.0, p99=30.1)
    assert fatal_flaps(flaps) == pytest.approx(0.01)
    sigma = math.log(30.1 / 2.0) / 2.3263
    drawn = 2.0 * np.exp(sigma * np.random.default_rng(0).standard_normal(400_000))
    mean = drawn[drawn < 30.1].sum() / len(drawn)
    assert stalls(flaps, 128) == pytest.approx(1 - math.exp(-0.01 * 128 * mean / DAY), rel=0.02)


def test_a_checkpoint_is_14_bytes_a_parameter() -> None:
    arch = load_model("llama-3-8b")
    assert checkpoint_size(study().jobs[0], arch) == 14 * count_parameters(arch).total


def test_storage_bandwidth_is_that_of_the_narrowest_part() -> None:
    # Four hosts of 200 Gb/s: 100 GB/s, whether 16 servers write or 8; two servers write their own 50.
    assert storage_bandwidth(study().cluster, catalog(), 16) == (
        pytest.approx(100e9),
        "the storage hosts' ports",
    )
    assert storage_bandwidth(study().cluster, catalog(), 2) == (
        pytest.approx(50e9),
        "the servers' storage ports",
    )


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_without_a_storage_network_a_large_job_writes_as_published_ones(kind: str) -> None:
    """100 GB/s, on both sides of which the tornado has what publications range over: 50 and 200 GB/s."""
    assert study().cluster.storage is not None
    bare = study().cluster.model_copy(update={"storage": None})
    large = replace(stock(machine().network.fabric, study().jobs[0]), gpus=384)
    assert written_at(Checkpoint(), bare, catalog(), large) == (100e9, PUBLISHED)
    assert written_at(Checkpoint(), study().cluster, catalog(), large)[1] == "the storage hosts' ports"
    own = Checkpoint.model_construct(**{**Checkpoint().__dict__, "bandwidth": 7e9})
    assert written_at(own, bare, catalog(), large) == (7e9, "as the study says")

    asked = load_study_text(template("superpod-h100"), "superpod-h100.yaml")
    section = Reliability.model_construct(
        **{**Reliability().__dict__, "samples": 20, "checkpoint": Checkpoint(kind=kind)}
    )
    asked = asked.model_copy(update={"reliability": section})
    found = goodput(
        asked, Machine.of(asked.cluster, catalog(), NcclSettings(pxn=True)), catalog(), network=False
    )
    (swing,) = (s for s in found.tornado if s.name == "storage bandwidth")
    assert (swing.low, swing.high) == ("50 GB/s", "200 GB/s")
    assert swing.at_low < found.goodput < swing.at_high
    assert any("no storage network: checkpoints are written at 100 GB/s" in note for note in found.notes)


def test_an_oversubscribed_storage_network_is_the_limit() -> None:
    network = study().cluster.storage
    assert network is not None
    # Servers under one leaf, hosts under the other, 4:1 oversubscribed: about a quarter passes.
    thin = network.model_copy(
        update={"oversubscription": 4.0, "servers_per_group": 18, "hosts": 18, "tiers": 2}
    )
    cluster = study().cluster.model_copy(update={"storage": thin})
    rate, limit = storage_bandwidth(cluster, catalog(), 18)
    assert limit == "the switches of the storage network"
    assert rate < 18 * 25e9 / 2


def test_checkpoints_of_every_kind() -> None:
    size, rate, mtti = 1e12, (1e11, "test"), 10 * 3600.0

    def times(kind: str, **fields: object) -> object:
        asked = Checkpoint.model_construct(**{**Checkpoint().__dict__, "kind": kind, **fields})
        return checkpoint_times(asked, size, rate, machine(), 128, mtti)

    blocking, soon, two = times("blocking"), times("async"), times("two-level")
    assert (blocking.block, blocking.lag, blocking.load) == (10.0, 0.0, 10.0)  # type: ignore[attr-defined]
    # 1 TB over 128 GPUs, 7.8 GB each, through PCIe 5.0 as nvbandwidth measures it; 0.54 s of plans and
    # barriers beside it.
    copy = size / 128 / 55.4e9
    assert soon.block == pytest.approx(copy + 0.54)  # type: ignore[attr-defined]
    assert (soon.lag, soon.load) == (10.0, 10.0)  # type: ignore[attr-defined]
    assert two.lag == pytest.approx(size / 128 / machine().nic.rate)  # type: ignore[attr-defined]
    assert two.storage_load == 10.0  # type: ignore[attr-defined]


def test_restart_times_are_the_published_ones_and_grow() -> None:
    assert [restart_time(n) for n in (8, 16384, 22528, 65536, 98304)] == pytest.approx(
        [200, 200, 300, 600, 900]
    )
    assert 600 < restart_time(80_000) < 900 < restart_time(131_072)


def test_software_failures_swap_no_server() -> None:
    held = stock(machine().network.fabric, study().jobs[0])
    parts = components(held, Reliability())
    saved = checkpoint_times(Checkpoint(), 1e12, (1e11, ""), machine(), 128, 36000.0)
    recovery = Recovery.model_construct(
        detect=10.0, diagnose=100.0, reschedule=20.0, restart=30.0, warmup=5.0
    )
    asked = Reliability.model_construct(**{**Reliability().__dict__, "recovery": recovery})
    found = recovery_times(asked, saved, parts, 128)
    assert found.hardware == pytest.approx(10 + 100 + 20 + 30 + 10 + 5)
    assert found.software == pytest.approx(10 + 30 + 10 + 5)
    assert found.software < found.mean < found.hardware


def test_lemons() -> None:
    # A gamma law with the trace's variance: the worst tenth causes about a third in the long run; what the
    # trace counted, 41 %, has the chance of 1.46 faults a node in it.
    assert 0.3 < worst_tenth(400, 4.2) < 0.41


def test_a_spine_lost_within_the_spares_costs_nothing_more_than_one_beyond() -> None:
    job, arch = study().jobs[0], load_model("llama-3-8b")
    held = stock(machine().network.fabric, job)
    parts = {p.name: p for p in components(held, Reliability())}
    found = network_faults(job, arch, machine(), parts, 1, Mending(478080.0, 600.0, 2))
    live = dict(found.live)
    assert live[5] == 1.0
    assert live[3] >= live[4] >= live[5]
    assert [row.loss for row in found.spares] == sorted((row.loss for row in found.spares), reverse=True)
    assert all(row.bound_loss >= row.loss - 1e-12 for row in found.spares)
    leaf = next(row for row in found.faults if row.what == "leaf")
    assert (leaf.slowdown, leaf.lost_servers) == (None, 2)
    # Without spares the job stands still while its leaf is mended.
    alone = network_faults(job, arch, machine(), parts, 1, Mending(478080.0, 600.0, 0))
    events = parts["leaf"].rate * parts["leaf"].units / YEAR
    still = next(row for row in alone.faults if row.what == "leaf").expected
    assert still == pytest.approx(1 - math.exp(-events * 478080.0))
    nic = next(row for row in found.faults if row.what == "nic")
    assert nic.slowdown is not None
    assert nic.slowdown >= 1.0


def test_the_faulty_step_is_that_of_the_network_engine() -> None:
    from railwright.fabric import apply_faults
    from railwright.spec.study import Fault
    from railwright.training import simulate

    job, arch, base = study().jobs[0], load_model("llama-3-8b"), machine()
    broken = apply_faults(base.network.fabric, [Fault(element="spine-01"), Fault(element="spine-02")])
    own = simulate(job, arch, replace(base, network=replace(base.network, fabric=broken))).step_time
    assert step_time(job, arch, base, ("spine-02", "spine-01")) == own


def test_concurrent_faults_and_waits_of_a_trace_made_by_hand() -> None:
    # Two of ten nodes out from day 2 to 4 and day 3 to 5; node 0 has a second fault inside its first.
    days = np.array([[2.0, 4.0, 0], [3.0, 5.0, 1], [2.5, 3.5, 0]])
    trace = Trace(
        "hand", "", 10, 10.0, days[:, 0] * DAY, days[:, 1] * DAY, days[:, 2].astype(np.int64), ("",) * 3
    )
    out = concurrent(trace)
    assert [int(out[h]) for h in (0, 47, 48, 72, 95, 96, 119, 120)] == [0, 0, 1, 2, 2, 1, 1, 0]
    rate = 3 / 100 * 1000
    assert spares(trace, 10, rate, 0.99).replayed == 2
    # With one spare, a run of nine days waits through the day on which two are out, and no other.
    short, missing = shortage(trace, 10, rate, 1, 9 * DAY, 20)
    assert short == pytest.approx(np.full(20, 0.1))
    assert missing == pytest.approx(np.full(20, 0.1))
    assert shortage(trace, 10, rate, 2, 9 * DAY, 20)[0] == pytest.approx(np.zeros(20))


def test_servers_beyond_the_spares_that_a_job_needs_are_no_cost_of_it() -> None:
    """All that a job left were its spares: one on 8 of 18 servers was charged for every one of them."""
    asked = asking()
    few = asked.jobs[0].model_copy(update={"gpus": 64, "global_batch": 128})
    half = asked.model_copy(update={"jobs": (few,)})
    found = goodput(half, machine(), catalog(), network=False)
    assert found.spares == max(found.enough[0], 1) < 10
    assert any(f"Spare servers: {found.spares} of the 10 that" in note for note in found.notes)
    kept = asking(spares=10).model_copy(update={"jobs": (few,)})
    assert goodput(kept, machine(), catalog(), network=False).spares == 10


@pytest.mark.parametrize("kind", ["blocking", "async", "memory", "two-level"])
def test_the_answer_hangs_together(kind: str) -> None:
    asked = asking(checkpoint=Checkpoint.model_construct(**{**Checkpoint().__dict__, "kind": kind}))
    found = goodput(asked, machine(), catalog(), network=False)
    assert found.goodput + sum(share for _, share in found.losses) == pytest.approx(1.0)
    assert found.mtti_low <= found.mtti <= found.mtti_high
    assert found.spares == 2  # 18 servers, of which the job takes 16
    p10, p50, p90, p99, _ = found.forecast.wall
    assert found.forecast.ideal < p10 <= p50 <= p90 <= p99
    assert found.answer[0].startswith("small on 128 GPUs is interrupted every")
    # goodput is a mean, and so are the end and the GPU-hours beside it, with the spares that are in them
    run = found.forecast
    assert found.answer[1].endswith("% on average.")
    assert (
        f"The run ends after {show_time(run.wall[-1])} on average (median {show_time(p50)};"
        in found.answer[2]
    )
    hours = f"{show_count(run.gpu_hours[-1])} GPU-hours on average with 2 spare servers."
    assert found.answer[2].endswith(hours)
    assert run.gpu_hours[-1] == pytest.approx(run.wall[-1] / 3600 * (128 + 2 * 8))
    swings = [abs(s.at_high - s.at_low) for s in found.tornado]
    assert swings == sorted(swings, reverse=True)
    assert len({d.name for d in found.definitions}) == 6


def test_a_run_is_as_long_as_its_share_of_training_says() -> None:
    """Wall time times the share that trains is the run without failures, of every sample: of their means at
    least that (Jensen), and little more.  Waiting for a server, a fifth of the time here, is in both."""
    scarce = goodput(asking(spares=0), machine(), catalog(), network=False).forecast
    assert scarce.finished == 1
    assert 0.1 < scarce.waiting < 0.4
    assert scarce.ideal <= scarce.wall[-1] * scarce.ettr[-1] < 1.1 * scarce.ideal


def test_an_elastic_job_loses_less() -> None:
    plain = goodput(asking(interruptions=200.0), machine(), catalog(), network=False)
    elastic = goodput(asking(interruptions=200.0, elastic=True), machine(), catalog(), network=False)
    assert elastic.goodput > plain.goodput


def test_a_lost_server_takes_all_its_replicas() -> None:
    """64 replicas of two GPUs lie on 16 servers: a failure takes four of them, and took one."""
    job = study().jobs[0]
    on = basis_of(asking(elastic=True), machine(), catalog())
    assert on.figures.elastic is not None
    assert on.figures.elastic.share == pytest.approx(1 / 16)
    # 16 GPUs a replica: two servers are one
    wide = job.layout.model_copy(update={"tensor": 8, "pipeline": 2})
    spanning = asking(elastic=True).model_copy(update={"jobs": (job.model_copy(update={"layout": wide}),)})
    found = basis_of(spanning, machine(), catalog()).figures.elastic
    assert found is not None
    assert found.share == pytest.approx(1 / 8)
    alone = asking(elastic=True).model_copy(update={"jobs": (job.model_copy(update={"gpus": 8}),)})
    with pytest.raises(PlanError, match="all its replicas in one server, so none is left"):
        basis_of(alone, machine(), catalog())


def test_a_job_on_part_of_a_server_stands_on_the_nics_of_its_own_gpus() -> None:
    """NICs and cables of the server's other GPUs interrupt other jobs."""
    apart = {"gpus": 2, "gpus_per_server": 1, "layout": type(study().jobs[0].layout)()}
    held = stock(machine().network.fabric, study().jobs[0].model_copy(update=apart))
    assert (held.units["gpu"], held.units["nic"], held.units["link"]) == (2, 2, 2)


def test_a_job_inside_one_server_needs_no_network() -> None:
    """Its NICs, cables and leaf interrupted it, and with no spare a dead leaf was said to stop it."""
    alone = study().jobs[0].model_copy(update={"gpus": 8})
    asked = asking().model_copy(update={"jobs": (alone,)})
    found = goodput(asked, machine(), catalog())
    assert not {c.name for c in found.components if c.units} & {"nic", "link", "leaf", "spine", "trunk"}
    assert found.network is None
    assert sum(c.share for c in found.components) == pytest.approx(1.0)
    assert not any("flaps" in note for note in found.notes)


def test_the_date_holds_the_range_of_the_step() -> None:
    """Failures alone give a week where the step's own range gives a month: both are told, and named."""
    found = goodput(asking(), machine(), catalog(), network=False)
    run, (low, high) = found.forecast, found.forecast.band
    early, _, late, _, _ = run.wall_measured
    assert run.wall[0] > early > low * run.wall[0]
    assert run.wall[2] < late < high * run.wall[2]
    both = f"{show_time(early)} to {show_time(late)} with the range of the predicted step too, {low:.2f} to"
    assert f"in eight of ten cases by failures alone, {both}" in found.answer[2]
    assert any("published runs took 1.1 to 1.28 times as long as predicted" in note for note in found.notes)


@pytest.mark.parametrize(("low", "high", "middle"), [(0.9, 1.3, 1.0), (1.1, 1.44, 1.2586)])
def test_four_of_five_steps_lie_in_their_range(low: float, high: float, middle: float) -> None:
    """A range that does not hold the prediction has its geometric middle in the middle."""
    ratios = within_band(np.ones(1), low, high)
    assert np.percentile(ratios, (10, 50, 90)) == pytest.approx((low, middle, high), rel=0.01)


def test_the_report_says_stands_still_where_the_terminal_does() -> None:
    """It said 'restarts' of a leaf that takes more servers than there are spares."""
    assert fate(NetworkFault("leaf", "leaf-01", None, 2, 0.004, "")) == "stands still"
    assert fate(NetworkFault("leaf", "leaf-01", None, 2, 0.0, "")) == "restarts"
    assert fate(NetworkFault("nic", "server-01/nic-0", 1.0264, 0, 0.0, "")) == "1.026 x"


def test_few_gpu_hours_are_told_as_they_are() -> None:
    """2.8 were told as 3, beside 2.8 of `run` and `cost`."""
    few = study().jobs[0].model_copy(update={"gpus": 2, "tokens": 1e6})
    found = goodput(asking().model_copy(update={"jobs": (few,)}), machine(), catalog(), network=False)
    assert found.forecast.gpu_hours[-1] < 100
    assert f"takes {show_amount(found.forecast.gpu_hours[-1])} GPU-hours" in found.answer[2]


def test_an_interval_beyond_the_run_costs_no_more_than_the_run() -> None:
    """A run of a few hours cannot lose more than it has done, however long the interval."""
    wanted = asking(checkpoint=Checkpoint.model_validate({"interval": "300 d"}), spares=50)
    short = wanted.model_copy(update={"jobs": (wanted.jobs[0].model_copy(update={"tokens": 1e9}),)})
    assert goodput(short, machine(), catalog(), network=False).ettr > 0.998
