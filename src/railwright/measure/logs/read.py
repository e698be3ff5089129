"""`read_log`: any benchmark log, a file or pasted text, as measured curves."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import Mistake, SpecError
from railwright.measure.logs.assemble import curves_of
from railwright.measure.logs.curve import MeasuredCurve
from railwright.measure.logs.header import op_named
from railwright.measure.logs.lines import clean
from railwright.measure.logs.nccl_json import looks_like_json, read_json
from railwright.measure.logs.rccl_records import looks_like_csv, looks_like_records, read_csv, read_records
from railwright.measure.logs.tables import Table, read_tables, with_header

LARGEST = 256 * 2**20
"""Bytes of a log that are read; NCCL_DEBUG logs of thousands of ranks stay below. [byte]"""


def read_log(
    source: str | Path,
    *,
    op: str | None = None,
    ranks: int | None = None,
    name: str = "",
    also: str = "",
) -> list[MeasuredCurve]:
    """Every curve of a log, in order; out-of-place before in-place.

    source  a Path, a path's text, or the log itself (a text with a line break, or JSON, is never a path)
    op      the collective, where the log does not name it
    ranks   of one communicator, where the log does not tell; the numbers still win where they contradict
    name    what to call a pasted text in messages
    also    what else the caller would have read, for the message of a text that is neither

    Reads nccl-tests and rccl-tests of all ages (text, -J, -Z json and csv), OSU micro-benchmarks and
    hand-trimmed tables, with launchers' prefixes, NCCL's own messages and quoted text between.  What is
    doubtful is a note of the curve.  Raises SpecError, with file and line, where there is no curve to be had:
    no such file, binary, empty, no table, an operation or rank count that nothing tells and the table cannot
    do without.
    """
    text, file = _text_of(source, name)
    named = None
    if op is not None:
        named = op_named(op)
        if named is None:
            raise _mistake(
                file, 0, f"'{op}' is not a collective that a test is known for; write it like all_reduce"
            )
    if ranks is not None and ranks < 1:
        raise _mistake(file, 0, f"{ranks} ranks cannot run a collective; give 1 or more")
    tables = _tables(text)
    if not tables:
        raise _mistake(file, _last_line(text), _why_none(text, also))
    curves = curves_of(tables, file, named, ranks, hint=op_named_in_file(file))
    if not curves:
        raise _mistake(
            file,
            tables[0].line,
            "the table that begins here has no complete row with a size and a time or bandwidth",
        )
    return curves


def op_named_in_file(file: str) -> str | None:
    """The collective in a file's name, 'alltoall_perf_16n.log', or None."""
    stem = Path(file).name.lower()
    for word in ("alltoallv", "all_to_all", "alltoall", "all_reduce", "allreduce", "all_gather", "allgather",
                 "reduce_scatter", "reducescatter", "broadcast", "bcast", "sendrecv"):  # fmt: skip
        if word in stem.replace("-", "_"):
            return op_named(word)
    return None


def _tables(text: str) -> list[Table]:
    if looks_like_json(text):
        table = read_json(text)
        return [table] if table.rows else []
    if looks_like_records(text):
        return [table for table in read_records(text) if table.rows]
    if looks_like_csv(text):
        return [table for table in read_csv(text) if table.rows]
    tables, header = read_tables(clean(text))
    return [with_header(t, header) for t in tables]


def _text_of(source: str | Path, name: str) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or source.startswith("{")):
        return source, name or "<text>"
    path = Path(source)
    file = name or str(source)
    try:
        if path.is_dir():
            raise _mistake(file, 0, "this is a folder; name the log inside it")
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise _mistake(file, 0, "there is no such file") from None
    except (OSError, ValueError) as no:
        raise _mistake(file, 0, f"the file cannot be read ({no})") from None
    if len(raw) > LARGEST:
        raise _mistake(
            file, 0, f"the log is larger than {LARGEST // 2**20} MiB; cut the NCCL_DEBUG output out of it"
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace"), file
    if b"\0" in raw[:65536]:
        raise _mistake(file, 0, "this is a binary file, not a log; unpack it or name the text file")
    return raw.decode("utf-8", errors="replace"), file


def _why_none(text: str, also: str) -> str:
    if not text.strip():
        return "the log is empty"
    if looks_like_csv(text):
        return "the CSV report holds no complete result; the test was stopped before its first size"
    if looks_like_json(text) or looks_like_records(text):
        return "the JSON report holds no complete result; the test was stopped before its first size"
    if '"traceEvents"' in text:
        return "this is a profile of PyTorch; `railwright trace compare STUDY PROFILE...` reads it"
    if "Using devices" in text or "nThread" in text or "_perf" in text:
        return "a test was started here, but no row of its table was printed: it failed or was stopped before"
    return (
        "there is no table of a benchmark here; expected the output of nccl-tests, rccl-tests or OSU, "
        f"with its line of column names (size … time algbw busbw){also and f', or {also}'}"
    )


def _last_line(text: str) -> int:
    return text.rstrip().count("\n") + 1 if text.strip() else 0


def _mistake(file: str, line: int, message: str) -> SpecError:
    return SpecError([Mistake(file, line, 0, "", message)])
