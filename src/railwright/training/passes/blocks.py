"""The blocks of a layer as tasks: attention, MLP or experts, with the layout's collectives between operators.

Legend: tp, sp: tensor and sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from railwright.model.operators.recompute import CORE
from railwright.model.operators.sparse import PROJECTIONS
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, Layer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import NOTHING
from railwright.training.layers.costs import (
    ROTARY_KEYS,
    STAYING,
    Cost,
    around_core,
    columns_of,
    expert_sections,
    gathered_again,
    gradients_of,
    latent_widths,
    products,
    sections,
    shared_halves,
)
from railwright.training.layers.gathers import input_share
from railwright.training.layers.recompute import Again, part_of
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.unhidden import casts_first, sums_first
from railwright.training.passes.chain import FINDING, Chain
from railwright.training.passes.exchange import Exchange
from railwright.training.passes.weights import AGAIN, LAST_WEIGHTS, MIXERS
from railwright.training.software.eras import era_of
from railwright.training.software.host import LaunchTimes

RECOMPUTED = "recomputed "
"""What the names of tasks begin with that run again."""


class Blocks:
    """Builds the tasks of one layer's passes, or of a part of one."""

    def __init__(
        self,
        job: TrainingJob,
        arch: Transformer,
        exchange: Exchange,
        layers: Mapping[Layer, list[Cost]],
        recomputed: Mapping[Layer, Again],
        launches: Mapping[Layer, LaunchTimes],
        turns: bool,
    ) -> None:
        """layers      what the operators of each kind of layer cost
        recomputed  what selective recomputation runs again of each
        launches    host time of each
        turns       whether passes take turns
        """
        self.job, self.exchange, self.turns = job, exchange, turns
        self.layers, self.recomputed, self.launches = layers, recomputed, launches
        self.tp, self.sp = exchange.tp, exchange.sp
        self.behind_shared = hides_behind_shared(job, arch)
        self.widths = latent_widths(arch, self.sp)
        self.joined = arch.parallel_blocks
        self.drops = not era_of(job).repeats and arch.norms_per_layer <= 2
        self.beside = job.overlap.tp or (era_of(job).async_linear and not job.launch_blocking)
        self.hides_gathers = self.beside and not casts_first(job)
        self.summed = sums_first(job, arch)

    def forward(self, chain: Chain, kind: Layer, again: str = "") -> None:
        """A whole layer; `again` is what the names of its tasks begin with where it is computed again.

        Only a sum reads what its last product makes, so that software that computes again what the backward
        pass reads leaves that out, and its reduction (`Era.repeats`); but an output norm reads it.
        """
        attention, rest = sections(self.layers[kind])
        mixer = MIXERS[PARTS[kind].mixer]
        name, label = f"{again}{mixer}", "recompute" if again else mixer
        drops, joined = bool(again) and self.drops, self._joined(kind)
        if attention:
            unread = drops and (joined or not rest)
            self._block_forward(chain, name, label, attention, not joined, unread)
        if rest:
            self._second_forward(chain, kind, again, rest, unread=drops)

    def again(self, chain: Chain, kind: Layer) -> None:
        """What selective recomputation runs of a layer before its backward pass."""
        found = self.recomputed[kind]
        modules = self.job.layout.recompute_modules if self.sp else ()
        for cost in self.layers[kind]:
            part = "core_attn" if cost.name in PROJECTIONS else "mla_up_proj"
            gathers = cost.name not in (ROTARY_KEYS, "query absorption")
            if part in modules and cost.name in self.widths and gathers:
                share = input_share(self.job, cost.name)
                chain.communicate(self.exchange.gathering(width=self.widths[cost.name], share=share))
        self.compute(chain, "recomputed attention", "recompute", found.rest)
        if found.core is not None:
            self.attend(chain, "recomputed attention", "recompute", found.core)
        for part in found.whole:
            inside = part_of(self.layers[kind], part)
            if part != "shared_experts":
                self._second_forward(chain, kind, RECOMPUTED, inside, reduced=not self._joined(kind))
                continue
            shared = [c for c in inside if c.name != "shared gate"]
            self._block_forward(chain, f"{RECOMPUTED}shared expert", "recompute", shared)
            gate = sum(c.forward for c in inside) - sum(c.forward for c in shared)
            self.compute(chain, f"{RECOMPUTED}shared expert", "recompute", gate)

    def _joined(self, kind: Layer) -> bool:
        """Whether attention and MLP of a layer are added up before one reduction ends both.

        Their inputs are gathered, and the gradients of these reduced, by each on its own.
        Source: EleutherAI/gpt-neox, megatron/model/transformer.py, ParallelTransformerLayer (gpt_j_residual:
        both blocks with parallel_output, then self.reduce of the sum); mpu/layers.py, ColumnParallelLinear.
        """
        return self.joined and PARTS[kind].mlp == "dense"

    def _second_forward(
        self,
        chain: Chain,
        kind: Layer,
        again: str,
        rest: list[Cost],
        reduced: bool = True,
        unread: bool = False,
    ) -> None:
        """MLP or experts; `reduced` says whether an MLP's output is, `unread` that it is not even made."""
        if PARTS[kind].mlp == "dense":
            self._block_forward(chain, f"{again}mlp", "recompute" if again else "mlp", rest, reduced, unread)
            return
        route, experts, shared, after = expert_sections(rest)
        label = "recompute" if again else "experts"
        self.compute(chain, f"{again}router", label, sum(c.forward for c in route))
        first, last = self._shared(chain, shared, lambda half: sum(c.forward for c in half))
        chain.communicate(self.exchange.counts())
        self._exchange(chain, "ep dispatch", first, label)
        chain.communicate(self.exchange.expert_gather())
        self._experts(chain, f"{again}experts", label, sum(c.forward for c in experts), self.launches[kind])
        chain.communicate(self.exchange.expert_reduce())
        self._exchange(chain, "ep combine", last, label)
        if self.behind_shared:
            chain.communicate(self.exchange.reduction())
        elif shared:
            self._block_forward(chain, f"{again}shared expert", label, shared)
        self.compute(chain, f"{again}combine", label, sum(c.forward for c in after))
        chain.communicate(self.exchange.whole_again())

    def _experts(self, chain: Chain, name: str, label: str, seconds: float, known: LaunchTimes) -> None:
        """All of them; where the host looks for each one's rows, the GPU waits for it as often, which stands
        in front of the last one."""
        if not known.searches or self.job.launch_blocking:
            self.compute(chain, name, label, seconds)
            return
        last = seconds / known.searches
        self.compute(chain, name, label, seconds - last)
        chain.flush()
        chain.launched(known.searches * known.search, chain.tail, FINDING)
        self.compute(chain, name, label, last)

    def backward(self, chain: Chain, kind: Layer, whole: bool, result_first: bool) -> None:
        """Backwards through `forward`; `whole` says whether weight gradients are computed too."""
        attention, rest = sections(self.layers[kind])
        if PARTS[kind].mlp == "dense":
            self._block_backward(chain, "mlp backward", "mlp", rest, whole)
        elif rest:
            route, experts, shared, after = expert_sections(rest)
            self.compute(chain, "combine backward", "experts", gradients_of(after, whole))
            first, last = self._shared(chain, shared, lambda half: gradients_of(half, whole))
            if shared and not self.behind_shared:
                self._block_backward(chain, "shared expert backward", "experts", shared, whole)
            self._exchange(chain, "ep combine backward", last)
            chain.communicate(self.exchange.expert_gather())
            self.compute(chain, "experts backward", "experts", gradients_of(experts, whole))
            chain.communicate(self.exchange.expert_reduce())
            self._exchange(chain, "ep dispatch backward", first)
            chain.communicate(self.exchange.reduction() if self.behind_shared else NOTHING)
            self.compute(chain, "router backward", "experts", gradients_of(route, whole))
            chain.communicate(self.exchange.whole_again())
        if not attention:
            return
        own, mixer = whole and not result_first, MIXERS[PARTS[kind].mixer]
        gathered = self._joined(kind)
        self._block_backward(chain, f"{mixer} backward", mixer, attention, own, gathered)
        if result_first:
            for width in gathered_again(attention, self.widths) if self.exchange.again else ():
                chain.communicate(self.exchange.gathering(AGAIN, width, self.exchange.again))
            self.compute(chain, LAST_WEIGHTS, mixer, sum(c.weight for c in attention))

    def _shared(
        self, chain: Chain, shared: list[Cost], seconds: Callable[[list[Cost]], float]
    ) -> tuple[float, float]:
        """What of shared experts runs beside dispatch and beside combine (`shared`) [s]."""
        if not self.behind_shared:
            return 0.0, 0.0
        chain.communicate(self.exchange.gathering() if self.sp else NOTHING)
        first, last = shared_halves(shared)
        return seconds(first), seconds(last)

    def _block_forward(
        self,
        chain: Chain,
        name: str,
        kind: str,
        found: list[Cost],
        reduced: bool = True,
        unread: bool = False,
    ) -> None:
        """Norm, gather, column-parallel product, …, row-parallel product, reduce, residual.

        reduced  whether its output is, and not added to what is reduced later
        unread   all but the last product, whose output nobody reads
        """
        pre, first, middle, last, post = products(found)
        columns, middle = columns_of(pre, first, middle, self.widths)
        before, core, behind = around_core(middle)
        for column in columns:
            self.compute(chain, name, kind, sum(c.forward for c in column.before))
            share = input_share(self.job, column.product.name)
            self.gather(chain, name, kind, column.product.forward, column.width, share)
        self.compute(chain, name, kind, sum(c.forward for c in before))
        if core:
            self._mix(chain, name, kind, core, sum(c.forward for c in core))
        self.compute(chain, name, kind, sum(c.forward for c in behind))
        if unread:
            return
        comm = self.exchange.reduction() if reduced else NOTHING
        if self.job.overlap.tp:
            chain.reduce_out_of(comm, name, kind, last.forward, self.tp)
        else:
            self.compute(chain, name, kind, last.forward)
            chain.communicate(comm)
        self.compute(chain, name, kind, sum(c.forward for c in post))

    def _block_backward(
        self, chain: Chain, name: str, kind: str, found: list[Cost], whole: bool, gathered: bool = False
    ) -> None:
        """Backwards through `_block_forward`; under sp the inputs are gathered again for the weights.

        gathered  the gradient of its output is already, for another block that it was added to
        """
        pre, first, middle, last, post = products(found)
        columns, middle = columns_of(pre, first, middle, self.widths)
        before, core, behind = around_core(middle)
        self.compute(chain, name, kind, gradients_of(post, whole))
        if self.sp and not gathered:
            self.gather(chain, name, kind, last.input, share=self.exchange.gathers.gradients)
            self.compute(chain, name, kind, last.weight if whole else 0.0)
        else:
            self.compute(chain, name, kind, gradients_of([last], whole))
        self.compute(chain, name, kind, gradients_of(behind, whole))
        if core:
            self._mix(chain, name, kind, core, gradients_of(core, whole), backward=True)
        self.compute(chain, name, kind, gradients_of(before, whole))
        for column in reversed(columns):
            if column.product.name in PROJECTIONS:
                self.compute(chain, name, kind, gradients_of([column.product], whole))
            else:
                again = self.exchange.again
                self.column_backward(chain, name, kind, column.product, whole, again, column.width)
            self.compute(chain, name, kind, gradients_of(column.before, whole))

    def column_backward(
        self,
        chain: Chain,
        name: str,
        kind: str,
        cost: Cost,
        whole: bool,
        again: float,
        width: int | None = None,
    ) -> None:
        """Gradients of a column-parallel product: gather its input again, reduce its input gradient.

        again  share of 16 bits in which its input is gathered again; 0: it is not
        width  of its input, where it is not the hidden width
        Only a weight gradient needs the input again.
        Source: Megatron-LM, core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication;
        megatron/mpu/layers.py, ColumnParallelLinearWithAsyncAllreduce, since September 2021 (16c90445).
        """
        weight = cost.weight if whole else 0.0
        gathering = NOTHING
        if again and whole and cost.learns and cost.name not in STAYING:
            gathering = self.exchange.gathering(AGAIN, width, again)
        if self.beside:
            if self.hides_gathers:
                chain.beside(gathering, name, kind, cost.input)
            else:
                chain.communicate(gathering)
                self.compute(chain, name, kind, cost.input)
            if cost.name in self.summed:
                self.compute(chain, name, kind, weight)
                chain.communicate(self.exchange.reduction(width))
            else:
                chain.beside(self.exchange.reduction(width), name, kind, weight)
            return
        chain.communicate(gathering)
        self.compute(chain, name, kind, cost.input)
        chain.communicate(self.exchange.reduction(width))
        self.compute(chain, name, kind, weight)

    def _mix(
        self, chain: Chain, name: str, kind: str, core: list[Cost], seconds: float, backward: bool = False
    ) -> None:
        """The core attention, or a linear mixer's kernels, with what context ranks exchange around it."""
        if core[0].name in CORE:
            self.attend(chain, name, kind, seconds, backward)
        else:
            self.exchange.mix(chain, name, kind, seconds, backward)

    def attend(self, chain: Chain, name: str, kind: str, seconds: float, backward: bool = False) -> None:
        self.exchange.attend(chain, name, kind, seconds, backward)

    def compute(self, chain: Chain, name: str, kind: str, seconds: float) -> None:
        chain.compute(name, kind, seconds)

    def gather(
        self,
        chain: Chain,
        name: str,
        kind: str,
        seconds: float,
        width: int | None = None,
        share: float = 1.0,
    ) -> None:
        """Under sp: an all-gather into the product that follows it."""
        comm = self.exchange.gathering(width=width, share=share) if self.sp else NOTHING
        if self.job.overlap.tp and self.hides_gathers and seconds:
            chain.gather_into(comm, name, kind, seconds, self.tp)
        else:
            chain.communicate(comm)
            self.compute(chain, name, kind, seconds)

    def _exchange(self, chain: Chain, purpose: str, shared: float = 0.0, kind: str = "experts") -> None:
        """One expert all-to-all beside `shared` seconds of compute; passes that take turns do so here."""
        for comm in self.exchange.routed(purpose):
            if shared:
                back = " backward" if purpose.endswith("backward") else ""
                chain.beside(comm, f"shared expert{back}", kind, shared)
            else:
                chain.communicate(comm)
        if self.turns:
            chain.cut()
