"""Dropout, of adapters and of hidden states and scores, is refused where nobody knows what it takes."""

from __future__ import annotations

from dataclasses import replace

from railwright.spec.lora import Lora
from railwright.training.checks.plan import check
from training_cases import DENSE, changed, job, machine, refusal


def test_dropout_that_a_software_has_not_is_refused() -> None:
    fabric = machine(4).network.fabric
    behind = Lora(rank=8, dropout=0.1, dropout_position="post")
    text = refusal(changed(job(zero=3), lora=behind, software="fsdp-2025"), DENSE)
    assert "lora.dropout_position is post" in text
    assert "Set it to pre" in text
    check(changed(job(), lora=behind), DENSE, fabric)
    check(changed(job(zero=3), lora=Lora(rank=8, dropout=0.1), software="fsdp-2025"), DENSE, fabric)
    for software in ("xla-2024", "xla-2025"):
        text = refusal(changed(job(zero=3), lora=Lora(rank=8, dropout=0.1), software=software), DENSE)
        assert "lora.dropout is 0.1" in text
        assert "set it to 0" in text


def test_dropout_of_a_model_that_is_not_known_is_refused() -> None:
    both = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    text = refusal(changed(job(zero=3), software="xla-2025", **both), DENSE)
    assert "hidden_dropout and attention_dropout above 0" in text
    assert "set 0, or choose software that is not JAX's" in text
    check(changed(job(zero=3), software="xla-2025", hidden_dropout=0.0), DENSE, machine(4).network.fabric)
    chosen = replace(DENSE, attention="mla", kv_lora=64, rope_dim=32, v_head_dim=64, index_topk=64)
    text = refusal(changed(job(), attention_dropout=0.1), chosen)
    assert "attention_dropout is 0.1, and dense-8 attends to keys that it chooses" in text
