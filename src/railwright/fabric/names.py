"""Devices and ports by their names in the drawing: 'leaf-03', 'server-07/nic-2', 'leaf-03 port 37'."""

from __future__ import annotations

import re

import numpy as np

from railwright.errors import PlanError, nearest
from railwright.fabric.graph import Fabric, Ints, Kind, server_name

SWITCHES = {"leaf": Kind.LEAF, "spine": Kind.SPINE, "core": Kind.CORE}
INSIDE = {"gpu": Kind.GPU, "nic": Kind.NIC}

_NAME = re.compile(
    r"(?P<outer>server|leaf|spine|core)-(?P<number>\d+)"
    r"(/(?P<inner>gpu-|nic-|nvswitch|xgmi|pcie)(?P<index>\d*))?"
    r"( port (?P<port>\d+))?"
)


def find_devices(fabric: Fabric, element: str) -> tuple[Ints, int]:
    """Devices a fault's element names, and the port on them (0: every port).

    'server-07' names everything in the server.
    Raises PlanError, with what there is and the nearest name, for an element the fabric does not have.
    """
    match = _NAME.fullmatch(element.strip().lower())
    if match is None:
        raise _unknown(fabric, element)
    outer, number, port = match["outer"], int(match["number"]), int(match["port"] or 0)
    if outer == "server":
        devices = _in_server(fabric, element, number, match["inner"], match["index"])
    elif match["inner"]:
        raise _unknown(fabric, element)
    else:
        devices = _pick(fabric.devices(SWITCHES[outer]), number - 1, element, outer, 1)
    if match["port"] is not None:
        _check_port(fabric, element, devices, port)
    return devices, port


def device_names(fabric: Fabric) -> list[str]:
    """`Fabric.device_name` of every device, in one pass."""
    nics = len(fabric.devices(Kind.NIC)) // fabric.num_servers
    inner = [f"gpu-{i}" for i in range(fabric.gpus_per_server)], [f"nic-{i}" for i in range(nics)]
    names: list[str] = []
    scale_up = [fabric.scale_up] if len(fabric.devices(Kind.SCALE_UP)) else []
    for locals_ in (*inner, scale_up):
        names += [f"{server_name(s)}/{local}" for s in range(fabric.num_servers) for local in locals_]
    for word, kind in SWITCHES.items():
        names += [f"{word}-{i + 1:02d}" for i in range(len(fabric.devices(kind)))]
    return names


def numbered(servers: int) -> str:
    """'the numbers 0 to 15 (server-01 to server-16)': what `servers` of a job may name."""
    if servers == 1:
        return f"the number 0 ({server_name(0)}) alone"
    return f"the numbers 0 to {servers - 1} ({server_name(0)} to {server_name(servers - 1)})"


def _in_server(fabric: Fabric, element: str, number: int, inner: str | None, index: str) -> Ints:
    servers = np.arange(fabric.num_servers, dtype=np.int32)
    server = int(_pick(servers, number - 1, element, "server", 1)[0])
    inside = np.flatnonzero(fabric.server == server).astype(np.int32)
    if inner is None:
        return inside
    word = inner.rstrip("-")
    if (word == fabric.scale_up) != (index == "") or word not in (*INSIDE, fabric.scale_up):
        raise _unknown(fabric, element)
    of_kind = inside[fabric.kind[inside] == INSIDE.get(word, Kind.SCALE_UP)]
    return _pick(of_kind, int(index or 0), element, f"{server_name(number - 1)}/{word}", 0)


def _pick(choices: Ints, index: int, element: str, what: str, first: int) -> Ints:
    if not 0 <= index < len(choices):
        if not len(choices):
            raise PlanError(f"fault '{element}': this fabric has no {what}")
        pad = "02d" if first else "d"
        last = len(choices) - 1 + first
        closest = first if index < 0 else last
        raise PlanError(
            f"fault '{element}': there is no such {what.split('/')[-1]}; "
            f"this fabric has {what}-{first:{pad}} to {what}-{last:{pad}}; "
            f"did you mean '{what}-{closest:{pad}}'?"
        )
    return choices[index : index + 1]


def _check_port(fabric: Fabric, element: str, devices: Ints, port: int) -> None:
    if len(devices) > 1:
        raise PlanError(
            f"fault '{element}': a server has no ports of its own; name one of its NICs, "
            f"as '{fabric.device_name(int(devices[0])).split('/')[0]}/nic-0 port 1'"
        )
    device = int(devices[0])
    name = fabric.device_name(device)
    at = np.concatenate([fabric.port_a[fabric.a == device], fabric.port_b[fabric.b == device]])
    used = np.unique(at[at > 0]).tolist()
    if port in used:
        return
    if not used:
        raise PlanError(f"fault '{element}': {name} has no numbered ports; leave the port out")
    closest = min(used, key=lambda p: (abs(p - port), p))
    raise PlanError(
        f"fault '{element}': no cable on port {port} of {name}, which uses {len(used)} ports "
        f"between {used[0]} and {used[-1]}; did you mean '{name} port {closest}'?"
    )


def _unknown(fabric: Fabric, element: str) -> PlanError:
    number = (re.search(r"\d+", element) or ["1"])[0]
    words = ["server", *(w for w, k in SWITCHES.items() if len(fabric.devices(k)))]
    known = [f"{w}-{int(number):02d}" for w in words]
    known += [f"{known[0]}/nic-0", f"{known[0]}/gpu-0", f"{known[0]}/{fabric.scale_up}"]
    return PlanError(
        f"fault '{element}' names no element of this fabric; write 'leaf-03', 'spine-01', 'server-07', "
        f"'server-07/nic-2' or 'leaf-03 port 37'{nearest(element, known)}"
    )
