"""The fit of an engine profile where the answer is known: a linear model with normal prior and errors."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.measure.calibrate.serving import most_probable

SLOPE = np.array([[1.0, 0.0, 0.0], [0.5, 0.3, 0.0], [0.2, 0.9, 0.0], [0.0, 1.0, 0.0]])
"""Of four means by three parameters, of which none hangs on the last."""
PRIOR = np.array([0.25, 1.0, 0.5])
NOISE = 0.04


def fitted(measured: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return most_probable(lambda x: SLOPE @ x, np.zeros(4), np.array(measured), PRIOR, NOISE)


def test_the_posterior_of_a_linear_model() -> None:
    # information A'A / noise^2 + prior^-2; the mean is what A'y / noise^2 makes of its inverse
    measured = [0.1, 0.2, -0.1, 0.3]
    covariance = np.linalg.inv(SLOPE.T @ SLOPE / NOISE**2 + np.diag(PRIOR**-2.0))
    found, sigma = fitted(measured)
    assert found == pytest.approx(covariance @ SLOPE.T @ np.array(measured) / NOISE**2)
    assert sigma == pytest.approx(np.sqrt(np.diag(covariance)))


def test_what_no_run_tells_stays_as_uncertain_as_before() -> None:
    found, sigma = fitted([0.3, 0.1, 0.2, -0.4])
    assert found[2] == pytest.approx(0.0, abs=1e-12)
    assert sigma[2] == pytest.approx(PRIOR[2])
    assert (sigma[:2] < 0.2 * PRIOR[:2]).all()


def test_runs_that_agree_leave_everything() -> None:
    assert fitted([0.0] * 4)[0] == pytest.approx(0.0, abs=1e-12)
