"""What torchtitan is told of a layout, and what it cannot do."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from export_cases import CASES, OFF, exported
from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import FORMS
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from training_cases import DENSE, MOE, changed, job


def test_what_torchtitan_cannot_is_a_comment() -> None:
    text = exported((DENSE, job(tensor=2, overlap=OFF, offload=("activations",))), "torchtitan")
    for said in ("splits norms and residuals", "no switch for it", "offloaded activations"):
        assert said in text


def test_torchtitan_cuts_the_model_as_predicted() -> None:
    """Its own count of stages, ceil((layers + first less + last less) / layers per stage), is the layout's;
    uneven pieces are named module by module."""
    for pipeline, virtual in ((2, 1), (4, 1), (2, 2), (4, 2)):
        one = job(pipeline=pipeline, virtual_pipeline=virtual)
        p = tomllib.loads(exported((DENSE, one), "torchtitan"))["parallelism"]
        less = sum(p[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last"))
        assert -(-(DENSE.layers + less) // p["pipeline_parallel_layers_per_stage"]) == pipeline * virtual
    uneven = tomllib.loads(exported((DENSE, job(pipeline=2, layers_per_stage=(5, 3))), "torchtitan"))
    assert uneven["parallelism"]["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4"],
        ["layers.5", "layers.6", "layers.7", "norm", "output"],
    ]
    assert "pipeline_parallel_layers_per_stage" not in uneven["parallelism"]


def test_torchtitan_uses_every_gpu_once() -> None:
    """replicate x shard x tensor x context x pipeline is the number of GPUs."""
    for case in CASES:
        p = tomllib.loads(exported(case, "torchtitan"))["parallelism"]
        used = p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"]
        used *= p["tensor_parallel_degree"] * p["context_parallel_degree"] * p["pipeline_parallel_degree"]
        assert used == 16


@pytest.mark.parametrize(
    ("context", "shard", "written"),
    [(1, None, (1, 16)), (1, 4, (4, 4)), (4, None, (1, 4)), (4, 8, (2, 2)), (4, 4, (4, 1)), (2, 16, (1, 8))],
)
def test_torchtitan_shards_over_context_ranks_too(
    context: int, shard: int | None, written: tuple[int, int]
) -> None:
    """`shard` counts all ranks that share a copy, torchtitan's degree those of data parallelism alone."""
    text = exported((DENSE, job(zero=3, context=context, shard=shard)), "torchtitan")
    p = tomllib.loads(text)["parallelism"]
    assert (p["data_parallel_replicate_degree"], p["data_parallel_shard_degree"]) == written
    assert "sharded over" not in text


def test_torchtitan_cannot_shard_over_some_context_ranks() -> None:
    text = exported((DENSE, job(zero=3, context=4, shard=2)), "torchtitan")
    p = tomllib.loads(text)["parallelism"]
    assert (p["data_parallel_replicate_degree"], p["data_parallel_shard_degree"]) == (4, 1)
    assert "# parameters sharded over 2 ranks: torchtitan shards them over all 4 context ranks" in text


def test_torchtitan_compiles() -> None:
    """As it is predicted; asynchronous tensor parallelism is refused without."""
    both = tomllib.loads(exported((DENSE, job()), "torchtitan"))
    assert both["compile"] == {"enable": True, "components": ["model", "loss"]}
    for told in ({"unfused": ("loss",)}, {"software": "fsdp-2024"}):
        eager = tomllib.loads(exported((DENSE, changed(job(), **told)), "torchtitan"))
        assert eager["compile"]["components"] == ["model"]


LATER = "# torchtitan 0.3, which is configured in Python, has "


@pytest.mark.parametrize(
    ("arch", "one", "told"),
    [
        (DENSE, changed(job(), optimizer="muon", lora=Lora(rank=8)), ["it: Muon, adapters"]),
        (DENSE, changed(job(), lora=Lora(rank=8, frozen_dtype="nf4")), []),
        (DENSE, changed(job(tensor=2), dtype="nvfp4"), ["it: NVFP4, tensor parallelism without sequence"]),
        (DENSE, changed(job(), cuda_graphs=("step",)), ["it: CUDA graphs of the step"]),
        (DENSE, changed(job(pipeline=2), cuda_graphs=("step",)), []),
        (replace(DENSE, mtp_layers=1), job(), ["it: multi-token prediction, of deepseek_v3"]),
        (DENSE, job(context=2), ["no longer: rings of keys and values"]),
        (MOE, job(expert=4, tensor=2, sequence_parallel=True), ["no longer: experts that are cut"]),
        (MOE, job(expert=4, tensor=2, sequence_parallel=True, expert_tensor=1), []),
        (DENSE, job(), []),
    ],
    ids=lambda value: "",
)
def test_what_the_release_after_has_or_has_no_longer(
    arch: Transformer, one: TrainingJob, told: list[str]
) -> None:
    """torchtitan 0.3.0 of September 2026."""
    lines = [x for x in FORMS["torchtitan"][1](one, arch, Hosts(4)) if x.startswith(LATER)]
    assert len(lines) == len(told)
    assert all(line.startswith(LATER + words) for line, words in zip(lines, told, strict=True))


def test_refusals_name_the_version_that_was_read() -> None:
    assert FRAMEWORKS["torchtitan"].title in exported((DENSE, changed(job(), optimizer="muon")), "torchtitan")
    assert FORMS["torchtitan"][0].startswith("torchtitan 0.2.1 and 0.2.2, TOML")


@pytest.mark.parametrize(
    ("dtype", "tensor", "told"), [("fp8", 2, True), ("fp8", 1, False), ("fp8_rowwise", 2, False)]
)
def test_tensor_ranks_gather_16_bits_where_the_converter_is_not_found(
    dtype: str, tensor: int, told: bool
) -> None:
    """models/llama3/infra/parallelize.py, v0.2.0 to v0.2.2: `"float8" in job_config.model.converters`."""
    one = changed(job(tensor=tensor, sequence_parallel=True, zero=3), dtype=dtype)
    assert ("gather is predicted in 8 bits" in exported((DENSE, one), "torchtitan")) == told


@pytest.mark.parametrize("form", ["megatron", "nemo", "torchtitan"])
def test_frameworks_without_weights_in_4_bits_are_told_of_them(form: str) -> None:
    """And a study keeps them."""
    lora = Lora(rank=8, frozen_dtype="nf4")
    tuned = changed(job(zero=3), software="fsdp-2025", lora=lora)
    wide = changed(tuned, lora=Lora(rank=8, frozen_dtype="bf16"))
    assert "frozen weights in 4 bits" in exported((DENSE, tuned), form)
    assert "in 4 bits" not in exported((DENSE, wide), form)
    assert "frozen_dtype: nf4" in exported((DENSE, tuned), "study")
