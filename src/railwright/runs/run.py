"""A run's own files as a training job: of Megatron-LM, torchtitan, or Hugging Face's Trainer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from railwright.errors import RailwrightError
from railwright.model import load_model, parse_config
from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given
from railwright.runs.megatron import dropout, job_fields
from railwright.runs.programs import refuse_others
from railwright.runs.shapes import bundled_as, config_of, differences, of_several_kinds, shape_of
from railwright.runs.sources import arguments_of
from railwright.runs.trainer import Beside, is_trainers, trainer_fields
from railwright.runs.untimed import is_untimed
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import eras


@dataclass(frozen=True)
class Run:
    """What was read.

    fields  of a `TrainingJob`, its name and model among them
    arch    the model
    config  a config.json of it, where it is no bundled one
    notes   sentences on what was read otherwise than it stands, and on what was not
    """

    fields: Mapping[str, Any]
    arch: Transformer
    config: Mapping[str, Any] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What a user says beside the file.

    name        of the job; '' after the file
    model       bundled name or path of a config.json; '' as the file says
    vocab       rows of the vocabulary, where a tokenizer brings them
    gpus        GPUs of the run, where the file says nothing or something else
    per_server  GPUs of a server of the cluster it shall be predicted on
    software    era; '' the newest usual one
    variables   of a script
    beside      the text of a file that the run names, None where it is not at hand
    """

    name: str = ""
    model: str = ""
    vocab: int | None = None
    gpus: int | None = None
    per_server: int | None = None
    software: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    beside: Beside = lambda name: None


def read_run(text: str, file: str, asked: Asked) -> Run:
    """The job that a run's file describes.

    Raises RailwrightError, naming file and line, where it is of no kind that is read, is broken, or leaves
    out what a prediction needs.
    """
    if file.endswith(".toml"):
        from railwright.runs.torchtitan import of_torchtitan

        fields, arch, config, notes = of_torchtitan(text, file, asked.model, asked.gpus)
        return Run(_named(fields, file, asked), arch, config, notes)
    given = arguments_of(text, file, asked.variables)
    gpus = asked.gpus or given.gpus
    if is_trainers(given):
        fields, arch = trainer_fields(given, asked.model, gpus, asked.beside)
        return Run(_named(fields, file, asked), arch, None, tuple(_notes(given, gpus)))
    refuse_others(given)
    arch, model, config = _model(given, file, asked)
    fields = _named({"model": model} | job_fields(given, arch, gpus, asked.per_server), file, asked)
    era = eras()[fields.get("software", TrainingJob.model_fields["software"].default)]
    return Run(fields | dropout(given, era), arch, config, tuple(_notes(given, gpus)))


def _named(fields: Mapping[str, Any], file: str, asked: Asked) -> dict[str, Any]:
    software = {"software": asked.software} if asked.software else {}
    name = asked.name or re.sub(r"[^\w.-]+", "-", Path(file).stem).strip("-") or "run"
    return {"name": name} | dict(fields) | software


def _model(given: Given, file: str, asked: Asked) -> tuple[Transformer, str, Mapping[str, Any] | None]:
    """The model, how a study names it, and its config.json where it is no bundled one."""
    if asked.model:
        arch = load_model(asked.model)
        if given.has("num_layers") and of_several_kinds(given) is None:
            said = shape_of(given)
            wanted = {name: said[name] for name in ("layers", "hidden", "heads", "experts")}
            if other := differences(arch, wanted, given):
                told = ", ".join(f"{name} {wanted[name]} and {getattr(arch, name)}" for name in other)
                raise RailwrightError(f"{file}: its arguments and {asked.model} are not one model: {told}")
        return arch, asked.model, None
    wanted = shape_of(given)
    if asked.vocab is not None:
        wanted["vocab"] = asked.vocab
    if found := bundled_as(wanted, given):
        return load_model(found), found, None
    name = Path(file).stem
    config = config_of(wanted, given, name)
    return parse_config(json.dumps(config), f"{name}.json", name), "", config


def _notes(given: Given, gpus: int | None) -> list[str]:
    """What a reader should know of the reading."""
    found = list(dict.fromkeys(given.doubts))
    if gpus is None:
        found.append("how many GPUs it ran on is not told; the job takes all of the cluster (--gpus says)")
    if not given.everything:
        other = {name: value for name, value in given.values.items() if name not in given.asked}
        rest = [value.written for name, value in other.items() if not is_untimed(name, is_trainers(given))]
        if rest:
            found.append(f"not read: {', '.join(rest)}")
    return found
