"""One training step as a trace in Chrome's Trace Event Format, for ui.perfetto.dev.

Format: "Trace Event Format" (Google, catapult project): JSON object form, complete events ('X', times in
microseconds) and metadata events ('M').
One process per pipeline stage's representative rank, one thread per lane, and one for the critical path,
whose events also carry `critical` where they run.  Whole passes carry `busy_s` and `exposed_s`: how long each
lane runs inside, and how long of it nothing is computed; a process of its own says where they stand.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from railwright.report.words.figures import letter, told_first
from railwright.study.result import JobResult, Result
from railwright.training.lanes.critical import CriticalPath, critical_path
from railwright.training.lanes.result import StepResult, UsedCollective
from railwright.training.lanes.timeline import MERGED, Event, Timeline
from railwright.units import show_time, trace_time

THREADS = 1000
"""From lane to lane: Perfetto puts the thread with its process's number first, so none has a stage's."""
LANES = ("compute", "tp", "cp", "ep", "emb", "pp", "dp", "copy", "host")
LANE_NAMES = {
    "compute": "compute",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "emb": "exchange of embeddings",
    "pp": "pipeline communication",
    "dp": "data-parallel communication",
    "copy": "copies to and from host memory",
    "host": "host",
}


def traced(result: Result) -> tuple[int, JobResult] | None:
    """The first job that runs, on the recommended variant (its number), or else the first where one does."""
    return next(((i, job) for i in told_first(result) for job in result.variants[i].jobs if job.step), None)


def trace(result: Result) -> dict[str, Any]:
    """The step of the job that `traced` names; without any, a trace without events."""
    index, job = traced(result) or (0, None)
    if job is None or job.step is None:
        return _whole(result, {"study": result.study.name, "note": "no job of this study runs"}, [])
    who = f"{letter(index)} {result.variants[index].name}"
    about = {"study": result.study.name, "variant": who, "job": job.name} | told(job.step.timeline)
    return _whole(result, about, step_events(job.step))


def left_out(timeline: Timeline) -> str:
    """From when to when whole passes stand for what is inside them, in words; '' where nowhere."""
    if timeline.coarse is None:
        return ""
    begin, end = map(show_time, timeline.coarse)
    many = any(event.kind == MERGED for event in timeline.events)
    return (
        f"From {begin} to {end} of {show_time(timeline.span)} whole passes"
        f"{', many of them as one,' if many else ''} stand for the operators and messages inside them"
    )


def told(timeline: Timeline) -> dict[str, str]:
    """What a trace's head says of what it leaves out."""
    text = left_out(timeline)
    return {"left_out": f"{text}; their busy_s and exposed_s say what these are."} if text else {}


def step_events(step: StepResult) -> list[dict[str, Any]]:
    """Metadata and complete events of one step, in the order (process, thread, start)."""
    found: list[dict[str, Any]] = []
    path = critical_path(step.timeline)
    marked = {_key(e) for e in path.events} if path is not None else set()
    lanes: defaultdict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in step.timeline.events:
        lanes[event.rank, event.lane].append(event)
    ranks = sorted({rank for rank, _ in lanes})
    for rank in ranks:
        found.append(_named("process_name", rank, 0, {"name": f"stage {rank} (representative GPU)"}))
        found.append(_named("process_sort_index", rank, 0, {"sort_index": rank}))
        for place, lane in enumerate(LANES):
            for row, members in enumerate(_rows(lanes[rank, lane])):
                thread = THREADS * (place + 1) + row
                name = LANE_NAMES[lane] + (f" ({row + 1})" if row else "")
                found.append(_named("thread_name", rank, thread, {"name": name}))
                found.append(_named("thread_sort_index", rank, thread, {"sort_index": thread}))
                found += [_complete(event, thread, step, _key(event) in marked) for event in members]
    if path is not None and path.events:
        found += _path(path, ranks[-1] + 1)
    return found + (_detail(step.timeline, ranks[-1] + 2) if step.timeline.coarse is not None else [])


