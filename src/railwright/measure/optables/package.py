"""The installed package aiconfigurator-core: which tables it has, and one of them as columns.

Only its files are read; none of its code is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError
from railwright.shipped import parse, read_data

Columns = Mapping[str, NDArray[np.generic]]

NAME, MODULE = "aiconfigurator-core", "aiconfigurator_core"
INSTALL = "pip install 'railwright[kernels]'"
ENGINES = ("vllm", "trtllm", "sglang")
KINDS = ("gemm", "attention")
"""Folders whose versions an engine's are: others hold single kernels of some ('mla', 'moe', 'comm')."""


@dataclass(frozen=True)
class Package:
    """Where the package lies, and its version."""

    root: Path
    version: str

    @property
    def data(self) -> Path:
        return self.root / "systems" / "data"

    def systems(self) -> tuple[str, ...]:
        """Folders of GPUs, empty ones included. Raises RailwrightError where there are none."""
        try:
            found = tuple(sorted(folder.name for folder in self.data.iterdir() if folder.is_dir()))
        except OSError:
            found = ()
        if not found:
            raise RailwrightError(
                f"{NAME} {self.version} has no tables under '{self.data}', where 0.12 has them; its layout "
                f"has changed: install 'aiconfigurator-core==0.12.0'."
            )
        return found

    def versions(self, system: str, kind: str, engine: str, file: str = "*") -> tuple[str, ...]:
        """Versions of an engine of which a kind's table was measured, oldest first."""
        folder = self.data / system / kind / engine
        if not folder.is_dir():
            return ()
        names = [f.name for f in folder.iterdir() if any(f.glob(f"{file}.parquet"))]
        return tuple(sorted(names, key=_order))

    def all_versions(self, system: str, engine: str) -> tuple[str, ...]:
        """Versions of an engine of which products or attention were measured, oldest first."""
        found = {v for kind in KINDS for v in self.versions(system, kind, engine)}
        return tuple(sorted(found, key=_order))

    def current(self, system: str, engine: str) -> str | None:
        """The version whose tables the package calls complete (query_versions.yaml), else the newest."""
        known = self.all_versions(system, engine)
        file = self.root / "systems" / "query_versions.yaml"
        try:
            said = parse(file.read_text(encoding="utf-8")) if file.exists() else {}
            slots = {**said.get("defaults", {}), **said.get("overrides", {}).get(system, {})}
            named = str(slots[engine]["current"])
        except Exception:  # whatever a later release writes there: the newest then
            named = ""
        return named if named in known else (known[-1] if known else None)

    def nearest(self, system: str, kind: str, engine: str, version: str, file: str) -> str | None:
        """The newest version of a table not after `version`, as the package itself fills what it lacks."""
        older = [v for v in self.versions(system, kind, engine, file) if _order(v) <= _order(version)]
        return older[-1] if older else None

    def before(self, system: str, kind: str, engine: str, version: str, file: str) -> str | None:
        """The newest version of a table before `version`."""
        older = [v for v in self.versions(system, kind, engine, file) if _order(v) < _order(version)]
        return older[-1] if older else None

    def read(self, name: str, wanted: Iterable[str], optional: Iterable[str] = ()) -> Columns | None:
        """Columns of one table, None where there is none; `latency` [ms] among them.

        All times are above zero, but those of finding scales, which are differences of two.
        Raises RailwrightError for a file that cannot be read or lacks a column.
        """
        path = self.data / name
        if not path.exists():
            return None
        parquet = _parquet()
        again = f"reinstall it (pip install --force-reinstall {NAME}) or name another version"
        try:
            there = parquet.read_schema(path).names
            columns = [c for c in (*wanted, *optional) if c in there]
            table = parquet.read_table(path, columns=columns)
            found = {c: np.asarray(table.column(c).to_pylist()) for c in columns}
        except Exception as error:  # pyarrow raises its own kinds, OSError and ValueError
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RailwrightError(
                f"{NAME} {self.version}: the table '{path}' cannot be read ({said}); {again}."
            ) from None
        if missing := [c for c in wanted if c not in found]:
            raise RailwrightError(
                f"{NAME} {self.version}: the table '{path}' has no column '{missing[0]}', which those of "
                f"0.12 have; its layout has changed: install 'aiconfigurator-core==0.12.0'."
            )
        times = np.asarray(found["latency"], float)
        difference = name.endswith("computescale_perf.parquet")
        if not len(times) or not (np.isfinite(times) & (difference | (times > 0))).all():
            raise RailwrightError(
                f"{NAME} {self.version}: the table '{path}' has no rows, or rows without a time; {again}."
            )
        return found


def installed() -> Package:
    """The package of this environment. Raises RailwrightError with the line that installs it."""
    missing = f"is not installed here; `{INSTALL}` brings it with what reads its tables"
    try:
        version = metadata.version(NAME)
        found = find_spec(MODULE)
    except (metadata.PackageNotFoundError, ValueError):
        raise RailwrightError(f"{NAME} {missing}.") from None
    if found is None or not found.submodule_search_locations:
        raise RailwrightError(f"{NAME} {missing}.")
    _parquet()
    return Package(Path(next(iter(found.submodule_search_locations))), version)


def system_of(gpu: str) -> str:
    """Folder of a GPU of the catalogue. Raises RailwrightError for one that the package does not measure."""
    for name, one in systems().items():
        if one["gpu"] == gpu:
            return name
    known = ", ".join(one["gpu"] for one in systems().values() if one["gpu"])
    raise RailwrightError(f"{NAME} measures no '{gpu}'; it knows {known} (`railwright kernels` lists them).")


def systems() -> Mapping[str, Any]:
    """Folder -> GPU of the catalogue and its level-2 cache (measure/data/optables.yaml)."""
    found: Mapping[str, Any] = settings()["systems"]
    return found


@cache
def settings() -> Mapping[str, Any]:
    """What measure/data/optables.yaml says."""
    found: Mapping[str, Any] = read_data("measure", "optables.yaml")
    return found


def _parquet() -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        raise RailwrightError(f"pyarrow is not installed here; `{INSTALL}` brings it.") from None


def _order(version: str) -> Any:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")
