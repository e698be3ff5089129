"""The collectives inside a pass: which group runs them, and how large they are.

Legend: t, c, e, f tensor-, context-, expert-parallel size and tensor-parallel size inside an expert.
sp: sequence parallelism.
"""

from __future__ import annotations

from railwright.collectives.moe_routing import exchanged
from railwright.collectives.prediction import Op
from railwright.model.operators.narrow import NARROW
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import PASSED_ON
from railwright.training.layers.blockwise import sent_share
from railwright.training.layers.communication import (
    NOTHING,
    Comm,
    Prices,
    activation_size,
    block_sizes,
    mixer_sizes,
    routed_size,
)
from railwright.training.layers.gathers import gathers_again, gathers_of, head_gathers
from railwright.training.passes.chain import Chain
from railwright.training.software.eras import era_of
from railwright.training.software.narrow import scaling_of

COUNT_BYTES = 8.0
"""Bytes of one expert's count of tokens."""

RECEIVED = "pp gather"
"""Purpose of the all-gather of a pass's input (`Exchange.received`)."""


class Exchange:
    """Collectives of one microbatch.

    again, head_again, joining_again  share of 16 bits in which inputs of layers, of the head, and of what
        joins two for an extra prediction are gathered again for weight gradients; 0: they are not
    """

    def __init__(self, job: TrainingJob, arch: Transformer, prices: Prices) -> None:
        self.job, self.arch, self.prices = job, arch, prices
        self.tp = job.layout.tensor
        self.sp = job.layout.sequence_parallel and self.tp > 1
        self.cp = job.layout.context
        self.inside = job.layout.expert_cut
        self.size = activation_size(job, arch)
        self.gathers = gathers_of(job)
        layers, head = (self.sp and gathers_again(job, of_head) for of_head in (False, True))
        self.again = self.gathers.again if layers else 0.0
        self.joining_again = self.gathers.again if head else 0.0
        self.head_again = head_gathers(job).again if head else 0.0

    def gathering(self, purpose: str = "tp all-gather", width: int | None = None, share: float = 1.0) -> Comm:
        """Hidden states of all tensor ranks, before a column-parallel product under sp.

        width  elements of each token, where it is not the hidden width (`costs.Column`)
        share  of 16 bits in which they travel (`gathers`)
        """
        return self.prices.comm("tp", purpose, "all_gather", self.size * self._part(width) * share, "tp")

    def reduction(self, width: int | None = None) -> Comm:
        """What ends a row-parallel product: an all-reduce, or a reduce-scatter under sp (half the volume)."""
        size = self.size * self._part(width)
        if self.sp:
            return self.prices.comm("tp", "tp reduce-scatter", "reduce_scatter", size, "tp")
        return self.prices.comm("tp", "tp all-reduce", "all_reduce", size, "tp")

    def received(self) -> Comm:
        """What a rank got of the stage before it, gathered over the tensor ranks that it was cut over.

        The receiver gathers, once its own send is done too, before it computes anything of the pass.
        Source: Narayanan et al., SC'21, section 4.1; Megatron-LM 2021, megatron/p2p_communication.py,
        _communicate (scatter_gather_tensors_in_pipeline).
        """
        if self.sp or not era_of(self.job).scatter_gather:
            return NOTHING
        return self.prices.comm("tp", RECEIVED, "all_gather", self.size, "tp")

    def _part(self, width: int | None) -> float:
        return 1.0 if width is None else width / self.arch.hidden

    def routed(self, purpose: str) -> tuple[Comm, ...]:
        """One expert all-to-all: dispatch or combine; in 8 bits what goes to experts, where the job says so.

        With `expert_nodes` a token crosses the network once per server of its experts, to the GPU at its own
        place there (its rail, without NCCL and its relays), and is passed on inside the server meanwhile:
        what that takes longer comes after (DeepEP's high-throughput kernels; DeepSeek-V3, arXiv 2412.19437,
        section 3.2.2).  Inside it goes once to every GPU with any of its experts (DeepEP, csrc/kernels/
        layout.cu: tokens are counted per rank, not per expert), all of them on the servers it goes to.  Both
        are one kernel, which the host launches once.  A group that lies on its servers in unequal parts has
        no rails: its ranks spread a server's tokens over all who are there (`exchanged`), which such kernels
        do not run and NICs cannot do with less.
        """
        if self.job.layout.expert == 1:
            return ()
        size = routed_size(self.job, self.arch) * sent_share(self.job, purpose)
        limit = self.job.expert_nodes
        if limit is None:
            return (self.prices.comm("ep", purpose, "all_to_all", size, "ep"),)
        parts, top = self.prices.groups.parts("ep"), self.arch.experts_per_token
        copies = {p: exchanged(self.arch.experts, p, top, limit) for p in parts}
        local = size * max(sent.inside for sent in copies.values()) / top
        # What leaves of an all-to-all where most does: all groups are priced at one size, the busiest NIC's.
        leaving = {p: 1 - p[0] / sum(p) for p in parts}
        most = max(leaving.values())
        if not most:
            return (self.prices.comm("ep", purpose, "all_to_all", local, "ep"),)
        share = max(sent.between * leaving[p] for p, sent in copies.items()) / most / top
        between = self.prices.comm("ep", purpose, "all_to_all", size * share, "ep_rail")
        inside = self.prices.comm("ep", purpose + PASSED_ON, "all_to_all", local, "ep_local")
        longer = max(inside.seconds - between.seconds, 0.0)
        return between, inside._replace(seconds=longer, wire=min(inside.wire, longer))

    def counts(self) -> Comm:
        """How many tokens every rank has for every expert, before NCCL's all-to-all of them.

        Fixed capacities need none; DeepEP's and HybridEP's kernels count themselves.
        Source: Megatron-LM d98e8a64, core/transformer/moe/token_dispatcher.py, preprocess (int64, gathered
        over the ranks that exchange tokens; of ranks that cut experts too here over one of each).
        """
        job = self.job
        if job.layout.expert == 1 or job.expert_nodes is not None or job.expert_capacity is not None:
            return NOTHING
        size = COUNT_BYTES * self.arch.experts * job.layout.expert
        return self.prices.comm("ep", "ep counts", "all_gather", size, "ep")

    def expert_gather(self) -> Comm:
        """Tokens of all tensor ranks come together before a cut expert.

        With experts spread over ranks, or cut less than the rest, these are the routed copies, else the
        hidden states once.
        """
        if self._plain():
            return self.gathering() if self.sp else NOTHING
        return self._expert_tp("expert tp all-gather", "all_gather")

    def expert_reduce(self) -> Comm:
        """Partial results of a cut expert are added up."""
        if self._plain():
            return self.reduction()
        return self._expert_tp("expert tp reduce-scatter", "reduce_scatter")

    def whole_again(self) -> Comm:
        """Without sp every tensor rank needs all tokens again after routing its share of them."""
        return self.gathering() if self.tp > 1 and not self.sp and not self._plain() else NOTHING

    def attend(self, chain: Chain, name: str, kind: str, seconds: float, backward: bool = False) -> None:
        """The core attention with what context-parallel ranks exchange around it.

        seconds  all of its compute
        Backward, gradients of keys and values travel with them round the ring, or are reduced and scattered.
        """
        if self.cp == 1:
            chain.compute(name, kind, seconds)
            return
        again = " backward" if backward else ""
        query, keys, out = block_sizes(self.job, self.arch)
        how, (inputs, outputs, gradient, gradients) = self.job.layout.context_kind, self._sent()
        if how == "ring":
            size = keys * (inputs + gradients if backward else inputs)
            hop = self.prices.comm("cp", f"cp ring{again}", "sendrecv", size, "cp")
            if self.job.overlap.cp:
                chain.ring(hop, name, kind, seconds, self.cp)
                return
            for _ in range(self.cp - 1):
                chain.communicate(hop)
            chain.compute(name, kind, seconds)
            return
        if how == "all-to-all":
            ends = (gradient * out, gradients * (query + keys))
            if not backward:
                ends = (inputs * (query + keys), outputs * out)
            chain.communicate(self.prices.comm("cp", f"cp all-to-all in{again}", "all_to_all", ends[0], "cp"))
            chain.compute(name, kind, seconds)
            chain.communicate(
                self.prices.comm("cp", f"cp all-to-all out{again}", "all_to_all", ends[1], "cp")
            )
            return
        whole = keys * self.cp
        chain.communicate(self.prices.comm("cp", f"cp all-gather{again}", "all_gather", inputs * whole, "cp"))
        chain.compute(name, kind, seconds)
        if backward:
            chain.communicate(self.prices.comm("cp", "cp reduce-scatter", "reduce_scatter", whole, "cp"))

    def _sent(self) -> tuple[float, float, float, float]:
        """Bytes of queries, keys and values, of outputs and of the gradients of both on their way between
        context-parallel ranks, over those of 16 bits (`narrow.Narrow.sent`)."""
        scaling = scaling_of(self.job)
        return NARROW[scaling].sent if scaling else (1.0, 1.0, 1.0, 1.0)

    def mix(self, chain: Chain, name: str, kind: str, seconds: float, backward: bool = False) -> None:
        """The kernels of a linear mixer: context-parallel ranks swap tokens for heads in front of them, and
        back behind them, however the attention of other layers is split.

        Source: Megatron-LM d98e8a6, core/ssm/mamba_context_parallel.py (pre_conv_ssm, post_conv_ssm) and
        gated_delta_net/common.py (a2a_cp_to_hp).
        """
        if self.cp == 1:
            chain.compute(name, kind, seconds)
            return
        again, ends = " backward" if backward else "", mixer_sizes(self.job, self.arch)
        first, last = reversed(ends) if backward else ends
        chain.communicate(self.prices.comm("cp", f"cp all-to-all in{again}", "all_to_all", first, "cp"))
        chain.compute(name, kind, seconds)
        chain.communicate(self.prices.comm("cp", f"cp all-to-all out{again}", "all_to_all", last, "cp"))

    def _plain(self) -> bool:
        """Experts are whole on the tensor ranks together and nowhere else: as a dense MLP."""
        return self.job.layout.expert == 1 and self.inside == self.tp

    def _expert_tp(self, purpose: str, op: Op) -> Comm:
        size = routed_size(self.job, self.arch) * self.inside
        return self.prices.comm("tp", purpose, op, size, "tp" if self.inside == self.tp else "etp")
