"""The form that `railwright calibrate` fits is the form that `collectives.cost` predicts with."""

from dataclasses import replace

import pytest

from collectives_machines import world
from railwright.collectives import NcclSettings, predict
from railwright.collectives.profile import Overrides
from railwright.measure.calibrate.curves import sort_points
from railwright.measure.fitting.fit import times
from railwright.measure.logs.curve import MeasuredCurve, Point
from railwright.measure.machines import published_machine

SIZES = [2.0**n for n in range(10, 31, 2)]


@pytest.mark.parametrize("usable", [1.0, 0.7])
@pytest.mark.parametrize(
    ("gpu", "gpus", "op", "algorithm"),
    [
        ("A100", 16, "all_reduce", "ring"),
        ("A100", 16, "all_gather", "ring"),
        ("A100", 16, "broadcast", "ring"),
        ("A100", 8, "all_reduce", "ring"),
        ("H100", 32, "all_reduce", "tree"),
        ("H100", 32, "all_reduce", "nvlstree"),
        ("H100", 16, "all_to_all", "auto"),
    ],
)
def test_fitted_and_predicted_times_are_one(
    gpu: str, gpus: int, op: str, algorithm: str, usable: float
) -> None:
    machine = published_machine(gpu, gpus, 200.0, NcclSettings(algorithm=algorithm))  # type: ignore[arg-type]
    found = [predict(machine, op, s, world(machine)) for s in SIZES]  # type: ignore[arg-type]
    points = tuple(Point(p.size, p.time, p.algbw, p.busbw, n) for n, p in enumerate(found, 1))
    curve = MeasuredCurve(op, gpus, gpus, gpus, "published", points, False, "made", 1)
    sorted_ = sort_points([curve], machine)
    assert not sorted_.refused
    values = {"launch": 2e-5, "ramp": 0.9, "usable": usable}
    profile = {name: Overrides(**values) for name in sorted_.parts}
    calibrated = replace(machine, profile=profile)
    for (part,) in sorted_.parts.values():
        for size, seconds in zip(part.size.tolist(), times(part, values).tolist(), strict=True):
            assert seconds == pytest.approx(predict(calibrated, op, size, world(machine)).time, rel=1e-9)
