"""80 % bands of predicted TTFT and TPOT: what published means were over ours (data/error_bands.yaml)."""

from __future__ import annotations

from functools import cache

from railwright.shipped import read_data

LATENCIES = ("TTFT", "TPOT")
ENGINES = {"vllm": "vLLM", "trtllm": "TensorRT-LLM", "sglang": "SGLang"}
"""First word of an engine profile -> the engine as bands name it."""


def error_bands(engine: str, moe: bool) -> dict[str, tuple[float, float]]:
    """'TTFT' and 'TPOT' -> (low, high) of measured over predicted means; without those that nobody measured.

    engine  profile: 'vllm-2025'; one whose engine is not known gets the band of the kind of model
    moe     whether the model is a mixture of experts
    """
    known, kind, name = _known(), "moe" if moe else "dense", ENGINES.get(engine.split("-")[0], "")
    found = {what: known.get(f"{kind} {name} {what}") or known.get(f"{kind} {what}") for what in LATENCIES}
    return {what: band for what, band in found.items() if band is not None}


@cache
def _known() -> dict[str, tuple[float, float]]:
    """'moe vLLM TTFT' or 'moe TTFT' -> its band. tools/serving_bands.py writes the file."""
    rows = read_data("serving", "error_bands.yaml")["bands"]
    return {name: (float(row["low"]), float(row["high"])) for name, row in rows.items()}
