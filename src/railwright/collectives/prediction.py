"""What a collective prediction is, and NCCL's settings that it depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from railwright.network.routing.solution import Bottleneck
from railwright.spec.nccl import Nccl

Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"]


@dataclass(frozen=True)
class NcclSettings:
    """NCCL's user-visible settings, by the variable each stands for.

    pxn          PXN_DISABLE=0: send through the local GPU on the destination's rail
    algorithm    ALGO: 'auto' or one of 'ring', 'tree', 'nvls', 'nvlstree', 'collnet'
    protocol     PROTO: 'auto' or one of 'll', 'll128', 'simple'
    sharp        whether in-network reduction may be used (switch and plugin)
    sub_message_share  part of a post's cost that each message keeps when PXN sends several in one post,
                 0..1; None: the estimate of data/nccl.yaml.  An assumption of ours, here to be varied.
    min_channels, max_channels  MIN_NCHANNELS, MAX_NCHANNELS; None: what NCCL's search opens
    cross_nic    CROSS_NIC=1: rings change rails from node to node; None: as NCCL finds best
    qps_per_connection  IB_QPS_PER_CONNECTION: hashed flows that each connection is split into; None: one
    p2p_net_chunk  P2P_NET_CHUNKSIZE [byte]; None: 128 KiB
    """

    pxn: bool = True
    algorithm: str = "auto"
    protocol: str = "auto"
    sharp: bool = False
    sub_message_share: float | None = None
    min_channels: int | None = None
    max_channels: int | None = None
    cross_nic: bool | None = None
    qps_per_connection: int | None = None
    p2p_net_chunk: int | None = None

    @classmethod
    def of(cls, nccl: Nccl) -> NcclSettings:
        """Those of a study's NCCL section."""
        return cls(**nccl.model_dump())


@dataclass(frozen=True)
class Term:
    """One part of a predicted time: 'launch', 'steps', 'messages', 'bandwidth', 'ramp'; with why."""

    name: str
    seconds: float
    why: str


@dataclass(frozen=True)
class CollectivePrediction:
    """One collective at one size, as nccl-tests reports it.

    size     nccl-tests' S: the total buffer (all_gather, reduce_scatter: n times the per-rank part) [byte]
    ranks    n, of one group
    groups   groups that run the same collective at the same time
    time     [s]
    algbw, busbw   nccl-tests' definitions [byte/s]
    algorithm, protocol   NCCL's choice: 'ring', 'simple', ...; 'p2p' for all_to_all and sendrecv
    terms    parts that add up to `time`
    bottleneck  busiest link of the bandwidth term, None inside one GPU
    error_low, error_high   80 % band of measured/predicted for this family (0.9, 1.2), and its source
    rare_low, rare_high     98 % band, likewise; 0 and infinity where nobody has made one
    filling  latency of the pipeline that the message fills, hidden or not [s]
    slot     how long the busiest PCIe slot carries it where GPUs have no scale-up links, at the rate that
             NCCL counts on; else 0 [s]
    hidden   latency of steps that the bandwidth term hides at most [s]
    """

    op: Op
    size: float
    ranks: int
    groups: int
    time: float
    algbw: float
    busbw: float
    algorithm: str
    protocol: str
    terms: tuple[Term, ...]
    bottleneck: Bottleneck | None
    error_low: float
    error_high: float
    notes: tuple[str, ...] = field(default=())
    rare_low: float = 0.0
    rare_high: float = float("inf")
    filling: float = 0.0
    slot: float = 0.0
    hidden: float = 0.0

    @property
    def bandwidth_bound(self) -> float:
        """The part of `time` in which links carry the message: start-up and steps go at their own pace,
        whatever else runs. [s]"""
        return min(self.time, sum(term.seconds for term in self.terms if term.name == "bandwidth"))

    @property
    def slot_share(self) -> float:
        """Part of the busiest PCIe slot that the message fills meanwhile, 0 to 1."""
        return min(1.0, self.slot / self.bandwidth_bound) if self.slot else 0.0
