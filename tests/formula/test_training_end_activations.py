"""What embedding and the join of multi-token prediction keep of a pass, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.training.memory.end_activations import embedding_kept, joined_kept
from training_cases import DENSE, changed, job

ROWS = 1024
"""Tokens of a microbatch."""


@pytest.mark.parametrize("layers", [1, 2])
def test_multi_token_prediction_keeps_two_norms_inputs_and_what_it_joins(layers: int) -> None:
    # DeepSeek-V3 (arXiv 2412.19437), section 2.2: hidden states and embeddings, normalised, side by side in
    # front of a product of 2 h columns
    arch = replace(DENSE, mtp_layers=layers)
    byte = layers * ROWS * 2 * (1024 + 1024 + 2 * 1024)
    assert joined_kept(job(), arch) == byte
    assert joined_kept(job(tensor=4, sequence_parallel=True), arch) == byte / 4
    assert joined_kept(job(), DENSE) == 0


def test_an_embedding_keeps_its_norms_input_and_a_mask_of_its_dropout() -> None:
    # 2 bytes an element for the norm's input (BLOOM), 1 for the mask
    normed, elements = replace(DENSE, embedding_norm=True), ROWS * 1024
    old = changed(job(), software="megatron-2022")
    assert embedding_kept(job(), DENSE) == ()
    assert embedding_kept(job(), normed) == (2 * elements,)
    assert embedding_kept(old, DENSE) == (elements,)
    assert embedding_kept(old, normed) == (2 * elements, elements)
