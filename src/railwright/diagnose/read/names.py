"""How a device of a dump is called among the elements."""

from __future__ import annotations

from railwright.asbuilt.wiring import Node


def name_in_elements(node: Node) -> str:
    """'host05/mlx5_2' for an adapter, the switch's name, or its key where it has none."""
    if node.kind == "host" and node.host and node.adapter:
        return f"{node.host}/{node.adapter}"
    return node.name or node.key
