"""Every constant of training has a source, and a step carries the band of its own family."""

from __future__ import annotations

from railwright.measure.training.replay import records
from railwright.training import constants, error_band, simulate
from railwright.training.software.constants import MEASURED, family_of, unmeasured
from training_cases import MOE, job, machine, priced, roofline


def test_every_constant_has_unit_source_and_status() -> None:
    for one in constants():
        assert one.unit
        assert one.source
        assert one.status in ("read", "read_third_party", "computed", "estimate", "memory")


def test_family_is_model_gpu_and_width() -> None:
    assert family_of("moe", "h100-sxm", "bf16") == "moe H100 16-bit"
    assert family_of("dense", "a100-sxm-80", "fp8") == "dense A100 fp8"
    assert family_of("dense", "a100-pcie-80", "bf16") == "dense A100-PCIE 16-bit", "less power, no links"


def test_an_unvalidated_family_gets_the_band_of_its_kind_of_model() -> None:
    band = error_band("dense MI250X 16-bit", "megatron")
    assert band.low < 1 < band.high
    assert "all dense" in band.source


def test_a_band_is_as_wide_as_its_framework_is_off() -> None:
    """Megatron's steps are closer than torchtitan's; the slice is of both on H100."""
    names = ("no such framework", "megatron", "torchtitan")
    slice_, megatron, torchtitan = (error_band("dense H100 fp8", name) for name in names)
    assert torchtitan.low < megatron.low <= slice_.low < 1 < slice_.high <= megatron.high <= torchtitan.high
    assert "widened to that of torchtitan" in torchtitan.source
    assert "widened" not in slice_.source


def test_gpus_without_a_published_step_are_named() -> None:
    assert {record["gpu"].split("-")[0] for record in records()} == set(MEASURED)
    for gpu in ("h100-sxm", "a100-sxm-40"):
        assert unmeasured(gpu, "megatron-2025", "bf16", fitted=True) == ()
    for fitted in (True, False):
        for gpu in ("mi250x", "h100-pcie", "h100-nvl", "a100-pcie-80"):
            (told,) = unmeasured(gpu, "megatron-2025", "bf16", fitted)
            assert f"No published training step on {gpu}" in told


def test_software_without_any_published_step_is_named_beside_such_a_gpu() -> None:
    (told,) = unmeasured("a800-sxm-80", "deepspeed-2024", "bf16", fitted=False, anywhere=False)
    assert "on a800-sxm-80, and none of software deepspeed-2024, is in the fit" in told


def test_software_without_a_published_step_on_a_gpu_is_named() -> None:
    (told,) = unmeasured("a100-sxm-80", "megatron-2025", "bf16", fitted=False)
    assert "of software megatron-2025 on a100-sxm-80 in 16-bit" in told
    band, other = (error_band("dense GB200 fp8", "no such framework", fitted) for fitted in (True, False))
    kind = error_band("dense no such slice", "no such framework")
    assert (other.low, other.high) == (min(band.low, kind.low), max(band.high, kind.high))
    assert "all dense models" in other.source


def test_a_step_that_waits_for_launches_has_their_band() -> None:
    usual, bound = (error_band("dense H100 16-bit", "megatron", True, share) for share in (0.24, 0.25))
    assert usual == error_band("dense H100 16-bit", "megatron")
    assert bound.low < usual.low < usual.high < bound.high
    assert "steps that wait for launches" in bound.source


def test_bands_are_kept_by_what_decides_them_so_that_many_steps_fill_no_memory() -> None:
    near, far = (error_band("dense H100 16-bit", "megatron", True, share) for share in (0.1234, 0.1235))
    assert near is far


def test_a_step_carries_the_band_of_its_family() -> None:
    result = simulate(job(expert=8), MOE, machine(4), predict=priced(50e9), kernel=roofline)
    band = error_band("moe H100 16-bit", "megatron", True, result.launch_share)
    assert (result.error_low, result.error_high) == (band.low, band.high)
    assert result.error_low < result.error_high


def test_token_budget_gives_time_and_gpu_hours() -> None:
    # 1e9 tokens at 64 x 1024 per step
    result = simulate(job(expert=8), MOE, machine(4), predict=priced(50e9), kernel=roofline)
    assert result.tokens == 64 * 1024
    assert result.time_to_train == 1e9 / 65536 * result.step_time
    assert abs(result.gpu_hours - result.time_to_train * 32 / 3600) < 1e-9 * result.gpu_hours
