"""Point-to-point patterns: all-to-all and send/recv, direct or through PXN relays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.placement import relay

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


def all_to_all(fabric: Fabric, comm: Communicator, size_per_pair: float | Floats, pxn: bool) -> Traffic:
    """Every ordered pair of different ranks of a communicator.

    size_per_pair  bytes each rank sends to each other one, or an (n, n) array [sender, receiver] [byte]
    pxn            relay a pair over the scale-up domain to the destination's rail (see `placement.relay`)
    """
    n = len(comm)
    sender, receiver = np.divmod(np.arange(n * n), max(n, 1))
    different = sender != receiver
    size = np.broadcast_to(np.asarray(size_per_pair, np.float64), (n, n)).reshape(-1)[different]
    return _pairs(fabric, comm.gpus, comm.gpus[sender[different]], comm.gpus[receiver[different]], size, pxn)


def send_recv(fabric: Fabric, src: Ints, dst: Ints, size: float | Floats, pxn: bool = False) -> Traffic:
    """One message from each src to the dst beside it.

    src, dst  (F,) GPU ids
    size      bytes of each message, one number or (F,) [byte]
    pxn       relay over the scale-up domain to the destination's rail; any GPU of the domain may forward
    """
    src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
    sizes = np.broadcast_to(np.asarray(size, np.float64), src.shape)
    everyone = np.arange(fabric.num_gpus, dtype=np.int32)
    return _pairs(fabric, everyone, src, dst, sizes, pxn)


def _pairs(fabric: Fabric, members: Ints, src: Ints, dst: Ints, size: Floats, pxn: bool) -> Traffic:
    forward = relay(fabric, members, src, dst) if pxn else np.full(len(src), -1, np.int32)
    return Traffic(src.astype(np.int32), dst.astype(np.int32), forward, size.copy())
