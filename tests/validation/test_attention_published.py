"""Attention kernels against published rates: head widths, sequences and windows on Hopper and Blackwell.

TFLOP/s.  Blackwell and H200: NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results, cuDNN 9.19 at
df73764 and 9.22 at 3929da2.  H100: FlashAttention-3 (arXiv 2407.08608), figures 5 and 6, cuDNN.
"""

from __future__ import annotations

import pytest

from railwright.catalog import load_catalog
from railwright.compute.time import DRAWING, kernel_time
from railwright.model.shape.architecture import Operator, Phase

GPUS = load_catalog().gpus
SIZES = (2048, 4096, 8192, 16384)

CAUSAL: dict[tuple[str, Phase], tuple[float, ...]] = {
    ("gb200", "forward"): (1097, 1408, 1574, 1708),
    ("gb200", "backward_input"): (885, 1148, 1332, 1328),
    ("gb300", "forward"): (1373, 1703, 1856, 1915),
    ("gb300", "backward_input"): (967, 1248, 1435, 1507),
}
"""Width 128, causal, cuDNN 9.22, by sequence."""

UNMASKED: dict[tuple[str, Phase], tuple[float, ...]] = {
    ("gb200", "forward"): (1433, 1599, 1771, 1697),
    ("gb200", "backward_input"): (1124, 1350, 1404, 1374),
    ("gb300", "forward"): (1805, 1900, 2017, 2014),
    ("gb300", "backward_input"): (1213, 1429, 1531, 1536),
    ("h100-sxm", "forward"): (617, 609, 600, 595),
    ("h100-sxm", "backward_input"): (465, 499, 518, 516),
}
"""Width 128 without a mask, by keys."""

WINDOWED: dict[tuple[str, Phase, int], float] = {
    ("gb200", "forward", 1024): 624,
    ("gb200", "backward_input", 1024): 658,
    ("gb300", "forward", 1024): 738,
    ("gb300", "backward_input", 1024): 682,
    ("gb200", "forward", 128): 167,
    ("gb200", "backward_input", 128): 188,
    ("gb300", "backward_input", 128): 200,
}
"""Width 64 with a sliding window, 16,384 tokens: 9.19 with a window of 1,024, 9.22 with one of 128."""


def rate(gpu: str, phase: Phase, width: int, keys: int, masked: bool = True) -> float:
    """TFLOP/s of a long attention kernel whose queries meet as many keys as those of `keys` causal tokens,
    or, without a mask, so many."""
    flops = 1e15
    op = Operator(
        "core attention", "attention", flops, 0.0, "bf16", 16384, keys, width, 64, phase, masked=masked
    )
    return flops / kernel_time(op, GPUS[gpu]) / 1e12


@pytest.mark.parametrize(("gpu", "phase"), CAUSAL)
def test_causal_attention_of_wide_heads(gpu: str, phase: Phase) -> None:
    errors = [
        rate(gpu, phase, 128, s) / found - 1 for s, found in zip(SIZES, CAUSAL[gpu, phase], strict=True)
    ]
    assert max(map(abs, errors)) < 0.10
    assert abs(sum(errors) / len(errors)) < 0.03


@pytest.mark.parametrize(("gpu", "phase"), UNMASKED)
def test_attention_without_a_mask(gpu: str, phase: Phase) -> None:
    measured = UNMASKED[gpu, phase]
    errors = [rate(gpu, phase, 128, s, False) / found - 1 for s, found in zip(SIZES, measured, strict=True)]
    assert max(map(abs, errors)) < 0.12
    assert abs(sum(errors) / len(errors)) < (0.10 if (gpu, phase) == ("h100-sxm", "forward") else 0.04)
    assert all(rate(gpu, phase, 128, s, False) > rate(gpu, phase, 128, s) for s in SIZES)


def test_a_gpu_without_such_measurements_has_one_rate() -> None:
    assert rate("mi300x", "forward", 128, 1024, False) == rate("mi300x", "forward", 128, 1024)


@pytest.mark.parametrize(("gpu", "phase", "window"), WINDOWED)
def test_windows_and_narrow_heads(gpu: str, phase: Phase, window: int) -> None:
    assert rate(gpu, phase, 64, 2 * window) == pytest.approx(WINDOWED[gpu, phase, window], rel=0.12)


def test_the_forward_kernel_of_gb300_with_a_short_window_is_slower_than_ours() -> None:
    # a named miss: little of a layer beside the full ones
    assert rate("gb300", "forward", 64, 256) / 173 == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("gpu", ["h100-sxm", "gb200", "gb300"])
def test_a_score_takes_as_long_below_the_width_that_the_softmax_bounds(gpu: str) -> None:
    def score(width: int) -> float:
        return width / rate(gpu, "forward", width, 8192)

    assert score(32) == pytest.approx(score(64), rel=1e-3)
    assert score(64) < score(128)
    assert score(256) == pytest.approx(2 * score(128), rel=1e-3)


def test_hopper_as_published_beside_flash_attention_3() -> None:
    narrow = (225, 288, 334, 363, 379, 388)
    wide = (315, 410, 484, 518, 529, 539)
    for width, found in ((64, narrow), (128, wide)):
        for i, measured in enumerate(found):
            assert rate("h100-sxm", "forward", width, 512 << i) == pytest.approx(measured, rel=0.06)
    # full rows: twice the keys per query of a causal sequence, no masked blocks
    assert rate("h100-sxm", "backward_input", 64, 1 << 20) == pytest.approx(433, rel=0.02)


def slower(gpu: str, width: int, keys: int) -> float:
    """Forward and backward time of a causal attention that drops scores, over that of one that does not."""
    times = [
        sum(
            kernel_time(
                Operator(
                    "core attention", "attention", flops, 0.0, "bf16", keys, keys, width, 64, phase, dropped=d
                ),
                GPUS[gpu],
            )
            for phase, flops in (("forward", 1e15), ("backward_input", 2.5e15))
        )
        for d in (True, False)
    ]
    return times[0] / times[1]


def test_dropped_scores_cost_what_is_published() -> None:
    """FlashAttention-4 on GB200, widths of 64 and 128: 20 to 40 % (flash-attention pull request 2597).

    H200, 4 sequences of 1,024 tokens, 16 heads of 128: 20 us of both passes (Transformer Engine issue 3312),
    and as many numbers again where no mask cuts the scores, which it does not say.
    """
    ratios = [slower("gb200", width, keys) for width in (64, 128) for keys in SIZES]
    assert 1.2 < sum(ratios) / len(ratios) < 1.4
    assert max(ratios) < 1.5
    scores = 4096 * 1024 / 2 * 16
    drawn = 2 * DRAWING * scores / (GPUS["h200-sxm"].peak_flops["fp32"] / 4)
    assert 0.5 < drawn / 20e-6 < 2 * drawn / 20e-6 < 2.0
