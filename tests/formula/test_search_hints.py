"""What a search says of layouts that it did not try; of layers: `test_search_recompute_layers`."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.search import Space, search
from railwright.spec.training import TrainingJob
from training_cases import DENSE, changed, job, machine

ONE = {"tensor": (1,), "pipeline": (1,), "micro_batch": (1,), "recompute": ("none",), "overlap_dp": (False,)}


def hint(wanted: TrainingJob, servers: int = 2, framework: str | None = None, **axes: Any) -> str:
    space = Space({**ONE, "zero": (1,), "context": (1,), **axes})
    words = search(wanted, DENSE, machine(servers), space, top=1, steps=0, framework=framework).words
    return next((sentence for sentence in words if "[null, servers]" in sentence), "")


def test_groups_are_named_where_the_exchange_shows() -> None:
    found = hint(job(batch=16))
    assert found.startswith("Gradients and parameters expose ")
    assert found.endswith(
        " with shard: [null, servers] in its space the search tries groups of whole servers with copies of "
        "their own too."
    )


@pytest.mark.parametrize(
    ("wanted", "servers", "axes"),
    [
        (job(batch=16), 2, {"shard": (None,)}),  # tried
        (job(batch=16, shard=8), 2, {}),  # there already
        (job(batch=16), 2, {"zero": (0,)}),  # nothing is shared
        (job(batch=16), 1, {}),  # all ranks are on one server
        (job(batch=16384), 2, {"overlap_dp": (True,)}),  # hidden behind many microbatches
        (changed(job(batch=16), optimizer="muon"), 2, {}),  # refused
    ],
    ids=["tried", "there", "zero 0", "one server", "hidden", "muon"],
)
def test_and_not_elsewhere(wanted: TrainingJob, servers: int, axes: dict[str, Any]) -> None:
    assert not hint(wanted, servers, **axes)


def test_torchtitan_tries_them_anyway() -> None:
    assert not hint(job(batch=16), framework="torchtitan", zero=(3,), overlap_dp=(True,))
