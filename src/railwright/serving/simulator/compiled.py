"""The event loop compiled by numba from the source that is interpreted, and kept in the kernel cache.

Interpreted, the state is lists of lists, the fastest thing that Python indexes.  Compiled, two dozen arrays
handed from function to function would take minutes to compile; so all whole numbers lie in one array and all
others in a second, and `s.field[ROW][i]` of the source becomes an index into one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from railwright.network.compiled.kernel_cache import cache_folder
from railwright.serving.simulator import kernel_rows
from railwright.serving.simulator.kernel_rows import State

_FILES = ("price", "queue", "memory", "transfer", "schedule", "route", "outage", "loop")
_REALS = {"when", "run", "rate", "price", "stage", "flow", "weight", "link", "outage", "clock", "log"}
_FLAT = {"price", "part", "heap", "growth", "stage", "active", "row", "path_ptr", "path", "weight", "outage",
         "count", "clock", "log"}  # fmt: skip


def compiled_loop(state: State) -> tuple[Callable[[State], int], State]:
    """`kernel_loop.advance`, compiled, and the state it reads and writes: views of the two arrays."""
    whole, real, views = _packed(state)
    entry = _compiled()
    return (lambda state: entry(whole, real)), views


def is_kept() -> bool:
    """Whether this very source was compiled on this machine before, so that it only has to be read."""
    folder = cache_folder(Path(__file__).parent)
    return folder is not None and any(folder.rglob("*advance*.nbi"))


def _packed(state: State) -> tuple[Any, Any, State]:
    """All whole numbers in one array, after (first index, width) of each field; the reals; views."""
    header = 2 * len(State._fields)
    size = {False: header, True: 0}
    places = []
    for name, value in zip(State._fields, state, strict=True):
        places.append((size[name in _REALS], value.shape[-1]))
        size[name in _REALS] += value.size
    whole, real = np.zeros(size[False], np.int64), np.zeros(size[True])
    whole[:header] = np.array(places).reshape(-1)
    views = []
    for name, value, (first, _) in zip(State._fields, state, places, strict=True):
        held = real if name in _REALS else whole
        view = held[first : first + value.size].reshape(value.shape)
        view[...] = value
        views.append(view)
    return whole, real, State(*views)


class _Flatten(ast.NodeTransformer):
    """`s.field[ROW][i]` to an index of `whole` or `real`, `s.field[ROW]` to what lies there and beyond, `s`
    as an argument to the two of them."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        held = node.value
        if isinstance(held, ast.Subscript) and _field(held.value) and _field(held.value) not in _FLAT:
            name = _field(held.value)
            row, index = self.visit(held.slice), self.visit(node.slice)
            inside = ast.BinOp(ast.BinOp(row, ast.Mult(), _header(name, 1)), ast.Add(), index)
            return self._index(name, inside, node)
        if _field(held) in _FLAT:
            return self._index(_field(held), self.visit(node.slice), node)
        if _field(held):
            return self._view(_field(held), self.visit(node.slice), node)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._view(_field(node), ast.Constant(0), node) if _field(node) in _FLAT else node

    def _view(self, name: str, row: ast.expr, node: ast.expr) -> ast.AST:
        """A row that has a name of its own: what follows its first element."""
        first = ast.BinOp(_header(name, 0), ast.Add(), ast.BinOp(row, ast.Mult(), _header(name, 1)))
        array = ast.Name("real" if name in _REALS else "whole", ast.Load())
        return ast.copy_location(ast.Subscript(array, ast.Slice(first), ast.Load()), node)

    def _index(self, name: str, inside: ast.expr, node: ast.Subscript) -> ast.AST:
        array = ast.Name("real" if name in _REALS else "whole", ast.Load())
        at = ast.BinOp(_header(name, 0), ast.Add(), inside)
        return ast.copy_location(ast.Subscript(array, at, node.ctx), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "s":
            node.args[:1] = [ast.Name("whole", ast.Load()), ast.Name("real", ast.Load())]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.args.args and node.args.args[0].arg == "s":
            node.args.args[:1] = [ast.arg("whole"), ast.arg("real")]
        for argument in node.args.args:
            argument.annotation = None
        node.returns = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _field(node: ast.expr) -> str:
    """'request' of `s.request`, or ''."""
    of_state = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "s"
    return node.attr if of_state and isinstance(node, ast.Attribute) else ""


def _header(name: str, which: int) -> ast.expr:
    """Where a field starts (0), or how wide a row of it is (1)."""
    at = 2 * State._fields.index(name) + which
    return ast.Subscript(ast.Name("whole", ast.Load()), ast.Constant(at), ast.Load())


@cache
def _compiled() -> Callable[[Any, Any], int]:
    import numba

    here = Path(__file__).parent
    folder = cache_folder(here)
    names: dict[str, Any] = {
        "__name__": "railwright.serving.simulator.kernel_loop",
        **{name: value for name, value in vars(kernel_rows).items() if name.isupper()},
    }
    functions: dict[str, FunctionType] = {}
    for file in _FILES:
        path = here / f"kernel_{file}.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kept = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.Assign)]
        module = ast.Module([_Flatten().visit(node) for node in kept], [])
        made: dict[str, Any] = dict(names)
        exec(compile(ast.fix_missing_locations(module), str(path), "exec"), made)
        for name, value in made.items():
            if name in names or name == "__builtins__":
                continue
            if isinstance(value, FunctionType):
                functions[name] = value
            else:
                names[name] = value
    # They call each other by name: all share a namespace in which each name is the compiled one.
    config: Any = numba.config
    before = config.CACHE_DIR
    if folder is not None:
        config.CACHE_DIR = str(folder)
    try:
        for name, function in functions.items():
            shared = FunctionType(function.__code__, names, name, function.__defaults__)
            keep = name == "advance" and folder is not None
            # Python calls the entry alone: wrappers of the others take a tenth of the time to compile.
            inner = name != "advance"
            bare: Any = {"no_cfunc_wrapper": inner, "no_cpython_wrapper": inner}
            names[name] = numba.njit(nogil=True, cache=keep, **bare)(shared)
    finally:
        config.CACHE_DIR = before
    entry: Callable[[Any, Any], int] = names["advance"]
    return entry
