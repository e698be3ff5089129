"""Experts over GPUs: how they may be cut and spread, and how uneven their loads can be."""

from __future__ import annotations

from collections.abc import Collection

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layout.divisors import MOST, divisors, working
from railwright.training.layout.schedule import TOGETHER, order_name
from railwright.training.software.eras import era_of
from railwright.units import number


def check_experts(job: TrainingJob, arch: Transformer, stage: int, server: int) -> None:
    """Raise PlanError where experts cannot be spread, or cannot be as unevenly loaded, as a job says.

    stage   GPUs of one pipeline stage, which experts and their replicas share
    server  GPUs of one server that the job uses
    """
    _check_load(job, arch)
    _check_looped(job, arch)
    expert, cut = job.layout.expert, job.layout.expert_tensor
    if expert == 1 and cut is None:
        return
    if not arch.is_moe:
        what = f"layout.expert is {expert}" if expert > 1 else f"layout.expert_tensor is {cut}"
        raise PlanError(
            f"{job.name}: {what}, but {arch.name} is a dense model without experts; "
            "leave layout.expert at 1 and layout.expert_tensor out."
        )
    inside = job.layout.expert_cut
    if stage % inside:
        raise PlanError(
            f"{job.name}: layout.expert_tensor {inside} does not divide the {number(stage, 'GPU')} of a "
            "stage, which experts and their replicas share; "
            f"{working(working_cuts(arch, stage, expert))}."
        )
    ranks = stage // inside
    both = [d for d in divisors(arch.experts) if ranks % d == 0]
    if arch.experts % expert:
        raise PlanError(
            f"{job.name}: the {arch.experts} experts of {arch.name} cannot be spread over layout.expert = "
            f"{expert} ranks evenly; {working(both)} with {ranks} ranks."
        )
    if ranks % expert:
        which = "data-parallel ranks" if inside == job.layout.tensor else "ranks beside expert_tensor"
        raise PlanError(
            f"{job.name}: expert groups are formed inside data parallelism, and {ranks} {which} "
            f"are not a multiple of layout.expert = {expert}; {working(both)}."
        )
    _check_reach(job, arch, inside, server)


