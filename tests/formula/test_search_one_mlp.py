"""Experts that are predicted as one fused MLP run as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export_cases import exported
from railwright.model.shape.architecture import Details, Transformer
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.environment import environment
from railwright.search.training.export import FORMS
from railwright.spec.training import TrainingJob
from training_cases import DENSE, MOE, changed, job, machine

FUSED = Hosts(8, gpu="gb200", fused=True)
FLAGS = ("--use-transformer-engine-op-fuser", "--moe-mlp-glu-interleave-size 32")
SQUARE = replace(MOE, gated=False, details=Details(activation="relu2"))
MX = changed(job(expert=4), dtype="mxfp8", software="megatron-2026")
SP = {"tensor": 2, "sequence_parallel": True, "expert": 4}


@pytest.mark.parametrize(
    ("arch", "one", "hosts", "written", "told"),
    [
        (MOE, MX, FUSED, FLAGS, ""),
        (SQUARE, MX, FUSED, (FLAGS[0], "--use-fused-weighted-squared-relu"), ""),
        (MOE, MX, Hosts(8), (), ""),
        (DENSE, changed(job(), dtype="mxfp8"), FUSED, (), ""),
        (MOE, changed(MX, dtype="fp8"), FUSED, (), "Megatron has none in fp8"),
        (MOE, changed(job(**SP), dtype="mxfp8"), FUSED, (), "Megatron has none of experts that are cut"),
        (replace(MOE, details=Details(activation="gelu")), MX, FUSED, (), "Megatron has none with gelu"),
    ],
    ids=["gated", "squared", "hopper", "dense", "fp8", "cut", "gelu"],
)
def test_what_turns_the_fused_mlp_on_is_written(
    arch: Transformer, one: TrainingJob, hosts: Hosts, written: tuple[str, ...], told: str
) -> None:
    """Megatron-LM, moe/experts.py: without use_transformer_engine_op_fuser experts are three operations."""
    lines = FORMS["megatron"][1](one, arch, hosts)
    names = ("--use-transformer-engine-op-fuser", "--moe-mlp-glu", "--use-fused-weighted")
    assert tuple(line for line in lines if line.startswith(names)) == written
    said = [line for line in lines if line.startswith("# experts are predicted as one fused MLP")]
    assert len(said) == bool(told)
    assert all(told in line for line in said)
    fields = "\n".join(FORMS["nemo"][1](one, arch, hosts))
    assert ("use_transformer_engine_op_fuser=True" in fields) == bool(written)


def test_transformer_engine_is_told_by_a_variable() -> None:
    words = environment(MX, MOE, "megatron", growing=False, fused=True)
    assert words == ["# it relies on: export NVTE_CUTEDSL_FUSED_GROUPED_MLP=1"]
    assert "    NVTE_CUTEDSL_FUSED_GROUPED_MLP='1'," in environment(
        MX, MOE, "nemo", growing=False, fused=True
    )
    assert environment(MX, MOE, "torchtitan", growing=False, fused=True) == []


def test_only_the_eras_and_gpus_that_fuse_are_told() -> None:
    assert not Hosts.of(MX, machine(2)).fused  # H100
    assert "op-fuser" not in exported((MOE, job(expert=4)), "megatron")
