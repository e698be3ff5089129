"""A GPU that gets less power than it is rated for: what predictions of its kernels do not count."""

from __future__ import annotations

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu, Server
from railwright.units import show_power


def of_power(gpu: Gpu, server: Server) -> tuple[str, ...]:
    """A sentence where a GPU's limit is below the rating of the shipped part whose kernels are taken for it,
    or where the server's maximum does not feed its GPUs; nothing for shipped parts as they are.

    Products on the same silicon with less power run slower by about as much as the power is less, or by less
    than that: with 350 W (H100 PCIe) at 0.60 to 0.66 of the rate with 700 W (SXM), with 400 of 600 W (RTX PRO
    6000) at 0.69 in bf16 and 0.72 in fp8, with 240 W at 0.38 and 0.42.  A whole step shows no one law
    (docs/training/calibration-record.md, Kernels), so none is applied.
    Source: zzc0721/torch-performance-test-data at 9d82827, database.md; 1a1a11a/gpu_power at ab312b3,
    figures/tflops_vs_power.png, read off.
    """
    rated = _rating(gpu)
    if gpu.power < rated:
        return (
            f"{gpu.name} is limited to {show_power(gpu.power)} of {show_power(rated)} and predicted as if it "
            f"were not: its products may take up to some {rated / gpu.power - 1:.0%} longer.",
        )
    most, asked = server.power_max, server.gpus * gpu.power
    if most < asked:
        return (
            f"{server.name} may take {show_power(most)}, its GPUs alone take {show_power(asked)} and are "
            f"predicted as if they did: products may take more than {asked / most - 1:.0%} longer.",
        )
    return ()


def _rating(gpu: Gpu) -> float:
    """Power of the shipped GPU of this name, else of the one of the same cores, peaks and memory. [W]"""
    shipped = load_catalog().gpus
    if gpu.name in shipped:
        return shipped[gpu.name].power
    return max((one.power for one in shipped.values() if _silicon(one) == _silicon(gpu)), default=gpu.power)


def _silicon(gpu: Gpu) -> tuple[object, ...]:
    return gpu.generation, gpu.sms, gpu.peak_flops, gpu.hbm_bandwidth
