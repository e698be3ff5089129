"""Every argument that an export writes exists in the framework it is written for."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import product
from pathlib import Path

import pytest
import yaml

from railwright.search.export import export
from railwright.search.result import Candidate
from railwright.spec.load import load_study
from railwright.spec.lora import Lora
from railwright.spec.study import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.plan import data_parallel
from training_cases import DENSE, MOE, job, machine

KNOWN = yaml.safe_load((Path(__file__).parent / "search_arguments.yaml").read_text())
ON, OFF = Overlap(tp=True, dp=True), Overlap(tp=False, dp=False, pp=False)
CASES: list[tuple[object, TrainingJob]] = [
    *(
        (DENSE, job(overlap=o, tensor=2, sequence_parallel=sp, zero=zero, recompute=recompute))
        for (o, sp), zero, recompute in product(
            ((ON, True), (ON, False), (OFF, True)), (0, 1, 2, 3), ("none", "selective", "full")
        )
    ),
    *((DENSE, job(context=2, context_kind=kind)) for kind in ("ring", "all-to-all", "all-gather")),
    *((DENSE, job(pipeline=2, schedule=s, overlap=OFF)) for s in ("auto", "gpipe", "zb-h1", "dualpipe")),
    (DENSE, job(pipeline=2, virtual_pipeline=2)),
    (DENSE, job(offload=("activations", "optimizer"))),
    (DENSE, job(offload=("activations", "optimizer"), pipeline=2)),
    (MOE, job(expert=4, overlap=Overlap(ep=True))),
    (MOE, job(expert=4, tensor=2, expert_tensor=1, sequence_parallel=True)),
    *((DENSE, job(dtype=dtype)) for dtype in ("fp16", "fp8")),
]


def _written(case: tuple[object, TrainingJob], form: str) -> str:
    arch, one = case
    cluster = machine(2)
    step = simulate(one, arch, cluster)  # type: ignore[arg-type]
    data = data_parallel(one, cluster.network.fabric)
    return export(Candidate({}, one, step, 0.0, 0.0), arch, data, form)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "")
def test_names_are_the_frameworks_own(case: tuple[object, TrainingJob]) -> None:
    lines = [x for x in _written(case, "megatron").splitlines() if not x.startswith("#")]
    found = {name for line in lines for name in re.findall(r"--([a-z0-9-]+)", line)}
    assert found <= set(KNOWN["megatron"]["names"])
    for line in lines:
        name, _, value = line.removeprefix("--").partition(" ")
        allowed = KNOWN["megatron"].get(name.replace("-", "_"))
        assert allowed is None or value in allowed

    tree = ast.parse(_written(case, "nemo"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert {k.arg for call in calls for k in call.keywords} <= set(KNOWN["nemo"]["names"])

    for section, values in tomllib.loads(_written(case, "torchtitan")).items():
        assert set(values) <= set(KNOWN["torchtitan"][section]), section


def test_what_megatron_refuses_is_not_written() -> None:
    """Offloaded activations need one stage and no recomputation, overlapped products sequence parallelism."""
    staged = _written((DENSE, job(offload=("activations",), pipeline=2)), "megatron")
    assert "--cpu-offloading" not in staged
    assert "allows no pipeline" in staged
    alone = _written((DENSE, job(offload=("activations",))), "megatron")
    assert "--cpu-offloading-num-layers 7" in alone
    plain = _written((DENSE, job(overlap=ON, tensor=2)), "megatron")
    assert "--tp-comm-overlap" not in plain
    assert "needs sequence parallelism" in plain


def test_torchtitan_uses_every_gpu_once() -> None:
    """replicate x shard x tensor x context x pipeline is the number of GPUs."""
    for case in CASES:
        p = tomllib.loads(_written(case, "torchtitan"))["parallelism"]
        used = p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"]
        used *= p["tensor_parallel_degree"] * p["context_parallel_degree"] * p["pipeline_parallel_degree"]
        assert used == 16


def test_an_exported_study_is_the_same_job(tmp_path: Path) -> None:
    every = job(pipeline=2, zero=2, recompute="selective", overlap=OFF, dtype="fp8").model_copy(
        update={
            "micro_batch": 2,
            "amax_over": "tensor", "cuda_graphs": ("attention", "mlp"), "expert_capacity": 1.5,
            "expert_imbalance": 1.25, "expert_nodes": 2, "gpus": 16, "gpus_per_server": 8,
            "gradient_dtype": "bf16", "launch_blocking": True, "lora": Lora(rank=8, targets=("qkv",)),
            "master": "remainder", "model": "mixtral-8x7b", "moment_dtype": "bf16", "sample_length": 256,
            "servers": (1, 0), "software": "nemo-2024", "tokens": 1234567890123.0,
        }
    )  # fmt: skip
    defaults = {k: f.default for k, f in TrainingJob.model_fields.items() if not f.is_required()}
    assert [k for k, value in defaults.items() if getattr(every, k) == value] == []
    cluster = machine(2)
    plain = job(pipeline=2)
    step, data = simulate(plain, DENSE, cluster), data_parallel(plain, cluster.network.fabric)
    text = export(Candidate({}, every, step, 0.0, 0.0), DENSE, data, "study")
    file, compute = (
        tmp_path / "study.yaml",
        "{servers: 2, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}",
    )
    file.write_text(f"railwright: 1\nname: again\ncluster: {compute}\n{text}")
    assert load_study(file).jobs == (every,)
