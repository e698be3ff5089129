"""What torchtitan's TOML files say, by the names of today and those of 2024."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.errors import RailwrightError
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


RELEASE = "attention is predicted as torchtitan runs it since October 2025"


def read(text: str, **asked: Any) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job, and what is told but for the release that is taken (`test_attention_is_that_of_a_release`)."""
    found = read_run(text, "run.toml", Asked(**asked))
    notes = tuple(note for note in found.notes if not note.startswith(RELEASE))
    return TrainingJob.model_validate(found.fields), notes


def test_both_generations_of_names_are_one_job() -> None:
    job, notes = read(TODAY)
    earlier, same = read(EARLIER)
    assert (earlier.model_copy(update={"software": job.software}), same) == (job, notes)
    assert (job.model, job.gpus, job.global_batch, job.micro_batch) == ("llama-3.1-405b", 128, 32, 2)
    assert (job.layout.zero, job.layout.shard, job.layout.recompute) == (3, 8, "full")
    assert (job.dtype, job.overlap.tp, job.software) == ("fp8_rowwise", True, "fsdp-2026")
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
    assert (job.software, job.unfused) == ("fsdp-2026-eager", ("rotary", "norm", "activation"))
    assert any("nothing is compiled" in note for note in notes)


@pytest.mark.parametrize(
    ("components", "software", "told"),
    [
        ('["model", "loss"]', "fsdp-2026", ""),
        ('["model"]', "fsdp-2024", ""),
        ('["loss"]', "fsdp-2026-eager", "the loss alone is compiled, predicted is PyTorch's"),
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
    ("keys", "software"),
    [
        (("local_batch_size", "batch_size"), "fsdp-2025"),
        (("[quantize.linear.float8]", "[float8]"), "fsdp-2025"),
        (("[parallelism]", "[experimental]"), "fsdp-2024"),
        (("enable = true", "enable = false"), "fsdp-2026-eager"),
    ],
)
def test_keys_tell_releases_of_before_october_2025(keys: tuple[str, str], software: str) -> None:
    """Each was renamed before torchtitan preferred cuDNN's attention, and no later release reads it."""
    found = read_run(TODAY.replace(*keys), "run.toml", Asked())
    assert found.fields["software"] == software
    assert any(note.startswith(RELEASE) for note in found.notes) is ("2026" in software)
    assert "attention_backend" not in found.fields


@pytest.mark.parametrize(
    ("compiled", "older", "backend"),
    [
        ("enable = true", "--software fsdp-2025", None),
        ("enable = false", "--software fsdp-2024-eager", None),
        ('enable = true\ncomponents = ["model"]', "attention_backend: flash", "fused"),
    ],
)
def test_attention_is_that_of_a_release(compiled: str, older: str, backend: str | None) -> None:
    """torchtitan asks for cuDNN's on every GPU since 6a3a9da9 (9 October 2025); its file does not say so."""
    found = read_run(TODAY.replace("enable = true", compiled, 1), "run.toml", Asked())
    (told,) = (note for note in found.notes if note.startswith(RELEASE))
    assert told.endswith(f"with an older one say {older}")
    assert TrainingJob.model_validate(found.fields).attention_backend == backend


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


@pytest.mark.parametrize(
    ("section", "line", "told"),
    [
        (
            "parallelism",
            "pipeline_paralel_degree = 4",
            "not read: [parallelism] pipeline_paralel_degree; did you mean 'pipeline_parallel_degree'",
        ),
        (
            "parallelism",
            "pipeline_parallel_degre = 4",
            "not read: [parallelism] pipeline_parallel_degre; did you mean 'pipeline_parallel_degree'",
        ),
        ("parallelism", "context_parallel_dregree = 4", "did you mean 'context_parallel_degree'"),
        (
            "activation_checkpointing",
            'mode = "none"',
            "not read: [activation_checkpointing] mode; did you mean 'activation_checkpoint'?",
        ),
        ("parallelism", "new_kind_of_zzz = 1", "not read: [parallelism] new_kind_of_zzz"),
        ("compile", 'backend = "aot_eager"', "not read: [compile] backend"),
        ("training", 'dtype = "float16"', "weights, gradients and moments of [training] dtype float16"),
        ("training", 'mixed_precision_param = "float32"', "parameters are multiplied in fp32"),
        ("training", "deterministic = true", "deterministic kernels"),
        ("optimizer", 'name = "Lion"', "optimizer Lion is not modelled; AdamW is predicted"),
        ("optimizer", 'implementation = "for-loop"', "implementation for-loop launches more kernels"),
        ("optimizer", "early_step_in_backward = true", "updated within the backward pass"),
        ("parallelism", "disable_loss_parallel = true", "takes the logits of the whole vocabulary"),
        ("training", "enable_loss_parallel = false", "takes the logits of the whole vocabulary"),
        ("model", 'converters = ["float8"]', "FSDP gathers weights in 16 bits"),
    ],
)
def test_every_setting_that_matters_is_respected_or_told(section: str, line: str, told: str) -> None:
    """torchtitan itself refuses names that it does not have (config/manager.py, _dict_to_dataclass)."""
    given = {"converters": 'converters = ["quantize.linear.float8"]\n', "mode": 'mode = "full"\n'}
    text = TODAY.replace(given.get(line.split(" ")[0], "\0"), "").replace('recipe_name = "rowwise"\n', "")
    header = f"[{section}]\n"
    changed = text.replace(header, f"{header}{line}\n") if header in text else f"{text}{header}{line}\n"
    assert any(told in note for note in read(changed)[1])


@pytest.mark.parametrize(
    "key",
    [
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "tensor_parallel_degree",
        "context_parallel_degree",
        "pipeline_parallel_degree",
        "expert_parallel_degree",
    ],
)
def test_a_size_with_any_letter_less_is_told_as_not_read(key: str) -> None:
    for name in sorted({key[:i] + key[i + 1 :] for i in range(len(key))}):
        notes = read(TODAY.replace("[parallelism]\n", f"[parallelism]\n{name} = 4\n"))[1]
        assert any(note.startswith(f"not read: [parallelism] {name}; did you mean '{key}'") for note in notes)


def test_settings_at_their_default_and_of_parts_that_are_not_used_are_not_told() -> None:
    """As presets write them out: llama3_405b.toml of torchtitan e347b1e."""
    idle = """\
[job]
dump_folder = "./outputs"
[optimizer]
lr = 1e-4
implementation = "fused"
[lr_scheduler]
warmup_steps = 600
[checkpoint]
interval = 500
[debug]
seed = 1
[quantize.grouped_mm.float8]
fqns = ["experts"]
"""
    unused = "[parallelism]\npipeline_parallel_split_points = ['layers.4']\nexpert_parallel_degree = 1\n"
    text = TODAY.replace("[parallelism]\n", unused).replace("[training]\n", "[training]\ndataset = 'c4'\n")
    assert read(text + idle)[1] == ()


def test_what_is_computed_again_by_default_is_told_as_torchtitans_own() -> None:
    without = TODAY.replace('[activation_checkpoint]\nmode = "full"\n', "")
    (note,) = read(without)[1]
    assert note.startswith("one of 2 layers is computed again, torchtitan's default where")
    every = without + "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '3'\n"
    assert read(every)[1] == (
        "one of 3 layers is computed again; predicted are as many at the front of each stage",
    )


def test_microbatches_of_a_stage_are_counted_or_sized() -> None:
    """`pipeline_parallel_microbatches` until 2025, `pipeline_parallel_microbatch_size` since."""
    for line, size in (("microbatches = 2", 4), ("microbatch_size = 2", 2)):
        added = f"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_{line}\n"
        text = TODAY.replace("[parallelism]\n", added).replace("local_batch_size = 2", "local_batch_size = 8")
        assert read(text)[0].micro_batch == size


def test_loader_processes_are_those_it_has() -> None:
    job, notes = read(f"{TODAY}[training.dataloader]\nnum_workers = 4\npin_memory = true\n")
    assert (job.data.workers, notes) == (4, ())


@pytest.mark.parametrize(
    ("converters", "told"),
    [
        ('["quantize.linear.float8", "quantize.grouped_mm.float8"]', None),
        ('["quantize.linear.float8"]', "experts are multiplied in 16 bits; fp8_rowwise is predicted"),
        ('["quantize.grouped_mm.float8"]', "experts alone are multiplied in 8 bits; 16 are predicted"),
    ],
)
def test_experts_have_a_converter_of_their_own(converters: str, told: str | None) -> None:
    text = TODAY.replace('"llama3"', '"qwen3"').replace('"405B"', '"30B-A3B"')
    notes = read(text.replace('["quantize.linear.float8"]', converters))[1]
    assert [note for note in notes if "experts" in note] == ([told] if told else [])


def test_stages_that_make_room_for_embedding_and_output_are_told() -> None:
    added = "[parallelism]\npipeline_parallel_degree = 2\n"
    assert any(
        "take the room of 2 layers" in note for note in read(TODAY.replace("[parallelism]\n", added))[1]
    )
    none = "".join(f"pipeline_parallel_{end}_stage_less_layers = 0\n" for end in ("first", "last"))
    assert read(TODAY.replace("[parallelism]\n", added + none))[1] == ()


def test_pieces_are_the_lists_of_their_modules() -> None:
    """Without them InterleavedZeroBubble would have two for each stage; here there are four."""
    ends = [range(10), *(range(k, k + 17) for k in range(10, 112, 17)), range(112, 126)]
    parts = [[f"layers.{k}" for k in end] for end in ends]
    named = [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "output"]]
    added = (
        '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "InterleavedZeroBubble"\n'
        f"module_fqns_per_model_part = {named}\n"
    )
    job, notes = read(TODAY.replace("[parallelism]\n", added))
    assert (job.layout.virtual_pipeline, job.layout.layers_per_stage) == (4, (10, *(17,) * 6, 14))
    assert not [note for note in notes if "stage_less_layers" in note or "not read" in note]


