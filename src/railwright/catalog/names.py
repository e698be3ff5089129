"""Names of parts: lower case with hyphens; what people write in other ways means the same part."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MODEL = re.compile(r"[a-z]{1,2}\d{2,4}[a-z]{0,2}|\d{4}")
"""A GPU's model in its name: h100, l40s, mi300x, gb200; of GeForce and RTX PRO the four digits."""
_FORMS = ("pcie", "nvl", "sxm")


def canonical(written: str, aliases: Mapping[str, str]) -> str:
    """The catalogue's name for what was written: case and '_' against '-' do not matter; aliases resolved."""
    name = written.strip().lower().replace("_", "-").replace(" ", "-")
    return aliases.get(name, name)


def is_another_gpu(device: str, gpu: str) -> bool:
    """Whether a driver's name of a device ('NVIDIA A100-SXM4-80GB') is of another model, or another form
    (PCIe, NVL, SXM), than the GPU of this catalogue name; where either does not say, it is not."""
    here, there = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (device, gpu))
    models = [{word for word in words if _MODEL.fullmatch(word)} for words in (here, there)]
    if models[0] and models[1] and not models[0] & models[1]:
        return True
    forms = [{form for form in _FORMS if any(w.startswith(form) for w in words)} for words in (here, there)]
    return bool(models[0] & models[1]) and bool(forms[0] and forms[1]) and not forms[0] & forms[1]
