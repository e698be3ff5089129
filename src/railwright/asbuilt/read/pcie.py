"""PCIe inside a server: rate of a lane, and how far each NIC is from each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.asbuilt.host import Bridge, Gpu, Nic, PathType

_CODING = {2.5: 8 / 10, 5.0: 8 / 10, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Share of a lane's transfers that carry data. Source: PCI Express Base Specification 6.0: 8b/10b up to
5 GT/s (4.2.2), 128b/130b from 8 GT/s, 242 of each flit's 256 bytes at 64 GT/s (table 4-37)."""


def lane_rate(transfers: float) -> float:
    """Data rate of one lane, one direction [byte/s], at `transfers` [GT/s]; 0 at no speed of PCIe."""
    return transfers * 1e9 * _CODING.get(transfers, 0.0) / 8


def distances(
    bridges: Sequence[Bridge], gpus: Sequence[Gpu], nics: Sequence[Nic], *, between: int
) -> tuple[tuple[PathType, ...], ...]:
    """(GPUs, NICs) path types from the tree of bridges.

    between  bridges that one PCIe switch may put between a device and the nearest bridge above both: 0 where
             the file shows a switch as one bridge (NCCL), 1 where it shows its ports (hwloc)
    Source: NVIDIA, `nvidia-smi topo -m`, legend.
    """
    parents = {bridge.key: bridge.parent for bridge in bridges}
    above_nic = [_chain(nic.bridge, parents) for nic in nics]
    rows: list[tuple[PathType, ...]] = []
    for gpu in gpus:
        chain = _chain(gpu.bridge, parents)
        place = {key: i for i, key in enumerate(chain)}
        rows.append(
            tuple(_path(gpu, nic, place, up, between) for nic, up in zip(nics, above_nic, strict=True))
        )
    return tuple(rows)


def _path(gpu: Gpu, nic: Nic, place: Mapping[str, int], up: Sequence[str], between: int) -> PathType:
    for steps, key in enumerate(up):
        if key in place:
            if key.startswith("host-"):
                return "PHB"
            return "PIX" if max(steps, place[key]) <= between else "PXB"
    if gpu.numa < 0 or nic.numa < 0:
        return ""
    if gpu.numa != nic.numa:
        return "SYS"
    # Files without host bridges (NCCL) cannot tell PHB from NODE; NCCL calls both PHB.
    return "NODE" if any(key.startswith("host-") for key in (*place, *up)) else "PHB"


def _chain(bridge: str, parents: Mapping[str, str]) -> list[str]:
    """The bridge and all above it."""
    chain: list[str] = []
    while bridge and bridge not in chain:
        chain.append(bridge)
        bridge = parents.get(bridge, "")
    return chain
