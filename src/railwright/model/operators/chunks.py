"""Kernels that work on a sequence in chunks, each an operator: what linear mixers are made of."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.model.operators.kernels import Block
from railwright.model.shape.architecture import LinearMixer, Operator, Phase

CAUSAL = 0.5
"""Share of a chunk's square of tokens that a kernel computes up to the diagonal."""

WIDE = 4.0
"""Bytes of an element of decays, steps, products inside chunks and new states: fp32."""


@dataclass(frozen=True)
class Local:
    """One GPU's part of a mixer, and the microbatch it works on.

    rows, chunks   tokens, and chunks of them
    v, k           widths of its values and of its keys
    heads, groups  of values and of keys
    p, n, c        widths of a head's values and keys; tokens of a chunk
    state          elements of the states in front of all chunks
    dtype          16-bit format
    """

    rows: float
    chunks: float
    v: float
    k: float
    heads: float
    groups: float
    p: int
    n: int
    c: int
    state: float
    dtype: str

    @classmethod
    def of(cls, mixer: LinearMixer, rows: float, tp: int, dtype: str) -> Local:
        """The part of one of `tp` tensor-parallel ranks."""
        v, k, chunks = mixer.values / tp, mixer.keys / tp, max(rows / mixer.chunk, 1.0)
        sizes = (mixer.value_dim, mixer.key_dim, mixer.chunk)
        heads, groups = mixer.heads / tp, mixer.key_heads / tp
        return cls(rows, chunks, v, k, heads, groups, *sizes, chunks * v * mixer.key_dim, dtype)

    def products(
        self,
        name: str,
        shape: tuple[float, float, float],
        batch: float,
        moved: float,
        *,
        share: float = 1.0,
        steps: float = 1,
    ) -> Operator:
        """A Triton kernel of products m x k times k x n, `batch` of them in every one of `steps` rounds.

        moved  HBM traffic of all rounds [byte]
        share  of the products that is computed
        """
        m, n, k = (max(round(side), 1) for side in shape)
        each, rounds = max(round(batch), 1), max(round(steps), 1)
        flops = 2.0 * m * n * k * each * rounds * share
        phase = _phase(name)
        return Operator(name, "scan", flops, moved, self.dtype, m, n, k, each, phase, 1, rounds, 1)

    def stream(self, name: str, moved: float, launches: int = 1, tuned: int = 0) -> Operator:
        """Kernels that memory limits.

        moved  HBM traffic of all of them [byte]
        tuned  those of them that are Triton's, chosen by its autotuner; the others are PyTorch's or CUDA's
        """
        return Operator(
            name, "memory", 0.0, moved, self.dtype, phase=_phase(name), launches=launches, tuned=tuned
        )


def block(forward: Operator, *backward: Operator) -> Block:
    """A kernel and those of its gradients, what runs again for them included."""
    return Block(forward, backward)


def _phase(name: str) -> Phase:
    """Kernels of the backward pass are named after the forward one, and what they are behind a comma."""
    return "backward_input" if ", " in name else "forward"
