"""Conditions and sums of shell scripts, of texts in which everything is put in."""

from __future__ import annotations

import ast
import operator
from fnmatch import fnmatchcase

TEXTS = {"=": True, "==": True, "!=": False}
NUMBERS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}

COMPARING = {*TEXTS, *NUMBERS, "-z", "-n", "true", "false"}
"""Words by which a test is known that has no brackets."""


def both(a: bool | None, b: bool | None) -> bool | None:
    """Whether two things hold; None where that is not known."""
    return False if a is False or b is False else None if None in (a, b) else True


def either(a: bool | None, b: bool | None) -> bool | None:
    """Whether one of two things holds; None where that is not known."""
    return True if a or b else None if None in (a, b) else False


def compared(texts: list[str]) -> bool | None:
    """Whether the words inside a test hold; None where files or more are asked for."""
    match texts:
        case ["true"]:
            return True
        case ["false"]:
            return False
        case ["-z", text]:
            return text == ""
        case ["-n", text]:
            return text != ""
        case [left, str(sign), right] if sign in TEXTS:
            return fnmatchcase(left, right) == TEXTS[sign]
        case [left, str(sign), right] if sign in NUMBERS:
            try:
                return bool(NUMBERS[sign](int(left or "0"), int(right or "0")))
            except ValueError:
                return None
    return None


ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def computed(node: ast.expr) -> int:
    """The value of a sum of whole numbers. Raises ValueError or KeyError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return int(ARITHMETIC[type(node.op)](computed(node.left), computed(node.right)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -computed(node.operand)
    raise ValueError
