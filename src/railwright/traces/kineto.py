"""PyTorch profiler traces (Kineto): the events of a rank, read as a stream, plain or gzip.

Format: Google's "Trace Event Format" as pytorch/kineto, libkineto/src/output_json.cpp writes it: an object
whose "traceEvents" are complete events ('X'; microseconds, whatever "displayTimeUnit" asks a viewer to show,
behind "baseTimeNanoseconds") with a category ('kernel', 'gpu_memcpy', 'cpu_op',
'user_annotation', …) and, on collectives, "Collective name", "In msg nelems", "Out msg nelems", "Group size",
"dtype", "Process Group Name" and "Process Group Ranks".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from railwright.traces.reading import finite, whole
from railwright.traces.refusal import EXECUTION_TRACE, wrong
from railwright.traces.stream import JsonText
from railwright.units import number, show_time

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on a GPU."""

_OLDER = {"memcpy": "gpu_memcpy", "memset": "gpu_memset", "operator": "cpu_op", "runtime": "cuda_runtime"}
"""Categories as PyTorch called them before 1.10 (operators) and 1.12 (pytorch/kineto 6f9c0eef, 1679e50e)."""

MARKS = ("user_annotation", "gpu_user_annotation")

CALLS = ("_runtime", "_driver")
"""How categories of the host's calls end: 'cuda_runtime', of ROCm too, 'cuda_driver', 'xpu_runtime'."""

WIDTH = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "byte": 1,
    "char": 1, "int8": 1, "uint8": 1, "int": 4, "int32": 4, "long": 8, "int64": 8, "bool": 1, "short": 2,
    "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of an element, by PyTorch's name in lower case."""

LATEST = 2**63 / 1000
"""Kineto's times are nanoseconds of 64 bits: none ends later than this, in the year 2262 [us]."""

LONG_KERNEL, LONG_LAUNCH = 10e-3, 3e-3
"""No training job's median kernel takes so long, nor does the median of the calls that launch them [s]."""

EMPTY = "a profile without kernels and without operators; was anything profiled?"
PAIRS = (
    "its events are pairs of a beginning and an end ('ph': 'B' and 'E'), and those that are read are "
    "complete ('X', with ts and dur), as PyTorch's profiler writes them: give what export_chrome_trace "
    "wrote, or make one event of every pair."
)
"""What is said of a trace in which nothing is to compare."""

_NO_RANK = re.compile(r"\d{10}")


@dataclass(frozen=True, slots=True)
class Call:
    """What a trace says of a collective: its name, bytes in and out, group size, name and ranks (as text)."""

    name: str
    bytes_in: float
    bytes_out: float
    ranks: int
    group: str
    members: str


@dataclass(frozen=True, slots=True)
class Span:
    """One event: start and end from the trace's first event [s]; `lane` is its stream or thread.

    process   its pid, which of what ran on a GPU is the GPU's number
    launched  when the host called for it, None where the trace does not say it or it is the host's own [s]
    """

    name: str
    category: str
    start: float
    end: float
    lane: str
    call: Call | None = None
    process: str = ""
    launched: float | None = None


@dataclass(frozen=True)
class Profile:
    """One rank's trace, spans by start; `rank` is None where the trace does not say it.

    gpu    its driver's name, '' where the trace does not say it
    notes  what was left out or is doubtful, in words
    """

    file: str
    rank: int | None
    world: int | None
    spans: tuple[Span, ...]
    on_gpu: bool
    notes: tuple[str, ...] = ()
    gpu: str = ""


def read(file: str | Path) -> Profile:
    """The device's work, annotations and collectives of one rank; of a trace without a device its CPU's.

    Raises SpecError, naming file and character, where it is cut off, damaged or no such trace.
    """
    path = Path(file)
    if path.is_dir():
        raise wrong(path, "", "a folder; name the profiles in it, one of each rank.")
    head: dict[str, Any] = {}
    others = Counter[str]()
    kept, launches = _launched(_events(path, head, others))
    on_gpu = any(span.category in DEVICE for span in kept)
    if not on_gpu:
        kept = [s for s in map(_span, _events(path, head, others)) if s.category in ("cpu_op", *MARKS)]
    kept, notes = _ended(kept)
    notes += _too_long(kept, launches)
    if not any(span.category not in MARKS for span in kept):
        raise wrong(path, "", PAIRS if others["B"] else EMPTY)
    if on_gpu:
        kept, told = _of_one_gpu(kept)
        notes += told
    first = min(span.start for span in kept)
    spans = sorted((_moved(span, first) for span in kept), key=lambda s: (s.start, s.end, s.name))
    about = head.get("distributedInfo") or {}
    if not isinstance(about, dict):
        raise wrong(
            path,
            "distributedInfo",
            "not an object with rank and world_size, as profilers write it; take it out, or profile again.",
        )
    rank, world = about.get("rank"), about.get("world_size")
    return Profile(
        str(path),
        _whole(rank),
        _whole(world),
        tuple(spans),
        on_gpu,
        tuple(notes),
        _device(head.get("deviceProperties"), spans) if on_gpu else "",
    )


