"""Reading a Hugging Face config.json, or one of the bundled architectures by its usual name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from railwright.errors import Mistake, RailwrightError, SpecError, nearest
from railwright.model.configs.class_defaults import OPTIONAL, OTHER_NAMES
from railwright.model.configs.details import details_of
from railwright.model.configs.families import (
    FAMILIES,
    HYBRIDS,
    INDEXED,
    LINEAR,
    MARKS,
    MIXERS,
    NO_ATTENTION,
    NOT_DECODERS,
    REFUSED,
    Family,
)
from railwright.model.configs.keys import LONGEST, Keys, shown
from railwright.model.configs.layer_overrides import KEY, refuse_overrides
from railwright.model.configs.multimodal import INNER, language_part
from railwright.model.configs.nearest_families import nearest_families, other_file
from railwright.model.configs.release_names import told, without_endings
from railwright.model.configs.unread import notes_of, refuse_unread
from railwright.model.shape.architecture import Transformer
from railwright.spec.document import read_json

_FLAVOURS = ("-hf", "-instruct", "-chat", "-base", "-it", "-v0.1", "-0324")
"""Ends of names that say nothing of the architecture; Mistral's v0.3 has another vocabulary and no window."""


def load_model(name_or_path: str | Path) -> Transformer:
    """A decoder transformer from a config.json, a folder holding one, or a bundled name.

    Names ignore case, punctuation, a leading organisation ('meta-llama/') and flavours ('-Instruct').
    Raises RailwrightError for an unknown name, with the nearest ones; SpecError, naming file and key, where
    a file cannot be read or does not describe a decoder this version knows.
    """
    path = _as_path(str(name_or_path))
    if path is not None:
        return parse_config(_read(path), str(path), _name_of(path))
    name = _bundled(str(name_or_path))
    return parse_config(_text_of(name), f"{name}.json", name)


def bundled_models() -> tuple[str, ...]:
    """Names of the bundled architectures, sorted."""
    folder = files("railwright.model") / "data"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".json")))


def bundled_config(name: str) -> dict[str, Any]:
    """The config.json of a bundled architecture, by the name in `bundled_models`, without our own keys."""
    return {key: value for key, value in json.loads(_text_of(name)).items() if not key.startswith("_")}


def _text_of(name: str) -> str:
    return (files("railwright.model") / "data" / f"{name}.json").read_text(encoding="utf-8")


def parse_config(text: str, file: str, name: str) -> Transformer:
    """A Transformer from the text of a config.json; `file` is what errors call it."""
    config = read_json(text, file, "Hugging Face config.json")
    if not isinstance(config, dict):
        raise SpecError(
            [Mistake(file, 0, 0, "", f"a JSON object is expected, this is {_other_than_object(config)}.")]
        )
    whole = Keys(config, file)
    _refuse(whole)
    keys, left_out = language_part(whole)
    family = _family(keys)
    kind = keys.raw("model_type")
    keys = keys.renamed(OTHER_NAMES.get(kind, {})).filled(OPTIONAL.get(kind, {}))
    arch = replace(family(keys, name), yarn=_yarn(keys))
    if KEY in keys.unread():
        refuse_overrides(keys, arch.layers)
    refuse_unread(keys, arch)
    keys.check(arch)
    # details first: what they read is no longer unread
    arch = replace(arch, details=details_of(keys, arch))
    arch = replace(arch, notes=notes_of(keys, whole, arch))
    return replace(arch, source=f"{arch.source}: {left_out}") if left_out else arch


