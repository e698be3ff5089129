"""Rounds: the order in which NCCL posts an all-to-all, and what hashing costs when few flows run at a time.

Legend: F demands, n ranks, B batches (a batch is up to 8 rounds on one channel of one rank).

What NCCL 2.30.7 does (file: what):
- src/init.cc, ncclP2pSchedule: ranks form groups of 8 neighbours (NCCL_P2P_SCHEDULE_GROUP_SIZE).  Round
  g * 8 + d sends to local rank + d of the group at distance delta(g), and receives from the mirror image;
  delta runs through 0, 1, 3, 6, 10, ... modulo the next power of two, leaving out what is not a group.
- src/enqueue.cc, ncclAddWorkBatchToPlan and src/include/device.h: 8 rounds make one batch of a channel
  (NCCL_MAX_DEV_WORK_P2P_PER_BATCH); a channel runs the 8 together and then its next batch.
- src/include/channel.h, ncclP2pChannelBaseForRound: consecutive batches go to different channels.
- src/graph/paths.cc: a peer is striped over p2pnChannelsPerPeer channels, ceil(NIC / 14 GB/s) but at least 2,
  rounded up to a power of two and halved until all peers fit into the channels or 1 is left.
- src/enqueue.cc: so channels / channels per peer * 8 peers are served at a time.
- src/transport/net_ib/connect.cc: 1 queue pair per connection (NCCL_IB_QPS_PER_CONNECTION).  common.cc:
  requests go to them in turn, whole (NCCL_IB_SPLIT_DATA_ON_QPS=0) or cut in equal parts (=1).
Ranks are not synchronised: a channel goes on when its batch is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.traffic import Communicator, Traffic

if TYPE_CHECKING:
    from railwright.network.ecmp.fluid import Columns

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Pace = Literal["synchronised", "pipelined"]

BATCH = 8
"""Rounds that a channel runs together. Source: NCCL 2.30.7, src/include/device.h,
NCCL_MAX_DEV_WORK_P2P_PER_BATCH."""

PER_CHANNEL = 14e9
"""What NCCL trusts one channel to send [byte/s]. Source: NCCL 2.30.7, src/graph/paths.cc,
NCCL_P2P_PER_CHANNEL_NET_BW."""

REQUEST = 131072
"""Bytes of one request of a send over the network. Source: NCCL 2.30.7, src/init.cc, P2P_NET_CHUNKSIZE."""

RESOLUTION = 1 / 500
"""Finishes this close together, in parts of the exchange's busiest-link time, are one pipeline event."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """When each demand may start.

    window  (F,) which demands go together: those of window w after all of w - 1, where synchronised
    lane    (F,) channel that carries the demand, the same number at both ends
    step    (F,) place of the demand's batch on that channel
    ends    (F, 2) rank that sends and rank that receives
    pace    'synchronised': every rank waits for all others between windows.  A barrier NCCL does not have, so
            an exchange is never held up more than this by its order.
            'pipelined': a channel of a rank goes on as soon as its own batch, sends and receives, is done;
            followed event by event, finishes within RESOLUTION of the whole taken as one.
    """

    window: Longs
    lane: Longs
    step: Longs
    ends: Longs
    pace: Pace = "synchronised"

    def __len__(self) -> int:
        return len(self.window)

    def part(self, rows: Longs) -> Rounds:
        """Those of some demands."""
        return Rounds(self.window[rows], self.lane[rows], self.step[rows], self.ends[rows], self.pace)

    def describe(self, windows: int) -> str:
        """In words, for `EcmpDistribution.engine`."""
        if self.pace == "synchronised":
            return f"{windows} rounds one after another, ranks synchronised"
        return f"batches pipelined per rank and channel, finishes within {RESOLUTION:.1%} taken as one event"


def all_to_all_rounds(
    comm: Communicator,
    traffic: Traffic,
    group: int = BATCH,
    channels: int = 32,
    per_peer: int = 1,
    pace: Pace = "synchronised",
) -> Rounds:
    """NCCL's rounds of an all-to-all's demands.

    group     ranks per group of the schedule: 8, or the ranks of a node if that is fewer
    channels  p2pnChannels: NCCL's channels, rounded up to a power of two (NCCL_DEBUG=INFO prints it)
    per_peer  p2pnChannelsPerPeer; see `channels_per_peer`

    channels / per_peer * 8 peers are served at a time: that many rounds make one window.
    Raises PlanError where a demand's ends are not ranks of the communicator.
    """
    n = len(comm)
    if group < 1 or n % group:
        raise PlanError(
            f"groups of {group} do not divide {n} ranks; give the ranks of each node, or a divisor"
        )
    if channels < 1 or not 1 <= per_peer <= channels:
        raise PlanError(
            f"{per_peer} channels per peer of {channels}; there must be at least 1, and as many in all"
        )
    rank = np.full(int(max(comm.gpus.max(), traffic.src.max(initial=0), traffic.dst.max(initial=0))) + 1, -1)
    rank[comm.gpus] = np.arange(n)
    ends = np.stack([rank[traffic.src], rank[traffic.dst]], axis=1).astype(np.int64)
    if np.any(ends < 0):
        raise PlanError(
            "a demand begins or ends at a GPU outside the communicator; rounds are of its ranks only"
        )
    near, far = ends // group, ends % group
    distance = (near[:, 1] - near[:, 0]) % (n // group)
    number = round_of_distance(n // group)[distance] * group + (far[:, 1] - far[:, 0]) % group
    batch = number // BATCH
    lanes = max(channels // per_peer, 1)
    return Rounds(batch // lanes, batch % lanes, batch // lanes, ends, pace)


def round_of_distance(groups: int) -> Longs:
    """(groups,) place in the schedule of each distance: triangular numbers modulo a power of two."""
    span = 1
    while span < groups:
        span *= 2
    order = np.cumsum(np.arange(span, dtype=np.int64)) % span
    order = order[order < groups]
    place = np.empty(groups, np.int64)
    place[order] = np.arange(groups)
    return place


def channels_per_peer(ranks: int, nic: float, channels: int = 32) -> int:
    """Channels that one message is striped over, each a connection of its own: p2pnChannelsPerPeer.

    ranks  of the communicator; nic: what one rank's NIC sends [byte/s]; channels: p2pnChannels
    """
    count = max(2, -int(-nic // PER_CHANNEL))
    while count & (count - 1):
        count += 1
    while count > 1 and count * -(-ranks // BATCH) > channels:
        count //= 2
    return count


def queue_pairs_used(size: float, qps: int, split: bool = False, request: float = REQUEST) -> int:
    """Queue pairs that a message of `size` bytes on one connection rides.

    split  NCCL_IB_SPLIT_DATA_ON_QPS=1: every request is cut over all; 0: requests take turns, so a message of
           few requests uses few queue pairs
    """
    return qps if split else int(min(qps, max(1, -(-size // request))))


def pipelined_time(columns: Columns, size: Floats, capacity: Floats, rounds: Rounds) -> float:
    """When the last demand has finished, each channel of each rank working through its own batches [s].

    A demand moves when its batch is the one at hand on its channel at both ends; rates are max-min fair among
    the demands that move.  A batch is done when all its sends and receives are.
    """
    sending = (size > 0) & np.any(columns.link >= 0, axis=1)
    rows = np.flatnonzero(sending)
    if not len(rows):
        return 0.0
    lanes, steps = int(rounds.lane.max()) + 1, int(rounds.step.max()) + 1
    ranks = int(rounds.ends.max()) + 1
    step = rounds.step
    here, there = rounds.ends[:, 0] * lanes + rounds.lane, rounds.ends[:, 1] * lanes + rounds.lane
    open_at = np.zeros((ranks * lanes, steps), np.int64)
    for end in (here, there):
        np.add.at(open_at, (end[rows], step[rows]), 1)
    at = _next_open(open_at, np.zeros(ranks * lanes, np.int64))
    left = size.astype(np.float64).copy()
    load = np.zeros(len(capacity))
    for k in range(columns.link.shape[1]):
        link = columns.link[rows, k]
        part = size[rows] * (1.0 if k < columns.whole else columns.share)
        load += np.bincount(link[link >= 0], part[link >= 0], len(load))
    quantum = RESOLUTION * float(np.max(load[capacity > 0] / capacity[capacity > 0]))
    now = 0.0
    pending = rows
    while len(pending):
        active = pending[(step[pending] == at[here[pending]]) & (step[pending] == at[there[pending]])]
        rate = columns.rates(active, capacity)
        due = left[active] / rate
        gone = due <= due.min() + quantum
        pause = float(due[gone].max())
        left[active] = np.maximum(left[active] - rate * pause, 0.0)
        left[active[gone]] = 0.0
        now += pause
        for end in (here, there):
            np.subtract.at(open_at, (end[active[gone]], step[active[gone]]), 1)
        at = _next_open(open_at, at)
        pending = pending[left[pending] > 0]
    return now


def _next_open(open_at: Longs, at: Longs) -> Longs:
    """The first batch from `at` on that still has demands, per rank and channel."""
    ahead = np.arange(open_at.shape[1])[None, :] >= at[:, None]
    waiting = (open_at > 0) & ahead
    first: Longs = np.where(waiting.any(axis=1), waiting.argmax(axis=1), open_at.shape[1])
    return first
