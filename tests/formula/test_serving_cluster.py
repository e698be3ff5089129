"""Replicas on the fabric: who sits where, what keys and values cross, and `network.solve` as the judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.errors import PlanError
from railwright.model import load_model
from railwright.network import solve
from railwright.serving.engine.profiles import engine_of
from railwright.serving.predict import fleet_of, serve
from railwright.serving.simulator import kernel_rows as r
from railwright.serving.simulator.cluster import places, transfers
from railwright.serving.simulator.kernel_transfer import begin_transfer
from railwright.serving.simulator.state import build
from railwright.spec.serving import Client, PrefillPool, ServingJob, ServingLayout, Slo
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Traffic

MODEL = load_model("llama-3.1-70b")
CATALOG = load_catalog()


def machine(servers: int = 4, **network) -> Machine:
    compute = ComputeNetwork(**({"family": "rail-optimised", "switch": "qm9700"} | network))
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    return Machine.of(cluster, CATALOG, NcclSettings())


def job(tensor: int = 4, prefill: int = 4, replicas: int = 2, prefills: int = 2, **other) -> ServingJob:
    return ServingJob(
        name="chat",
        model="llama-3.1-70b",
        weights="fp8",
        layout=ServingLayout(tensor=tensor),
        replicas=replicas,
        prefill=PrefillPool(replicas=prefills, layout=ServingLayout(tensor=prefill)) if prefill else None,
        client=other.pop("client", Client(concurrency=8, requests=40, input=2048, output=128)),
        **other,
    )


def test_replicas_are_packed_and_do_not_cross_servers_edges():
    first, second = places(job(tensor=8, prefill=4, prefills=1), machine())
    assert [list(one) for one in first] == [[0, 1, 2, 3]]
    # Eight GPUs do not fit beside the four: the next server.
    assert [list(one) for one in second] == [list(range(8, 16)), list(range(16, 24))]
    with pytest.raises(PlanError, match="need 40 GPUs"):
        places(job(tensor=8, prefill=8, replicas=4, prefills=1), machine())


@pytest.mark.parametrize(("prefill", "decode"), [(4, 4), (8, 4), (4, 8), (2, 8), (1, 4)])
def test_a_transfer_alone_takes_what_the_network_says(prefill, decode):
    # One request's keys and values, rank to rank, as flows of `network.solve`; and as one flow of ours.
    place = machine()
    asked = job(tensor=decode, prefill=prefill, replicas=1, prefills=8 // prefill)
    moved = transfers(asked, MODEL, place, engine_of(asked))
    (source, *_), (target, *_) = places(asked, place)
    # Eight key/value heads: rank t of T holds heads from 8 t / T on.
    pairs = [
        (s, d, max(min((s + 1) / prefill, (d + 1) / decode) - max(s / prefill, d / decode), 0.0))
        for s in range(prefill)
        for d in range(decode)
    ]
    src, dst, part = (np.array(column) for column in zip(*[p for p in pairs if p[2] > 0], strict=True))
    size = 1e9
    traffic = Traffic(
        source[src].astype(np.int32),
        target[dst].astype(np.int32),
        np.full(len(src), -1, np.int32),
        part * size,
    )
    entries = slice(moved.ptr[0], moved.ptr[1])
    alone = float((moved.weight[entries] / moved.capacity[moved.link[entries]]).max()) * size
    assert alone == pytest.approx(solve(place.network, traffic).time, rel=1e-6)


def test_transfers_at_once_share_links_as_the_network_says():
    # Both prefill replicas send to one decode replica: its NICs halve the rate of each.
    place = machine()
    asked = job(tensor=4, prefill=4, replicas=2, prefills=2)
    fleet = fleet_of(asked, MODEL, place, engine_of(asked))
    from serving_cases import requests

    state = build(requests(np.zeros(4), 1000, 10), fleet, np.full(4, 9), as_lists=True)
    sends = [(0, 2), (1, 2), (1, 3)]
    for i, (source, target) in enumerate(sends):
        state.request[r.SOURCE][i], state.request[r.REPLICA][i] = source, target
        begin_transfer(state, i, 0.0)
    gpus = [g for pool in places(asked, place) for g in pool]
    src = np.concatenate([gpus[s] for s, _ in sends])
    dst = np.concatenate([gpus[d] for _, d in sends])
    solved = solve(
        place.network,
        Traffic(src, dst, np.full(12, -1, np.int32), np.full(12, fleet.transfers.token_bytes * 1000 / 4)),
    )
    ours = [state.flow[r.REMAINING][i] / state.flow[r.SPEED][i] for i in range(3)]
    # All rates are equal here or the first to end decides: compare that.
    assert min(ours) == pytest.approx(solved.finish.min(), rel=1e-6)


def test_bytes_of_keys_and_values():
    # Llama 3.1 70B: 80 layers x 8 heads x 128 x 2 (keys, values) x 2 bytes = 327,680 bytes a token.
    asked = job()
    assert transfers(asked, MODEL, machine(), engine_of(asked)).token_bytes == 327_680


def test_an_oversubscribed_fabric_and_other_jobs_slow_transfers_down():
    fast = serve(job(), MODEL, machine())
    asked = job()
    kv = "keys and values to the decoder"
    none = np.array([-1], np.int32)
    # Other jobs offer each NIC of the decode replicas' servers its whole rate: half is left.
    others = [
        Traffic(np.array([16 + k], np.int32), np.array([8 + k], np.int32), none, np.array([50e9]))
        for k in range(8)
    ]
    slow = serve(asked, MODEL, machine(), others=others)
    assert slow.ttft_parts.parts[kv] > 1.5 * fast.ttft_parts.parts[kv]
    assert slow.ttft_parts.network > 0
    # Two replicas under different leaves, 8 to 1 oversubscribed.
    far = {"family": "fat-tree", "switch": "qm9700", "servers_per_group": 1, "tiers": 2}
    even = serve(asked, MODEL, machine(**far)).ttft_parts.parts[kv]
    thin = serve(asked, MODEL, machine(oversubscription=8.0, **far)).ttft_parts.parts[kv]
    assert thin > 1.5 * even


def test_an_answer_adds_up_and_says_what_matters():
    asked = job(prefill=0, replicas=1, slo=Slo(ttft="1 s", tpot="50 ms"))
    result = serve(asked, replace(MODEL, notes=("said of the model.",)), machine(1))
    assert result.words[-1] == "said of the model."
    assert result.gpus == 4
    assert result.ttft_parts.total == pytest.approx(result.ttft.mean)
    assert result.tpot_parts.total == pytest.approx(result.tpot.mean)
    assert result.itl.mean == pytest.approx(result.tpot.mean, rel=0.02)
    assert result.throughput.output_tokens == pytest.approx(40 * 128 / result.throughput.seconds)
    assert result.kept is True
    assert result.words[0].startswith("Yes, the SLO is kept: TTFT is ")
    assert "not the bottleneck" in result.bottleneck


def test_the_study_s_own_promises_are_the_answer():
    # A token takes 12 to 15 ms: 1 us is not kept and 1 h is, whatever 50 ms for most users would say.
    slow = serve(job(prefill=0, replicas=1, slo=Slo(end_to_end="1 h")), MODEL, machine(1))
    tight = serve(job(prefill=0, replicas=1, slo=Slo(tpot="1 us")), MODEL, machine(1))
    nothing = serve(job(prefill=0, replicas=1), MODEL, machine(1))
    assert slow.words[0].startswith("Yes, the SLO is kept: end to end is ")
    assert tight.words[0].startswith("No, the SLO is missed: TPOT is ")
    assert not any("1 s to the first token" in word for word in (*slow.words, *tight.words))
    assert nothing.words[0].startswith("Yes: within 1 s to the first token")


def test_tokens_while_the_load_lasts_are_the_rates_where_it_is_kept_up_with():
    # 4 requests/s of 64 tokens are 256 tokens/s, however long the last answer keeps the run open.
    def asked(rate: float, **client) -> ServingJob:
        sent = Client(kind="constant", rate=rate, requests=80, input=512, output=64, **client)
        return job(prefill=0, replicas=1, client=sent)

    kept = serve(asked(4.0), MODEL, machine(1))
    assert kept.throughput.lasting == pytest.approx(256)
    assert kept.throughput.output_tokens < 0.99 * 256
    assert kept.joules_per_token == pytest.approx(kept.power / 256)
    # A rate that is far too high, or that waits for others, says nothing: what was measured counts.
    for other in (asked(4000.0), asked(4.0, concurrency=1), job(prefill=0, replicas=1)):
        done = serve(other, MODEL, machine(1)).throughput
        assert done.lasting == done.output_tokens


def test_a_replica_lost_costs_the_tail():
    from railwright.serving.simulator.fleet import Outage

    asked = job(prefill=0, replicas=2)
    sound = serve(asked, MODEL, machine(1))
    hurt = serve(asked, MODEL, machine(1), outages=[Outage(0, 1.0, 4.0)])
    assert hurt.cache.preemptions > 0
    assert hurt.end_to_end.p99 > sound.end_to_end.p99
    # Room there is: what was lost was with the replica.
    assert hurt.words[-1] == f"{hurt.cache.preemptions} requests lost with a replica computed again."
    assert not any("do not fit" in word for word in hurt.words)


def test_an_imbalance_that_nothing_reads_is_told():
    told = serve(job(prefill=0, replicas=1, expert_imbalance=2.0), MODEL, machine(1)).words[-1]
    assert told.startswith("expert_imbalance does nothing while layout.expert is 1")
    assert "expert_imbalance" not in serve(job(prefill=0, replicas=1), MODEL, machine(1)).words[-1]


def test_requests_longer_than_an_engine_takes_are_told():
    # 40 of 2,048 + 128 tokens: beyond a max_length they are refused, beyond the model's positions noted.
    asked = job(prefill=0, replicas=1, max_length=2048)
    with pytest.raises(PlanError, match=r"40 of 40 requests are longer, up to 2,176 .* max_length of 2,048"):
        serve(asked, MODEL, machine(1))
    short = replace(MODEL, max_positions=2048)
    open_ended = asked.model_copy(update={"max_length": None})
    assert "than the 2,048 positions of llama-3.1-70b" in serve(open_ended, short, machine(1)).words[-1]
    extended = asked.model_copy(update={"max_length": 4096})
    assert not any("positions" in word for word in serve(extended, short, machine(1)).words)
