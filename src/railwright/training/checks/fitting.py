"""Whether a job fits its GPUs, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import inf
from typing import Any, NamedTuple

from railwright.catalog.parts import Server
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, TrainingJob
from railwright.training.checks.plan import check
from railwright.training.lanes.result import Memory
from railwright.training.layers.recompute import has_part
from railwright.training.layers.stages import largest_piece, quarters, shapes_of
from railwright.training.layout.placement import place
from railwright.training.layout.schedule import schedule_name
from railwright.training.layout.sizes import Sizes, domain_of
from railwright.training.memory.cached import is_held, reserved
from railwright.training.memory.host_memory import fits_host
from railwright.training.memory.peak import peak_memory
from railwright.training.memory.states import native_saves
from railwright.training.software.chunked_loss import OFFERED, check_loss
from railwright.training.software.eras import era_of
from railwright.training.software.formats import has_fp32_shards
from railwright.training.software.hosted import unoffered
from railwright.training.software.lora_checks import check_adapters
from railwright.units import GIB

MOST = 6
"""Ways out that are told."""

TRIED = "tensor, pipeline, schedule, expert, context, zero, shard, recompute, offload or micro_batch"
"""What is changed to find them."""

NARROWER = (
    "(of many GPUs quicker with `--framework`, what yours runs, or with `--space`, a file of fewer values)"
)
"""How a search is narrowed, which is sent for."""


Uncarried = Callable[[TrainingJob], str]
"""Why the network does not carry what a job sends; '' where it does."""


class Room(NamedTuple):
    """Where a job's changes are tried: a GPU's memory [byte], the server whose host takes what is offloaded,
    and the network."""

    fabric: Fabric
    capacity: float
    server: Server
    uncarried: Uncarried


class Way(NamedTuple):
    """A change of a job: fields of its layout, and its microbatch."""

    label: str
    layout: dict[str, Any]
    micro_batch: int


def check_memory(
    job: TrainingJob,
    arch: Transformer,
    fabric: Fabric,
    capacity: float,
    server: Server,
    uncarried: Uncarried = lambda job: "",
) -> Memory:
    """`peak_memory`, or PlanError with the parts, the excess and the changes that would make it fit.

    capacity  memory of a GPU [byte]
    server    whose host takes what is offloaded
    uncarried what fits is told where this is ''; default: the network carries all
    """
    memory = peak_memory(job, arch, fabric, capacity)
    if memory.total <= capacity:
        return memory
    parts = ", ".join(
        f"{name} {size / GIB:.1f}" for name, size in sorted(memory.parts.items(), key=lambda p: -p[1])
    )
    raise PlanError(
        f"{job.name}: {arch.name} needs {memory.total / GIB:.1f} GiB on its fullest GPU, "
        f"{(memory.total - capacity) / GIB:.1f} GiB more than its {capacity / GIB:.1f} GiB ({parts}); "
        + _help(job, arch, Room(fabric, capacity, server, uncarried))
        + _frozen(job, arch, fabric, capacity)
        + _native(job, arch, memory)
        + _chunked(job, arch, fabric, capacity)
    )


def _frozen(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> str:
    """That a job would fit with frozen weights in 16 bits (`frozen_bytes`), or in 4; '' where it would not,
    or they are already."""
    if job.lora is None or job.lora.frozen_dtype == "nf4":
        return ""
    wide = has_fp32_shards(job) and job.lora.frozen_dtype != "bf16"
    if wide and (total := _held(job, "bf16", arch, fabric, capacity)) <= capacity:
        return (
            f" Frozen weights are counted in fp32, as software {job.software} loads them; with "
            "lora.frozen_dtype: bf16, as torchtune loads them, the fullest GPU would hold "
            f"{total / GIB:.1f} GiB."
        )
    if (total := _held(job, "nf4", arch, fabric, capacity)) > capacity:
        return ""
    return (
        " With lora.frozen_dtype: nf4 (QLoRA), which changes the results of training, the fullest GPU would "
        f"hold {total / GIB:.1f} GiB."
    )


def _held(job: TrainingJob, frozen: str, arch: Transformer, fabric: Fabric, capacity: float) -> float:
    """What the fullest GPU would hold with frozen weights of another type; infinite where none can. [byte]"""
    assert job.lora is not None
    other = job.model_copy(update={"lora": job.lora.model_copy(update={"frozen_dtype": frozen})})
    try:
        check_adapters(other, arch)
    except PlanError:
        return inf
    return peak_memory(other, arch, fabric, capacity).total


def _native(job: TrainingJob, arch: Transformer, memory: Memory) -> str:
    """That a job would fit with weights in NVFP4 alone (`native_saves`); '' where it would not."""
    less = [native_saves(job, shape) for shape in shapes_of(job, arch)]
    total = max(stage.total - saved for stage, saved in zip(memory.stages, less, strict=True))
    if not any(less) or total > memory.capacity:
        return ""
    return (
        " Weights are counted with 16 bits beside their copies in 4, as Megatron-LM keeps them unless it is "
        "told otherwise; with --fp4-param-gather (since April 2026), which is not modelled, the fullest GPU "
        f"would hold {total / GIB:.1f} GiB."
    )


def _chunked(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> str:
    """That a job would fit with a loss in chunks that its software has; '' where it would not, or has one."""
    if job.chunked_loss:
        return ""
    for how in OFFERED.get(era_of(job).framework, ()):
        other = job.model_copy(update={"chunked_loss": how})
        try:
            check_loss(other)
        except PlanError:
            continue
        if (total := peak_memory(other, arch, fabric, capacity).total) <= capacity:
            return (
                f" With chunked_loss: {how}, under which never all logits are there, the fullest GPU would "
                f"hold {total / GIB:.1f} GiB."
            )
    return ""


def _help(job: TrainingJob, arch: Transformer, room: Room) -> str:
    """Neighbouring settings that fit, found by trying them: of each axis the smallest change, and pairs of
    changes where no single one does."""
    sizes = Sizes.of(job, room.fabric)
    axes = [
        *_shards(job.layout, job.micro_batch, sizes),
        *_axes(job, arch, domain_of(job, room.fabric)),
        _offloads(job, sizes.copies),
    ]
    tried = [_first(axis, job, arch, room) for axis in axes]
    fitting = [change for change, no in tried if change and not no]
    pairs = combinations(axes, 2) if not fitting else ()
    for a, b in pairs:
        tried.append(_first([_both(one, other) for one in a for other in b], job, arch, room))
        change, no = tried[-1]
        if change and not no:
            fitting.append(change)
        if len(fitting) == MOST:
            break
    if not fitting:
        if apart := next((f"{change}: {no}" for change, no in tried if no), ""):
            return (
                f"no step or two in {TRIED} makes it fit here and is carried by the network; of what "
                f"would fit, {apart}"
            )
        return (
            f"no step or two in {TRIED} makes it fit here; `railwright search` tries every layout "
            f"{NARROWER}. Else use more or larger GPUs."
        )
    told = "; ".join(fitting[:MOST])
    return f"what would fit: {told}; `railwright search` finds the fastest that does {NARROWER}."


def _first(ways: list[Way], job: TrainingJob, arch: Transformer, room: Room) -> tuple[str, str]:
    """The first of some changes that fits, with the holes of the allocator, and the network carries; else
    the first that fits, and why the network does not carry it; ('', '') where none fits."""
    apart = ("", "")
    for way in ways:
        layout = Layout(**{**job.layout.model_dump(), **way.layout})
        other = job.model_copy(update={"layout": layout, "micro_batch": way.micro_batch})
        try:
            check(other, arch, room.fabric)
            place(other, room.fabric)
        except PlanError:
            continue
        memory = peak_memory(other, arch, room.fabric, room.capacity)
        if (
            memory.total <= room.capacity
            and is_held(reserved(other, arch, room.fabric, memory, (memory.stage,)), room.capacity)
            and fits_host(other, arch, room.fabric, room.server)
        ):
            change = f"{way.label} ({memory.total / GIB:.1f} GiB)"
            if not (no := room.uncarried(other)):
                return change, ""
            apart = apart if any(apart) else (change, no)
    return apart


def _both(a: Way, b: Way) -> Way:
    return Way(f"{a.label} with {b.label}", {**a.layout, **b.layout}, min(a.micro_batch, b.micro_batch))


def _shards(layout: Layout, micro_batch: int, sizes: Sizes) -> Iterator[list[Way]]:
    """What is sharded divided among more of the ranks that hold the same, up to all."""
    if layout.zero and layout.shard is not None:
        larger = [size for size in sizes.shardings() if size > layout.shard]
        yield [Way(f"shard: {size}", {"shard": size}, micro_batch) for size in larger]


def _axes(job: TrainingJob, arch: Transformer, server: int) -> Iterator[list[Way]]:
    """Changes axis by axis, the smallest first; tensor parallelism stays inside a server of so many GPUs."""
    layout, micro_batch = job.layout, job.micro_batch

    def way(label: str, **changes: Any) -> Way:
        return Way(label, changes, micro_batch)

    if layout.recompute != "full":
        ways = [] if layout.recompute == "selective" else [way("recompute: selective", recompute="selective")]
        parts = tuple(part for part in ("mla_up_proj", "layernorm", "moe_act") if has_part(arch, part))
        if parts and layout.recompute == "none":
            label = f"recompute: selective with recompute_modules: [{', '.join(parts)}]"
            ways.append(way(label, recompute="selective", recompute_modules=parts))
        ways += [
            way(f"recompute: full with recompute_layers: {n}", recompute="full", recompute_layers=n)
            for n in _quarters(layout, arch)
        ]
        yield [*ways, way("recompute: full", recompute="full", recompute_layers=None)]
    elif layout.recompute_layers is not None:
        larger = [n for n in _quarters(layout, arch) if n > layout.recompute_layers]
        yield [
            *(way(f"recompute_layers: {n}", recompute_layers=n) for n in larger),
            way("recompute of all layers (no recompute_layers)", recompute_layers=None),
        ]
    if micro_batch > 1:
        halves = [micro_batch // 2**n for n in range(1, micro_batch.bit_length())]
        yield [Way(f"micro_batch: {size}", {}, size) for size in halves]
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield [way("sequence_parallel: true", sequence_parallel=True)]
    if layout.pipeline > 1 and schedule_name(layout) not in ("1f1b", "interleaved"):
        yield [way("schedule: auto", schedule="auto")]
    if more := [way(f"zero: {stage}", zero=stage) for stage in (1, 2, 3) if stage > layout.zero]:
        yield more
    cut = [layout.tensor * factor for factor in (2, 4, 8) if layout.tensor * factor <= server]
    if cut and (layout.sequence_parallel or not arch.is_moe):
        yield [way(f"tensor: {size}", tensor=size) for size in cut]
    elif cut:
        yield [
            way(f"tensor: {size} with sequence_parallel: true", tensor=size, sequence_parallel=True)
            for size in cut
        ]
    for axis in ("pipeline", "expert", "context"):
        sizes = [getattr(layout, axis) * factor for factor in (2, 4, 8)]
        yield [way(f"{axis}: {size}", **{axis: size}) for size in sizes]


def _offloads(job: TrainingJob, copies: int) -> list[Way]:
    """The optimizer's states on the host, or the weights with them, as the job's framework has it.

    copies  ranks with the same weights
    """
    away = job.layout.offload
    if "optimizer" in away or "weights" in away:
        return []
    ways = [tuple(sorted({*away, more})) for more in ("optimizer", "weights")]
    return [
        Way(f"offload: [{', '.join(way)}]", {"offload": way}, job.micro_batch)
        for way in ways
        if not unoffered(era_of(job).framework, Layout(**{**job.layout.model_dump(), "offload": way}), copies)
    ]


def _quarters(layout: Layout, arch: Transformer) -> list[int]:
    """Layers of a piece that can be computed again: a quarter of the largest one, a half, and three."""
    return [] if "activations" in layout.offload else quarters(largest_piece(arch, layout))
