"""Whether a job can be cut over GPUs the way its layout says; every refusal says what would work."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.architecture import Transformer
from railwright.spec.study import TrainingJob


def check(job: TrainingJob, arch: Transformer, fabric: Fabric) -> tuple[str, ...]:
    """Refuse a layout that cannot work (PlanError); return warnings about a doubtful one."""
    gpus = job.gpus or fabric.num_gpus
    if gpus > fabric.num_gpus:
        raise PlanError(
            f"{job.name}: gpus is {gpus}, but the cluster has {fabric.num_gpus}; ask for at most that many."
        )
    _check_sizes(job, fabric, gpus)
    data = gpus // (job.layout.tensor * job.layout.pipeline)
    _check_experts(job, arch, data)
    _check_tensor(job, arch)
    _check_layers(job, arch)
    _check_batch(job, data)
    return _warnings(job, arch)


def data_parallel(job: TrainingJob, fabric: Fabric) -> int:
    """Data-parallel size: what tensor and pipeline parallelism leave."""
    return (job.gpus or fabric.num_gpus) // (job.layout.tensor * job.layout.pipeline)


def microbatches(job: TrainingJob, data: int) -> int:
    """Microbatches of one step on one data-parallel rank."""
    return job.global_batch // (data * job.micro_batch)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def _check_sizes(job: TrainingJob, fabric: Fabric, gpus: int) -> None:
    tensor, pipeline = job.layout.tensor, job.layout.pipeline
    domain = fabric.gpus_per_server
    fitting = ", ".join(str(d) for d in divisors(domain))
    if tensor > domain:
        raise PlanError(
            f"{job.name}: layout.tensor is {tensor}, but only the {domain} GPUs of one server share a "
            f"scale-up network; tensor parallelism of {fitting} works (use pipeline for more)."
        )
    if domain % tensor and gpus > domain:
        raise PlanError(
            f"{job.name}: layout.tensor {tensor} does not divide the {domain} GPUs of a server, so a group "
            f"would straddle two servers; {fitting} work."
        )
    if gpus % (tensor * pipeline):
        fit = gpus // (tensor * pipeline) * tensor * pipeline
        raise PlanError(
            f"{job.name}: {gpus} GPUs are not a multiple of tensor x pipeline = {tensor} x {pipeline} = "
            f"{tensor * pipeline}; "
            + (f"set gpus to {fit}, or " if fit else "")
            + f"choose pipeline from {_list(divisors(gpus // tensor) if gpus % tensor == 0 else [1])}."
        )


def _check_experts(job: TrainingJob, arch: Transformer, data: int) -> None:
    expert = job.layout.expert
    if expert == 1:
        return
    if not arch.is_moe:
        raise PlanError(
            f"{job.name}: layout.expert is {expert}, but {arch.name} is a dense model without experts; "
            "leave layout.expert at 1."
        )
    both = [d for d in divisors(arch.experts) if data % d == 0]
    if arch.experts % expert:
        raise PlanError(
            f"{job.name}: the {arch.experts} experts of {arch.name} cannot be spread over layout.expert = "
            f"{expert} ranks evenly; {_list(both)} work with {data} data-parallel ranks."
        )
    if data % expert:
        raise PlanError(
            f"{job.name}: expert groups are formed inside data parallelism, and {data} data-parallel ranks "
            f"are not a multiple of layout.expert = {expert}; {_list(both)} work."
        )


def _check_tensor(job: TrainingJob, arch: Transformer) -> None:
    tensor = job.layout.tensor
    widths = [("attention heads", arch.heads)]
    if arch.kv_heads > tensor and arch.attention == "gqa":
        widths.append(("key-value heads", arch.kv_heads))
    if arch.dense_layers or not arch.is_moe:
        widths.append(("MLP width", arch.ffn))
    if arch.is_moe:
        widths.append(("expert width", arch.expert_ffn))
    for what, width in widths:
        if width % tensor:
            fitting = [d for d in divisors(width) if d <= 72]
            raise PlanError(
                f"{job.name}: the {width} {what} of {arch.name} cannot be cut into layout.tensor = {tensor} "
                f"equal parts; {_list(fitting)} work."
            )
    if arch.attention == "gqa" and tensor > arch.kv_heads and tensor % arch.kv_heads:
        raise PlanError(
            f"{job.name}: layout.tensor = {tensor} is not a multiple of the {arch.kv_heads} key-value heads "
            f"of {arch.name}, so they can be neither cut nor replicated evenly; "
            f"{_list([d for d in divisors(arch.heads) if d % arch.kv_heads == 0 or arch.kv_heads % d == 0])} "
            "work."
        )


def _check_layers(job: TrainingJob, arch: Transformer) -> None:
    pipeline, chunks = job.layout.pipeline, job.layout.virtual_pipeline
    if chunks > 1 and pipeline == 1:
        raise PlanError(
            f"{job.name}: layout.virtual_pipeline is {chunks}, but there is only one pipeline stage to "
            "interleave; leave it at 1 or set layout.pipeline above 1."
        )
    if arch.layers % (pipeline * chunks):
        raise PlanError(
            f"{job.name}: the {arch.layers} layers of {arch.name} cannot be cut into pipeline x "
            f"virtual_pipeline = {pipeline} x {chunks} = {pipeline * chunks} equal parts (Megatron refuses "
            f"uneven stages); products that work: {_list(divisors(arch.layers))}."
        )


def _check_batch(job: TrainingJob, data: int) -> None:
    unit = data * job.micro_batch
    if job.global_batch % unit:
        below = job.global_batch // unit * unit
        near = f"{below} or {below + unit}" if below else f"{unit}"
        raise PlanError(
            f"{job.name}: global_batch {job.global_batch} is not a multiple of data-parallel ranks x "
            f"micro_batch = {data} x {job.micro_batch} = {unit}; the nearest that work: {near}."
        )
    count, pipeline = microbatches(job, data), job.layout.pipeline
    if job.layout.virtual_pipeline > 1 and count % pipeline:
        fewer = max(count // pipeline * pipeline, pipeline)
        raise PlanError(
            f"{job.name}: the interleaved schedule needs a multiple of {pipeline} microbatches per step, but "
            f"there are {count}; set global_batch to {fewer * unit} or {(fewer + pipeline) * unit}, or "
            "virtual_pipeline to 1."
        )


def _warnings(job: TrainingJob, arch: Transformer) -> tuple[str, ...]:
    found: list[str] = []
    tensor = job.layout.tensor
    if arch.max_positions and job.sequence > arch.max_positions:
        found.append(
            f"{job.name}: sequences of {job.sequence} tokens are longer than the {arch.max_positions} "
            f"positions {arch.name} was made for."
        )
    if arch.attention == "gqa" and tensor > arch.kv_heads:
        found.append(
            f"{job.name}: tensor parallelism of {tensor} is more than the {arch.kv_heads} key-value heads of "
            f"{arch.name}; each is kept on {tensor // arch.kv_heads} GPUs."
        )
    if arch.is_moe and tensor > 1 and not job.layout.sequence_parallel:
        found.append(
            f"{job.name}: Megatron runs experts under tensor parallelism only with sequence_parallel; the "
            "expert layers are predicted as if each GPU routed its own 1/tensor of the tokens."
        )
    if arch.mtp_layers:
        found.append(
            f"{job.name}: the {arch.mtp_layers} multi-token-prediction layers of {arch.name} are left out of "
            "time and memory."
        )
    if job.layout.sequence_parallel and tensor == 1:
        found.append(f"{job.name}: sequence_parallel does nothing while layout.tensor is 1.")
    if job.sequence % tensor and job.layout.sequence_parallel:
        found.append(
            f"{job.name}: sequences of {job.sequence} tokens are not a multiple of layout.tensor = {tensor}; "
            "frameworks pad them."
        )
    return tuple(found)


def _list(numbers: list[int]) -> str:
    return ", ".join(str(n) for n in numbers)
