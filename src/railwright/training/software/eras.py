"""Software eras: what a framework of some time runs, and how much slower than isolated kernels it is.

A GPU in a training step is slower than the same kernels measured alone: its clock falls under sustained load,
caches are cold, and frameworks of different years fuse, launch and overlap differently.  An era names such a
state of the software; its factors are fitted on published steps, per GPU generation and width of the products
(tools/fit_training.py), and their error on families left out of the fit is kept beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from railwright.catalog.parts import LIKE_BLACKWELL, Gpu
from railwright.compute.profile import Profile, Row
from railwright.model.operators.cut import CoreAttention, Dispatch
from railwright.model.operators.eager import Loss, Part, Rotation
from railwright.model.operators.logits import KeptLoss
from railwright.shipped import read_data
from railwright.spec.training import Software, TrainingJob
from railwright.training.layout.schedule import schedule_name
from railwright.training.software.constants import width_of
from railwright.training.software.host import Launcher
from railwright.training.software.stragglers import wait_factor


@dataclass(frozen=True)
class Pace:
    """Time in a training step over the kernel model's time for isolated kernels, by kind of kernel.

    gemm, attention  factors of what products and attention compute (`paced`)
    memory  factor of kernels bound by memory
    gap     time between kernels beyond that of isolated ones [s]
    host    factor of launch times; 0: no launch takes any time
    step    fixed time of every step: logging, loss scale, gradient norm [s]
    records published steps it was fitted on; 0: other eras, GPUs and widths stand for it
    source  what it was fitted on, and its error there and on families left out
    """

    gemm: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    gap: float = 0.0
    host: float = 1.0
    step: float = 0.0
    records: int = 0
    source: str = "isolated kernels: no published step of this era, GPU and width was fitted"


@dataclass(frozen=True)
class Era:
    """One state of the software.

    what, when  which software it is, up to which release; who should choose it, behind "choose it when"
    like       the era that it is, its factors too, but for what the file says of it
    attention  how the core attention runs
    flash      kernels that run it where it is one, the first that the GPU's generation has in
               compute/data/attention.yaml; '' for its usual one
    cudnn_on   generations on which cuDNN's run all the same: torchtitan's on B200 since 3b85aa31 (May 2025)
    scatter_gather  pipeline sends are cut over the tensor ranks and gathered again, also without sequence
               parallelism
    fused_experts  whether 8-bit experts run as one fused MLP on Blackwell and its like (`fused.EXPERTS`)
    spills_biases  whether that MLP keeps sums of gradients of biases in memory (`fused.summing_biases`)
    loss       how its cross-entropy passes over the logits (`model.operators.eager.LOSS_MOVED`)
    kept_loss  what it keeps of them, over one tensor rank (`logits.LOGIT_BYTES`, `end_activations.CUT`)
    dropout    share of hidden states and of attention's scores that is dropped where a job does not say
               (GPT-like models of 2021 and 2022: Korthikanti et al. 2022, arXiv 2205.05198, section 4)
    biased     whether layers are those of GPT-like models before Transformer Engine (`Cut.biased`)
    scores_once  whether scores that are not fused are there in the layer at work only
               (`activations.scores_once`)
    placeholders  whether autograd gets empty gradients that stay (`activations.stage_activations`)
    head_placeholder  whether that of the head stays too, as in Megatron-LM since core 0.14 (e7c55de9)
    adapts_apart  whether adapters stand beside queries, keys and values, and beside gates and what they
               multiply, each for itself, where NeMo has one for their product: PEFT and torchtune 031d89b
               (models/llama3_1/_component_builders.py) adapt linear layers, torchtitan b5bcd76 too, whose
               keys and values are one by now
    keeps_adapted_norms  whether a frozen product keeps what the norm in front of it makes, as it multiplies
               it, where an adapter reads it too (`lora_kept.NORMED`)
    reads_bf16_moments  whether Adam's kernel reads moments in 16 bits as they are: Transformer Engine's since
               2.14 (459e7cf4, April 2026)
    turns_while_casting  whether one kernel writes both copies of what products in NVFP4 read: Transformer
               Engine 2.15 (523801df, March 2026)
    moves_weights  whether a distributed optimizer moves weights into a buffer at the start (`moved`); before
               March 2024 (293e1041) Megatron-LM's gathered them in that of the gradients
    saves      kept tensors of a layer under selective recomputation, where the framework names what it saves
    units      how PyTorch's FSDP2 shards a model's ends (`units`): 'joined' in the unit of the model itself,
               'apart' each for itself, as torchtitan since 83e69410 (28 July 2025); '' where it is not FSDP2
    fp32_shards  whether sharded weights are the fp32 master weights themselves (`formats.has_fp32_shards`)
    hybrid_optimizer  whether Megatron-LM's HybridDeviceOptimizer runs an optimizer on the host (`offload`)
    sums_gradients  microbatches' weight gradients are added by kernels of their own, not by the products
               (`fused.summing_gradients`)
    async_linear  a column-parallel product reduces the gradient of its input, and gathers its input again,
               beside the products of its gradients (`Work`), whether `overlap.tp` is asked for or not
    hides_sends  under which schedules it can hide pipeline sends: 'interleaved' all but 1F1B
    repeats    whether layers, and parts of them, that are computed again run whole, with their collectives
               (`recompute.WHOLE`); XLA drops what the backward pass does not read, and so does PyTorch
               since 2.1, compiled or not (torch/utils/checkpoint.py, use_reentrant=False with early stop, as
               torchtitan and fms-fsdp call it)
    fuses_yarn whether YaRN's rotary positions of grouped queries are one kernel, as plain ones are
    amax_over  ranks that agree on the maxima of all fp8 tensors after every pass (`lockstep`)
    compiled_casts  whether torch.compile casts to fp8, by kernels of its own (`casts`)
    deepspeed  whether DeepSpeed's pipeline engine runs it and holds memory of its own (`deepspeed`)
    allocator  what gives tensors their memory: PyTorch's caching allocator with 'segments' of fixed sizes or
               with one that is 'growing' (expandable_segments), or 'jax'
    rotation   whose code turns queries and keys where no fused kernel does (`eager.TURN_LAUNCHES`)
    dispatch   what moves rows to experts that are not spread over ranks (`Cut.dispatch`): 'eager' where
               models of Hugging Face's run as they are; torch.compile fuses what others have of it
    batch_first whether the batch, not the sequence, is the first dimension of its tensors (`along_sequence`)
    lazy_kernels  whether CUDA loads a kernel when it is first called: by default with PyTorch since 1.13
    launcher   what launches a layer's kernels (`host.launch_times`)
    plain_modules  whether its layers in 16 bits are modules of torch.nn and operations of PyTorch, each of
               which takes the host what the sources measure: `Pace.host` is 1 (in 8 bits they are modules of
               Transformer Engine, as llm-foundry's, or of torchao).  A layer of Hugging Face's Llama takes
               1.00 to 1.03 times what is counted of it, forward 1.3 and backward 0.8 (transformers 4.57.1,
               benchmarks/torch_modules.py, 2026-11-29)
    graphs     whether it launches parts of a layer as CUDA graphs: NeMo since 24.04, Megatron-LM of 2025
               (docs/training/unseen.md, MLPerf Training); torchtitan has no setting
    framework  whose schedules and overlaps it has (`search.frameworks`, which knows some of them)
    pace       'h100 16-bit', or 'hopper 16-bit' for the generation's other GPUs -> factors
    """

    name: Software
    what: str
    when: str
    attention: CoreAttention
    scatter_gather: bool
    pace: dict[str, Pace]
    like: Software | None = None
    flash: str = ""
    cudnn_on: tuple[str, ...] = ()
    fused_experts: bool = False
    spills_biases: bool = False
    loss: Loss = "compiled"
    kept_loss: KeptLoss = "unfused"
    dropout: float = 0.0
    biased: bool = False
    rotation: Rotation = "megatron"
    dispatch: Dispatch = "fused"
    batch_first: bool = False
    scores_once: bool = False
    placeholders: bool = False
    head_placeholder: bool = False
    keeps_adapted_norms: bool = False
    reads_bf16_moments: bool = False
    turns_while_casting: bool = False
    adapts_apart: bool = False
    moves_weights: bool = False
    saves: tuple[str, ...] = ()
    units: Literal["", "joined", "apart"] = ""
    fp32_shards: bool = False
    hybrid_optimizer: bool = False
    sums_gradients: bool = False
    async_linear: bool = False
    hides_sends: Literal["never", "interleaved", "always"] = "always"
    repeats: bool = True
    fuses_yarn: bool = True
    amax_over: Literal["stage", "tensor", "none"] = "none"
    compiled_casts: bool = False
    deepspeed: bool = False
    allocator: Literal["segments", "growing", "jax"] = "segments"
    lazy_kernels: bool = True
    launcher: Launcher = "python"
    plain_modules: bool = False
    graphs: bool = False
    framework: str = "megatron"

    @property
    def megatron_alone(self) -> bool:
        """Whether Megatron-LM's own optimizers update, not DeepSpeed's."""
        return self.framework == "megatron" and not self.deepspeed

    @property
    def zero_engine(self) -> bool:
        """Whether DeepSpeed's ZeRO engine shards and reduces (`zero_engine`)."""
        return self.framework == "deepspeed"

    def fuses_experts(self, gpu: Gpu, dtype: str) -> bool:
        """Whether experts run as one fused MLP on a GPU in a number format."""
        return self.fused_experts and gpu.generation in LIKE_BLACKWELL and width_of(dtype) == "fp8"

    def can_hide_sends(self, schedule: str) -> bool:
        """Whether pipeline sends can run beside compute under a schedule (`schedule_name`).

        Megatron-LM hides those of interleaved schedules only, since May 2023 (f9283c5a; megatron/training/
        arguments.py sets overlap_p2p_comm to False without virtual stages).
        """
        return self.hides_sends == "always" or (self.hides_sends == "interleaved" and schedule != "1f1b")


def era_of(job: TrainingJob) -> Era:
    """The era a job names."""
    return eras()[job.software]


def chooses_attention(job: TrainingJob) -> bool:
    """Whether a job's software has several fused kernels for attention, of which the job may name one."""
    return era_of(job).attention == "flash" and era_of(job).framework != "jax"


def attention_kernels(job: TrainingJob, gpu: Gpu) -> str:
    """Kernels that run a job's attention where it is one, in order of preference (`compute.profile_of`)."""
    if job.attention_backend is not None and chooses_attention(job):
        return {"fused": "", "flash": "flash-2"}[job.attention_backend]
    era = era_of(job)
    return "" if _kin(gpu) in era.cudnn_on else era.flash


def hides_sends(job: TrainingJob) -> bool:
    """Whether a stage computes on while it sends: where the job asks for it and its framework can."""
    return job.overlap.pp and era_of(job).can_hide_sends(schedule_name(job.layout))


def pace_of(job: TrainingJob, gpu: Gpu, gpus: int | None = None) -> Pace:
    """The factors of a job's era on a GPU, with the wait for the slowest.

    gpus  in the job; default: as many as the job asks for
    """
    return waiting(pace_alone(job, gpu), gpus or job.gpus or 1)


def pace_alone(job: TrainingJob, gpu: Gpu) -> Pace:
    """The factors without that wait: the GPU's own, else its generation's, else what all GPUs say of the era;
    of an era of one GPU, those of isolated kernels."""
    known = era_of(job).pace
    own, kin = pace_keys(gpu, job.dtype)
    return known.get(own) or known.get(kin) or known.get(f"{ANY_GPU} {width_of(job.dtype)}") or Pace()


def waiting(pace: Pace, gpus: int) -> Pace:
    """A pace with the wait for the slowest of `gpus` GPUs: kernel times grow, launches and gaps do not."""
    factor = wait_factor(gpus)
    return replace(
        pace, gemm=factor * pace.gemm, attention=factor * pace.attention, memory=factor * pace.memory
    )


def paced(profile: Profile, pace: Pace) -> Profile:
    """A GPU's kernels as they run in a step.

    Clocks of multiprocessors fall under load, that of HBM does not: products and attention compute more
    slowly, and those bound by memory, such as weight gradients of experts with few rows, take their isolated
    time.  So do those bound by what power sustains, whose clock had fallen when they were measured, and those
    of GPUs whose kernels were measured at the clock that they hold (`steady`).
    """

    def slower(row: Row, factor: float) -> Row:
        return row if row.steady else replace(row, fixed=row.fixed * factor, compute=row.compute / factor)

    bound = replace(
        profile.memory, fixed=profile.memory.fixed * pace.memory, memory=profile.memory.memory / pace.memory
    )
    return replace(
        profile,
        gemm={dtype: slower(row, pace.gemm) for dtype, row in profile.gemm.items()},
        attention={phase: slower(row, pace.attention) for phase, row in profile.attention.items()},
        memory=bound,
    )


def loss_of(job: TrainingJob) -> Loss:
    """How a job's cross-entropy passes over the logits; PyTorch's has other kernels over tensor ranks.

    Liger's kernel is the one that Transformer Engine's was made from.
    """
    era = era_of(job)
    if job.chunked_loss == "liger":
        return "fused"
    if compiles_chunks(job):
        return "compiled"
    if unfuses_loss(job) and era.framework == "megatron":
        return "eager"
    loss: Loss = "torch" if unfuses_loss(job) else era.loss
    return "torch, cut" if loss == "torch" and job.layout.tensor > 1 else loss


def compiles_chunks(job: TrainingJob) -> bool:
    """Whether a job's loss is torchtune's in chunks, which torch.compile takes whenever it takes the layers,
    but not over tensor ranks.

    Source: torchtune bd2a0fc, recipes/lora_finetune_distributed.py (compile_loss where `compile` is set),
    modules/loss/cross_entropy_loss.py (apply_compile_strategy).
    """
    return job.chunked_loss == "torchtune" and era_of(job).launcher == "inductor" and job.layout.tensor == 1


def unfuses_loss(job: TrainingJob) -> bool:
    """Whether a job runs its framework's eager cross-entropy where its era has a fused one: Megatron's own
    (without --cross-entropy-loss-fusion), or PyTorch's in place of flash-attn's, which llm-foundry calls and
    Hugging Face's models do not (transformers, modeling_llama.py, LlamaForCausalLM.forward: logits in fp32).

    Elsewhere `unfused` cannot take a fused one away: Megatron's of 2021 and 2022 is eager, and the compiled
    software's and JAX's are what they are.
    """
    return "loss" in job.unfused and can_unfuse_loss(era_of(job))


def can_unfuse_loss(era: Era) -> bool:
    """Whether an era has a fused cross-entropy that a job can do without."""
    return era.framework in ("megatron", "llm-foundry") and era.loss in ("fused", "compiled")


def eager_parts(job: TrainingJob) -> tuple[Part, ...]:
    """Parts of layers and head that a job runs one kernel per operation; the optimizer is none.

    What torch.compile or XLA has compiled fuses norms and activations, whatever the job says.
    """
    compiled = era_of(job).launcher != "python"
    fused: tuple[Part, ...] = FUSED_BY_COMPILERS if compiled else ()
    return tuple(part for part in job.unfused if part != "optimizer" and part not in fused)


FUSED_BY_COMPILERS: tuple[Part, ...] = ("norm", "activation")

LIMITED = ("h100-sxm-96",)
"""Cards with published steps, limited to less power than others of their name: factors of their own."""

SAME_SILICON = {"a800": "a100", "h800": "h100"}
"""GPUs that compute as another one does, with fewer NVLinks (sources: the catalogue's entries of both)."""

ANY_GPU = "any"
"""Key of the factors of GPUs of a generation without a record."""


def pace_keys(gpu: Gpu, dtype: str) -> tuple[str, str]:
    """'h100 fp8' and 'hopper fp8': whose products of that width share factors.

    Blackwell Ultra counts as Blackwell; RTX Blackwell is
    other silicon at other clocks, and every card of it ('rtx-5090') its own.
    """
    width = width_of(dtype)
    own = gpu.name if gpu.name in LIMITED or gpu.name.startswith("rtx-") else gpu.name.split("-")[0]
    own = SAME_SILICON.get(own, own)
    return f"{own} {width}", f"{_kin(gpu)} {width}"


def _kin(gpu: Gpu) -> str:
    """The generation, Blackwell Ultra as Blackwell."""
    return gpu.generation.removesuffix("-ultra")


@cache
def eras() -> dict[Software, Era]:
    """All eras by name, oldest first."""
    data: dict[Software, Any] = read_data("training", "eras.yaml")
    return {name: _era(name, **(data.get(row.get("like"), {}) | row)) for name, row in data.items()}


def _era(name: Software, *, pace: dict[str, Any], **row: Any) -> Era:
    """One of the file; what it leaves out is as in most eras."""
    row = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Era(name, pace={key: Pace(**one) for key, one in pace.items()}, **row)
