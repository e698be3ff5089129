"""Read the configuration of an MLPerf submission: bash exports, OmegaConf's conf/*.yaml, or a log."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

SHELL = """
trap '' XFSZ; ulimit -f 0; PATH=
dirname() { case "$1" in */*) echo "${1%/*}";; *) echo .;; esac; }
set() { :; }
source "./$1"
for name in $(compgen -e); do printf '%s\\0%s\\0' "$name" "${!name}"; done
"""
"""Reads a configuration as its submission does, with no program in reach and no file to write."""


class Snapshot:
    """One round's repository."""

    def __init__(self, folder: Path, round_: str) -> None:
        self.repo = folder / f"mlcommons+training_results_v{round_}" / "repo"
        self.names = self._git("ls-tree", "-r", "--name-only", "HEAD").splitlines()

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.repo), *words], capture_output=True, check=True)
        return done.stdout.decode(errors="replace")

    def show(self, path: str) -> str:
        """Text of a file."""
        return self._git("show", f"HEAD:{path}")

    def scripts(self, folder: str) -> dict[str, str]:
        """Configurations right in a folder: name -> text."""
        return {n.rsplit("/", 1)[1]: self.show(n) for n in self.under(folder, r"config[^/]*\.sh")}

    def under(self, folder: str, pattern: str) -> list[str]:
        """Files right in a folder whose name matches."""
        found = re.compile(rf"{re.escape(folder)}/{pattern}")
        return [name for name in self.names if found.fullmatch(name)]


def exported(
    snapshot: Snapshot, path: str, shared: Mapping[str, str], given: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Environment that a configuration makes, and what it sources that is not there.

    It may source files beside it, in configs/, or shared ones.
    given  variables it is started with
    """
    own, name = path.rsplit("/", 1)
    files = {**shared, **snapshot.scripts(f"{own}/configs"), **snapshot.scripts(own)}
    with tempfile.TemporaryDirectory() as folder:
        for place in (Path(folder), Path(folder) / "configs"):  # it may source either
            place.mkdir(exist_ok=True)
            for file, text in files.items():
                (place / file).write_text(text, encoding="utf-8")
        words = ["/bin/bash", "--noprofile", "--norc", "-c", SHELL, "bash", name]
        done = subprocess.run(words, cwd=folder, env=dict(given), capture_output=True, text=True, timeout=60)
    lost = re.findall(r"(\S*config\S*\.sh): No such file", done.stderr)
    parts = done.stdout.split("\0")
    if len(parts) < 3:
        raise ValueError(f"{path}: not read: {done.stderr[-300:]}")
    return dict(zip(parts[:-1:2], parts[1::2], strict=True)), lost


class Settings:
    """Values of conf/*.yaml under an environment, by OmegaConf's rules for the resolvers that these use."""

    def __init__(self, tree: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.tree, self.environment = tree, environment

    def __call__(self, path: str, default: Any = None) -> Any:
        found: Any = self.tree
        for word in path.split("."):
            if not isinstance(found, Mapping) or word not in found:
                return default
            found = found[word]
        return self._decoded(found) if isinstance(found, str) else found

    def model(self, name: str, default: Any = None) -> Any:
        """A setting of the model, or what it overwrites of the base model's."""
        return self(f"model.{name}", self(f"model.overwritten_attributes.{name}", default))

    def _decoded(self, text: str) -> Any:
        while found := re.search(r"\$\{([^${}]*)\}", text):
            text = text[: found.start()] + str(self._resolved(found.group(1))) + text[found.end() :]
        return yaml.safe_load(text)

    def _resolved(self, inner: str) -> Any:
        how, _, rest = inner.partition(":")
        words = [word.strip().strip("'") for word in rest.split(",")]
        if how == "oc.env":
            return self.environment.get(words[0], words[1] if len(words) > 1 else "null")
        if how == "oc.decode":
            return rest
        if how == "if":
            return words[1] if yaml.safe_load(words[0]) else words[2]
        if how == "eq":
            return words[0] == words[1]
        if how in ("multiply", "floor_div"):
            a, b = map(int, words)
            return a * b if how == "multiply" else a // b
        if rest:
            raise ValueError(f"${{{inner}}}: no such resolver here")
        return self(inner)


def printed(log: str) -> Mapping[str, Any] | None:
    """The configuration that a log says its run had: what follows its headline on the lines of one rank."""
    lines = iter(log.splitlines())
    head = next((line for line in lines if "Experiment configuration" in line), None)
    if head is None:
        return None
    label = re.match(r"\s*\d+: ", head)
    rank = label.group() if label else ""
    kept: list[str] = []
    for line in lines:
        if not line.startswith(rank):
            continue
        text = line[len(rank) :]
        if re.match(r"\s*(- .*|[\w.]+:( .*)?)$", text):
            kept.append(text)
        elif kept and text.strip():
            break
    indent = min(len(text) - len(text.lstrip()) for text in kept)
    tree: Mapping[str, Any] = yaml.safe_load("\n".join(text[indent:] for text in kept))
    return tree
