"""Memory of training jobs as others published it: peaks, jobs that ran, jobs that ended for lack of memory.

Jobs, sources and the rules by which they were taken: data/published_memory.yaml.  What is asserted is how
good the model is, with its misses; docs/training/memory.md tells what is known of these.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from published_memory import Case, cases, predicted
from railwright.measure.training.unseen_runs import run_of
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.units import GIB

MEASURED = [i for i, case in enumerate(cases()) if case.measured]
RAN = [i for i, case in enumerate(cases()) if case.ran]
ENDED = [i for i, case in enumerate(cases()) if not case.ran]

# framework -> peaks read, mean error, mean of its size, furthest off [%]
READ = {
    "Hugging Face's Trainer, FSDP1": (59, 0.7, 1.6, -6),
    "Hugging Face's Trainer, one GPU": (15, -3.4, 4.7, -14),
    "Hugging Face's Trainer, DeepSpeed": (11, -24.6, 24.6, -64),
    "DeepSpeed": (9, 3.1, 15.2, 51),
    "LitGPT": (37, -12.4, 12.6, -30),
    "torchtune": (4, -3.0, 3.3, -5),
    "NeMo AutoModel": (4, -12.6, 12.6, -33),
    "Megatron-Bridge": (6, -1.0, 1.7, -3),
    "torchtitan": (1, -3.2, 3.2, -3),
    "llama-recipes, FSDP1": (1, -31.9, 31.9, -32),
    "Axolotl, FSDP2": (2, 7.4, 11.3, 19),
}


def error(index: int) -> float:
    """Predicted over read, less one."""
    return predicted(index).beside / cases()[index].measured - 1


def groups(indices: list[int], answer: str) -> Counter[str]:
    """Of the jobs that get this answer."""
    return Counter(cases()[i].group for i in indices if predicted(i).answer == answer)


def names(indices: list[int]) -> list[str]:
    return [cases()[i].name for i in indices]


@pytest.mark.parametrize("framework", READ)
def test_how_good_it_is_for_a_framework(framework: str) -> None:
    rows, mean, size, furthest = READ[framework]
    errors = [100 * error(i) for i in MEASURED if cases()[i].framework == framework]
    assert len(errors) == rows
    assert fmean(errors) == pytest.approx(mean, abs=0.4)
    assert fmean(map(abs, errors)) == pytest.approx(size, abs=0.4)
    assert max(errors, key=abs) == pytest.approx(furthest, abs=1)


def test_every_framework_has_its_figures() -> None:
    assert {cases()[i].framework for i in MEASURED} == set(READ)


def test_two_of_three_are_within_5_percent() -> None:
    """149 peaks: 100 are within 5 %, 115 within 10; too little rather than too much."""
    errors = [error(i) for i in MEASURED]
    assert len(errors) == 149
    assert sum(abs(e) < 0.05 for e in errors) == pytest.approx(100, abs=2)
    assert sum(abs(e) < 0.1 for e in errors) == pytest.approx(115, abs=2)
    assert fmean(errors) == pytest.approx(-0.054, abs=0.004)
    assert fmean(map(abs, errors)) == pytest.approx(0.079, abs=0.004)


def test_who_ran_is_taken() -> None:
    """153 of 155, three of them with a warning.  Refused are two of Pai-Megatron-Patch, for 3 and 4 GiB."""
    assert len(RAN) == 155
    assert groups(RAN, "refused") == {"pai": 2}
    assert groups(RAN, "warned") == {"fms-liger": 1, "fms-liger-lora": 1, "automodel-70b": 1}


def test_who_ended_is_refused() -> None:
    """43 of 57, and four are warned of.  Ten are taken: four of LLaMA-Factory's under DeepSpeed, a 70B twice
    that ended in a third to a half of its runs, and four with 4 to 13 % of the memory to spare."""
    assert len(ENDED) == 57
    assert sum(groups(ENDED, "refused").values()) == 43
    assert groups(ENDED, "warned") == {"fms-liger": 2, "fms-liger-lora": 1, "ulysses": 1}
    assert groups(ENDED, "taken") == {
        "fms-lora": 1,
        "llama-factory-issues": 4,
        "automodel-70b": 1,
        "bridge-nano": 2,
        "bridge-70b": 2,
    }


LITGPT = [i for i in MEASURED if cases()[i].framework == "LitGPT"]


def in_4_bits(case: Case) -> bool:
    return case.job.lora is not None and case.job.lora.frozen_dtype == "nf4"


WIDE = [i for i in LITGPT if not in_4_bits(cases()[i])]
NARROW = [i for i in LITGPT if in_4_bits(cases()[i])]


@pytest.mark.parametrize("index", WIDE, ids=names(WIDE))
def test_litgpt_with_weights_in_16_bits(index: int) -> None:
    """1B to 13B within 6.5 %, Gemma 2B within 10."""
    assert abs(error(index)) < (0.1 if "gemma" in cases()[index].name else 0.065)


def inputs(case: Case, *, all_of_them: bool) -> float:
    """Of frozen products in one pass, which bitsandbytes kept until 9e753741 (0.43.2, July 2024).  [byte]

    all_of_them  also what attention put out, which a pass keeps for its own sake until it has ended
    """
    arch = case.arch
    norms = 1 if case.job.model in ("phi-1.5", "phi-2", "falcon-7b") else 2
    widths = norms * arch.hidden + arch.ffn + all_of_them * arch.heads * arch.head_dim
    return 2.0 * arch.layers * case.job.micro_batch * case.job.sequence * widths


@pytest.mark.parametrize("index", NARROW, ids=names(NARROW))
def test_litgpt_with_weights_in_4_bits(index: int) -> None:
    """20 to 30 % too low, by inputs that bitsandbytes kept then and does not today.  They were attributes
    of Python, which live as long as their graph, and LitGPT's loop holds that by `logits` until the next
    forward pass ends: those of two passes.  In 2023 the longest sample came first, with none before it."""
    case, found = cases()[index], predicted(index).beside
    assert -0.3 < error(index) < -0.19
    found += inputs(case, all_of_them=False)
    if case.group == "litgpt-2023":
        assert found / case.measured - 1 == pytest.approx(-0.09, abs=0.03)
        return
    assert found / case.measured < 0.87
    found += inputs(case, all_of_them=True)
    assert found / case.measured - 1 == pytest.approx(-0.075, abs=0.075)


@pytest.mark.parametrize(
    ("run", "mib"), [(8, 39596.3), (64, 31161.9), ("8-lora", 33354.1), ("64-lora", 30521.6)]
)
def test_atorch_holds_18_gib_more_on_any_number_of_gpus(run: str, mib: float) -> None:
    """Llama 2 7B of dlrover@11bf2fbf (examples/llama2/README.md, max_memory_allocated): what is sharded, 12
    bytes of a weight or 4 of a frozen one, is met.  Its FSDP has no mixed precision but autocast around it
    (amp_optimization.py), and its model returns keys and values; what else is among the 18 is not known."""
    found = run_of("atorch-7b", run)
    memory = peak_memory(found.job, found.arch, found.machine.network.fabric, 80e9)
    assert mib / 1024 - (memory.total - memory.parts[SYSTEM]) / GIB == pytest.approx(18.05, abs=0.15)
