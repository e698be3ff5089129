"""GPUs by agreement: masks of CUDA_VISIBLE_DEVICES, and a line to wait in."""

from __future__ import annotations

import re
from itertools import pairwise

from railwright.deploy.templates import template
from railwright.errors import PlanError
from railwright.spec.sharing import Sharing

_LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""Login names (useradd(8))."""


def logins(sharing: Sharing) -> tuple[str, ...]:
    """Login names of the users. Raises PlanError for wrong or doubled ones, or another number than users."""
    names = sharing.names or tuple(f"user-{i + 1:02d}" for i in range(sharing.users))
    if len(names) != sharing.users:
        raise PlanError(f"sharing.names: {len(names)} names for {sharing.users} users")
    for i, name in enumerate(names):
        if not _LOGIN.fullmatch(name):
            raise PlanError(f"sharing.names: '{name}' is no login name (small letters, digits, - and _)")
        if name in names[:i]:
            raise PlanError(f"sharing.names: '{name}' is there twice")
    return names


def shares(users: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """GPUs of each user, neighbours together, as even as can be; the first get one more.

    Raises PlanError where there are fewer GPUs than users.
    """
    if users > gpus:
        raise PlanError(f"{users} users cannot have a GPU of {gpus} each; take a queue", "sharing.users")
    each, more = divmod(gpus, users)
    edges = [0]
    for user in range(users):
        edges.append(edges[-1] + each + (user < more))
    return tuple(tuple(range(a, b)) for a, b in pairwise(edges))


def render(sharing: Sharing, gpus: int) -> dict[str, str]:
    """A snippet for every .bashrc, and one file for /etc/profile.d that does the same for all."""
    names = logins(sharing)
    cut = shares(len(names), gpus)
    lists = {name: ",".join(map(str, own)) for name, own in zip(names, cut, strict=True)}
    every = [
        "# /etc/profile.d/gpu-masks.sh: GPUs of each person.  An agreement, not a lock.",
        "# Numbers are those of nvidia-smi: CUDA must count in the same order.",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        'case "$(id -un)" in',
        *(f"  {name}) export CUDA_VISIBLE_DEVICES={own} ;;" for name, own in lists.items()),
        '  *) export CUDA_VISIBLE_DEVICES="" ;;',
        "esac",
    ]
    files = {"masks/gpu-masks.sh": "\n".join(every) + "\n"}
    for name, own in lists.items():
        files[f"masks/bashrc-{name}"] = (
            f"# Append to ~{name}/.bashrc\n"
            f"export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES={own}\n"
        )
    return files


def render_queue(gpus: int) -> dict[str, str]:
    """A task-spooler queue per GPU, and a command that takes the shortest.

    task-spooler (Debian package task-spooler, command tsp) keeps one line of jobs per socket, TS_SOCKET.
    """
    return {"queue/gpuq": template("gpuq", GPUS=str(gpus))}