def working_cuts(arch: Transformer, stage: int, expert: int) -> list[int]:
    """Values of `layout.expert_tensor` that cut experts evenly and divide the GPUs of a stage.

    Where none of them leaves ranks for the expert groups, that is not asked.
    """
    cuts = [d for d in divisors(stage) if d <= MOST and arch.expert_ffn % d == 0]
    return [d for d in cuts if stage // d % expert == 0] or cuts


def _check_reach(job: TrainingJob, arch: Transformer, inside: int, server: int) -> None:
    """The servers a token may go to hold as many experts as it takes, even where they hold most.

    inside  GPUs that share an expert
    """
    if job.expert_nodes is None:
        return
    expert = job.layout.expert
    ranks = 1 if job.layout.placement == "expert-across" else max(server // inside, 1)
    held = arch.experts // expert * min(expert, ranks)
    if job.expert_nodes * held < arch.experts_per_token:
        raise PlanError(
            f"{job.name}: expert_nodes {job.expert_nodes} lets a token reach {job.expert_nodes * held} "
            f"experts of {arch.name}, {held} on a server, but it takes {arch.experts_per_token}; give "
            f"{-(-arch.experts_per_token // held)} or more, or cut experts over fewer ranks (layout.expert)."
        )


def beyond_reach(job: TrainingJob, arch: Transformer, servers: int) -> list[str]:
    """That `expert_nodes` is more servers than a token's experts can lie on; nothing where it is not.

    servers  that the most spread expert group lies on
    As `expert_imbalance` beyond what a GPU can get, it counts as the most there can be.
    """
    most = min(servers, arch.experts_per_token)
    if not arch.is_moe or job.expert_nodes is None or job.layout.expert == 1 or job.expert_nodes <= most:
        return []
    return [
        f"expert_nodes {job.expert_nodes} counts as {most}: an expert group lies on {servers} "
        f"server{'s' if servers > 1 else ''} and a token goes to {arch.experts_per_token} experts; "
        "one copy goes to each server, and no limit is left."
    ]


def beyond_kernels(
    job: TrainingJob, arch: Transformer, gpu: Gpu, parts: Collection[tuple[int, ...]]
) -> list[str]:
    """That no kernel sends one copy to each server where a job says so; nothing where some do.

    parts  as in `in_unequal_parts`
    Source: deepseek-ai/DeepEP, csrc/kernels/legacy/internode.cu (rank r is on server r // 8; forwarders pass
    on over NVLink), and its branch hybrid-ep (a group's size over that of an NVLink domain are its nodes).
    """
    if not arch.is_moe or job.expert_nodes is None or job.layout.expert == 1:
        return []
    found = []
    if not gpu.scale_up_bandwidth:
        found.append(
            f"expert_nodes: DeepEP and HybridEP pass tokens on over NVLink, which {gpu.name} has not; leave "
            "it out for NCCL's all-to-all."
        )
    if uneven := in_unequal_parts(parts):
        found.append(
            f"expert_nodes: an expert group of {job.layout.expert} ranks lies on servers in unequal parts "
            f"({' and '.join(map(str, uneven[0]))}), which neither DeepEP nor HybridEP takes; predicted is "
            "what NICs of the smallest part must receive. Give gpus_per_server or layout.expert so that "
            "parts are equal."
        )
    return found


def in_unequal_parts(parts: Collection[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those of `Groups.parts` with more ranks on one server than on another."""
    return sorted(part for part in parts if part[0] != part[-1])


def _check_looped(job: TrainingJob, arch: Transformer) -> None:
    """Hugging Face's loop over experts (`model.operators.looped`) is in 16 bits and over all there are."""
    if not arch.is_moe or "experts" not in job.unfused:
        return
    layout = job.layout
    why = {
        f"in 16 bits, not in {job.dtype} (dtype)": job.dtype not in ("bf16", "fp16"),
        f"where nothing is compiled, and software {job.software} is": era_of(job).launcher != "python",
        "over all experts, which layout.expert spreads over ranks": layout.expert > 1,
        "over whole experts, which layout.expert_tensor cuts": layout.expert_cut > 1,
        "over whole experts, which layout.tensor cuts": layout.tensor > 1,
        "over all tokens of an expert, which expert_capacity drops and pads": job.expert_capacity is not None,
        f"in one pass after another, of which schedule {layout.schedule} has two at once": order_name(job)
        in TOGETHER,
    }
    for reason, true in why.items():
        if true:
            raise PlanError(
                f"{job.name}: unfused experts, Hugging Face's loop, run {reason}; leave one of them out."
            )
    if arch.mlp_bias or arch.expert_latent:
        what = "biases" if arch.mlp_bias else "latents"
        raise PlanError(
            f"{job.name}: unfused experts are modelled without {what}, which those of {arch.name} have; "
            "leave 'experts' out of unfused."
        )


def _check_load(job: TrainingJob, arch: Transformer) -> None:
    """No expert gets more than every token once: E/k times the mean of E experts, k of them per token; and so
    no GPU's experts together, whose mean is that of one times as many.

    Nor can it be padded to more: Megatron-LM picks the tokens up to an expert's capacity among those that
    there are (moe_utils.py, topk_routing_with_score_function: torch.topk over tokens).
    """
    if not arch.is_moe:
        return
    most = arch.experts / arch.experts_per_token
    for field, load, who, what in (
        (
            "expert_imbalance",
            job.expert_imbalance,
            f"each of the experts of {arch.name} on a GPU",
            "what the busiest GPU's experts get together",
        ),
        ("expert_capacity", job.expert_capacity or 1.0, f"an expert of {arch.name}", "what an expert gets"),
    ):
        if load > most:
            raise PlanError(
                f"{job.name}: {field} is {load:g}, but {who} gets at most every token "
                f"once, {arch.experts} / {arch.experts_per_token} = {most:g} times the mean; "
                f"give {what} over the mean, 1 to {most:g}."
            )
