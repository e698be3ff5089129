"""A layout that cannot work is refused in one sentence that says what would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.spec.study import TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, job, machine, priced, roofline


def refusal(wanted: TrainingJob, arch: Transformer = DENSE, servers: int = 4) -> str:
    with pytest.raises(PlanError) as caught:
        simulate(wanted, arch, machine(servers), predict=priced(50e9), kernel=roofline)
    text = str(caught.value)
    assert text.startswith("case: ")
    assert text.endswith(".")
    return text


def test_more_gpus_than_the_cluster() -> None:
    assert "gpus is 64, but the cluster has 32" in refusal(job(gpus=64))


def test_tensor_larger_than_the_server() -> None:
    text = refusal(job(tensor=12))
    assert "layout.tensor 12 is more than the 8 GPUs of a server and not a multiple of them" in text
    assert "1, 2, 4, 8 work, and over the network multiples of 8" in text


def test_tensor_that_straddles_servers() -> None:
    assert "3 does not divide the 8 GPUs of a server" in refusal(job(tensor=3))


def test_gpus_not_a_multiple_of_tensor_times_pipeline() -> None:
    text = refusal(job(tensor=4, pipeline=3))
    assert "32 GPUs are not a multiple of tensor x pipeline = 4 x 3 = 12" in text
    assert "set gpus to 24" in text
    assert "pipeline from 1, 2, 4, 8" in text


def test_experts_of_a_dense_model() -> None:
    assert "dense-8 is a dense model" in refusal(job(expert=2))


def test_experts_not_divisible_by_ep() -> None:
    text = refusal(job(expert=3), MOE)
    assert "8 experts of moe-8 cannot be spread over layout.expert = 3" in text
    assert "1, 2, 4, 8 work" in text


def test_data_parallel_not_divisible_by_ep() -> None:
    text = refusal(job(tensor=8, expert=8), MOE)
    assert "4 data-parallel ranks are not a multiple of layout.expert = 8; 1, 2, 4 work" in text


def test_heads_not_divisible_by_tensor() -> None:
    assert "12 attention heads" in refusal(job(tensor=8), replace(DENSE, heads=12, kv_heads=4))


def test_mlp_width_not_divisible_by_tensor() -> None:
    assert "4100 MLP width" in refusal(job(tensor=8), replace(DENSE, ffn=4100))


def test_key_value_heads_neither_cut_nor_replicated() -> None:
    assert "neither cut nor replicated" in refusal(job(tensor=8), replace(DENSE, kv_heads=3, heads=24))


def test_layers_not_divisible() -> None:
    text = refusal(job(pipeline=16))
    assert "8 layers of dense-8 cannot be cut into 16 pieces" in text
    assert "use at most 10" in text


def test_interleaving_one_stage() -> None:
    assert "only one pipeline stage" in refusal(job(virtual_pipeline=2))


def test_interleaving_needs_a_multiple_of_the_stages() -> None:
    text = refusal(job(pipeline=4, virtual_pipeline=2, batch=40))
    assert "multiple of 4 microbatches per step, but there are 5" in text
    assert "global_batch to 32 or 64" in text


def test_global_batch_not_a_multiple() -> None:
    text = refusal(job(batch=100))
    assert "100 is not a multiple" in text
    assert "96 or 128" in text


def test_a_batch_smaller_than_the_ranks() -> None:
    assert "the nearest that work: 32" in refusal(job(batch=10))


def test_expert_across_without_enough_servers() -> None:
    text = refusal(job(expert=8, placement="expert-across"), MOE)
    assert "a pipeline stage has only 4; lower layout.expert to at most 4" in text


def test_expert_across_without_whole_servers() -> None:
    text = refusal(job(pipeline=8, expert=2, placement="expert-across"), MOE)
    assert "whole servers per pipeline stage" in text


def test_a_model_that_does_not_fit_says_what_would() -> None:
    large = replace(DENSE, layers=64, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128)
    text = refusal(job(sequence=4096), large)
    capacity = machine(4).gpu.hbm_bytes / 2**30
    assert f"GiB more than its {capacity:.1f} GiB" in text
    assert "weights" in text
    assert "what would fit: " in text
    # and what it names does fit
    fitting = text.split("what would fit: ")[1].split(" (")[0]
    change = dict(part.split(": ") for part in fitting.split(" with "))
    layout = {k: int(v) if v.isdigit() else v for k, v in change.items()}
    simulate(job(sequence=4096, **layout), large, machine(4), predict=priced(50e9), kernel=roofline)  # type: ignore[arg-type]


def test_hopeless_model_says_so() -> None:
    huge = replace(DENSE, layers=64, hidden=65536, ffn=4 * 65536, heads=512, kv_heads=512, head_dim=128)
    assert "use more or larger GPUs" in refusal(job(sequence=4096), huge)


def test_doubtful_layouts_are_warned_about() -> None:
    def warnings(wanted: TrainingJob, arch: Transformer) -> str:
        result = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline)
        return " ".join(result.warnings)

    assert "longer than the 4096 positions" in warnings(job(sequence=8192), DENSE)
    assert "each is kept on 2 GPUs" in warnings(job(tensor=8), DENSE)
    assert "only with sequence_parallel" in warnings(job(tensor=2, expert=2), MOE)
    assert "does nothing" in warnings(job(sequence_parallel=True), DENSE)
