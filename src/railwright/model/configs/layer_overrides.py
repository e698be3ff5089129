"""What a config.json says of single layers: `per_layer_config`, an object of what layers have other than all.

Source: huggingface/transformers 5.24, integrations/heterogeneity/configuration_utils.py; since 5.15 it writes
Gemma 4's wider heads there, and no longer under keys of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeGuard

from railwright.model.configs.keys import Keys

KEY = "per_layer_config"


def overridden(keys: Keys, where: Sequence[bool], names: Collection[str]) -> Keys | None:
    """What the layers that are `where` have other than the file's own values, the same in all of them; None
    where the file has no such object.

    names   what may differ; anything else, and anything in other layers, is a mistake
    """
    if keys.raw(KEY) is None:
        return None
    found = _differing(keys, len(where))
    meant = [found.get(i, {}) for i, is_meant in enumerate(where) if is_meant]
    alike = all(one == meant[0] for one in meant)
    others = {i: one for i, one in found.items() if not (where[i] and alike and one.keys() <= {*names})}
    _refuse(keys, others, f"only {' and '.join(names)} may differ, alike in all layers of one kind")
    return keys.replaced({KEY: meant[0] if meant and not others else {}}).inside(KEY)


def refuse_overrides(keys: Keys, layers: int) -> None:
    """Complain where a layer has anything other than the file's own values."""
    _refuse(keys, _differing(keys, layers), "such layers are modelled in Gemma 4 and Step 3.5 only")


def _refuse(keys: Keys, found: dict[int, dict[str, Any]], allowed: str) -> None:
    layer, differs = next(iter(found.items()), (0, {}))
    told = ", ".join(sorted(differs))
    keys.need(not found, KEY, f"layer {layer} has {told} of its own, which is not modelled; {allowed}.")


def _differing(keys: Keys, layers: int) -> dict[int, dict[str, Any]]:
    """Layer -> what it has other than the file's own values, in order, without layers like the others."""
    given = keys.raw(KEY)
    right = given is None or _of_layers(given, layers)
    keys.need(
        right, KEY, f"an object of objects under the numbers of layers, 0 to {layers - 1}, is expected."
    )
    if not right or given is None:
        return {}
    apart = {
        int(layer): {name: value for name, value in own.items() if keys.raw(name) != value}
        for layer, own in given.items()
    }
    return {layer: apart[layer] for layer in sorted(apart) if apart[layer]}


def _of_layers(given: Any, layers: int) -> TypeGuard[dict[str, dict[str, Any]]]:
    """Whether it is an object of objects under the numbers of layers (perhaps with zeros in front)."""
    return isinstance(given, dict) and all(
        len(layer) < 8 and layer.isdecimal() and int(layer) < layers and isinstance(own, dict)
        for layer, own in given.items()
    )
