"""What one engine step takes, tabulated: the one thing the simulator of requests asks of the physics.

A step's time depends on its batch only through a few numbers, so a replica's physics is tabulated once and
the simulator interpolates: an hour of traffic is a million steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepTable:
    """Times of one replica's engine steps [s], by what is in the batch.

    A step with T tokens in all, of them D requests decoding with mean context c and prefill chunks i of n_i
    new tokens after p_i cached ones, takes on the GPU

        rows(T) + decode(D, c) + sum_i prefill(n_i, p_i)

    where `rows` is `decode_rows` for a step without prefill and `mixed_rows` with it: all but attention
    (products, experts, norms, collectives, sampling).  The host adds `host_step` + `host_request` for every
    request in the batch: beside the GPU's time where the engine `overlaps` it, after it otherwise.

    tokens       (K,) grid of tokens in the batch, rising
    decode_rows  (K,) seconds, replayed CUDA graphs where the engine has them
    mixed_rows   (K,) seconds
    requests     (R,) grid of decoding requests, rising
    contexts     (C,) grid of tokens of context, rising; also the grid of p_i
    decode       (R, C) seconds of decode attention
    mixed_decode (R, C) the same in a step with prefill, None: as without
    chunks       (N,) grid of new tokens of one chunk, rising
    prefill      (N, C) seconds of prefill attention of one chunk
    stages       pipeline stages: a batch passes them one after another, `stages` batches are in flight, and
                 the times above are those of the slowest stage
    hop          seconds from one stage to the next
    kv_tokens    tokens of keys and values that fit beside the weights
    block        tokens of one block of keys and values
    host_step, host_request, overlaps  see above
    request      seconds spent on a request outside steps (tokenizer, HTTP), before its first token
    intake       seconds of them for which it holds the frontend's one process: requests pass one by one

    beside       seconds that each decode adds for each token of the step's longest chunk beyond 64
                 (serving/kernels/flash2.py)
    groups       attention-data groups: each computes its own prompts, and all end a layer together
    group_rows   (K,) the part of `mixed_rows` that a group's own tokens decide, by those of the fullest
    padded       most tokens of a group up to which all are padded to the fullest's in a step with prompts

    With attention data parallelism decodes are dealt evenly over the groups of the replica; a step with
    prompts takes rows(T) + group(m) - group(T / groups), m the tokens of the fullest group, and of the
    attention of prompts the fullest group's.
    With speculative decoding T counts the tokens checked; drafting them is in `decode_rows` and `decode`.

    Between grid points values are interpolated linearly; beyond the last they grow with its slope.
    """

    tokens: Floats
    decode_rows: Floats
    mixed_rows: Floats
    requests: Floats
    contexts: Floats
    decode: Floats
    chunks: Floats
    prefill: Floats
    stages: int
    hop: float
    kv_tokens: int
    block: int
    host_step: float
    host_request: float
    overlaps: bool
    request: float
    intake: float = 0.0
    mixed_decode: Floats | None = None
    beside: float = 0.0
    groups: int = 1
    group_rows: Floats | None = None
    padded: int = 0
