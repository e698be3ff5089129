"""What PyTorch's cross entropy keeps and takes, seen by autograd's own hooks and by its profiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest

from railwright.model.operators.logits import LOGIT_BYTES, LOSS_TENSORS, WAITING_LOGIT_BYTES, KeptLoss

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

ROWS, VOCAB, HIDDEN = 1024, 4096, 16
LOGITS = ROWS * VOCAB
BETWEEN = "between the passes"


def cross_entropy(logits: Any, targets: Any) -> Any:
    """As torchtitan calls it (components/loss.py)."""
    return torch.nn.functional.cross_entropy(logits.float(), targets)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    """One rank: its share of the vocabulary is all of it."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def held(loss: Callable[[Any, Any], Any], mesh: Any = None) -> tuple[list[float], list[float]]:
    """Bytes per logit that come, or go, of the forward and of the backward pass; of tensors as large as the
    logits."""
    from contextlib import nullcontext

    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel
    from torch.profiler import ProfilerActivity, profile, record_function

    weight = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    hidden = torch.randn(ROWS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(VOCAB, (ROWS,))

    def step() -> None:
        logits = hidden @ weight.t()
        if mesh is not None:
            logits = DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False)
        with loss_parallel() if mesh is not None else nullcontext():
            found = loss(logits, targets)
            del logits
            with record_function(BETWEEN):
                pass
            found.backward()
        hidden.grad = None

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    passes: list[list[float]] = [[]]
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]" and abs(event.nbytes()) >= LOGITS:
            passes[-1].append(event.nbytes() / LOGITS)
        elif event.name() == BETWEEN:
            passes.append([])
    forward, backward = passes
    return forward, backward


def test_one_tensor_in_fp32_waits() -> None:
    logits = torch.randn(ROWS, VOCAB, dtype=torch.bfloat16, requires_grad=True) * 1.0
    targets = torch.randint(VOCAB, (ROWS,))
    kept: dict[int, int] = {}

    def seen(tensor: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        loss = cross_entropy(logits, targets)
    assert loss.requires_grad
    large = [size for size in kept.values() if size >= LOGITS]
    assert large == [WAITING_LOGIT_BYTES["eager"] * LOGITS]


@pytest.mark.parametrize("kind", ["eager", "compiled", "eager, cut", "compiled, cut"])
def test_a_loss_takes_what_we_say(kind: KeptLoss, request: pytest.FixtureRequest) -> None:
    """Tensor by tensor."""
    loss = cross_entropy
    if kind.startswith("compiled"):
        if shutil.which("g++") is None:
            pytest.skip("torch.compile needs a C++ compiler for CPUs")
        torch._dynamo.reset()
        loss = torch.compile(cross_entropy)
    forward, backward = held(loss, request.getfixturevalue("mesh") if kind.endswith("cut") else None)
    tensors = LOSS_TENSORS[kind]
    assert forward == [size for _, size in tensors.forward]
    # and the gradient of the logits, which the product reads
    assert backward == [*(size for _, size in tensors.backward), -2.0]
    assert sum(forward) == WAITING_LOGIT_BYTES[kind]
    assert max(accumulate([*forward, *backward])) == LOGIT_BYTES[kind]
