"""A user's study with one job on the layout that a search found: the rest stays as it is written."""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from railwright.cli.kept_comments import laid_back, lifted

if TYPE_CHECKING:
    from ruamel.yaml import YAML

SEARCHED: dict[str, tuple[str, ...]] = {
    "jobs": ("gpus", "micro_batch", "software", "layout", "overlap"),
    "serving": ("layout", "replicas", "prefill", "weights", "kv", "max_batched_tokens", "max_requests"),
}
"""What a search sets in a job of either section, and of training jobs `--gpus`."""

HEADS = (
    "# railwright; written by railwright search",
    "# predicted",
    "# warning of the prediction: ",
    "# written for the layout before",
)
"""Lines that an export of an export has from the one before."""


def in_study(
    text: str, section: Literal["jobs", "serving"], name: str, fragment: str, rate: float | None = None
) -> str:
    """The study with the fragment's values in place of the job's own; comments and units stay.

    text      of the study, which has been read without mistakes
    name      of the job in the section
    fragment  a section with that one job behind lines of comment, as `search.export` writes it
    rate      of a serving job's clients, where the search had another than the study
    """
    yaml = as_written(text, section)
    study, found = yaml.load(text.replace("\r\n", "\n")), yaml.load(fragment)[section][0]
    job = _named(study[section], name)
    flow, keys = job.fa.flow_style(), list(job)
    lines = {} if flow else lifted(job)
    for key in SEARCHED[section]:
        if key not in found:
            job.pop(key, None)
        elif key not in job or _plain(job[key]) != _plain(found[key]):
            job[key] = found[key]
    if rate is not None:
        client = job.setdefault("client", {})
        client.update({"kind": "poisson", "rate": rate})
        client.pop("concurrency", None)
    laid_back(job, lines, keys)
    into = StringIO()
    yaml.dump(study, into)
    kept = into.getvalue().splitlines(keepends=True)
    while kept and kept[0].startswith(HEADS):
        kept.pop(0)
    said = [line for line in fragment.splitlines() if line.startswith("#")]
    if others := _of_the_job(study, f"{section}.{name}."):
        said.append(f"{HEADS[-1]}, and kept: {', '.join(others)}")
    return "\n".join([*said, "".join(kept)])


def as_written(text: str, section: str) -> YAML:
    """What reads a study and writes it back: comments stay, long lines too, and how lists are indented: as
    that of the section is, or any other where it is not there."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 4096
    known = section if re.search(rf"^{section}:", text, re.MULTILINE) else r"\w+"
    if re.search(rf"^{known}:.*\n(?:[ \t]*(?:#.*)?\n)*[ \t]+- ", text, re.MULTILINE):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _named(jobs: Any, name: str) -> Any:
    """The job of that name."""
    return next(job for job in jobs if job.get("name") == name)


def _of_the_job(study: Any, path: str) -> list[str]:
    """Variants and rows of a sensitivity list that change something under a path."""
    entries = [one for kind in ("variants", "sensitivity") for one in study.get(kind) or ()]
    return [
        f"'{one['name']}'" for one in entries if any(key.startswith(path) for key in one.get("set") or ())
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
