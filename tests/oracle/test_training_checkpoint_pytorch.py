"""Which products of a layer PyTorch computes again and which collectives it sends, counted by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from railwright.training import simulate
from railwright.training.software.eras import eras
from training_cases import DENSE, changed, job, machine, priced, roofline

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
        "fsdp-2026",
        "xla-2024",
        "xla-2025",
    }


GATHER, SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"


def collectives(checkpointed: bool) -> Counter[str]:
    """What tensor ranks of a sequence-parallel MLP, cut as torchtitan cuts it, send in a step."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils.checkpoint import checkpoint

    class Mlp(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(HIDDEN, INNER, bias=False)
            self.down = torch.nn.Linear(INNER, HIDDEN, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(torch.nn.functional.silu(self.up(x)))

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mlp = torch.nn.RMSNorm(HIDDEN), Mlp()

        def forward(self, x: Any) -> Any:
            return x + self.mlp(self.norm(x))

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        block = parallelize_module(
            Block(),
            init_device_mesh("cpu", (2,)),
            {
                "norm": SequenceParallel(),
                "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "mlp.up": ColwiseParallel(),
                "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
            },
        )
        x = torch.randn(1, ROWS, HIDDEN, requires_grad=True)
        with CommDebugMode() as sent:
            out = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
            (out.to_local() if hasattr(out, "to_local") else out).sum().backward()
        return Counter({str(op).split(".")[-1]: count for op, count in sent.get_comm_counts().items()})
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("software", ["fsdp-2025", "fsdp-2024-eager"])
@pytest.mark.parametrize(("recompute", "checkpointed"), [("none", False), ("full", True)])
def test_gathers_of_a_block_are_those_of_pytorch(recompute: str, checkpointed: bool, software: str) -> None:
    """The block that PyTorch counts is not compiled: what is keeps as much."""
    wanted = job(batch=8, tensor=4, sequence_parallel=True, zero=3, recompute=recompute)
    used = simulate(
        changed(wanted, software=software), DENSE, machine(4), predict=priced(50e9), kernel=roofline
    )
    found: Counter[str] = Counter()
    for one in used.collectives:
        if one.kind == "tp":
            found[one.prediction.op] += round(one.count)
    # 8 layers of two blocks, of which attention's reduction is computed again too, and the MLP's where a
    # checkpoint is reentrant; embedding and head
    mlp, repeated = collectives(checkpointed), checkpointed * (1 + eras()[software].repeats)
    assert found["all_gather"] == 8 * 2 * mlp[GATHER] + 2
    assert found["reduce_scatter"] == 8 * (2 * mlp[SCATTER] + repeated) + 2
