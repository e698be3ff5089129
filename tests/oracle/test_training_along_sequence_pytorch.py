"""Copies around what tensor ranks gather and scatter along the sequence, beside PyTorch's own operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from railwright.training.layers.along_sequence import COPIED

torch = pytest.importorskip("torch")
from torch.distributed import _functional_collectives as collectives  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

RANKS, ROWS, WIDTH = 4, 16, 8


class Joins(TorchDispatchMode):  # type: ignore[misc]
    """Elements that joins of tensors write: as many are read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        if operation._schema.name == "aten::cat":
            self.written += out.numel()
        return out


@pytest.fixture(scope="module")
def ranks() -> Iterator[Any]:
    """A group of ranks of which this is one, and which send nothing."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=RANKS)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def gathered(batch: int, dimension: int, ranks: Any) -> Any:
    shape = [batch, ROWS, WIDTH]
    shape[dimension] //= RANKS
    return collectives.all_gather_tensor(torch.randn(*shape), dimension, ranks) + 0


def scattered(batch: int, dimension: int, ranks: Any) -> Any:
    return collectives.reduce_scatter_tensor(torch.randn(batch, ROWS, WIDTH), "sum", dimension, ranks) + 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [gathered, scattered])
def test_all_rows_are_copied_once_unless_the_sequence_comes_first(
    ranks: Any, function: Callable[..., Any]
) -> None:
    for dimension, copies in ((0, 0), (1, 1)):
        with Joins() as joins:
            function(4, dimension, ranks)
        assert 2 * joins.written == copies * COPIED * 4 * ROWS * WIDTH