def _whole(said: object) -> int | None:
    """A whole number, also of a text of digits, as tools write that put it in afterwards."""
    try:
        return whole(said)
    except ValueError:
        return None


def _device(properties: object, spans: Sequence[Span]) -> str:
    """Name of the GPU that ran the spans: that of its number, else the one name that all have."""
    listed = [one for one in properties if isinstance(one, dict)] if isinstance(properties, list) else []
    names = {str(one.get("id")): str(one["name"]) for one in listed if isinstance(one.get("name"), str)}
    ran = next((span.process for span in spans if span.category in DEVICE), "")
    return names.get(ran) or (names.popitem()[1] if len(set(names.values())) == 1 else "")


def _launched(events: Iterator[dict[str, Any]]) -> tuple[list[Span], list[float]]:
    """(what ran on the device, with the time of the call that launched it, and annotations; the lengths of
    calls that launch kernels [s]).

    Both have CUPTI's (or ROCm's) correlation; one that calls of two processes have says nothing.
    """
    kept: list[tuple[Span, object]] = []
    calls: dict[object, tuple[str, float | None]] = {}
    lengths: list[float] = []
    for event in events:
        span, args = _span(event), event.get("args")
        found = args.get("correlation") if isinstance(args, dict) else None
        if span.category in (*DEVICE, *MARKS):
            kept.append((span, found if isinstance(found, int) else None))
        elif isinstance(found, int) and span.category.endswith(CALLS):
            if "Launch" in span.name:
                lengths.append(span.end - span.start)
            process, _ = calls.setdefault(found, (span.process, span.start))
            if process != span.process:
                calls[found] = process, None
    return [
        replace(span, launched=calls.get(found, ("", None))[1]) if span.category in DEVICE else span
        for span, found in kept
    ], lengths


def _too_long(spans: Sequence[Span], launches: Sequence[float]) -> list[str]:
    """A sentence where the times can hardly be microseconds: some tools write nanoseconds."""
    kernels = [span.end - span.start for span in spans if span.category == "kernel"]
    for what, times, most in (("kernel", kernels, LONG_KERNEL), ("launch", launches, LONG_LAUNCH)):
        if times and median(times) > most:
            return [
                f"The median {what} takes {show_time(median(times))}, longer than those of a training step: "
                "times are microseconds in this format, whatever displayTimeUnit says; of a tool that wrote "
                "nanoseconds divide every ts and dur by 1,000."
            ]
    return []


def _ended(spans: list[Span]) -> tuple[list[Span], list[str]]:
    """(spans that end, what is said of others).

    The profiler gives what had not ended when it stopped an end before its start (pytorch/kineto until its
    PR 646, PyTorch's operators in 2.3 and 2.7).
    """
    kept = [span for span in spans if span.end >= span.start]
    gone = len(spans) - len(kept)
    if not gone:
        return kept, []
    return kept, [
        f"{number(gone, 'event')} left out that {'ends' if gone == 1 else 'end'} before the start, as a "
        "profiler writes what had not ended when it stopped."
    ]


def _of_one_gpu(spans: list[Span]) -> tuple[list[Span], list[str]]:
    """(what ran on one GPU, and all of the host; what is said of other GPUs): a rank has one GPU.

    That on which kernels take longest: a trace of several ranks has theirs too, and a rank may touch another
    rank's GPU.
    """
    busy: dict[str, float] = defaultdict(float)
    for span in spans:
        if span.category in DEVICE:
            busy[span.process] += span.end - span.start
    if len(busy) < 2:
        return spans, []
    chosen = max(sorted(busy), key=lambda gpu: busy[gpu])
    left = ", ".join(sorted(busy.keys() - {chosen}))
    on_device = (*DEVICE, "gpu_user_annotation")
    return [s for s in spans if s.process == chosen or s.category not in on_device], [
        f"Kernels of {len(busy)} GPUs are in this profile; those of GPU {chosen}, which take longest, are "
        f"compared, and those of {left} are left out: give each rank a profile of its own."
    ]


