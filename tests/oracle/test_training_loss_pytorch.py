"""What PyTorch's cross entropy keeps for its backward pass, seen by autograd's own hooks."""

from __future__ import annotations

import pytest

from railwright.model.activations import WAITING_LOGIT_BYTES

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

ROWS, VOCAB = 8, 1000


def test_one_tensor_in_fp32_waits() -> None:
    logits = torch.randn(ROWS, VOCAB, dtype=torch.bfloat16, requires_grad=True) * 1.0
    targets = torch.randint(VOCAB, (ROWS,))
    kept: dict[int, int] = {}

    def seen(tensor: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(logits.float(), targets)
    assert loss.requires_grad
    large = [size for size in kept.values() if size >= ROWS * VOCAB]
    assert large == [WAITING_LOGIT_BYTES["eager"] * ROWS * VOCAB]
