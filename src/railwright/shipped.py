"""Our own data files, read fast.

They are YAML 1.2, as users' files are, but nobody needs to be told the line of a mistake in them: libyaml
reads them twelve times as fast as the readers of users' files, written in Python, which know positions.
tests/twin/test_shipped_data.py reads every one of them both ways.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

# Plain scalars of YAML 1.2 and the letters they start with. PyYAML's own follow YAML 1.1, to which `on` is
# true, 1e9 is a word, 010 is 8 and 1:30 is 90.
_SCALARS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    "float": (
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "timestamp": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "0123456789"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": (r"<<", "<"),
}


def read_data(room: str, name: str) -> Any:
    """The tree of a data file of a room, e.g. ('cost', 'carbon.yaml'); a fresh one each time."""
    return parse(files(f"railwright.{room}").joinpath("data", name).read_text(encoding="utf-8"))


def parse(text: str) -> Any:
    """The tree of a text in YAML 1.2: mappings, lists, strings, numbers, truth values, dates."""
    import yaml

    return yaml.load(text, _loader())


@cache
def _loader() -> Any:
    """PyYAML's safe loader, by libyaml where PyYAML was built with it, with the scalars of YAML 1.2."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for kind, (pattern, starts) in _SCALARS.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{pattern})$"), list(starts))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
    return Loader
