"""Custom all-reduce by hand: bytes read, where the engines switch, and what they leave to NCCL."""

import pytest

from railwright.catalog import find, load_catalog
from railwright.collectives import custom_all_reduce
from railwright.errors import PlanError

KIB, MIB = 2**10, 2**20


def gpu(name: str = "h100-sxm"):
    return find(load_catalog().gpus, name)


def test_one_shot_reads_every_peer_once() -> None:
    # 7 x 16 KiB / (0.60 x 450 GB/s) = 0.42 us beyond the 4.47 us of launch and barriers
    answer = custom_all_reduce(gpu(), 8, 16 * KIB)
    assert answer.algorithm == "one-shot"
    assert answer.time == pytest.approx(4.47e-6 + 7 * 16 * KIB / 270e9)
    assert answer.busbw == pytest.approx(16 * KIB / answer.time * 1.75)


def test_two_shot_reads_an_eighth_twice_from_each_peer() -> None:
    # 2 x 7/8 MiB / (0.732 x 450 GB/s) = 5.6 us, 4.47 us, and 2.31 us for each doubling to 8 between the shots
    answer = custom_all_reduce(gpu(), 8, MIB)
    assert answer.algorithm == "two-shot"
    assert answer.time == pytest.approx(4.47e-6 + 3 * 2.31e-6 + 1.75 * MIB / 329.4e9)


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
@pytest.mark.parametrize("name", ["a100-sxm-80", "h100-sxm", "h20", "b200-sxm", "vr200", "v100-sxm2-32"])
def test_every_time_lies_in_its_own_band(name, engine) -> None:
    # two shots had a band of 1.14 to 2.29 times themselves: the barrier between them was six times too short
    for ranks in (2, 4, 8):
        for size in (2.0**k for k in range(4, 23)):
            answer = custom_all_reduce(gpu(name), ranks, size, engine)
            assert answer.error_low < 1 < answer.error_high < 1.5


@pytest.mark.parametrize(
    ("engine", "ranks", "size", "kind"),
    [
        ("vllm", 2, 4 * MIB, "one-shot"),
        ("vllm", 4, 512 * KIB - 16, "one-shot"),
        ("vllm", 4, 512 * KIB, "two-shot"),
        ("vllm", 8, 256 * KIB - 16, "one-shot"),
        ("vllm", 8, 256 * KIB, "two-shot"),
        ("trtllm", 4, 2 * MIB - 16, "one-shot"),
        ("trtllm", 8, 512 * KIB - 16, "one-shot"),
        ("trtllm", 8, 512 * KIB, "two-shot"),
    ],
)
def test_engines_switch_where_their_code_says(engine, ranks, size, kind) -> None:
    assert custom_all_reduce(gpu(), ranks, size, engine).algorithm == kind


def test_tensorrt_llm_takes_one_shot_four_times_as_long_on_blackwell() -> None:
    # SelectStrategyLP: 512 x 512 elements of two bytes on eight Hopper, 1024 x 1024 on eight Blackwell
    for size, kind in ((2 * MIB - 16, "one-shot"), (2 * MIB, "two-shot")):
        assert custom_all_reduce(gpu("b200-sxm"), 8, size, "trtllm").algorithm == kind


def test_terms_add_up_and_more_bytes_take_longer_within_a_kind() -> None:
    sizes = [KIB, 16 * KIB, 200 * KIB, 256 * KIB, MIB, 8 * MIB - 16]
    answers = [custom_all_reduce(gpu(), 8, size) for size in sizes]
    for answer in answers:
        assert answer.time == pytest.approx(sum(term.seconds for term in answer.terms))
        assert answer.time > 1.75 * answer.size / gpu().scale_up_bandwidth
    assert [a.time for a in answers[:3]] == sorted(a.time for a in answers[:3])
    assert [a.time for a in answers[3:]] == sorted(a.time for a in answers[3:])


@pytest.mark.parametrize(("name", "whose"), [("vr200", "blackwell"), ("v100-sxm2-32", "ampere")])
def test_another_generation_says_whose_constants_stand_in(name, whose) -> None:
    measured, guessed = custom_all_reduce(gpu(), 8, KIB), custom_all_reduce(gpu(name), 8, KIB)
    assert not measured.notes
    assert f"constants of {whose} stand in" in guessed.notes[0]
    assert guessed.error_low < measured.error_low < measured.error_high < guessed.error_high


def test_where_recent_vllm_multicasts_is_said() -> None:
    assert not custom_all_reduce(gpu(), 8, 256 * KIB - 16).notes
    assert "multicasts instead" in custom_all_reduce(gpu(), 8, 256 * KIB).notes[0]
    assert not custom_all_reduce(gpu(), 4, 4 * MIB).notes


@pytest.mark.parametrize(
    ("name", "ranks", "size", "engine", "words"),
    [
        ("h100-sxm", 8, 8 * MIB, "vllm", "above 8388592 bytes vllm leaves it to NCCL"),
        ("h100-sxm", 8, 8, "vllm", "no multiple of 16 bytes"),
        ("h100-sxm", 6, KIB, "trtllm", "only for 2, 4, 8"),
        ("h100-sxm", 3, KIB, "vllm", "only for 2, 4, 6, 8"),
        ("l40s", 4, KIB, "vllm", "has no NVLink"),
        ("h100-sxm", 8, 0, "vllm", "above zero"),
        ("h100-sxm", 8, float("nan"), "vllm", "above zero"),
        ("mi300x", 8, KIB, "vllm", "No custom all-reduce model"),
        ("h100-sxm", 8, KIB, "tgi", "known ones are vllm, trtllm"),
    ],
)
def test_what_an_engine_leaves_to_nccl_is_refused(name, ranks, size, engine, words) -> None:
    with pytest.raises(PlanError) as caught:
        custom_all_reduce(gpu(name), ranks, size, engine)
    assert words in str(caught.value)
