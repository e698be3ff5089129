"""Norms and gated activations one kernel per operation, beside the operations of PyTorch's own autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import pytest

from railwright.model.operators.eager import TURN_LAUNCHES, TURN_MOVED, Rotation
from railwright.model.operators.mlp_kernels import (
    GATED_LAUNCHES,
    GATED_MOVED,
    SQUARED_LAUNCHES,
    SQUARED_MOVED,
)
from railwright.model.operators.norms import GAINS, GAINS_MOVED, RMS_LAUNCHES, RMS_MOVED, kept_by_norm

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

ROWS, WIDTH = 64, 128
NO_KERNEL = ("view", "expand", "detach", "unsqueeze", "empty", "alias", "split", "squeeze", "_conj")
VIEWS = ("t", "slice", "_unsafe_view")
"""Views and allocations, by their first letters or names."""


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Kernels that operations launch, and what they read and write, as so many times ROWS x WIDTH elements of
    16 bits; tensors of a value a row, or a column, count as nothing, and so do such ones spread over both."""

    def __init__(self) -> None:
        super().__init__()
        self.launches, self.moved = 0, 0.0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        name = operation._schema.name.removeprefix("aten::")
        if name == "slice_backward":
            # zeros of the whole tensor, and a copy where the slice is not empty
            self.launches += 1 + (args[0].numel() > 0)
            self.moved += _elements(out) / (ROWS * WIDTH) + 2 * args[0].numel() / (ROWS * WIDTH)
        elif name not in VIEWS and not name.startswith(NO_KERNEL):
            self.launches += 1
            self.moved += sum(map(_elements, [*args, out])) / (ROWS * WIDTH)
        return out


def _elements(value: Any) -> float:
    """Of 16 bits; what is spread over a dimension is there once."""
    if isinstance(value, list | tuple):
        return sum(map(_elements, value))
    if not isinstance(value, torch.Tensor):
        return 0.0
    there = prod(n for n, step in zip(value.shape, value.stride(), strict=True) if step)
    return there * value.element_size() / 2 if there >= ROWS * WIDTH // 2 else 0.0


def tensor(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.bfloat16).requires_grad_()


def llama_rms_norm(states: Any, gains: Any = None) -> Any:
    """transformers, models/llama/modeling_llama.py, LlamaRMSNorm.forward."""
    wide = states.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return wide.to(states.dtype) if gains is None else gains * wide.to(states.dtype)


def counted(function: Callable[..., Any], inputs: Iterable[Any]) -> tuple[tuple[int, int], list[float]]:
    """Kernels, and times that all elements are moved, forward and backward."""
    inputs = list(inputs)
    with Operations() as ahead:
        out = function(*inputs)
    gradient = torch.randn_like(out)
    with Operations() as back:
        torch.autograd.grad(out, inputs, gradient)
    return (ahead.launches, back.launches), [ahead.moved, back.moved]


def kept(function: Callable[..., Any], inputs: Iterable[Any]) -> list[float]:
    """Sizes of the tensors that autograd keeps beside the inputs, over that of ROWS x WIDTH in 16 bits."""
    inputs = list(inputs)
    found = {one.data_ptr(): 0.0 for one in inputs}

    def pack(one: Any) -> Any:
        found.setdefault(one.data_ptr(), one.numel() * one.element_size() / (2 * ROWS * WIDTH))
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        out = function(*inputs)
    assert out.shape[0] == ROWS
    return sorted(size for size in found.values() if size >= 1)


@pytest.mark.parametrize("gains", [True, False])
def test_an_rms_norm(gains: bool) -> None:
    inputs = [tensor(ROWS, WIDTH), *([tensor(WIDTH)] if gains else [])]
    launches, moved = counted(llama_rms_norm, inputs)
    less, less_moved = ((0, 0), (0.0, 0.0)) if gains else (GAINS, GAINS_MOVED)
    assert launches == tuple(a - b for a, b in zip(RMS_LAUNCHES, less, strict=True))
    assert moved == [a - b for a, b in zip(RMS_MOVED, less_moved, strict=True)]
    assert kept(llama_rms_norm, inputs) == sorted(kept_by_norm(gains).values())


