"""Fit AMD's rows of compute/data/gemm.yaml and attention.yaml to published measurements.

python tools/fit_amd.py

Prints the rows; a test compares them with what is shipped (tests/validation/test_amd_published.py).
Sources: products of MI355X in bf16, mit-orcd/amd-benchmarks at 703d929, amd-cloud/primus/
sweep_out_20260813-224704 (hipBLASLt through PyTorch) and results/rvs_tflops.md (30 s of 8192 x 8192 x 16384);
what MI300X and MI325X sustain, ROCm/rocm-blogs at 8e01195, measuring-max-achievable-flops-part2 (4096 x 4864
x 32896, fp8 4096 x 3648 x 32896, random data); HBM, samuel-bohman/AI-benchmarking-guide at 3de0c29
(BabelStream's triad on MI300X); attention, ROCm/aiter at 0403bcd, op_tests/cpp/mha/README.md (bf16, causal,
8 heads of keys).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape, gemm_seconds

Floats = NDArray[np.float64]

LAYERS = {
    (2048, 12288, 4096): (1439.77, 1362.91, 1144.2),
    (2048, 4096, 4096): (1306.95, 1315.73, 1205.83),
    (2048, 22016, 4096): (1455.99, 1266.81, 1358.57),
    (2048, 4096, 11008): (1195.6, 1283.57, 1276.26),
    (2048, 32000, 4096): (1471.24, 1348.42, 1400.31),
    (4096, 12288, 4096): (1546.44, 1467.06, 1563.38),
    (4096, 576, 4096): (586.47, 549.24, 848.39),
    (4096, 16384, 512): (1002.45, 1088.46, 921.97),
    (4096, 4096, 8192): (1558.07, 1453.95, 1480.19),
    (4096, 128, 4096): (264.48, 250.34, 306.1),
    (4096, 24576, 4096): (1428.58, 1474.8, 1546.79),
    (4096, 4096, 12288): (1616.43, 1462.55, 1501.77),
    (192, 3072, 4096): (257.77, 304.51, 310.77),
    (192, 4096, 1536): (195.79, 193.25, 164.41),
    (4096, 128256, 4096): (1379.11, 1400.97, 1563.83),
}
"""Rows, outputs and inputs of a linear layer -> TFLOP/s of its forward pass, weight and input gradient."""

SQUARE = (4096, 4096, 4096, 1459.24)

PRODUCTS = [
    *((*shape, rate) for (m, n, k), rates in LAYERS.items()
      for shape, rate in zip(((m, n, k), (n, k, m), (m, k, n)), rates, strict=True)),
    SQUARE,
]  # fmt: skip
"""m, n, k and TFLOP/s of every product of MI355X."""

SUSTAINED = {
    "mi300x": {"bf16": 708.0, "fp8": 1273.0},
    "mi325x": {"bf16": 843.0, "fp8": 1519.0},
    "mi355x": {"bf16": 1628.0, "fp8": 3564.0},
}
"""What power holds. [TFLOP/s]"""

HBM = 4.09 / 5.3
"""Share of the bandwidth that a triad reaches."""

SEQUENCES = (1024, 2048, 4096, 8192, 10240)
ATTENTION = {
    ("mi300x", "forward"): (
        (334.005, 419.435, 486.73, 547.09, 527.705),
        (311.385, 412.99, 513.1, 537.36, 556.045),
        (326.51, 425.735, 513.79, 540.515, 557.475),
        (321.865, 452.03, 509.255, 550.67, 547.05),
    ),
    ("mi300x", "backward"): (
        (226.39, 330.23, 416.54, 422.835, 432.545),
        (258.26, 326.355, 409.05, 441.4, 443.78),
        (266.9, 326.805, 391.235, 434.645, 442.51),
        (265.08, 347.89, 402.18, 432.715, 439.785),
    ),
    ("mi355x", "forward"): (
        (720.995, 809.835, 1130.115, 1318.92, 1342.995),
        (623.93, 894.45, 1166.875, 1316.805, 1334.865),
        (638.705, 899.845, 1174.92, 1319.225, 1337.965),
        (626.57, 963.165, 1190.295, 1311.955, 1313.695),
    ),
    ("mi355x", "backward"): (
        (547.555, 783.305, 957.41, 1069.935, 1088.865),
        (545.225, 806.96, 967.905, 1066.705, 1087.61),
        (571.615, 796.81, 971.395, 1067.805, 1090.925),
        (576.345, 817.49, 972.25, 1067.89, 1084.75),
    ),
}
"""TFLOP/s by sequence, 4 and 8 sequences of 32 heads of 128, then of 64.

