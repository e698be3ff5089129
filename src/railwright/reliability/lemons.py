"""Lemon nodes: how unevenly failures fall on servers."""

from __future__ import annotations

from scipy.special import gammaincc, gammaincinv

from railwright.reliability.constants import constant


def worst_tenth(nodes: float, rate: float) -> float:
    """Share of all server failures that the worst tenth of the servers causes, in the long run. [1]

    Nodes differ by a gamma-distributed factor of mean 1; its shape follows from the variance of faults over
    nodes, which would equal their mean if all nodes were alike (negative binomial).
    """
    spread = constant("fault_spread").value
    shape = constant("faults_per_node").value / (spread - 1)
    if nodes < 10 or not rate:
        return 0.1
    cut = gammaincinv(shape, 0.9)  # of a gamma law of scale 1
    # Mean of the part above the cut: a gamma law of shape + 1.
    return float(gammaincc(shape + 1, cut))
