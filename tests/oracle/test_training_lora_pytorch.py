"""What PyTorch's autograd keeps of a frozen product with an adapter beside it, seen by its own hooks."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest

from railwright.spec.lora import Lora, LoraTarget
from railwright.training.layers.lora_kept import ADAPTERS
from railwright.training.memory.activations import layer_kept_parts
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


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_compiled_adapters_save_as_much(dropout: float) -> None:
    """torch.compile's partitioner could make dropped copies again out of masks, and saves them all the same:
    three each of queries, keys and values behind one norm, whose output goes."""
    compiler = pytest.importorskip("functorch.compile")
    decompositions = pytest.importorskip("torch._inductor.decomposition").select_decomp_table()
    saved: list[float] = []
    linear = torch.nn.functional.linear

    def layer(x: Any, gain: Any, *weights: Any) -> tuple[Any, ...]:
        normed, found = torch.nn.functional.rms_norm(x, (HIDDEN,), gain), []
        for frozen, first, second in zip(*(weights[i::3] for i in range(3)), strict=True):
            read = torch.native_dropout(normed, dropout, True)[0] if dropout else normed
            found.append(linear(normed, frozen) + 2.0 * linear(linear(read, first), second))
        return tuple(found)

    def forward(graph: Any, _inputs: Any) -> Any:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        kept = [node for node in output.args[0][3:] if node.op != "placeholder"]
        rows = [node.meta["val"] for node in kept if node.meta["val"].shape[:1] == (TOKENS,)]
        saved.extend(one.numel() * one.element_size() for one in rows if one.dtype != torch.float32)
        return graph

    def weight(columns: int, rows: int, trains: bool = True) -> Any:
        return torch.randn(columns, rows, dtype=torch.bfloat16, requires_grad=trains)

    weights = [
        one
        for width in (4 * 16, 2 * 16, 2 * 16)
        for one in (weight(width, HIDDEN, False), weight(RANK, HIDDEN), weight(width, RANK))
    ]
    run = compiler.aot_function(
        layer,
        fw_compiler=forward,
        bw_compiler=lambda graph, _inputs: graph,
        partition_fn=compiler.min_cut_rematerialization_partition,
        decompositions=decompositions,
    )
    run(weight(TOKENS, HIDDEN), torch.ones(HIDDEN, dtype=torch.bfloat16), *weights)
    lora = Lora(rank=RANK, targets=("qkv",), dropout=dropout)
    one = changed(job(zero=3), lora=lora, software="fsdp-2025", sequence=TOKENS, micro_batch=1)
    parts = layer_kept_parts(one, ARCH, "dense", "none")
    kept = [
        size for name, size in parts.items() if name == "attention norm output" or name.startswith(ADAPTERS)
    ]
    assert sum(saved) == sum(kept)


@pytest.mark.parametrize("reentrant", [True, False])
def test_hooked_inputs_stay_with_their_gradients(reentrant: bool) -> None:
    """FSDP of version 1 hooks what a frozen unit reads (_register_post_backward_reshard_only_hook) and holds
    the hook until a backward pass ends.  Reentrant checkpoints hook leaves, which live as long."""
    from torch.autograd.graph import register_multi_grad_hook
    from torch.utils.checkpoint import checkpoint

    handles, read, at_end = list[Any](), list[weakref.ref[Any]](), list[tuple[bool, bool]]()

    def layer(x: Any) -> Any:
        if torch.is_grad_enabled():
            read.append(weakref.ref(x))
            handles.append(register_multi_grad_hook([x], lambda *_: None))
        return torch.relu(x * 2.0) + x

    first = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    first.register_hook(
        lambda _: at_end.extend((one() is not None, getattr(one(), "grad", None) is not None) for one in read)
    )
    states = first
    for _ in range(3):
        states = checkpoint(layer, states, use_reentrant=reentrant)
    states.sum().backward()
    inner = [stays for stays in at_end if reentrant or stays != (True, False)]
    assert all(stays == (reentrant, reentrant) for stays in inner), at_end
