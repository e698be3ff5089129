"""Whatever is done to a log, it gives sane curves or one SpecError; what surrounds it changes nothing."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import SpecError
from railwright.measure.logs import read_log

LOGS = Path(__file__).parent.parent / "data" / "logs"
TEXTS = [p.read_text() for p in sorted(LOGS.iterdir())]
PLAIN = (LOGS / "nccl_alltoall_16.log").read_text()
NOISE = st.text(alphabet="0123456789.-+eENA/*#|,:[]()<> \t\x00\r\u00e9kMGu", max_size=30)


def only_one(refused):
    assert len(refused.mistakes) == 1


def sane(text):
    try:
        curves = read_log(text + "\n")
    except SpecError as refused:
        only_one(refused)
        return
    assert curves
    for curve in curves:
        assert curve.points
        assert curve.ranks is None or curve.ranks >= 1
        assert 1 <= curve.ranks_low <= curve.ranks_high
        for point in curve.points:
            assert point.size > 0
            assert point.time > 0
            assert 0 <= point.busbw < float("inf")


@settings(max_examples=120)
@given(st.sampled_from(TEXTS), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400), NOISE), max_size=6))
def test_a_damaged_log_never_breaks_the_reader(text, damages):
    lines = text.split("\n")
    for kind, place, noise in damages:
        at = place % len(lines)
        if kind == 0:
            lines[at] = lines[at][: len(noise)]
        elif kind == 1:
            lines[at] = noise + lines[at]
        elif kind == 2:
            lines.insert(at, noise)
        elif kind == 3:
            middle = len(lines[at]) // 2
            lines[at] = lines[at][:middle] + noise + lines[at][middle:]
        else:
            lines[at] = lines[at].replace("0", "9" * (1 + len(noise)))
    sane("\n".join(lines))


@settings(max_examples=80)
@given(st.text(max_size=400))
def test_any_text(text):
    sane(text)


@settings(max_examples=60)
@given(
    st.sampled_from(["", "> ", "> > ", "[1,0]<stdout>:", "[1,0]<stdout>: ", " 0: ", "[0] ", "worker-0: ",
                     "pod/x-1 | ", "2025-01-02T03:04:05.678Z ", "[2025-01-02 03:04:05] ", "\x1b[32m"]),
    st.sampled_from(["", " ", "\r", "\x1b[0m"]),
)  # fmt: skip
def test_prefixes_and_ends_change_nothing(before, after):
    wrapped = "\n".join(before + line + after for line in PLAIN.split("\n"))
    expected = [(c.op, c.ranks, [(p.size, p.time) for p in c.points]) for c in read_log(PLAIN)]
    assert [(c.op, c.ranks, [(p.size, p.time) for p in c.points]) for c in read_log(wrapped)] == expected