Sums of the backward pass are in fp32 on MI300X and in 16 bits on MI355X, as Primus has it (docs/
01-getting-started/bare-metal-installation.md: 16 bits overflow on MI300X)."""


def main() -> None:
    """Print every row."""
    form, error = products()
    for gpu, rates in SUSTAINED.items():
        for dtype in rates:
            row = {**form, **shares(gpu, dtype, form), "depth": form["depth"] * (2 if dtype == "fp8" else 1)}
            print(gpu, dtype, {name: float(f"{value:.4g}") for name, value in row.items()})
    print(f"mean error of the products {error:.1%}")
    for (gpu, way), measured in ATTENTION.items():
        compute, short, off = attention(gpu, measured)
        print(f"{gpu} {way}: compute {compute:.3f}, short {short:.0f}, mean error {off:.1%}")


def products() -> tuple[dict[str, float], float]:
    """Constants of MI355X's products in bf16, and their mean error."""
    from scipy.optimize import least_squares

    gpu = load_catalog().gpus["mi355x"]
    peak = gpu.peak_flops["bf16"]
    m, n, k, rate = np.array(PRODUCTS).T
    flops = 2.0 * m * n * k

    def over(x: Floats) -> Floats:
        """Predicted over measured."""
        fixed, compute, depth, square, small = np.exp(x)
        found: Floats = gemm_seconds(
            Shape(m, n, k), 2.0 * (m * k + k * n + m * n), flops, fixed=fixed, compute=compute * peak,
            memory=HBM * gpu.hbm_bandwidth, depth=depth, square=square / (1 + square),
            small=small / (1 + small), sms=gpu.sms, sustained=SUSTAINED["mi355x"]["bf16"] * 1e12,
        ) * rate * 1e12 / flops  # fmt: skip
        return found

    starts = [np.log([5e-6, c, depth, 8.0, 4.0]) for c in (0.6, 0.7, 0.9) for depth in (30.0, 100.0, 300.0)]
    fits = [
        least_squares(lambda x: np.log(over(x)), start, loss="soft_l1", f_scale=0.1, x_scale=0.3)
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    fixed, compute, depth, square, small = np.exp(best.x)
    found = {"fixed": fixed, "compute": compute, "memory": HBM, "depth": depth,
             "square": square / (1 + square), "small": small / (1 + small)}  # fmt: skip
    return found, float(np.abs(over(best.x) - 1).mean())


def shares(gpu: str, dtype: str, form: dict[str, float]) -> dict[str, float]:
    """`compute` and `sustained` of a GPU and format; full tiles stand to what power holds as on MI355X."""
    part = load_catalog().gpus[gpu]
    held = SUSTAINED[gpu][dtype] * 1e12 / part.peak_flops[dtype]
    own = SUSTAINED["mi355x"]["bf16"] * 1e12 / load_catalog().gpus["mi355x"].peak_flops["bf16"]
    return {"compute": held * form["compute"] / own, "sustained": held}


def attention(gpu: str, rates: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """compute * s / (s + short) of the 16-bit peak: both constants, and the mean error."""
    from scipy.optimize import least_squares

    peak = load_catalog().gpus[gpu].peak_flops["bf16"] / 1e12
    sequence, measured = np.array(SEQUENCES, float), np.array(rates)

    def off(x: Floats) -> Floats:
        compute, short = np.exp(x)
        found: Floats = np.log(compute * peak * sequence / (sequence + short) / measured).ravel()
        return found

    fit = least_squares(off, np.log([0.4, 500.0]), loss="soft_l1", f_scale=0.05)
    compute, short = np.exp(fit.x)
    return float(compute), float(short), float(np.abs(np.expm1(off(fit.x))).mean())


if __name__ == "__main__":
    main()
