"""Jobs that are written for every framework, and their exports."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import export
from railwright.search.training.result import Candidate
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from search_cases import CHOOSING
from training_cases import BLOCKS, DELTA, DENSE, MOE, changed, job, machine

ON, OFF = Overlap(tp=True, dp=True), Overlap(tp=False, dp=False, pp=False)
SCHEDULES = ("auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v")
CASES: list[tuple[object, TrainingJob]] = [
    *(
        (DENSE, job(overlap=o, tensor=2, sequence_parallel=sp, zero=zero, recompute=recompute))
        for (o, sp), zero, recompute in product(
            ((ON, True), (ON, False), (OFF, True)), (0, 1, 2, 3), ("none", "selective", "full")
        )
    ),
    *((DENSE, job(context=2, context_kind=kind)) for kind in ("ring", "all-to-all", "all-gather")),
    *((DENSE, job(pipeline=2, schedule=s, overlap=OFF)) for s in SCHEDULES),
    (DENSE, job(pipeline=2, virtual_pipeline=2, schedule="zb-h1")),
    (DENSE, job(pipeline=2, virtual_pipeline=2)),
    (DENSE, job(pipeline=2, layers_per_stage=(5, 3))),
    (DENSE, job(offload=("activations", "optimizer"))),
    (DENSE, job(offload=("activations", "optimizer"), pipeline=2)),
    (MOE, job(expert=4, overlap=Overlap(ep=True))),
    (MOE, job(expert=4, tensor=2, expert_tensor=1, sequence_parallel=True)),
    *((DENSE, job(dtype=dtype)) for dtype in ("fp16", "fp8")),
    *(
        (arch, changed(job(), dtype=dtype))
        for arch, dtype in product((DENSE, MOE), ("fp8", "fp8_rowwise", "mxfp8", "nvfp4"))
    ),
    *((DENSE, changed(job(dtype="fp8"), amax_over=over)) for over in ("stage", "tensor", "none")),
    (MOE, changed(job(expert=4), expert_capacity=1.5)),
    (MOE, changed(job(expert=8), expert_nodes=1)),
    (DENSE, job(zero=3, shard=4)),
    (replace(MOE, experts=64, experts_per_token=4), changed(job(expert=16), expert_nodes=1)),
    (replace(MOE, shared_experts=1, shared_ffn=512), job(expert=4, overlap=Overlap(shared=True))),
    (MOE, changed(job(expert=4), unfused=("rotary", "router", "loss", "norm", "activation"))),
    (replace(DENSE, attention_gate="element"), job()),
    (CHOOSING, job(context=2, context_kind="all-gather")),
    (BLOCKS, job(pipeline=2, virtual_pipeline=2)),
    (DELTA, job(pipeline=2, layers_per_stage=(5, 3), expert=4)),
]


def exported(case: tuple[object, TrainingJob], form: str) -> str:
    """A job on two servers, written for a framework."""
    arch, one = case
    cluster = machine(2)
    # Only the head of an export is of the step, and these GPUs have no block scales.
    step = simulate(changed(one, dtype="bf16", dtype_also=()), arch, cluster)  # type: ignore[arg-type]
    return export(Candidate({}, one, step, 0.0, 0.0), arch, Hosts.of(one, cluster), form)  # type: ignore[arg-type]
