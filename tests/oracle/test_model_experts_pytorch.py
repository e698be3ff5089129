"""Experts between rows that operations of PyTorch move, beside those of its own autograd: one expert after
the other, and all in grouped products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.model import Cut, layer_activations, layer_operators, load_model
from railwright.model.operators.looped import CHOICE, KERNELS, SORTED
from railwright.model.shape.architecture import Operator

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

functional = torch.nn.functional
ROWS, WIDTH, INNER, TOP = 64, 128, 96, 2
VIEWS = (
    *("view", "permute", "transpose", "select", "split", "unbind", "unsqueeze", "squeeze", "expand"),
    *("t", "detach", "_unsafe_view"),
)
CHECKED = ("aminmax", "_local_scalar_dense")
"""What one_hot asks of indices on a CPU and not on a GPU (ATen, native/Onehot.cpp)."""

LOOPED = Cut(unfused=("experts", "activation"))


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Operations that launch kernels on a GPU, and bytes of hidden states that those beside products move."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.moved = 0, 0.0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        name = operation._schema.name.removeprefix("aten::")
        if name in VIEWS or name in CHECKED:
            return out
        self.count += 1
        if name in ("index", "index_select"):
            self.moved += 2 * _bytes(out)
        elif name == "index_add_":
            self.moved += 3 * _bytes(args[3])
        elif name == "index_put":
            # on a GPU, in place: the rows that are added, read and written
            self.moved += 3 * _bytes(args[2])
        elif name.startswith("new_zeros") or name == "zeros_like":
            self.moved += _bytes(out)
        elif name not in ("mm", "_grouped_mm"):
            self.moved += sum(map(_bytes, [*args, out]))
        return out


def _bytes(value: Any) -> float:
    """Of rows of hidden states; others are the activation's, or small."""
    hidden = isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[-1] == WIDTH
    return value.numel() * value.element_size() if hidden else 0.0


def looped(states: Any, weights: Any, chosen: Any, experts: list[tuple[Any, ...]]) -> Any:
    """transformers 4.48, models/mixtral/modeling_mixtral.py: what MixtralSparseMoeBlock.forward runs."""
    total = torch.zeros_like(states)
    mask = functional.one_hot(chosen, num_classes=len(experts)).permute(2, 1, 0)
    for number, (gate, up, down) in enumerate(experts):
        place, token = torch.where(mask[number])
        rows = states[None, token].reshape(-1, WIDTH)
        inner = functional.silu(functional.linear(rows, gate)) * functional.linear(rows, up)
        made = functional.linear(inner, down) * weights[token, place, None]
        total.index_add_(0, token, made.to(states.dtype))
    return total


def grouped(states: Any, weights: Any, chosen: Any, matrices: tuple[Any, Any]) -> Any:
    """transformers 5, integrations/moe.py: what grouped_mm_experts_forward runs."""
    up, down = matrices
    total, experts = torch.zeros_like(states), chosen.reshape(-1)
    tokens = torch.arange(ROWS).unsqueeze(1).expand(-1, TOP).reshape(-1)
    order = torch.argsort(experts, stable=True)
    back = torch.argsort(order, stable=True)
    every = states[tokens]
    sorted_experts, sorted_weights, rows = experts[order], weights.reshape(-1)[order], every[order]
    counts = torch.histc(sorted_experts.float(), bins=len(up), min=0, max=len(up) - 1)
    ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
    gate, other = torch._grouped_mm(rows, up, offs=ends).chunk(2, dim=-1)
    made = torch._grouped_mm(functional.silu(gate) * other, down, offs=ends)
    made = (made * sorted_weights.unsqueeze(-1))[back]
    return total.index_add_(0, tokens, made.to(states.dtype))


def tensor(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.bfloat16)


def inputs(experts: int) -> tuple[Any, Any, Any, list[tuple[Any, ...]]]:
    torch.manual_seed(0)
    chosen = torch.topk(torch.randn(ROWS, experts), TOP)[1]
    matrices = [(tensor(INNER, WIDTH), tensor(INNER, WIDTH), tensor(WIDTH, INNER)) for _ in range(experts)]
    return tensor(ROWS, WIDTH).requires_grad_(), tensor(ROWS, TOP).requires_grad_(), chosen, matrices


def model(experts: int) -> Any:
    mixtral = load_model("mixtral-8x7b")
    return replace(mixtral, hidden=WIDTH, experts=experts, experts_per_token=TOP, expert_ffn=INNER)


def between(found: tuple[Operator, ...]) -> list[Operator]:
    """Operators of a layer behind its router and in front of its end."""
    return [op for op in found if op.name.startswith(("experts ", "expert ")) and "choice" not in op.name]


