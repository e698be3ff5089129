"""Network namespaces by their file descriptors: made, entered and configured without names or files.

Runs inside the private user, network, mount and process namespaces that `run` opens; standard library only.
What is made here lives as long as the descriptors, so nothing has to be undone.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterable

CLONE_NEWNET = 0x40000000

SIOCETHTOOL = 0x8946
OFFLOADS = (0x1F, 0x24, 0x2C)
"""ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO: switched off, so that a shaper sees the packets of the wire.
Source: Linux, include/uapi/linux/ethtool.h, sockios.h and sched.h."""

SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/tcp_rmem": "4096 4194304 16777216",
    "net/ipv4/tcp_wmem": "4096 1048576 16777216",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_slow_start_after_idle": "0",
}
"""Of every namespace: forwarding; buffers that never hold a sender back; no memory of earlier connections."""

PATIENCE = {"net/ipv4/tcp_early_retrans": "0", "net/ipv4/tcp_recovery": "0"}
"""Where nothing is lost: no probe for a lost tail (which repeats what still waits at a shaper), no guess at
loss from time. Source: Linux, Documentation/networking/ip-sysctl.rst."""


class NotAllowed(Exception):
    """The kernel refused something that the emulation cannot do without; the text says what."""


_libc = ctypes.CDLL(None, use_errno=True)


def new_namespace(lossless: bool) -> int:
    """Descriptor of a fresh, configured network namespace; the caller is in it afterwards."""
    if _libc.unshare(CLONE_NEWNET):
        raise NotAllowed(f"a network namespace was refused: {os.strerror(ctypes.get_errno())}")
    for name, value in {**SETTINGS, **(PATIENCE if lossless else {})}.items():
        try:
            with open(f"/proc/sys/{name}", "w", encoding="ascii") as file:
                file.write(value)
        except OSError as error:
            if "ip_forward" in name:
                raise NotAllowed(f"/proc/sys/{name} cannot be set to {value}: {error.strerror}") from None
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(namespace: int) -> None:
    """Move the calling thread, and what it starts from now on, into a namespace."""
    if _libc.setns(namespace, CLONE_NEWNET):
        raise NotAllowed(f"a network namespace cannot be entered: {os.strerror(ctypes.get_errno())}")


def private_tmpfs(folder: str) -> None:
    """A file system of our own over a folder, seen by us and our children only."""
    if _libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"size=16m"):
        raise NotAllowed(f"no private {folder}: {os.strerror(ctypes.get_errno())}")


def batch(tool: str, lines: Iterable[str], namespaces: tuple[int, ...] = ()) -> None:
    """Many commands of `ip` or `tc` in one process, which inherits the descriptors `namespaces`."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    done = subprocess.run(
        [tool, "-batch", "-"], input=text, text=True, capture_output=True, pass_fds=namespaces, check=False
    )
    if done.returncode:
        raise NotAllowed(f"'{tool}' failed: {_first(done.stderr)}")


def drop_rules(nft: str, rules: Iterable[tuple[str, float]]) -> None:
    """Lose a fraction of the packets that come in by each device, in the namespace we are in.

    rules  (device, fraction lost)
    """
    lines = [
        f'iifname "{device}" numgen random mod 100000 < {round(rate * 100000)} counter drop'
        for device, rate in rules
    ]
    if not lines:
        return
    chain = "\n".join(["type filter hook prerouting priority -300", *lines])
    done = subprocess.run(
        [nft, "-f", "-"],
        input=f"table ip railwright {{\nchain loss {{\n{chain}\n}}\n}}\n",
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise NotAllowed(f"'nft' failed, so no packets can be lost: {_first(done.stderr)}")


def plain_packets(devices: Iterable[str]) -> None:
    """Segmentation and receive offload off, in the namespace we are in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for device in devices:
            for command in OFFLOADS:
                value = array.array("B", struct.pack("II", command, 0))
                request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
                fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def _first(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith("Command failed")]
    return lines[0] if lines else "no reason given"
