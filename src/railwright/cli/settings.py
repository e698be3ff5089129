"""`--compare pxn=off`: what is changed, from the words of a command line to dotted fields and values."""

from __future__ import annotations

from typing import Any

from railwright.errors import RailwrightError, nearest

SHORT = {
    "pxn": "nccl.pxn",
    "sharp": "nccl.sharp",
    "algorithm": "nccl.algorithm",
    "protocol": "nccl.protocol",
    "family": "cluster.compute.family",
    "routing": "cluster.compute.routing",
    "oversubscription": "cluster.compute.oversubscription",
    "switch": "cluster.compute.switch",
    "servers": "cluster.servers",
    "server": "cluster.server",
}
_SWITCHES = {"on": True, "off": False}


def changes(text: str) -> dict[str, Any]:
    """'pxn=off' or 'pxn=off,routing=ecmp' as {dotted field: value}; values as in the study file, or on/off.

    Raises RailwrightError where a setting has no '=', no value, or is written twice.
    """
    from railwright.spec import parse_value

    found: dict[str, Any] = {}
    for setting in text.split(","):
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not (name and equals and value):
            raise RailwrightError(
                f"--compare '{text}': write NAME=VALUE, like pxn=off; "
                f"short names are {', '.join(SHORT)}, any dotted field of the study works too"
            )
        if name not in SHORT and "." not in name:
            hint = (
                nearest(name, SHORT) or f"; known are {', '.join(SHORT)}, and any dotted field of the study"
            )
            raise RailwrightError(f"--compare '{text}': there is no setting '{name}'{hint}")
        field = SHORT.get(name, name)
        if field in found:
            raise RailwrightError(f"--compare '{text}': '{name}' is written twice")
        found[field] = _SWITCHES[value] if value in _SWITCHES else parse_value(value, f"--compare {setting}")
    return found
