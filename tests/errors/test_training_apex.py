"""Apex's distributed optimizer is refused where NeMo does not run it, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import SpecError
from railwright.model.shape.architecture import Transformer
from railwright.spec.load import load_study
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from training_cases import DENSE, MOE, changed, job, refusal

APEX: dict[str, object] = {"software": "nemo-2024", "apex_bucket": 125 * 2.0**20}


@pytest.mark.parametrize(
    ("arch", "wanted", "told"),
    [
        (DENSE, changed(job(), apex_bucket=APEX["apex_bucket"]), "write software: nemo-2024"),
        (DENSE, changed(job(zero=0), **APEX), "layout.zero is 0; set it to 1"),
        (DENSE, changed(job(zero=3), **APEX), "layout.zero is 3; set it to 1"),
        (DENSE, changed(job(shard=4), **APEX), "layout.shard divides ranks"),
        (DENSE, changed(job(), **APEX, optimizer="muon"), "write optimizer: adam"),
        (MOE, changed(job(), **APEX), "mixtures of experts such as moe-8 run with Megatron's"),
        (DENSE, changed(job(), **APEX, lora=Lora(rank=8)), "adapters (lora) run with plain Adam"),
        (DENSE, changed(job(offload=("optimizer",)), **APEX), "leave 'optimizer' out of it"),
    ],
    ids=["software", "zero 0", "zero 3", "shard", "muon", "experts", "adapters", "offload"],
)
def test_what_nemo_does_not_run_is_refused(arch: Transformer, wanted: TrainingJob, told: str) -> None:
    said = refusal(wanted, arch)
    assert told in said
    assert "apex_bucket is of Apex's distributed optimizer (distributed_fused_adam)" in said
    assert said.endswith("or leave apex_bucket out for Megatron's.")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("apex_bucket: 125", "no unit"),
        ("apex_bucket: 0 MiB", "apex_bucket"),
        ("bucket_cap_mb: 125", "write 'apex_bucket', with its unit, e.g. 125 MiB"),
    ],
)
def test_a_size_has_a_unit_and_a_name(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "railwright: 1\nname: buckets\n"
        "cluster: {servers: 4, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}\n"
        "jobs:\n  - name: pretrain\n    model: llama-2-7b\n    software: nemo-2024\n    sequence: 4096\n"
        f"    global_batch: 128\n    tokens: 1e9\n    {line}\n"
    )
    with pytest.raises(SpecError) as said:
        load_study(file)
    assert told in str(said.value)
