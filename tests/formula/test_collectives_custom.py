"""Custom all-reduce by hand: bytes read, where the engines switch, and what they leave to NCCL."""

import pytest

from railwright.catalog import find, load_catalog
from railwright.collectives import custom_all_reduce
from railwright.errors import PlanError

KIB, MIB = 2**10, 2**20


def gpu(name: str = "h100-sxm"):
    return find(load_catalog().gpus, name)


def test_one_shot_reads_every_peer_once() -> None:
    # 7 x 16 KiB / (0.65 x 450 GB/s) = 0.39 us beyond the 3.9 us of launch and barriers
    answer = custom_all_reduce(gpu(), 8, 16 * KIB)
    assert answer.algorithm == "one-shot"
    assert answer.time == pytest.approx(3.9e-6 + 7 * 16 * KIB / 292.5e9)
    assert answer.busbw == pytest.approx(16 * KIB / answer.time * 1.75)


def test_two_shot_reads_an_eighth_twice_from_each_peer() -> None:
    # 2 x 7/8 MiB / 292.5 GB/s = 6.3 us, 3.9 us, and 1.2 us for the barrier between
    answer = custom_all_reduce(gpu(), 8, MIB)
    assert answer.algorithm == "two-shot"
    assert answer.time == pytest.approx(3.9e-6 + 1.2e-6 + 1.75 * MIB / 292.5e9)


@pytest.mark.parametrize(
    ("engine", "ranks", "size", "kind"),
    [
        ("vllm", 2, 4 * MIB, "one-shot"),
        ("vllm", 4, 512 * KIB - 16, "one-shot"),
        ("vllm", 4, 512 * KIB, "two-shot"),
        ("vllm", 8, 256 * KIB - 16, "one-shot"),
        ("vllm", 8, 256 * KIB, "two-shot"),
        ("trtllm", 4, 999_984, "one-shot"),
        ("trtllm", 8, 499_984, "one-shot"),
        ("trtllm", 8, 500_000, "two-shot"),
    ],
)
def test_engines_switch_where_their_code_says(engine, ranks, size, kind) -> None:
    assert custom_all_reduce(gpu(), ranks, size, engine).algorithm == kind


def test_terms_add_up_and_more_bytes_take_longer_within_a_kind() -> None:
    sizes = [KIB, 16 * KIB, 200 * KIB, 256 * KIB, MIB, 8 * MIB - 16]
    answers = [custom_all_reduce(gpu(), 8, size) for size in sizes]
    for answer in answers:
        assert answer.time == pytest.approx(sum(term.seconds for term in answer.terms))
        assert answer.time > 1.75 * answer.size / gpu().scale_up_bandwidth
    assert [a.time for a in answers[:3]] == sorted(a.time for a in answers[:3])
    assert [a.time for a in answers[3:]] == sorted(a.time for a in answers[3:])


def test_another_generation_says_that_hopper_stands_in() -> None:
    measured, guessed = custom_all_reduce(gpu(), 8, KIB), custom_all_reduce(gpu("a100-sxm-80"), 8, KIB)
    assert not measured.notes
    assert "stand in" in guessed.notes[0]
    assert guessed.error_low < measured.error_low < measured.error_high < guessed.error_high


@pytest.mark.parametrize(
    ("name", "ranks", "size", "engine", "words"),
    [
        ("h100-sxm", 8, 8 * MIB, "vllm", "exceed the 8388592"),
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