def _detail(timeline: Timeline, process: int) -> list[dict[str, Any]]:
    """Which part of the step has whole passes, as a process of its own above all others."""
    assert timeline.coarse is not None
    begin, end = timeline.coarse
    every, whole = (
        "every operator and message",
        "whole passes: busy_s and exposed_s of each say what is inside",
    )
    marks = [(0.0, begin, every), (begin, end, whole), (end, timeline.span, every)]
    stretches = [Event(process, "compute", name, "detail", a, b) for a, b, name in marks if b > a]
    return [
        _named("process_name", process, 0, {"name": "what this trace shows"}),
        _named("process_sort_index", process, 0, {"sort_index": -2}),
        _named("thread_name", process, THREADS, {"name": "detail"}),
        *(_slice(stretch, THREADS, {"kind": "detail"}) for stretch in stretches),
    ]


def _path(path: CriticalPath, process: int) -> list[dict[str, Any]]:
    """The critical path as a process of its own, above the stages: its tasks one after the other.

    What else is known of a task stands where it runs; of one stage the path is half of all events.
    """
    return [
        _named("process_name", process, 0, {"name": "critical path"}),
        _named("process_sort_index", process, 0, {"sort_index": -1}),
        _named("thread_name", process, THREADS, {"name": "what sets the step's length"}),
        *(
            _slice(event, THREADS, {"kind": event.kind})
            | {"pid": process, "name": f"stage {event.rank}: {event.name}"}
            for event in path.events
        ),
    ]


def _key(event: Event) -> tuple[int, str, float, str]:
    """What tells an event from others; not its end, since the path may leave a whole pass before that."""
    return (event.rank, event.lane, event.start, event.name)


def _whole(result: Result, about: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    made = {"made_by": f"railwright {result.version}", "spec_sha256": result.spec_hash}
    return {"displayTimeUnit": "ms", "otherData": {**about, **made}, "traceEvents": events}


def _named(what: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "ts": 0, "args": args}


def _complete(event: Event, thread: int, step: StepResult, critical: bool) -> dict[str, Any]:
    args: dict[str, Any] = {"kind": event.kind}
    if critical:
        args["critical"] = True
    used = _collective(event, step.collectives)
    if used is not None:
        p = used.prediction
        args |= {
            "collective": p.op,
            "size_bytes": p.size,
            "ranks": p.ranks,
            "algorithm": f"{p.algorithm}/{p.protocol}",
            "busbw_bytes_per_s": p.busbw,
            "predicted_s": p.time,
        }
        if p.bottleneck is not None:
            args["bottleneck"] = p.bottleneck.name
    if event.inside:
        args["busy_s"] = {share.kind: share.busy for share in event.inside if share.busy}
        args["exposed_s"] = {share.kind: share.exposed for share in event.inside if share.exposed}
    return _slice(event, thread, args)


def _slice(event: Event, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    start, end = trace_time(event.start), trace_time(event.end)
    return {
        "name": event.name,
        "cat": f"{event.lane},{event.kind}",
        "ph": "X",
        "ts": start,
        "dur": round(end - start, 3),
        "pid": event.rank,
        "tid": thread,
        "args": args,
    }


def _collective(event: Event, used: tuple[UsedCollective, ...]) -> UsedCollective | None:
    """The prediction behind a communication event: the longest purpose in its name, of the nearest time."""
    named = [one for one in used if one.kind == event.lane and one.purpose in event.name]
    if not named:
        return None
    took = event.end - event.start
    return min(named, key=lambda one: (-len(one.purpose), abs(one.prediction.time - took)))


def _rows(events: list[Event]) -> list[list[Event]]:
    """Events in rows without overlap: a viewer stacks the events of one thread, so they must not cross."""
    rows: list[list[Event]] = []
    for event in sorted(events, key=lambda e: (e.start, e.end, e.name)):
        for row in rows:
            if trace_time(row[-1].end) <= trace_time(event.start):
                row.append(event)
                break
        else:
            rows.append([event])
    return rows
