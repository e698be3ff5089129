"""Public serving measurements, a few of each kind, through the same call as `railwright validate serving`.

The whole of it takes minutes; these keep its parts in place.  Bands are twice the mean errors of
docs/serving/validation.md: they guard against a broken model, not for the issue's bars.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.measure.serving.bars import left_out, lines, peer_error, reached
from railwright.measure.serving.cases import cases
from railwright.measure.serving.reasons import reason_of
from railwright.measure.serving.replay import score
from railwright.measure.table import Row, Skipped
from railwright.serving.engine.bands import error_bands

CASES = {
    "llama_3_1_70b_h100_sxm_vllm_fp8_agg_1024x1024_c8_tp4_ep1_696": {"TTFT": 0.3, "TPOT": 0.15},
    "llama_3_1_70b_b200_sxm_vllm_fp8_agg_1024x1024_c32_tp1_ep1_664": {"TTFT": 0.4, "TPOT": 0.15},
    "llama_3_1_70b_b200_sxm_trtllm_fp4_agg_1024x8192_c8_tp4_ep1_560": {"TPOT": 0.25},
    "dli_static_3098": {"TTFT": 0.15, "TPOT": 0.15},
    "dli_static_106": {"TTFT": 0.15, "TPOT": 0.15},
    "dli_static_70": {"TTFT": 0.15, "TPOT": 0.15},
    "dli_static_2776": {"TTFT": 0.3, "TPOT": 0.2},  # Falcon 180B on H100 NVL: one all-reduce a layer
    "nim_700": {"TTFT": 0.15, "TPOT": 0.15},  # waves of 50 prompts of 2,000 tokens
    "qwen3_32b_h100_sxm_trtllm_agg_1024x512_c64_tp8": {"TTFT": 0.15, "TPOT": 0.15},
    "llmservingsim_RTX4090_Llama-3.1-8B": {"TTFT": 0.08, "TPOT": 0.08, "throughput": 0.08},
    "llmservingsim_RTXPRO6000_Llama-3.1-8B": {"TTFT": 0.08, "TPOT": 0.08, "throughput": 0.08},
    "llmservingsim_RTXPRO6000_Qwen3-30B": {"TTFT": 0.2, "TPOT": 0.08, "throughput": 0.08},
    "trtllm_docs_Llama_3.1_405B_H200_fp8_tp8_1000_1000": {"throughput": 0.25},
    "deepseek_r1_b200_sxm_trtllm_fp4_agg_1024x1024_c8_tp4_0_ep1_0_1081": {"TPOT": 0.3},
}


@pytest.mark.parametrize("name", CASES)
def test_a_published_case_is_within_its_band(name: str) -> None:
    (found,) = score(name)
    assert not found.refused
    errors = {row.family.split(": ")[1]: row.error for row in found.rows}
    for what, band in CASES[name].items():
        assert abs(errors[what]) <= band, f"{what} {errors[what]:+.1%}"


def test_more_in_flight_means_more_waiting_as_measured() -> None:
    # H100, vLLM, TP8, 1024/1024: 70 ms at 4 in flight, 124 ms at 32
    few, many = (
        next(iter(score(f"llama_3_1_70b_h100_sxm_vllm_fp8_agg_1024x1024_{load}_tp8")))
        for load in ("c4", "c32")
    )
    ours = [next(r for r in s.rows if r.family.endswith("TTFT")).predicted for s in (few, many)]
    assert ours[1] / ours[0] == pytest.approx(124.4 / 70.4, rel=0.35)


def _row(name: str, what: str, ratio: float) -> Row:
    return Row(f"serving {what}", name, "", ratio, 1.0, "s", "")


def test_the_bars_are_means_over_their_slices() -> None:
    names = [case["id"] for case in cases()]
    rows = [_row(names[0], "dense: TPOT", 1.05), _row(names[1], "dense: TPOT", 0.87)]
    found = {b.what: b for b in reached(rows, [Skipped("serving MoE", names[60], "no")])}
    assert found["dense, online: TPOT"].reached == "9.0% of 2"
    assert found["dense, online: TPOT"].met
    assert found["cases predicted"].reached == "66.7%"
    assert not found["cases predicted"].met
    assert all(len(line) <= 80 for line in lines(list(found.values())))


def test_aiconfigurators_errors_are_its_own_predictions() -> None:
    case = cases()[0]
    # 18.367 ms predicted, 17.407 ms measured
    assert peer_error(case, "TPOT") == pytest.approx(18.367 / 17.407 - 1)


def test_a_factor_fitted_without_a_group_does_not_help_that_group() -> None:
    # one model is right, the other half of what is measured; left out, a factor helps neither
    rows = [_row(f"a{k}", "dense: TPOT", 1.0) for k in range(3)]
    rows += [_row(f"b{k}", "dense: TPOT", 0.5) for k in range(3)]
    group = {row.record: row.record[0] for row in rows}
    plain, _, blind = left_out(rows, group)
    assert plain == pytest.approx(0.25)
    # without its own group: a is doubled (error 1), b stays half (error 0.5)
    assert blind == pytest.approx(0.75)


def test_bands_contain_the_prediction_of_a_kind_of_model() -> None:
    for moe in (False, True):
        found = error_bands("vllm-2025", moe)
        assert set(found) == {"TTFT", "TPOT"}
        assert all(0 < low < high for low, high in found.values())


def test_what_was_carried_is_what_was_collected() -> None:
    path = Path("/work/shared/validation/inference.yaml")
    if not path.exists():
        pytest.skip("the collection is not on this machine; the carried table stands alone")
    from ruamel.yaml import YAML

    collected = {c["id"]: c for c in YAML(typ="safe").load(path.read_text(encoding="utf-8"))["cases"]}
    assert {case["id"] for case in cases()} == set(collected)
    for case in cases():
        measured = collected[case["id"]]["measured"]
        for column, names in (
            ("ttft_ms", ("ttft_ms", "ttft_mean_ms")),
            ("tpot_ms", ("tpot_ms", "tpot_mean_ms")),
        ):
            stated = next((measured[n] for n in names if n in measured), None)
            assert (float(case[column]) if case[column] else None) == stated


def test_a_reason_is_of_the_right_sign() -> None:
    case = next(c for c in cases() if c["id"] == "mlperf_5.1-0015_llama2-70b-99_Server")
    assert "largest that the submitter's system could hold" in reason_of(case, "TTFT", high=True)
    assert reason_of(case, "TTFT", high=False) == ""
