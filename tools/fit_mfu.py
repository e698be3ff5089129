"""Model FLOP utilisation that published runs reached, by kind of model, GPU and width of the products.

Reads the published records (measure/data/training*.csv) and writes training/data/mfu.yaml, which `railwright
demand` uses where no study says how a model would run.  Run it after tools/carry_training.py.

A series is one family, model, number of GPUs and sequence; its fastest layout counts, because nobody trains
for weeks on a layout that he knows to be slow.  Measured speed and our FLOPs count; published MFU does not.
Of mixtures of experts the series are written one by one under the names of bundled models: what they reach
depends on what their kernels reach (training/demand/mixtures.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from railwright.catalog import load_catalog
from railwright.compute.time import peak_rate
from railwright.measure.machines import SERVER_OF_GPU
from railwright.measure.training.jobs import DTYPES
from railwright.measure.training.models import architectures
from railwright.measure.training.replay import records
from railwright.model import bundled_models, flops_per_token, load_model
from railwright.model.shape.architecture import Transformer
from railwright.training.software.constants import width_of

Mixture = tuple[str, str, int, str]
"""GPU, bundled model, sequence, dtype."""

TARGET = Path(__file__).parent.parent / "src" / "railwright" / "training" / "data" / "mfu.yaml"
LEAST_SERIES = 5
LEAST_GPUS = 8
HEAD = """\
# Written by tools/fit_mfu.py from measure/data/training*.csv; do not edit.
# Model FLOPs (full attention scores) a second over the dense peak, of the fastest layout of each published
# series (family, model, GPUs, sequence; 8 GPUs and more).
# Dense models: 10th, 50th and 90th percentile.  A GPU is here with at least 5 series of its own; the others
# get all GPUs of their width, scaled by what kernels reach on them (demand/borrowed.py).  series: how many
# are of which GPU.
# Mixtures of experts: GPU, bundled model, sequence, dtype, and what the median of such series reaches.
"""


def main() -> None:
    """Write the table."""
    catalog = load_catalog()
    best: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    mixtures: dict[str, dict[tuple[str, ...], tuple[float, Mixture]]] = defaultdict(dict)
    for r in records():
        arch = architectures().get(r["model"])
        if arch is None or r["kind"] != "pretrain" or r["dtype"] not in DTYPES or int(r["gpus"]) < LEAST_GPUS:
            continue
        sequence = int(float(r["seq"]))
        if r["tokens_s_gpu"]:
            speed = float(r["tokens_s_gpu"])
        elif r["step_time_s"] and r["gbs"]:
            speed = float(r["gbs"]) * sequence / float(r["step_time_s"]) / int(r["gpus"])
        else:
            continue
        gpu = catalog.gpus[catalog.servers[SERVER_OF_GPU[r["gpu"]]].gpu]
        dtype = DTYPES[r["dtype"]]
        mfu = speed * flops_per_token(arch, sequence).total / peak_rate(gpu, dtype)
        width = width_of(dtype)
        series = (r["gpu"], r["family"], r["model"], r["gpus"], r["seq"])
        if arch.is_moe:
            reached = mfu, (gpu.name, bundled_as(arch), sequence, dtype)
            mixtures[width][series] = max(reached, mixtures[width].get(series, reached))
            continue
        for family in (f"dense {r['gpu'].removesuffix('-40')} {width}", f"dense {width}"):
            best[family][series] = max(mfu, best[family].get(series, 0.0))
    lines = [HEAD]
    for family in sorted(best):
        values = sorted(best[family].values())
        if len(values) < LEAST_SERIES:
            continue
        low, middle, high = np.percentile(values, (10, 50, 90))
        counted = Counter(gpu.removesuffix("-40") for gpu, *_ in best[family])
        named = ", ".join(f"{gpu}: {count}" for gpu, count in sorted(counted.items()))
        lines.append(
            f"{family}:\n  low: {low:.3f}\n  middle: {middle:.3f}\n  high: {high:.3f}\n"
            f"  series: {{{named}}}\n"
            f'  source: "published steps, {len(values)} series, fastest layout of each '
            f'(measure/data/training*.csv, {family})"\n'
        )
    for width, found in sorted(mixtures.items()):
        alike: dict[Mixture, list[float]] = defaultdict(list)
        for mfu, mixture in found.values():
            alike[mixture].append(mfu)
        if len(alike) < LEAST_SERIES:
            continue
        lines.append(f"moe {width}:\n")
        for mixture, shares in sorted(alike.items()):
            lines.append(f"  - [{', '.join(map(str, mixture))}, {np.median(shares):.3f}]\n")
    TARGET.write_text("".join(lines), encoding="utf-8")


def bundled_as(arch: Transformer) -> str:
    """The bundled model with the same layers, of which the published one may have fewer."""
    for name in bundled_models():
        if shape(load_model(name)) == shape(arch):
            return name
    raise LookupError(f"no bundled model has the layers of {arch.name}")


def shape(arch: Transformer) -> tuple[int, ...]:
    return (arch.hidden, arch.heads, arch.experts, arch.experts_per_token, arch.expert_ffn or 0)


if __name__ == "__main__":
    main()