def operations(op: Operator) -> float:
    kernels = KERNELS.get(SORTED if op.name.endswith(SORTED) else op.name, 1)
    return op.launches / kernels


@pytest.mark.parametrize("experts", [4, 8])
def test_operations_and_hidden_states_they_move(experts: int) -> None:
    given = inputs(experts)
    with Operations() as ahead:
        out = looped(*given)
    gradient = torch.randn_like(out)
    with Operations() as back:
        torch.autograd.grad(out, given[:2], gradient)
    layer = layer_operators(model(experts), "moe", ROWS, ROWS, LOOPED)
    for found, counted in ((layer.forward, ahead), (layer.backward_input, back)):
        inside = between(found)
        assert sum(map(operations, inside)) == counted.count
        moved = sum(op.bytes for op in inside if op.kind == "memory" and "activation" not in op.name)
        assert moved == pytest.approx(counted.moved)


@pytest.mark.parametrize("experts", [4, 8])
def test_operations_around_grouped_products(experts: int) -> None:
    """But for what joins the gradients of gates and what they multiply, which no gated activation counts here
    (`GATED_LAUNCHES`)."""
    states, weights, chosen, _ = inputs(experts)
    matrices = (tensor(experts, WIDTH, 2 * INNER), tensor(experts, INNER, WIDTH))
    with Operations() as ahead:
        out = grouped(states, weights, chosen, matrices)
    gradient = torch.randn_like(out)
    with Operations() as back:
        torch.autograd.grad(out, [states, weights], gradient)
    cut = Cut(unfused=("activation",), dispatch="eager")
    layer = layer_operators(model(experts), "moe", ROWS, ROWS, cut)
    for found, counted, joined in ((layer.forward, ahead, 0), (layer.backward_input, back, 1)):
        inside = between(found)
        calls = sum(1 if op.kind == "grouped_gemm" else operations(op) for op in inside)
        assert calls == counted.count - joined
        moved = sum(op.bytes for op in inside if op.kind == "memory" and "activation" not in op.name)
        assert moved == pytest.approx(counted.moved)


def test_weights_that_train_have_an_operation_each() -> None:
    states, weights, chosen, matrices = inputs(4)
    trained = [one.requires_grad_() for expert in matrices for one in expert]
    gradients = []
    for asked in ([states, weights], [states, weights, *trained]):
        out = looped(states, weights, chosen, matrices)
        with Operations() as back:
            torch.autograd.grad(out, asked, torch.ones_like(out))
        gradients.append(back.count)
    layer = layer_operators(model(4), "moe", ROWS, ROWS, LOOPED)
    assert sum(map(operations, between(layer.backward_weight))) == gradients[1] - gradients[0]


def test_the_choice_of_experts() -> None:
    """A softmax in fp32 casts as it reads on a GPU (ATen, native/cuda/SoftMax.cu), for one operation less."""
    states, gate = tensor(ROWS, WIDTH).requires_grad_(), tensor(8, WIDTH).requires_grad_()
    scores = functional.linear(states, gate).detach().requires_grad_()
    with Operations() as ahead:
        chances, _ = torch.topk(functional.softmax(scores, dim=1, dtype=torch.float), TOP, dim=-1)
        chances /= chances.sum(dim=-1, keepdim=True)
        found = chances.to(states.dtype)
    with Operations() as back:
        torch.autograd.grad(found, [scores], torch.ones_like(found))
    assert (ahead.count - 1, back.count - 1) == CHOICE


@pytest.mark.parametrize("trains", [True, False])
def test_what_they_keep(trains: bool) -> None:
    """Rows that experts multiply only where their weights train, what they make for the gradients of the
    router's weights, and what is added; indices and these weights are small."""
    states, weights, chosen, matrices = inputs(4)
    for one in (one for expert in matrices for one in expert):
        one.requires_grad_(trains)
    own = {one.data_ptr() for one in (states, weights, *(one for expert in matrices for one in expert))}
    sizes: dict[int, float] = {}

    def pack(one: Any) -> Any:
        if one.data_ptr() not in own and one.dim() == 2 and one.shape[1] in (WIDTH, INNER):
            sizes[one.data_ptr()] = one.numel() * one.element_size()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        out = looped(states, weights, chosen, matrices)
    assert out.shape == states.shape
    named = layer_activations(model(4), "moe", ROWS, ROWS, LOOPED)
    frozen = () if trains else ("expert input", "expert product")
    ours = {name: size for name, size in named.items() if name.startswith("expert ") and name not in frozen}
    assert sum(sizes.values()) == pytest.approx(sum(ours.values()))
