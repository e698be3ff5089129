"""What a device's own name tells: server and adapter of a host, chassis and model of a director's module."""

from __future__ import annotations

import re

_DEVICE = (
    r"(?:HCA-?\d+|mlx[45]_(?:bond_)?\d+|bnxt_re\d+|irdma\d+|ionic_\d+|efa_\d+|cxi\d+|hfi1_\d+|qib\d+|"
    r"i?ib[ps]?\d[\w.]*|ib[a-z]*\d\w*|rdmap\w+|roce\w+|(?:en[ops]|eth|ens)\d[\w.]*|nic-?\d+|rail-?\d+|"
    r"swid\d+|gpu\d+_eth|usnic_\d+)"
)
_HOSTS = (
    re.compile(rf"(?P<host>\S+)[\s/:]+(?P<adapter>{_DEVICE})", re.IGNORECASE),  # 'n001 HCA-1', 'h:mlx5_0'
    re.compile(r"(?P<host>[\w.-]+)/(?P<adapter>nic-\d+)"),  # ours: 'server-03/nic-2'
    re.compile(r"(?P<host>[\w.-]*\d[\w.-]*)\s+(?P<adapter>[\w.-]+)"),  # 'node12 compute-0'
)
_UNNAMED = re.compile(
    r"(localhost(?:\.localdomain)?|\(none\)|MT\d{4,}|Connect(?:X|-IB)\S*|.*Mellanox Technologies.*|"
    r".*Infiniscale.*|.*NVIDIA (?:Corporation|Technologies).*)",
    re.IGNORECASE,
)
_AGGREGATION = re.compile(r"Aggregation Node", re.IGNORECASE)
_MODULE = re.compile(r"MF\d+;(?P<system>[^:;]+):(?P<model>[^/]+)(?P<module>/[LS]\d+)?(?:/U\d+)?\s*$")


def host_and_adapter(name: str) -> tuple[str, str]:
    """('dgx-01', 'mlx5_4') of 'dgx-01 mlx5_4', and ('', '') of a name that says no server.

    A node description that was never set ('localhost mlx5_0', 'MT4129 ConnectX7 …') gives host ''; the
    adapter is kept where it is told.
    """
    text = name.strip()
    for pattern in _HOSTS:
        if match := pattern.fullmatch(text):
            host, adapter = match["host"], match["adapter"]
            return ("", adapter) if _UNNAMED.fullmatch(host) else (host, adapter)
    if not text or " " in text or _UNNAMED.fullmatch(text):
        return "", ""
    return text, ""


def is_aggregation(name: str) -> bool:
    """True for the SHARP aggregation node that Quantum switches show as an adapter."""
    return bool(_AGGREGATION.search(name))


def chassis(name: str) -> tuple[str, str]:
    """(system, model) of a managed switch's name: 'MF0;r7ib1:MCS8500/L01/U1' is module L01 of system 'r7ib1'.

    A switch of its own ('MF0;r7ib0:MQM8700/U1') has system ''; other names give ('', '').
    """
    if match := _MODULE.match(name.strip()):
        return (match["system"] if match["module"] else ""), match["model"]
    return "", ""
