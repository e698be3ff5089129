"""Check that rooms import only from floors below them, and their folders from those before (architecture.md).

Exit 1 naming each breach.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FLOORS = {
    "errors": 0, "units": 0, "ranges": 0, "shipped": 0, "catalog": 0, "spec": 0,
    "fabric": 1,
    "asbuilt": 2, "export": 2, "traffic": 2, "model": 2, "compute": 2, "site": 2,
    "network": 3, "audit": 3,
    "collectives": 4,
    "training": 5, "serving": 5,
    "measure": 6, "emulate": 6, "crosscheck": 6, "search": 6, "traces": 6, "reliability": 6,
    "deploy": 6, "queueing": 6, "runs": 6,
    "cost": 7, "diagnose": 7,
    "study": 8, "growth": 8,
    "report": 9, "cli": 9,
}  # fmt: skip
SAME_FLOOR = {
    ("catalog", "errors"), ("catalog", "units"), ("catalog", "shipped"),
    ("spec", "errors"), ("spec", "units"), ("units", "errors"), ("cli", "report"), ("compute", "model"),
}  # fmt: skip
# Of rooms with folders, the folders and files in them: each may use itself and what stands before it.
SUB_ROOMS = {
    "fabric": (
        "graph", "names", "counts", "finding", "trays", "plan", "speaking", "sizes", "families", "wired",
        "faults", "building", "networks", "designs",
    ),
    "training": (
        "layout", "lanes", "software", "layers", "optimizer", "memory", "passes", "demand", "checks", "step",
        "recommendation", "whatif",
    ),
    "model": ("shape", "configs", "operators", "counts", "tensors", "recommendation"),
    "network": (
        "compiled", "maxmin", "routing", "fluid", "lifted", "fifo", "solve", "fifo_order", "ecmp", "whatif",
    ),
    "serving": ("kernels", "clients", "engine", "simulator", "result", "words", "predict"),
    "measure": (
        "machines", "table", "bands", "routing", "opensm", "logs", "steplog", "loadgen", "optables",
        "fitting", "study_machine", "compare", "calibrate", "bench", "training", "serving", "published",
        "validate",
    ),
    "search": ("space", "exports", "bounds", "training", "serving", "recommendation"),
    "diagnose": (
        "constants", "evidence", "result", "elements", "paths", "inference", "read", "plans", "blast",
        "text", "verdict",
    ),
    "report": (
        "words", "parts", "drawings", "files", "sections", "html", "pages", "terminal", "folder",
    ),
}  # fmt: skip
PACKAGE = "railwright"


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted module) of every import of our own package in a file, lazy ones included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level))
            elif node.module == PACKAGE:
                found += [(node.lineno, f"{PACKAGE}.{alias.name}") for alias in node.names]
            elif node.module:
                found.append((node.lineno, node.module))
    return [(line, name) for line, name in found if name.split(".")[0] in (PACKAGE, "")]


def breaches(source: Path) -> list[str]:
    """One sentence per import that points sideways or up."""
    wrong: list[str] = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        room = parts[0]
        if room in ("__init__", "__main__"):
            continue
        if room not in FLOORS:
            wrong.append(
                f"{path}: '{room}' has no floor; add it to {Path(__file__).name} and docs/architecture.md"
            )
            continue
        for line, name in imports(path):
            if not name.strip("."):
                wrong.append(f"{path}:{line}: relative import; write it absolute")
                continue
            target = name.split(".")[1] if "." in name else ""
            if target == room and room in SUB_ROOMS and parts[1] != "__init__":
                wrong += _inner(f"{path}:{line}", room, parts[1], [*name.split("."), ""][2])
            if target in ("", "__version__", room):
                continue
            if target not in FLOORS:
                continue
            if FLOORS[target] < FLOORS[room] or (room, target) in SAME_FLOOR:
                continue
            wrong.append(
                f"{path}:{line}: {room} (floor {FLOORS[room]}) imports {target} (floor {FLOORS[target]})"
            )
    return wrong


def _inner(where: str, room: str, sub: str, target: str) -> list[str]:
    """What is wrong with an import inside a room with sub-rooms; `target` is '' for the room itself."""
    order = SUB_ROOMS[room]
    for name in (sub, target):
        if name and name not in order:
            return [f"{where}: '{room}/{name}' has no place; add it to {Path(__file__).name}"]
    if not target:
        return [f"{where}: {room}/{sub} imports {room} itself, which is for other rooms"]
    if order.index(target) > order.index(sub):
        return [f"{where}: {room}/{sub} imports {room}/{target}, which stands above it"]
    return []


if __name__ == "__main__":
    found = breaches(Path(__file__).parent.parent / "src" / PACKAGE)
    print("\n".join(found) if found else "layers: every import points down")
    sys.exit(bool(found))
