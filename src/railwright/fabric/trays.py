"""A rack-scale server as its operating systems see it: trays of four GPUs, each a host with a name."""

from __future__ import annotations

TRAY_GPUS = 4
"""GPUs that one operating system of a rack-scale domain sees.

Source: NVIDIA, "DGX GB200 Rack Scale Systems User Guide", hardware overview (18 compute trays of four GPUs).
"""

RACK_SCALE = 16
"""The largest scale-up domain in one chassis with one operating system: 16 GPUs (NVIDIA DGX-2)."""


def is_rack(gpus: int) -> bool:
    """Whether a server of so many GPUs is a rack of trays that share one scale-up domain."""
    return gpus > RACK_SCALE and gpus % TRAY_GPUS == 0


def host_names(server: str, gpus: int) -> list[str]:
    """Operating systems of one server of so many GPUs: itself, or the trays of a rack."""
    if not is_rack(gpus):
        return [server]
    return [tray_name(server, tray) for tray in range(gpus // TRAY_GPUS)]


def tray_name(server: str, tray: int) -> str:
    """The host that a tray of a rack is, from 0."""
    return f"{server}-tray-{tray + 1:02d}"


def host_of_nic(server: str, nic: int, gpus: int, nics: int) -> tuple[str, int]:
    """Host that a NIC of a server sits in, and its number there, from 0.

    nic         its number in the server, from 0
    gpus, nics  of the server
    """
    hosts = host_names(server, gpus)
    each = max(nics // len(hosts), 1)
    return hosts[nic // each], nic % each
