"""What is worked out once for a fabric and kept as long as the fabric lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from railwright.fabric.graph import Fabric

Answer = TypeVar("Answer")


def per_fabric(work: Callable[[Fabric], Answer]) -> Callable[[Fabric], Answer]:
    """The same function, remembering its answer for each fabric.

    A `Fabric` is frozen and compares by identity, so a fault or an override makes a new one with answers of
    its own; what is remembered goes when the fabric does.  The answer must not refer to the fabric itself
    (it would never go) and is shared: arrays in it must not be written to.
    """
    known: WeakKeyDictionary[Fabric, Answer] = WeakKeyDictionary()

    @wraps(work)
    def remembered(fabric: Fabric) -> Answer:
        answer = known.get(fabric)
        if answer is None:
            answer = known[fabric] = work(fabric)
        return answer

    return remembered