def _other_than_object(value: object) -> str:
    """What JSON that is no object is, in its own words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"


def _yarn(keys: Keys) -> bool:
    """Whether positions are YaRN's; their object is `rope_parameters` since transformers 5.

    It has objects of its own for kinds of layers that differ: OLMo 3's with a window are not YaRN's, in its
    older form without a word, and count as the others.
    """
    given = [keys.raw("rope_parameters"), keys.raw("rope_scaling")]
    for key, one in zip(("rope_parameters", "rope_scaling"), given, strict=True):
        keys.need(one is None or isinstance(one, dict), key, f"{shown(one)}: an object is expected here.")
    scaling = next((one for one in given if isinstance(one, dict)), {})
    kinds = [scaling, *(one for one in scaling.values() if isinstance(one, dict))]
    return any(one.get(key) in YARN for one in kinds for key in ("rope_type", "type"))


YARN = ("yarn", "deepseek_yarn")
"""Names of YaRN's positions; the second is that of Sarvam 105B's first config."""


def _family(keys: Keys) -> Family:
    _refuse(keys)
    kind = keys.raw("model_type")
    if not isinstance(kind, str):
        given = "missing" if kind is None else f"{kind!r} is no name"
        raise keys.refuse(
            "model_type",
            f"{given}; a Hugging Face config.json names its architecture there (such as llama, qwen3 or "
            f"deepseek_v3). {other_file(keys) or nearest_families(keys)}{LISTED}",
        )
    if kind in FAMILIES:
        return FAMILIES[kind]
    if kind in INNER:
        raise keys.refuse(
            "model_type",
            f"'{kind}' is a multimodal model that nests its language model under text_config, which is "
            f"missing here; where this file is that language model alone, change model_type to "
            f"'{INNER[kind]}'.",
        )
    raise keys.refuse(
        "model_type",
        f"'{kind[:LONGEST]}' is not supported{nearest(kind, FAMILIES) or '.'} {nearest_families(keys)}"
        "Where the layers are the same, change model_type to the family's name and check the count of "
        f"parameters with 'railwright model show'. {LISTED}",
    )


LISTED = f"'railwright model families' lists all {len(FAMILIES)} that are read."
"""Where to look for a name."""


def _refuse(keys: Keys) -> None:
    """Raise SpecError for architectures that are known not to be modelled, with the reason."""
    kind = keys.raw("model_type")
    if kind in NOT_DECODERS:
        raise keys.refuse(
            "model_type",
            f"'{kind}' is not a decoder-only transformer but an encoder, or has one; only decoders can be "
            "simulated.",
        )
    if isinstance(kind, str) and kind in NO_ATTENTION:
        raise keys.refuse("model_type", f"'{kind}' {NO_ATTENTION[kind]}. {MIXERS}")
    own = isinstance(kind, str) and kind in LINEAR
    if kind in HYBRIDS or (keys.raw("hybrid_override_pattern") is not None and not own):
        raise keys.refuse(
            "model_type",
            f"'{kind}' mixes attention with state-space, recurrent or linear-attention layers whose kernels "
            f"and states are not modelled. {MIXERS}",
        )
    if isinstance(kind, str) and kind in REFUSED:
        raise keys.refuse("model_type", f"'{kind}' {REFUSED[kind]}, which is not modelled.")
    chosen = kind in INDEXED and keys.raw("index_topk") is not None
    for key, (marked, what) in MARKS.items():
        shown = (chosen and key in ("index_topk", "layer_types")) or (
            own and key in ("layer_types", "attn_type_list")
        )
        if marked(keys.raw(key)) and not shown:
            raise keys.refuse(key, f"a model with this key {what}, which is not modelled.")


def _as_path(text: str) -> Path | None:
    """The config file meant, or None where the text is a name."""
    if not text.strip():
        return None
    try:
        path = Path(text).expanduser()
        if path.is_dir() and (path / "config.json").is_file():
            return path / "config.json"
        if path.is_file():
            return path
        folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):
        # Too long, a null byte, or the home of a user that is not there: no file, but perhaps a name.
        return None
    meant = text.endswith((".json", "/")) or text.startswith((".", "/", "~"))
    if folder and (meant or _find(text) is None):
        raise SpecError([Mistake(text, 0, 0, "", "this folder holds no config.json.")])
    if meant:
        raise SpecError([Mistake(text, 0, 0, "", "no such file; a Hugging Face config.json is expected.")])
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        reason = "not a text file; a Hugging Face config.json is expected."
    except OSError as error:
        reason = f"cannot be read ({error.strerror})."
    raise SpecError([Mistake(str(path), 0, 0, "", reason)])


def _name_of(path: Path) -> str:
    """The folder's name; in a Hugging Face cache (models--ORG--NAME/snapshots/COMMIT) the model's."""
    if path.name != "config.json":
        return path.stem
    # the folder alone is resolved: in a cache the file itself is a link to 'blobs'
    folder = path.parent.resolve()
    cached = folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--")
    return folder.parents[1].name.rsplit("--", 1)[-1] if cached else folder.name


def _bundled(text: str) -> str:
    found = _find(text)
    if found is None:
        known = bundled_models()
        for name, *what in without_endings(_last(text)):
            if bundled := _find(name):
                raise RailwrightError(f"unknown model '{text}'{told(bundled, *what)}")
        raise RailwrightError(
            f"unknown model '{text}'{nearest(text.rsplit('/', 1)[-1], known) or '.'} "
            f"Give the path of a Hugging Face config.json, or one of: {', '.join(known)}."
        )
    return found


def _find(text: str) -> str | None:
    return _names().get(_plain(text))


@cache
def _names() -> dict[str, str]:
    """Plain name or alias -> bundled name."""
    names = {}
    for name in bundled_models():
        config = json.loads(_text_of(name))
        for alias in (name, *config.get("_aliases", ())):
            names[_plain(alias)] = name
    return names


def _plain(text: str) -> str:
    """Lower case, no organisation, no flavour, only letters, digits and dots: 'Llama-3.1-8B' and
    'meta-llama/Llama-3.1-8B-Instruct' are one name."""
    name = _last(text)
    stripped = True
    while stripped:
        stripped = False
        for flavour in _FLAVOURS:
            if name.endswith(flavour):
                name, stripped = name.removesuffix(flavour), True
    return re.sub(r"[^a-z0-9.]", "", name.removeprefix("meta-").removeprefix("nvidia-"))


def _last(text: str) -> str:
    """Lower case, no organisation, only dashes."""
    return text.lower().rsplit("/", 1)[-1].replace("_", "-").replace(" ", "-")
