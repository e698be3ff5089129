"""What PyTorch's AdamW does to every weight where it has no kernel of its own, seen as it runs."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.model.operators.adam import LISTED

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

SIZES = (64, 1000)


def operations() -> list[tuple[str, int, int]]:
    """Of a second step: each operation, how many numbers of a weight it reads and writes, and makes anew."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[tuple[str, int, int]] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            lists = [one for one in args if isinstance(one, list) and getattr(one[0], "ndim", 0)]
            if lists:
                read = len({one[0].data_ptr() for one in lists})
                found.append((func.__name__, read + 1, int(made is not None)))
            return made

    weights = [torch.nn.Parameter(torch.randn(size)) for size in SIZES]
    optimizer = torch.optim.AdamW(weights, foreach=True)
    for seen in (False, True):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        if seen:
            with Seen():
                optimizer.step()
        else:
            optimizer.step()
    return found


def test_a_step_moves_every_number_twenty_times() -> None:
    found = operations()
    assert sum(moved for _, moved, _ in found) == LISTED, found


def test_it_makes_one_number_for_each_weight() -> None:
    found = operations()
    assert [name for name, _, made in found if made] == ["_foreach_sqrt.default"], found
