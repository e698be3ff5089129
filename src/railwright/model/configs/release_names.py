"""Names of checkpoints whose layers a bundled architecture may have: what theirs end in behind its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

FORMATS = re.compile(
    r"[-.](fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|fp16|awq|gptq|int4|int8|w\d+a\d+|[48]-?bit|bnb|gguf|mlx|exl[23]|"
    r"q\d\w*|\d+\.\d+bpw|quantized|dynamic|block|marlin|autoround|compressed|kv)$"
)
"""Ends that say in which format the weights of a checkpoint are stored."""

RELEASES = re.compile(r"-(\d{4}|thinking|reasoning|preview|exp|terminus|\d+[km]|v\d+(\.\d+)?)$")
"""Ends that say which release of a model it is."""


def without_endings(name: str) -> Iterator[tuple[str, bool, bool]]:
    """A name in lower case without one ending more each time, and whether any of them was a format of
    weights, or a release."""
    formats = releases = False
    while True:
        if found := FORMATS.search(name):
            formats = True
        elif found := RELEASES.search(name):
            releases = True
        else:
            return
        name = name[: found.start()]
        yield name, formats, releases


def told(bundled: str, formats: bool, releases: bool) -> str:
    """What is to be said of a checkpoint whose name without its endings is a bundled architecture's."""
    if not releases:
        return (
            f"; it is the bundled '{bundled}' with its weights stored in another format, which changes "
            "nothing of training (a job's `dtype` is what its products run in) and which serving is told by "
            f"`weights`. Write '{bundled}', or give the path of its config.json."
        )
    return (
        f"; the nearest that is bundled is '{bundled}', of another release"
        + (" and its weights stored in another format" if formats else "")
        + ". Releases of one size often have the same layers, and so the same time and memory, with other "
        "positions (`rope_theta`, which exports name) or another vocabulary: give the path of its "
        f"config.json, or write '{bundled}' where that does not matter."
    )
