"""Settings and arguments that Megatron-LM had not yet in the years of a job's software."""

from __future__ import annotations

from typing import Any

import pytest

from export_cases import exported
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.shipped import read_data
from railwright.spec.training import Overlap
from training_cases import DENSE, MOE, changed, job

ALL_SHOWN = Overlap(dp=False, pp=False)


@pytest.mark.parametrize(
    ("software", "layout", "missing"),
    [
        ("nemo-2024", {"zero": 3}, "zero 2 and 3 (Megatron-FSDP, of 2025)"),
        ("nemo-2024", {"zero": 1, "context": 2, "expert": 4}, ""),
        ("nemo-2024", {"expert": 4, "overlap": Overlap(ep=True)}, "hidden expert all-to-alls (of 2025)"),
        ("nemo-2024", {"offload": ("optimizer",)}, "optimizer states on the host (of 2025)"),
        ("nemo-2024", {"recompute": "selective"}, ""),
        (
            "nemo-2024",
            {"recompute": "selective", "recompute_modules": ("mlp", "core_attn")},
            "recomputation of mlp (of 2025)",
        ),
        ("megatron-2025", {"zero": 3}, ""),
        ("megatron-2022", {"overlap": ALL_SHOWN}, ""),
        ("megatron-2022", {}, "hidden reductions of gradients (of 2023)"),
        ("megatron-2022", {"overlap": ALL_SHOWN, "context": 2}, "context parallelism (of 2023)"),
        ("megatron-2022", {"overlap": ALL_SHOWN, "expert": 4}, "expert parallelism (of 2023)"),
    ],
    ids=str,
)
def test_a_layout_asks_for_nothing_that_came_later(
    software: str, layout: dict[str, Any], missing: str
) -> None:
    """Megatron-LM's history: when each argument was merged."""
    one = changed(job(batch=64, **layout), software=software)
    wanted = [f"{missing}, later than {software}"] if missing else []
    assert FRAMEWORKS["megatron"].lacks(one, MOE, 4) == FRAMEWORKS["nemo"].lacks(one, MOE, 4) == wanted


def test_arguments_of_later_releases_are_named() -> None:
    one = changed(job(recompute="selective", recompute_modules=("mlp",)), software="nemo-2024")
    text = exported((DENSE, one), "megatron")
    assert "# later than nemo-2024, whose Megatron-LM does not know them: --recompute-modules\n" in text
    assert "# later than" not in exported((DENSE, changed(one, software="megatron-2025")), "megatron")
    said = "# fields are those of Megatron-LM core 0.19; that of nemo-2024 does not know all of them"
    assert said in exported((DENSE, one), "nemo").splitlines()
    older = exported((DENSE, changed(job(context=2), software="megatron-2022")), "megatron")
    assert "--context-parallel-size, " in older[older.index("# later than megatron-2022") :].split("\n")[0]


def test_each_later_argument_is_listed_once() -> None:
    names = read_data("search", "later.yaml")
    both = names["after_2024"] + names["after_2022"]
    assert len(set(both)) == len(both)


def test_attention_that_is_not_fused_is_not_cut_over_context_ranks() -> None:
    """Transformer Engine, get_attention_backend."""
    one = changed(job(batch=64, context=2), software="megatron-2025-unfused")
    assert FRAMEWORKS["megatron"].lacks(one, DENSE, 4) == [
        "context parallelism with attention that is not fused"
    ]
    assert not FRAMEWORKS["megatron"].lacks(changed(one, software="megatron-2025"), DENSE, 4)
