"""A scalar of YAML in double quotes: the writer of large, regular files needs no more of YAML than that."""

from __future__ import annotations

import json


def quoted(text: str) -> str:
    """JSON's string is YAML's double-quoted scalar (YAML 1.2.2, 1.3 and 5.7)."""
    return json.dumps(text, ensure_ascii=False)
