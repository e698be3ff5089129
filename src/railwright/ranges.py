"""A figure with the range that it is expected in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Low end, what to expect, and high end, of whatever unit."""

    low: float
    middle: float
    high: float

    @classmethod
    def of_rate(cls, rate: float, low: float, high: float) -> Range:
        """A predicted rate whose measured times are `low` to `high` times the predicted ones."""
        return cls(rate / high, rate, rate / low)

    @property
    def ends(self) -> tuple[float, float, float]:
        """Low, middle, high."""
        return self.low, self.middle, self.high

    def times(self, factor: float) -> Range:
        """The range times a positive factor."""
        return Range(self.low * factor, self.middle * factor, self.high * factor)

    def plus(self, other: Range) -> Range:
        """Both together, low beside low and high beside high."""
        return Range(self.low + other.low, self.middle + other.middle, self.high + other.high)

    def under(self, numerator: float) -> Range:
        """numerator / range: the slowest pace gives the largest need."""
        return Range(numerator / self.high, numerator / self.middle, numerator / self.low)
