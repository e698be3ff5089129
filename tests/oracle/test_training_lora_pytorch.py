"""What PyTorch's autograd keeps of a frozen product with an adapter beside it, seen by its own hooks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.spec.lora import Lora, LoraTarget
from railwright.training.activations import layer_kept_parts
from railwright.training.lora_kept import ADAPTERS
from training_cases import DENSE, changed, job

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

HIDDEN, FFN, RANK, TOKENS = 64, 128, 8, 256
ARCH = replace(DENSE, hidden=HIDDEN, ffn=FFN, heads=4, kv_heads=2, head_dim=16)


def seen(inputs: int, outputs: int, lora: Lora) -> float:
    """Bytes a token that x W + dropout(x) A B saves, without weights; on GPUs dropout is native_dropout."""

    def weight(columns: int, rows: int, trains: bool = True) -> Any:
        return torch.randn(columns, rows, dtype=torch.bfloat16, requires_grad=trains)

    frozen, first, second = (
        weight(outputs, inputs, False),
        weight(lora.rank, inputs),
        weight(outputs, lora.rank),
    )
    weights = {one.untyped_storage().data_ptr() for one in (frozen, first, second)}
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    linear = torch.nn.functional.linear
    x = weight(TOKENS, inputs) * 1.0
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y, read = linear(x, frozen), x
        if lora.drops_input:
            read, _ = torch.native_dropout(x, lora.dropout, True)
        added = linear(linear(read, first), second)
        if lora.drops_result:
            added, _ = torch.native_dropout(added, lora.dropout, True)
        y = y + added * 2.0
    return sum(kept.values()) / TOKENS


@pytest.mark.parametrize(("dropout", "position"), [(0.0, "pre"), (0.1, "pre"), (0.1, "post")])
@pytest.mark.parametrize(
    ("target", "reads", "inputs", "outputs"),
    [
        ("qkv", "attention norm output", HIDDEN, 8 * 16),
        ("mlp up", "mlp norm output", HIDDEN, 2 * FFN),
        ("mlp down", "mlp product", FFN, HIDDEN),
    ],
)
def test_autograd_saves_what_adapters_keep(
    target: LoraTarget, reads: str, inputs: int, outputs: int, dropout: float, position: str
) -> None:
    lora = Lora(rank=RANK, targets=(target,), dropout=dropout, dropout_position=position)  # type: ignore[arg-type]
    one = changed(job(), lora=lora, software="nemo-2024", sequence=TOKENS, micro_batch=1)
    parts = layer_kept_parts(one, ARCH, "dense", "none")
    kept = sum(size for name, size in parts.items() if name == reads or name.startswith(ADAPTERS))
    assert seen(inputs, outputs, lora) == kept / TOKENS
