"""Memory that the collectives of an eager engine hold until they have run, and what making room takes.

torch.distributed runs a collective on a stream of its own and records its buffer there, so PyTorch's caching
allocator may not use the buffer again before the collective has run (ProcessGroupNCCL, recordStream).  A host
launches prompts far faster than a GPU computes them, so nearly all of a step's buffers are held at once.
When what lies beside weights and cache runs out, the allocator waits for the GPU, frees every cached block
and allocates anew, and the GPU idles.  Each process does so when its own memory ends, the others wait for it
in their next collective: the ranks' times add up.

Sources: vllm/worker/worker.py, which sets TORCH_NCCL_AVOID_RECORD_STREAMS for this reason from 0.2.7 on (vllm
issue 2248), pytorch pull request 76861 (allocator thrashing), pytorch issue 132292 (ranks apart).
"""

from __future__ import annotations

import numpy as np

from railwright.serving.engine.memory import EngineMemory
from railwright.serving.engine.operators import Stage, launch_seconds, meetings
from railwright.serving.engine.pace import eager_row
from railwright.serving.kernels.times import Floats

CONTEXT = 1.0e9
"""CUDA context and NCCL's buffers [byte], an estimate: 2,048 tokens of BLOOM-176B, which do not run out of
room on eight A100, allow no more than 1.06e9."""


def held_bytes(stage: Stage, tokens: Floats, busy: Floats) -> Floats:
    """Buffers of a step's all-reduces that have not run when the host has launched them all. [byte]

    tokens, busy  of the step, and its GPU's time [s]
    """
    every = (meetings(stage) + 1) * np.asarray(tokens, float) * stage.arch.hidden * 2.0
    ahead = 1.0 - launch_seconds(stage, mixed=True) / np.maximum(busy, 1e-9)
    return np.asarray(every * np.maximum(ahead, 0.0))


def room_bytes(stage: Stage, memory: EngineMemory) -> float:
    """Memory beside weights, cache and context: what the engine leaves, and its largest step's. [byte]"""
    return memory.capacity - memory.allowed - CONTEXT + memory.working


def emptying_seconds(stage: Stage, memory: EngineMemory, tokens: Floats, busy: Floats) -> Floats:
    """Time of making room where a step's collectives hold more than there is, by its tokens. [s]"""
    if not stage.place.engine.eager or stage.layout.tensor == 1:
        return np.zeros_like(busy)
    held = held_bytes(stage, tokens, busy)
    each = stage.layout.tensor * eager_row(stage.kernels.gpu)["emptying"]
    return np.where(held > room_bytes(stage, memory), each * held, 0.0)
