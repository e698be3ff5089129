"""What torchtitan's TOML files say, by the names of today and those of 2024."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.runs import Asked, read_run
from railwright.spec.training import TrainingJob

TODAY = """\
[model]
name = "llama3"
flavor = "405B"
converters = ["quantize.linear.float8"]
[training]
local_batch_size = 2
seq_len = 8192
steps = 3000
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 8
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[quantize.linear.float8]
recipe_name = "rowwise"
"""
EARLIER = """\
[model]
name = "llama3"
flavor = "405B"
converters = "float8"
[training]
batch_size = 2
seq_len = 8192
steps = 3000
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 8
tensor_parallel_degree = 8
compile = true
[experimental]
pipeline_parallel_degree = 1
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = 'full'
[float8]
recipe_name = "rowwise"
"""


def read(text: str, **asked: Any) -> tuple[TrainingJob, tuple[str, ...]]:
    found = read_run(text, "run.toml", Asked(**asked))
    return TrainingJob.model_validate(found.fields), found.notes


def test_both_generations_of_names_are_one_job() -> None:
    job, notes = read(TODAY)
    assert read(EARLIER) == (job, notes)
    assert (job.model, job.gpus, job.global_batch, job.micro_batch) == ("llama-3.1-405b", 128, 32, 2)
    assert (job.layout.zero, job.layout.shard, job.layout.recompute) == (3, 8, "full")
    assert (job.dtype, job.overlap.tp, job.software) == ("fp8_rowwise", True, "fsdp-2025")
    assert job.tokens == 3000 * 32 * 8192
    assert notes == ()


def test_what_is_left_out_is_torchtitans_default() -> None:
    """job_config.py: eight sequences of 2,048, every second layer computed again, nothing compiled, keys and
    values gathered by context-parallel ranks."""
    text = """\
[model]
name = "llama3"
flavor = "8B"
[training]
[parallelism]
context_parallel_degree = 2
"""
    job, notes = read(text, gpus=16)
    assert (job.sequence, job.micro_batch, job.global_batch) == (2048, 8, 64)
    assert (job.layout.recompute, job.layout.recompute_layers) == ("full", 16)
    assert job.layout.context_kind == "all-gather"
    assert (job.software, job.unfused) == ("fsdp-2024-eager", ("rotary", "norm", "activation"))
    assert any("nothing is compiled" in note for note in notes)


@pytest.mark.parametrize(
    ("components", "software", "told"),
    [
        ('["model", "loss"]', "fsdp-2025", ""),
        ('["model"]', "fsdp-2024", ""),
        ('["loss"]', "fsdp-2024-eager", "the loss alone is compiled, predicted is PyTorch's"),
    ],
)
def test_what_is_compiled(components: str, software: str, told: str) -> None:
    """As deepseek_v3_16b.toml of October 2025, whose experts run as PyTorch's operations."""
    text = f"""\
[model]
name = "deepseek_v3"
flavor = "16B"
[training]
local_batch_size = 8
seq_len = 4096
[parallelism]
expert_parallel_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
components = {components}
"""
    job, notes = read(text, gpus=64)
    assert (job.model, job.layout.expert, job.software) == ("deepseek-v2-lite", 8, software)
    assert job.layout.recompute_modules == ("ops",)
    assert bool(told) == bool(notes)
    assert all(told in note for note in notes)


@pytest.mark.parametrize(
    ("schedule", "layers", "expected"),
    [
        ("1F1B", None, {}),
        ("Interleaved1F1B", None, {"virtual_pipeline": 2}),
        ("Interleaved1F1B", 8, {"virtual_pipeline": 4}),
        ("ZBVZeroBubble", None, {"schedule": "zb-v"}),
        ("InterleavedZeroBubble", None, {"schedule": "zb-h1", "virtual_pipeline": 2}),
    ],
)
def test_schedules(schedule: str, layers: int | None, expected: dict[str, Any]) -> None:
    """Stages of so many layers, of which embedding and output count as one each."""
    each = f"pipeline_parallel_layers_per_stage = {layers}\n" if layers else ""
    text = TODAY.replace(
        "[parallelism]\n",
        f'[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = "{schedule}"\n{each}',
    )
    layout = read(text)[0].layout
    plain = read(TODAY)[0].layout.model_dump() | {"pipeline": 4, "reshard": False, "reduce_each": False}
    assert layout.model_dump() == plain | expected


def test_a_model_with_prediction_layers_is_written_down_without() -> None:
    text = TODAY.replace('"llama3"', '"deepseek_v3"').replace('"405B"', '"671B"')
    found = read_run(text, "run.toml", Asked())
    assert found.config is not None
    assert (found.arch.layers, found.arch.mtp_layers, found.arch.experts) == (61, 0, 256)
