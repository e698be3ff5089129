"""A layer of Korthikanti et al.'s 22B on eight A100, beside its table of forward and backward times.

Source: arXiv 2205.05198, table 4 (memory): 48 layers of width 6,144, sequences of 2,048, 4 at a time,
tensor parallelism of 8.
"""

from __future__ import annotations

import pytest

from railwright.measure.training.korthikanti import korthikanti_run
from railwright.training import simulate

MEASURED = {
    ("none", False): (7.7e-3, 11.9e-3),
    ("none", True): (7.2e-3, 11.8e-3),
    ("full", False): (7.7e-3, 19.5e-3),
    ("selective", False): (7.7e-3, 13.2e-3),
    ("selective", True): (7.2e-3, 13.1e-3),
}
"""What is computed again, and whether sequence parallelism is on: forward and backward [s]."""


def layer(recompute: str, spread: bool, software: str = "megatron-2022") -> tuple[float, float]:
    """Forward and backward of one of the middle layers [s]."""
    job, arch, machine = korthikanti_run("22B", spread)
    layout = job.layout.model_copy(update={"recompute": recompute})
    job = job.model_copy(update={"layout": layout, "software": software})
    events = simulate(job, arch, machine, must_fit=False).timeline.events
    ends = []
    for forward in (True, False):
        found = [
            e for e in events if e.unit and (e.unit[0] == "F") is forward and e.name.startswith("layer 2")
        ]
        chosen = [e for e in found if "layer 20 " <= e.name < "layer 30 "]
        ends.append((max(e.end for e in chosen) - min(e.start for e in chosen)) / 10)
    return ends[0], ends[1]


@pytest.mark.parametrize(("recompute", "spread"), MEASURED)
def test_a_layer_forward_and_backward(recompute: str, spread: bool) -> None:
    forward, backward = layer(recompute, spread)
    measured = MEASURED[recompute, spread]
    assert forward == pytest.approx(measured[0], rel=0.10)
    assert backward == pytest.approx(measured[1], rel=0.08)


def test_it_is_too_long_backward_where_linear_layers_hide_nothing() -> None:
    assert layer("none", False, "megatron-2021")[1] > 1.12 * MEASURED["none", False][1]
