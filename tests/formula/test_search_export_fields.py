"""Every field of a job is a setting of the framework an export is written for, or a comment in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import export
from railwright.search.training.result import Candidate
from railwright.spec.dataset import Data
from railwright.spec.load import load_study
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Muon, Overlap, TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, changed, job, machine

STAGED: dict[str, object] = {"pipeline": 2}
SHARDED: dict[str, object] = {"zero": 3}
FIELDS: list[tuple[str, dict[str, object], object]] = [
    # field, the layout beside which it does something, and a value that is not its default
    ("gpus", {}, 8),
    ("servers", {}, (1, 0)),
    ("gpus_per_server", {}, 4),
    ("sequence", {}, 2048),
    ("sample_length", {}, 256),
    ("global_batch", {}, 128),
    ("micro_batch", {}, 2),
    ("dtype", {}, "fp8"),
    ("dtype_also", {"dtype": "mxfp8"}, ("head",)),
    ("dtype_also", {"dtype": "fp8"}, ("attention",)),
    ("activation_input_dtype", {}, "fp8"),
    ("optimizer", {}, "muon"),
    ("muon", {"optimizer": "muon"}, Muon(steps=10)),
    ("muon", {"optimizer": "muon"}, Muon(tp_mode="blockwise")),
    ("moment_dtype", {}, "bf16"),
    ("master", {}, "remainder"),
    ("gradient_dtype", {}, "bf16"),
    ("apex_bucket", {"software": "nemo-2024"}, 125 * 2.0**20),
    ("ddp_bucket", {}, 768e6),
    ("fp8_param_gather", {"dtype": "fp8"}, False),
    ("lora", {}, Lora(rank=8)),
    ("chunked_loss", {"software": "fsdp-2025"}, "torchtitan"),
    ("chunked_loss", {"software": "fsdp-2025"}, "liger"),
    ("loss_chunks", {"software": "fsdp-2025", "chunked_loss": "torchtitan"}, 4),
    ("data", {}, Data(workers=4)),
    ("data", {}, Data(prepare="10 ms")),
    ("expert_imbalance", {}, 1.25),
    ("expert_capacity", {}, 1.5),
    ("expert_nodes", {}, 2),
    ("dispatch_dtype", {"dtype": "mxfp8"}, "fp8"),
    ("cuda_graphs", {}, ("attention",)),
    ("cuda_graphs", {}, ("step",)),
    ("cuda_graphs", {}, ("mlp",)),
    ("unfused", {}, ("rotary",)),
    ("unfused", {}, ("router",)),
    ("unfused", {}, ("loss",)),
    ("unfused", {}, ("norm",)),
    ("unfused", {}, ("activation",)),
    ("unfused", {}, ("experts",)),
    ("launch_blocking", {}, True),
    ("hidden_dropout", {}, 0.1),
    ("attention_dropout", {}, 0.1),
    ("attention_backend", {}, "flash"),
    ("amax_over", {"dtype": "fp8"}, "tensor"),
    ("software", {}, "nemo-2024"),
    ("layout.tensor", {}, 2),
    ("layout.pipeline", {}, 2),
    ("layout.virtual_pipeline", STAGED, 2),
    ("layout.schedule", STAGED, "gpipe"),
    ("layout.layers_per_stage", STAGED, (6, 3)),
    ("layout.ends_as_layers", STAGED, "embedding"),
    ("layout.context", {}, 2),
    ("layout.context_kind", {"context": 2}, "all-to-all"),
    ("layout.expert", {}, 8),
    ("layout.expert_tensor", {"tensor": 2}, 1),
    ("layout.sequence_parallel", {"tensor": 2}, True),
    ("layout.zero", {}, 0),
    ("layout.zero", {}, 3),
    ("layout.shard", {}, 8),
    ("layout.shard", {"zero": 3}, 8),
    ("layout.reshard", SHARDED, False),
    ("layout.reduce_each", SHARDED, False),
    ("layout.recompute", {}, "full"),
    ("layout.recompute_modules", {"recompute": "selective"}, ("mlp",)),
    ("layout.recompute_layers", {"recompute": "full"}, 3),
    ("layout.offload", {}, ("activations",)),
    ("layout.offload", {"zero": 3, "expert": 1}, ("weights",)),
    ("layout.offload_layers", {"offload": ("activations",)}, 3),
    ("layout.placement", {}, "spread"),
    ("overlap.dp", {}, False),
    ("overlap.gather", {"zero": 1}, False),
    ("overlap.aligned", {"zero": 1, "pipeline": 2, "virtual_pipeline": 2}, False),
    ("overlap.tp", {"tensor": 2, "sequence_parallel": True}, True),
    ("overlap.ep", {}, True),
    ("overlap.shared", {}, True),
    ("overlap.pp", {"pipeline": 2, "virtual_pipeline": 2}, False),
    ("overlap.cp", {"context": 2}, False),
    ("overlap.offload", {"offload": ("optimizer",)}, True),
    ("overlap.prefetch", SHARDED, 2),
]
NOTHING_TO_SET = {"name", "model", "tokens", "layout", "overlap"}
"""A name, two facts that no step depends on (a model's own arguments are its user's), and two sections."""


def test_every_field_of_a_job_is_tried() -> None:
    every = {*TrainingJob.model_fields} - NOTHING_TO_SET
    every |= {f"layout.{k}" for k in Layout.model_fields} | {f"overlap.{k}" for k in Overlap.model_fields}
    assert {name for name, _, _ in FIELDS} == every


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan"])
@pytest.mark.parametrize(("field", "beside", "value"), FIELDS, ids=[f"{n}={v}" for n, _, v in FIELDS])
def test_no_field_of_a_job_is_dropped(
    field: str, beside: dict[str, object], value: object, form: str
) -> None:
    """Each is a setting of the framework, or a comment."""
    arch = replace(MOE, layers=9, shared_experts=1, shared_ffn=512)
    of_job = {k: v for k, v in beside.items() if k in TrainingJob.model_fields}
    base = changed(job(**{"expert": 4} | {k: v for k, v in beside.items() if k not in of_job}), **of_job)
    section, _, name = field.rpartition(".")
    other = changed(getattr(base, section), **{name: value}) if section else value  # type: ignore[arg-type]
    step = simulate(job(), DENSE, machine(2))  # only the head is of the step

    def text(one: TrainingJob) -> str:
        data = 16 // (one.layout.tensor * one.layout.pipeline * one.layout.context)
        return export(Candidate({}, one, step, 0.0, 0.0), arch, Hosts(data), form)

    assert text(base) != text(changed(base, **{section or name: other}))


def test_an_exported_study_is_the_same_job(tmp_path: Path) -> None:
    off = Overlap(tp=False, dp=False, pp=False)
    every = job(pipeline=2, zero=2, recompute="selective", overlap=off, dtype="fp8").model_copy(
        update={
            "micro_batch": 2, "data": Data(workers=4), "fp8_param_gather": False,
            "apex_bucket": 125 * 2.0**20, "ddp_bucket": 768e6,
            "amax_over": "tensor", "cuda_graphs": ("attention", "mlp"), "expert_capacity": 1.5,
            "expert_imbalance": 1.25, "expert_nodes": 2, "gpus": 16, "gpus_per_server": 8,
            "hidden_dropout": 0.1, "attention_dropout": 0.2, "attention_backend": "flash",
            "gradient_dtype": "bf16", "launch_blocking": True, "lora": Lora(rank=8, targets=("qkv",)),
            "master": "remainder", "model": "mixtral-8x7b", "moment_dtype": "bf16", "dtype_also": ("head",),
            "sample_length": 256, "optimizer": "muon", "muon": Muon(steps=10),
            "dispatch_dtype": "fp8", "activation_input_dtype": "fp8",
            "servers": (1, 0), "software": "nemo-2024", "tokens": 1234567890123.0,
                "unfused": ("router",), "chunked_loss": "liger", "loss_chunks": 4,
        }
    )  # fmt: skip
    defaults = {k: f.default for k, f in TrainingJob.model_fields.items() if not f.is_required()}
    assert [k for k, value in defaults.items() if getattr(every, k) == value] == []
    cluster = machine(2)
    plain = job(pipeline=2)
    step, hosts = simulate(plain, DENSE, cluster), Hosts.of(plain, cluster)
    text = export(Candidate({}, every, step, 0.0, 0.0), DENSE, hosts, "study")
    file, compute = (
        tmp_path / "study.yaml",
        "{servers: 2, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}",
    )
    file.write_text(f"railwright: 1\nname: again\ncluster: {compute}\n{text}")
    assert load_study(file).jobs == (every,)
