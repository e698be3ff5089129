"""How steps of NVIDIA's dgxc series grow from their smallest machine to their largest: predicted, measured.

Of all series, whatever the quality of their records; the bar (`training.bars`) counts those of quality A.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from railwright.measure.machines import Unsupported
from railwright.measure.training.bars import SAME
from railwright.measure.training.replay import record_row, records

Series = tuple[str, str, str, int, int]
"""Family, software, number format, GPUs of the smallest and of the largest machine."""

SHORT = {
    ("dgxc-gpt3-175b-H100", "NeMo 24.12", "fp8", 128, 2048): (0.059, 0.023),
    ("dgxc-gpt3-175b-H100", "PaXML 24.03.04 (JAX)", "fp8", 128, 2048): (0.074, 0.013),
    ("dgxc-nemotron4-15b-H100", "NeMo 25.02.01", "bf16", 16, 2048): (0.045, 0.013),
    ("dgxc-nemotron4-340b-GB200", "NeMo 25.04.00", "fp8", 128, 512): (0.045, 0.009),
    ("dgxc-nemotron4-340b-H100", "NeMo 24.09", "fp8", 128, 2048): (0.104, 0.052),
    ("dgxc-llama3.1-405b-H100", "NeMo 24.09", "fp8", 576, 2304): (0.099, 0.016),
    ("dgxc-llama2-70b-H100", "MaxText 24.12 (JAX)", "fp8", 64, 2048): (0.140, 0.015),
}
"""Series that grow over 3 points more than predicted: measured, predicted growth."""


@cache
def growths() -> dict[Series, tuple[float, float]]:
    """Measured and predicted growth of every series of two machines and more."""
    series = defaultdict(list)
    for record in records():
        if record["family"].startswith("dgxc") and record["kind"] == "pretrain":
            each = int(record["gbs"]) / int(record["gpus"])
            series[(*(record[k] for k in SAME), each)].append(record)
    found: dict[Series, tuple[float, float]] = {}
    for one in series.values():
        ordered = sorted(one, key=lambda r: int(r["gpus"]))
        first, last = ordered[0], ordered[-1]
        if len(ordered) == 1:
            continue
        try:
            small, large = (record_row(r, "training") for r in (first, last))
        except Unsupported:
            continue
        name = (first["family"], first["software"], first["dtype"], int(first["gpus"]), int(last["gpus"]))
        assert name not in found
        found[name] = large.measured / small.measured - 1, large.predicted / small.predicted - 1
    return found


def test_steps_grow_as_predicted_in_all_but_seven_series() -> None:
    off = {name: predicted - measured for name, (measured, predicted) in growths().items()}
    far = {name for name, points in off.items() if abs(points) > 0.03}
    assert far == set(SHORT)
    assert len(off) == 51
    assert sum(off.values()) / len(off) == pytest.approx(-0.016, abs=0.002)


def test_what_grows_far_more_than_predicted_is_in_8_bits() -> None:
    for name, growth in SHORT.items():
        assert growths()[name] == pytest.approx(growth, abs=0.003)
    of_16 = [abs(p - m) for (_, _, dtype, _, _), (m, p) in growths().items() if not dtype.startswith("fp8")]
    assert max(of_16) == pytest.approx(0.032, abs=0.003)
