"""Traffic known again by its bytes, so that what was solved for it need not be solved again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.groups import Groups


def fingerprint(traffic: Traffic | Groups, groups: Sequence[Communicator]) -> bytes:
    """The same for the same demands, in the same order, of the same groups; 25 ms for a million demands."""
    digest = hashlib.blake2b(type(traffic).__name__.encode(), digest_size=16)
    listed = traffic.explicit if isinstance(traffic, Groups) else traffic
    arrays: list[NDArray[Any]] = [listed.src, listed.dst, listed.relay, listed.size]
    if isinstance(traffic, Groups):
        arrays += [traffic.ptr, traffic.gpus, traffic.size, traffic.pxn]
    for array in (*arrays, *(group.gpus for group in groups)):
        digest.update(f"{array.dtype}{len(array)};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
