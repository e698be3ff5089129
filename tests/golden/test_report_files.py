"""The files beside the page: JSON, trace and CSVs, their structure and their agreement with the result."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from railwright.fabric.graph import Role
from railwright.report import write
from railwright.report.files.results import results, to_text
from railwright.report.files.tables import CABLES, SWEEPS, cable_schedule, sweep_points
from railwright.report.files.trace import step_events, trace
from railwright.spec import load_study_text
from railwright.study.result import VariantResult
from railwright.training.lanes.timeline import Event, Timeline
from report_fixture import example_result, toy_step


@pytest.fixture(scope="module")
def result():
    return example_result()


def test_a_folder_holds_five_files(result, tmp_path):
    files = write(result, tmp_path / "new" / "out")
    names = ["report.html", "result.json", "trace.json", "cables.csv", "sweeps.csv"]
    assert [f.name for f in files] == names
    assert sorted(p.name for p in (tmp_path / "new" / "out").iterdir()) == sorted(names)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"], "no draft is left beside it"


def test_the_same_result_gives_the_same_files(result, tmp_path):
    one, other = write(result, tmp_path / "one"), write(example_result(), tmp_path / "other")
    for a, b in zip(one, other, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_json_says_what_the_result_says(result):
    loaded = json.loads(to_text(results(result)), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    base, first = loaded["variants"][0], result.variants[0]
    assert loaded["answer"] == list(result.answer)
    assert [v["letter"] for v in loaded["variants"]] == ["A", "B", "C", "D", "E"]
    assert base["counts"]["switches"] == first.counts.switches
    assert base["fabric"]["cables"]["node_leaf"] == first.counts.node_leaf
    assert base["curves"][0]["points"][-1]["busbw_bytes_per_s"] == first.curves[0].points[-1].busbw
    assert base["jobs"][0]["step"]["step_time_s"] == first.jobs[0].step.step_time
    assert loaded["study"]["name"] == result.study.name
    again = load_study_text(json.dumps(loaded["study"]))
    assert again.model_dump(mode="json") == loaded["study"], "it can be run again"
    assert loaded["variants"][4]["fabric"]["cables_failed"] == 30 + 32


def test_json_keys_keep_their_order_and_numbers_are_finite(result):
    text = to_text(results(result))
    assert text == to_text(results(example_result()))
    assert list(json.loads(text))[:2] == ["format", "format_version"]
    broken = VariantResult("odd", "", None, None, (), (), notes=())
    odd = example_result(variants=(broken,), seconds=math.nan)
    loaded = json.loads(to_text(results(odd)), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert loaded["seconds_to_compute"] is None


def test_the_trace_is_in_the_trace_event_format(result):
    whole = trace(result)
    assert whole["displayTimeUnit"] in ("ms", "ns")
    phases = {event["ph"] for event in whole["traceEvents"]}
    assert phases == {"M", "X"}
    named = set()
    for event in whole["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
        else:
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"]
            assert (event["pid"], event["tid"]) in named, "every thread is named before its events"


def test_the_trace_holds_every_event_once_in_microseconds(result):
    timeline = result.variants[0].jobs[0].step.timeline
    stages = {event.rank for event in timeline.events}
    events = [e for e in trace(result)["traceEvents"] if e["ph"] == "X" and e["pid"] in stages]
    assert len(events) == len(timeline.events)
    total = sum(e["dur"] for e in events) / 1e6
    assert total == pytest.approx(sum(e.end - e.start for e in timeline.events), rel=1e-6)
    assert max(e["ts"] + e["dur"] for e in events) == pytest.approx(timeline.span * 1e6, abs=0.01)


def test_the_critical_path_is_marked_and_has_a_process_of_its_own(result):
    timeline = result.variants[0].jobs[0].step.timeline
    stages = {event.rank for event in timeline.events}
    events = [e for e in trace(result)["traceEvents"] if e["ph"] == "X"]
    marked = [e for e in events if e["pid"] in stages and e["args"].get("critical")]
    own = [e for e in events if e["pid"] not in stages]
    assert 0 < len(own) == len(marked) < len(timeline.events)
    said = results(result)["variants"][0]["jobs"][0]["step"]["critical_path"]
    assert sum(p["seconds"] for p in said["parts"]) + said["waits_s"] == pytest.approx(timeline.span)
    length = (timeline.span - said["waits_s"]) * 1e6
    assert sum(e["dur"] for e in own) == pytest.approx(length, abs=0.01 * len(own))


def test_communication_events_carry_their_collective(result):
    events = [e for e in trace(result)["traceEvents"] if e["ph"] == "X"]
    dispatch = next(e for e in events if e["name"] == "ep dispatch")
    assert dispatch["args"]["size_bytes"] == 32e6
    assert dispatch["args"]["ranks"] == 240
    assert dispatch["cat"] == "ep,all_to_all"


def test_events_of_one_thread_never_cross():
    """A viewer stacks the events of one thread: crossing ones get a thread of their own."""
    step = toy_step(1.0)
    crossing = (
        Event(0, "dp", "a", "x", 0.0, 2.0),
        Event(0, "dp", "b", "x", 1.0, 3.0),
        Event(0, "dp", "c", "x", 2.0, 4.0),
    )
    object.__setattr__(step, "timeline", Timeline(crossing, 4.0))
    threads = {e["name"]: e["tid"] for e in step_events(step) if e["ph"] == "X"}
    assert threads["a"] == threads["c"] != threads["b"]


def test_a_study_without_jobs_makes_an_empty_trace():
    assert trace(example_result(variants=()))["traceEvents"] == []


def test_cables_are_the_fabric_port_by_port(result):
    fabric = result.variants[0].fabric
    rows = list(csv.DictReader(io.StringIO(cable_schedule(fabric))))
    assert list(rows[0]) == list(CABLES)
    assert len(rows) == int(np.count_nonzero(fabric.role >= Role.NODE_LEAF)) == 496
    assert rows[0] | {"cable": "1"} == {
        "cable": "1",
        "tier": "node-leaf",
        "from": "server-01/nic-0",
        "from_port": "1",
        "to": "leaf-01",
        "to_port": "1",
        "rate_bytes_per_s": "50000000000.0",
        "length_m": "10.0",
        "state": "ok",
    }
    ends = [(r[e], r[f"{e}_port"]) for r in rows for e in ("from", "to")]
    assert len(ends) == len(set(ends)), "no port holds two cables"


def test_failed_cables_are_marked_in_the_schedule(result):
    rows = csv.DictReader(io.StringIO(cable_schedule(result.variants[4].fabric)))
    failed = [r for r in rows if r["state"] == "failed"]
    assert len(failed) == 62
    assert all("leaf-03" in (r["from"], r["to"]) for r in failed)


def test_sweeps_have_every_point(result):
    rows = list(csv.DictReader(io.StringIO(sweep_points(result))))
    assert list(rows[0]) == list(SWEEPS)
    assert len(rows) == 5 * 2 * 21
    assert float(rows[0]["time_s"]) == result.variants[0].curves[0].points[0].time
    assert cable_schedule(None) == ",".join(CABLES) + "\n"


def test_only_one_step_is_said_to_be_in_the_trace():
    result = example_result()
    first = result.variants[0].jobs[0]
    jobs = (first, replace(first, name="pretrain"))
    several = replace(result, variants=(replace(result.variants[0], jobs=jobs), *result.variants[1:]))
    held = [
        job["step"]["timeline"]["file"]
        for variant in results(several)["variants"]
        for job in variant["jobs"]
        if job["step"]
    ]
    assert held == ["trace.json"] + [None] * (len(held) - 1)
    assert len(held) > 2