def test_a_gated_activation() -> None:
    inputs = [tensor(ROWS, WIDTH), tensor(ROWS, WIDTH)]

    def gated(gate: Any, up: Any) -> Any:
        return torch.nn.functional.silu(gate) * up

    assert counted(gated, inputs) == (GATED_LAUNCHES, list(GATED_MOVED))
    assert kept(gated, inputs) == [1.0]


def test_a_squared_relu() -> None:
    """As NeMo and Hugging Face's transformers write it; it keeps what ReLU gives, and its input nothing."""

    def squared(one: Any) -> Any:
        return torch.pow(torch.nn.functional.relu(one), 2)

    assert counted(squared, [tensor(ROWS, WIDTH)]) == (SQUARED_LAUNCHES, list(SQUARED_MOVED))
    assert kept(squared, [tensor(ROWS, WIDTH)]) == [1.0]


def test_an_activation_without_a_gate_and_layer_norm_are_one_kernel() -> None:
    one, gains, biases = tensor(ROWS, WIDTH), tensor(WIDTH), tensor(WIDTH)
    assert counted(torch.nn.functional.gelu, [one])[0] == (1, 1)
    with Operations() as ahead:
        torch.nn.functional.layer_norm(one, (WIDTH,), gains, biases)
    assert ahead.launches == 1


HEADS, EACH = 4, WIDTH // 4
ANGLES = torch.randn(ROWS, 1, EACH)


def halves(heads: Any) -> Any:
    """transformers, models/llama/modeling_llama.py, apply_rotary_pos_emb; cosine and sine are there."""
    cosine, sine = ANGLES.cos().to(heads.dtype), ANGLES.sin().to(heads.dtype)
    half = EACH // 2
    return heads * cosine + torch.cat((-heads[..., half:], heads[..., :half]), -1) * sine


def complexes(heads: Any) -> Any:
    """torchtitan, models/llama3/model, apply_rotary_emb."""
    turns = torch.polar(torch.ones(ROWS, 1, EACH // 2), ANGLES[..., ::2])
    pairs = torch.view_as_complex(heads.float().reshape(ROWS, HEADS, -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(heads)


def megatrons(heads: Any, latent: bool = False) -> Any:
    """Megatron-LM core 0.12, rope_utils.py, _apply_rotary_pos_emb_bshd."""
    turned, rest = heads[..., :EACH], heads[..., EACH:]
    if latent:
        turned = torch.cat((turned[..., 0::2], turned[..., 1::2]), -1)
    cosine, sine = (ANGLES.cos() * 1.0).to(heads.dtype), (ANGLES.sin() * 1.0).to(heads.dtype)
    first, second = torch.chunk(turned, 2, dim=-1)
    turned = turned * cosine + torch.cat((-second, first), -1) * sine
    return torch.cat((turned, rest), -1)


@pytest.mark.parametrize(
    ("rotation", "function", "once"),
    [
        # kernels that make cosine and sine, or the turns, once for all layers
        ("halves", halves, 4),
        ("complex", complexes, 2),
        ("megatron", megatrons, 0),
        ("megatron, latent", lambda heads: megatrons(heads, latent=True), 0),
    ],
)
def test_a_rotation(rotation: Rotation, function: Callable[..., Any], once: int) -> None:
    (ahead, back), moved = counted(function, [tensor(ROWS, HEADS, EACH)])
    assert (ahead - once, back) == TURN_LAUNCHES[rotation]
    assert moved == list(TURN_MOVED[rotation])


def test_keys_copied_to_more_heads_are_one_kernel_each_way() -> None:
    """torchtitan, models/llama3/model, repeat_kv: as many elements read, and twice as many written."""

    def repeated(keys: Any) -> Any:
        return keys[:, :, None, :].expand(ROWS, HEADS, 2, EACH).reshape(ROWS, 2 * HEADS, EACH)

    launches, moved = counted(repeated, [tensor(ROWS, HEADS, EACH)])
    assert (launches, moved) == ((1, 1), [3.0, 3.0])


@pytest.mark.parametrize("function", [halves, complexes, megatrons])
def test_a_rotation_keeps_no_tensor_of_its_heads(function: Callable[..., Any]) -> None:
    assert kept(function, [tensor(ROWS, HEADS, EACH)]) == []
