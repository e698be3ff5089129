"""Laws of points: corrections never leave what was measured and the fit, and meet every measurement."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.serving.kernels.points import Points

RATIOS = st.floats(0.2, 5.0)
SIZES = st.floats(0, 1e5)


@st.composite
def sources(draw: st.DrawFn) -> Points:
    """Some configurations of two sizes on small grids, with holes, around a fit of some power law."""
    configs = draw(st.lists(st.tuples(*[st.integers(1, 4096)] * 2), min_size=1, max_size=6, unique=True))
    first, second = (
        np.array(sorted(draw(st.sets(st.integers(1, 9999), min_size=1, max_size=5))), float) for _ in "ab"
    )
    ratios = np.array(
        draw(st.lists(RATIOS, min_size=len(configs) * 25, max_size=len(configs) * 25)), float
    ).reshape(len(configs), 5, 5)[:, : len(first), : len(second)]
    holes = np.array(draw(st.lists(st.booleans(), min_size=ratios.size, max_size=ratios.size)))
    power = draw(st.floats(0.0, 1.5))
    sizes = np.array(configs, float)
    fitted = 1e-6 * sizes.prod(axis=1)[:, None, None] * (first[:, None] * second[None, :]) ** power
    seconds = np.where(holes.reshape(ratios.shape), np.nan, ratios * fitted)
    return Points(
        sizes,
        first,
        second,
        seconds,
        draw(st.sampled_from((0.25, 1.0, 2.0))),
        lambda config, x, y: 1e-6 * config.prod() * (x * y) ** power,
    )


@settings(max_examples=60)
@given(
    source=sources(), config=st.tuples(*[st.floats(0.5, 9999)] * 2), x=st.floats(0, 1e5), y=st.floats(0, 1e5)
)
def test_a_correction_lies_between_the_fit_and_what_was_measured(
    source: Points, config: tuple[float, float], x: float, y: float
) -> None:
    known = np.array([source.ratios(number) for number in range(len(source.configs))])
    known = np.append(known[np.isfinite(known)], 0.0)
    told = float(source.log_ratio(config, x, y))
    assert known.min() - 1e-9 <= told <= known.max() + 1e-9


@settings(max_examples=60)
@given(source=sources())
def test_every_measurement_is_met(source: Points) -> None:
    for number, config in enumerate(source.configs):
        told = source.log_ratio(tuple(config), source.first[:, None], source.second[None, :])
        wanted = source.ratios(number)
        there = np.isfinite(wanted)
        np.testing.assert_allclose(told[there], wanted[there], atol=1e-4)


@settings(max_examples=40)
@given(source=sources(), which=st.integers(0, 5))
def test_far_from_every_configuration_the_fit_stands(source: Points, which: int) -> None:
    config = tuple(source.configs[which % len(source.configs)] * 2.0 ** (13 + 8 * source.scale))
    assert float(source.log_ratio(config, source.first[0], source.second[0])) == 0.0