def _events(path: Path, head: dict[str, Any], others: Counter[str]) -> Iterator[dict[str, Any]]:
    """Complete events one by one; other values of the object go to `head`, phases of other events to
    `others`."""
    text = JsonText(path)
    opening = text.peek()
    if opening == "[":
        yield from _listed(text, others)
        return
    if opening != "{":
        raise text.wrong("no trace of the PyTorch profiler: it does not begin with an object")
    text.skip()
    found = False
    while text.peek() != "}":
        key = text.value()
        if text.peek() != ":":
            raise text.wrong("no ':' behind a name")
        text.skip()
        if key == "nodes" and "schema" in head:
            raise wrong(path, "", EXECUTION_TRACE)
        if key == "traceEvents" and text.peek() == "[":
            found = True
            yield from _listed(text, others)
        else:
            head[str(key)] = text.value()
        if text.peek() == ",":
            text.skip()
        elif text.peek() != "}":
            raise text.wrong("neither ',' nor '}' behind a value")
    if not found:
        raise text.wrong("no trace of the PyTorch profiler: it has no traceEvents")


def _listed(text: JsonText, others: Counter[str]) -> Iterator[dict[str, Any]]:
    text.skip()
    origin: float | None = None
    while text.peek() != "]":
        event = text.value()
        if not isinstance(event, dict):
            raise text.wrong("an event that is no object")
        if event.get("ph") == "X":
            if mistake := _mistake(event):
                raise text.wrong(f"an event ('{str(event.get('name'))[:40]}') {mistake}")
            # Times since 1970 have no digits to spare: what is near is subtracted before it is scaled.
            origin = event["ts"] if origin is None else origin
            event["ts"] -= origin
            yield event
        else:
            others[str(event.get("ph"))] += 1
        if text.peek() == ",":
            text.skip()
        elif text.peek() != "]":
            raise text.wrong("neither ',' nor ']' behind an event")
    text.skip()


def _mistake(event: dict[str, Any]) -> str:
    """What is wrong with an event, '' for nothing; its time and length [us] become floats."""
    start, length = _microseconds(event.get("ts")), _microseconds(event.get("dur", 0.0))
    if start is None or length is None:
        return "without a time and a length"
    if start > LATEST:
        return (
            f"at {start:.3g} us, which is after the year 2262: times are microseconds in this format, "
            "whatever displayTimeUnit says; of a tool that wrote nanoseconds divide every ts and dur by 1,000"
        )
    event["ts"], event["dur"] = start, length
    args = event.get("args")
    ranks = str(args.get("Process Group Ranks", "")) if isinstance(args, dict) else ""
    if _NO_RANK.search(ranks):
        return "whose 'Process Group Ranks' has a number of ten digits or more, which is no rank"
    return ""


def _microseconds(value: object) -> float | None:
    """Also of a text, as older profilers wrote it."""
    try:
        return finite(float(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def _span(event: dict[str, Any]) -> Span:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    start = event["ts"] * 1e-6
    lane = f"stream {args['stream']}" if "stream" in args else f"thread {event.get('tid', '')}"
    name = str(event.get("name", ""))
    return Span(
        name, _category(str(event.get("cat", "")).lower(), name), start, start + event["dur"] * 1e-6,
        lane, _call(args), str(event.get("pid", "")),
    )  # fmt: skip


def _category(said: str, name: str) -> str:
    """In today's words; marks of steps were operators once."""
    if said == "operator" and name.startswith("ProfilerStep"):
        return "user_annotation"
    return _OLDER.get(said, said)


def _call(args: dict[str, Any]) -> Call | None:
    name = args.get("Collective name")
    if not isinstance(name, str):
        return None
    width = WIDTH.get(str(args.get("dtype", "")).lower().removeprefix("torch."), 0)
    elements = [args.get(f"{way} msg nelems") for way in ("In", "Out")]
    inside, out = (max(0.0, finite(n) or 0.0) * width for n in elements)
    size = args.get("Group size")
    return Call(
        name, inside, out, size if isinstance(size, int) else 0, str(args.get("Process Group Name", "")),
        str(args.get("Process Group Ranks", "")),
    )  # fmt: skip


def _moved(span: Span, by: float) -> Span:
    launched = None if span.launched is None else span.launched - by
    return replace(span, start=span.start - by, end=span.end - by, launched=launched)