@pytest.mark.parametrize(
    ("schedule", "count", "told"),
    [
        (
            "Interleaved1F1B",
            3,
            "3 pieces with 126 layers are given; expected: as many pieces on each of 2 stages",
        ),
        ("1F1B", 4, "4 pieces with 126 layers are given; expected: one piece on each of 2 stages"),
        ("1F1B", 0, "2 pieces with 125 layers are given; expected: one piece on each of 2 stages"),
    ],
)
def test_pieces_that_are_no_pipeline_are_refused(schedule: str, count: int, told: str) -> None:
    layers = [f"layers.{k}" for k in range(126 if count else 125)]
    pieces = count or 2
    parts = [layers[i * len(layers) // pieces : (i + 1) * len(layers) // pieces] for i in range(pieces)]
    added = (
        f'[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "{schedule}"\n'
        f"module_fqns_per_model_part = {parts}\n"
    )
    with pytest.raises(RailwrightError, match=told):
        read(TODAY.replace("[parallelism]\n", added))


def test_weights_loaded_in_16_bits_have_no_masters_and_gradients_reduced_in_fp32() -> None:
    narrow = TODAY.replace("[training]", '[training]\ndtype = "bfloat16"')
    job, notes = read(narrow)
    assert (job.master, job.gradient_dtype) == ("none", "fp32")
    assert read(TODAY)[0].master == "fp32"
    assert not [note for note in notes if "dtype" in note]


def test_such_weights_on_the_host_are_told_as_those_of_float32() -> None:
    away = TODAY.replace("[training]", '[training]\ndtype = "bfloat16"\nenable_cpu_offload = true')
    job, notes = read(away)
    assert job.master == "fp32"
    assert [note for note in notes if "dtype bfloat16 have no copies in fp32" in note]
