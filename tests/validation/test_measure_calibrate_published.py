"""Public curves as an operator's logs: what one calibrates, the others of its family judge.

Fernandez et al. (arXiv 2411.13055), DGX H100 on NDR, 4 to 512 nodes, auto algorithm; calibrated on 32 nodes.
The curves are read off a chart (+-5 GB/s), so that bars are on errors falling, not on how small they get.
"""

import json
from functools import cache
from importlib import resources

import numpy as np
import pytest
from ruamel.yaml import YAML

from railwright.collectives import bus_factor, predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.measure.calibrate.calibrating import calibrate_curves
from railwright.measure.fitting.profile import LogRecord
from railwright.measure.logs.curve import MeasuredCurve, Point
from railwright.measure.machines import published_machine
from railwright.measure.published.collectives import ranks

OTHERS = ("ar-h100-fernandez-4n", "ar-h100-fernandez-8n", "ar-h100-fernandez-128n", "ar-h100-fernandez-512n")
OWN = "ar-h100-fernandez-32n"


@cache
def record(name):
    path = resources.files("railwright.measure").joinpath("data/collectives.yaml")
    data = json.loads(json.dumps(YAML(typ="safe").load(path.read_text(encoding="utf-8"))))
    return next(r for r in data["records"] if r["id"] == name)


@cache
def built(name):
    r = record(name)
    return published_machine(r["gpu"], r["gpus"], r["nic_gbps"], NcclSettings())


def measured(name):
    r = record(name)
    n, points = r["gpus"], []
    for size, us in r["points"]:
        rate = size / (us * 1e-6)
        points.append(
            Point(float(size), us * 1e-6, rate, rate * bus_factor("all_reduce", n), len(points) + 1)
        )
    return MeasuredCurve("all_reduce", n, n, n, "published", tuple(points), False, name, 1)


@cache
def profile():
    log = LogRecord(file=OWN, sha256="0" * 64, date="2024-11-20")
    return calibrate_curves([measured(OWN)], built(OWN), [log], "published").profile


def errors(name, overrides):
    """|predicted / measured - 1| of one record's points."""
    m = built(name)
    machine = Machine(m.network, m.nccl, m.gpu, m.nic, m.server, overrides)
    r = record(name)
    group = (ranks(machine, r["gpus"], r["nodes"]),)
    return np.array(
        [abs(predict(machine, "all_reduce", float(s), group).time / (us * 1e-6) - 1) for s, us in r["points"]]
    )


def test_the_calibrated_curve_s_error_falls():
    before, after = errors(OWN, None), errors(OWN, profile().overrides("published"))
    assert np.median(after) < np.median(before)
    assert np.sqrt(np.mean(after**2)) < np.sqrt(np.mean(before**2))


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_of_the_family_do_not_get_worse_by_much(name, record_property):
    """Reported (-rP, --junitxml): median error, shipped and calibrated, of curves the fit did not see."""
    before, after = errors(name, None), errors(name, profile().overrides("published"))
    record_property("shipped", float(np.median(before)))
    record_property("calibrated", float(np.median(after)))
    print(
        f"{name}: median error {np.median(before):.1%} shipped, {np.median(after):.1%} calibrated on 32 nodes"
    )
    assert np.median(after) < np.median(before) + 0.10


def test_what_the_chart_cannot_tell_is_held():
    """Its smallest size is 2 MiB, so that it says nothing of launch."""
    family = profile().families["hopper ib nvlstree"]
    assert "launch" not in family.measured()
    assert any("launch is held" in sentence for sentence in profile().refused)
    assert 0.85 < family.usable.value < 1.1
