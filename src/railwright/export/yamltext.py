"""Scalars of YAML: the writer of large, regular files needs no more of YAML than that."""

from __future__ import annotations

import json
import re

from railwright.spec.load import parse_value


def quoted(text: str) -> str:
    """JSON's string is YAML's double-quoted scalar (YAML 1.2.2, 1.3 and 5.7)."""
    return json.dumps(text, ensure_ascii=False)


def scalar(text: str) -> str:
    """Text as it stands where YAML reads it so, else in quotes: 'true', '123', 'a #b'."""
    plain = re.fullmatch(r"[A-Za-z0-9/][\w ./-]*", text, re.ASCII) and text == text.strip()
    return text if plain and parse_value(text) == text else quoted(text)
