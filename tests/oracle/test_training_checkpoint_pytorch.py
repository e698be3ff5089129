"""Which products of a layer PyTorch computes again, counted by its own dispatcher."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from railwright.training.eras import eras

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

ROWS, HIDDEN, INNER = 16, 8, 24


def products(reentrant: bool | None) -> Counter[tuple[int, ...]]:
    """How often a SwiGLU block's step multiplies matrices of each shape; None: without a checkpoint."""
    from torch.nn.functional import silu
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: Counter[tuple[int, ...]] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.__name__.startswith("mm"):
                self.found[(*args[0].shape, args[1].shape[1])] += 1
            return func(*args, **(kwargs or {}))

    gate, up, down = (torch.nn.Linear(*shape, bias=False) for shape in ((8, 24), (8, 24), (24, 8)))

    def block(x: Any) -> Any:
        return x + down(silu(gate(x)) * up(x))

    x = torch.randn(ROWS, HIDDEN, requires_grad=True)
    with Counting() as counting:
        out = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
        out.sum().backward()
    return counting.found


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_stops_before_what_nobody_reads(reentrant: bool) -> None:
    again = products(reentrant) - products(None)
    first, last = (ROWS, HIDDEN, INNER), (ROWS, INNER, HIDDEN)
    assert again == Counter({first: 2, last: 1} if reentrant else {first: 2})


def test_software_with_such_checkpoints_says_so() -> None:
    # Megatron-LM calls its own CheckpointFunction, which is reentrant
    assert {name for name, era in eras().items() if not era.repeats} == {
        "fsdp-2024",
        "fsdp-2025",
        "xla-2024",
        "xla-2025",
    }
