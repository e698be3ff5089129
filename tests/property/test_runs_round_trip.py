"""What an export writes for a framework is read back as the same job."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.runs import Asked, read_run
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.megatron import megatron
from railwright.search.exports.torchtitan import torchtitan
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.software.narrow_weights import FORMATS

MODELS = (
    "llama-3.1-8b",
    "llama-3.1-405b",
    "gpt-3-175b",
    "qwen3-32b",
    "mixtral-8x7b",
    "qwen3-235b-a22b",
    "deepseek-v3",
)
SIZES = st.sampled_from([1, 2, 4])


@st.composite
def layouts(draw: st.DrawFn, arch: Transformer) -> Layout:
    """Layouts that Megatron-LM has arguments for."""
    tensor, pipeline, context = draw(SIZES), draw(SIZES), draw(SIZES)
    per_stage = arch.layers // pipeline
    even = pipeline > 1 and arch.layers % pipeline == 0
    virtual = draw(st.sampled_from([v for v in (1, 2, 4) if per_stage % v == 0])) if even else 1
    uneven: dict[str, Any] = {}
    if pipeline > 1 and not even:
        sizes = [arch.layers // (pipeline * virtual)] * (pipeline * virtual)
        sizes[0] += arch.layers - sum(sizes)
        uneven = {"layers_per_stage": tuple(sizes)}
    again = draw(
        st.sampled_from(
            [
                {},
                {"recompute": "full"},
                {"recompute": "selective"},
                {"recompute": "full", "recompute_layers": 2},
            ]
        )
    )
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=virtual,
        context=context,
        context_kind=draw(st.sampled_from(["ring", "all-to-all", "all-gather"])) if context > 1 else "ring",
        expert=draw(SIZES) if arch.is_moe else 1,
        expert_tensor=draw(st.sampled_from([None, 1])) if arch.is_moe and tensor > 1 else None,
        sequence_parallel=tensor > 1 and (arch.is_moe or draw(st.booleans())),
        zero=draw(st.sampled_from([0, 1, 2, 3])),
        **uneven,
        **again,
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[TrainingJob, Transformer, int]:
    """A job, its model and its data-parallel size."""
    name = draw(st.sampled_from(MODELS))
    arch = load_model(name)
    layout = draw(layouts(arch))
    data, micro = 4, draw(st.sampled_from([1, 2]))
    dtype = draw(st.sampled_from(["bf16", "fp16", "fp8", "fp8_block", "mxfp8", "nvfp4"]))
    job = TrainingJob(
        name="run",
        model=name,
        gpus=layout.tensor * layout.pipeline * layout.context * data,
        sequence=2048,
        global_batch=data * micro * 4,
        micro_batch=micro,
        tokens=1e9,
        dtype=dtype,
        amax_over=draw(st.sampled_from(["stage", "none"])) if dtype == "fp8" else None,
        gradient_dtype=draw(st.sampled_from([None, "bf16"])) if dtype != "fp16" else None,
        fp8_param_gather=(
            draw(st.sampled_from([None, False])) if dtype in FORMATS and layout.zero in (1, 2) else None
        ),
        # narrow states want the distributed optimizer
        moment_dtype=draw(st.sampled_from(["fp32", "bf16"])) if layout.zero else "fp32",
        layout=layout,
        overlap=Overlap(
            dp=draw(st.booleans()), tp=layout.sequence_parallel and not arch.is_moe and dtype == "bf16"
        ),
        hidden_dropout=draw(st.sampled_from([None, 0.1])),
        attention_dropout=draw(st.sampled_from([None, 0.2])),
        attention_backend=draw(st.sampled_from([None, "fused", "flash"])),
        unfused=tuple(draw(st.sets(st.sampled_from(["loss", *(["router"] if arch.is_moe else [])])))),
    )
    return job, arch, data


@settings(max_examples=80)
@given(runs())
def test_megatrons_arguments_say_what_they_were_written_for(
    run: tuple[TrainingJob, Transformer, int],
) -> None:
    job, arch, data = run
    lines = megatron(job, arch, Hosts(data, gpu="h100"))
    # what it has no argument for is said in a comment, and cannot come back
    assume(not any(line.startswith("# master weights") for line in lines))
    found = read_run("\n".join(lines), "run.args", Asked(name="run", gpus=job.gpus))
    read = TrainingJob.model_validate(found.fields)
    assert found.config is None
    assert _comparable(read, arch) == _comparable(job, arch)
    assert not [note for note in found.notes if note.startswith("not read")]


def _comparable(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """A job but for its tokens, which no export has, and with what follows from the rest."""
    plain = job.model_dump(exclude={"tokens", "master"})
    plain["unfused"] = sorted(plain["unfused"])
    plain["gradient_dtype"] = plain["gradient_dtype"] or "fp32"
    plain["amax_over"] = plain["amax_over"] if job.dtype == "fp8" else None
    plain["layout"]["expert_tensor"] = job.layout.expert_cut if arch.is_moe else None
    return plain


@settings(max_examples=60)
@given(
    st.sampled_from(["llama-3.1-8b", "llama-3.1-405b", "qwen3-30b-a3b"]),
    SIZES,
    SIZES,
    st.sampled_from([1, 2, 4]),
    st.data(),
)
def test_torchtitans_file_says_what_it_was_written_for(
    name: str, tensor: int, context: int, pipeline: int, data: st.DataObject
) -> None:
    arch, replicas = load_model(name), 4
    schedules = ["auto", "gpipe", "zb-v", "dualpipe-v"]
    schedule = data.draw(st.sampled_from(schedules)) if pipeline > 1 else "auto"
    # 126 layers divide into two pieces, not into four or more
    pieces = [1, 2] if pipeline > 1 and schedule == "auto" else [1]
    job = TrainingJob(
        name="run",
        model=name,
        gpus=tensor * context * pipeline * replicas,
        sequence=8192,
        global_batch=16,
        micro_batch=1,
        tokens=1e9,
        software="fsdp-2026",
        dtype=data.draw(st.sampled_from(["bf16", "fp8", "fp8_rowwise", "mxfp8"])),
        layout=Layout(
            tensor=tensor,
            context=context,
            context_kind=data.draw(st.sampled_from(["ring", "all-gather"])) if context > 1 else "ring",
            pipeline=pipeline,
            schedule=schedule,
            virtual_pipeline=data.draw(st.sampled_from(pieces)),
            sequence_parallel=tensor > 1,
            expert=data.draw(SIZES) if arch.is_moe else 1,
            zero=3,
            shard=2 * context if data.draw(st.booleans()) else None,
            reshard=pipeline == 1,
            reduce_each=pipeline == 1,
            recompute=data.draw(st.sampled_from(["none", "full"])),
        ),
        overlap=Overlap(tp=tensor > 1 and data.draw(st.booleans())),
    )
    text = "\n".join(torchtitan(job, arch, Hosts(replicas, gpu="h100")))
    found = read_run(text, "run.toml", Asked(name="run", model=name, gpus=job.gpus))
    read = TrainingJob.model_validate(found.fields)
    assert _comparable(read, arch) == _comparable(job, arch)
    assert not [note for note in found.notes if note.startswith("not read")]
