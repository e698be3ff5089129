"""What the machine must offer: network namespaces, `ip` and `tc`; and `nft` where packets shall be lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from railwright.errors import RailwrightError

SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"

SWITCHES = (
    ("proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    (
        "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""Where a kernel says that user namespaces are off, the value that says so, and what root sets to allow them.
Sources: Debian's and Ubuntu's kernels (the first and third), Linux user_namespaces(7) (the second)."""

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nft": "nftables"}


@dataclass(frozen=True)
class Tools:
    """Programs by path, and the command that opens private namespaces."""

    ip: str
    tc: str
    nft: str
    unshare: tuple[str, ...]


def find_tools(
    loss: bool = False, root: Path = Path("/"), which: Callable[[str], str | None] | None = None
) -> Tools:
    """What an emulation runs with.

    loss   packets shall be lost, which needs nft
    root   where /proc is; which: how a program is looked up (both for tests)
    Raises RailwrightError, with what to do, where something is missing or not allowed.
    """
    look = which or _which
    if sys.platform != "linux":
        raise RailwrightError(f"emulation needs Linux network namespaces; this machine runs {sys.platform}")
    missing = [tool for tool in ("ip", "tc", "unshare") if not look(tool)]
    if missing:
        names = " and ".join(f"'{tool}'" for tool in missing)
        packages = " ".join(dict.fromkeys(PACKAGES[tool] for tool in missing))
        raise RailwrightError(
            f"emulation needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed; "
            f"install {packages}"
        )
    if loss and not look("nft"):
        raise RailwrightError("--loss drops packets by 'nft', which is not installed; install nftables")
    unshare = look("unshare") or ""
    for flags in ("-Urnmpf", *(("-nmpf",) if os.geteuid() == 0 else ())):
        command = (unshare, flags, "--kill-child")
        said = _allowed(command)
        if not said:
            return Tools(look("ip") or "", look("tc") or "", look("nft") or "", command)
    raise RailwrightError(f"emulation needs user namespaces, {_why_not(root, said)}")


def _allowed(command: tuple[str, ...]) -> str:
    """'' where private namespaces can be opened, otherwise what the kernel says."""
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"status {tried.returncode}"


def _why_not(root: Path, said: str) -> str:
    for name, off, remedy in SWITCHES:
        try:
            value = (root / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if value == off:
            return f"which are off here (/{name} is {value}); root allows them with: {remedy}"
    return f"which were refused here ({said}); in a container, start it with --privileged"


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", "") + ":" + SYSTEM_FOLDERS)
