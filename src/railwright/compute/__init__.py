"""Kernel times: how long one GPU takes for one operator, and where every constant comes from."""

from railwright.compute.profile import Profile, Row, profile_of
from railwright.compute.time import constants, efficiency_source, kernel_time, kernel_times

__all__ = ["Profile", "Row", "constants", "efficiency_source", "kernel_time", "kernel_times", "profile_of"]
