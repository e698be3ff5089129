"""Flight recorders: who stopped, who stalled, and who only waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose_cases import SAMPLES, dump, entry, needs_samples, write_dumps
from railwright.diagnose import diagnose, elements_of
from railwright.diagnose.read.recorder import read_recorder, recorder_evidence, verdicts

WORLD = {"0": [0, 1, 2, 3]}


def judged(folder: Path) -> tuple[dict[int, str], list[str]]:
    found, notes = verdicts(read_recorder([folder]))
    return {v.rank: v.state for v in found}, notes


def test_the_rank_that_never_came_is_stopped(tmp_path):
    # ranks 0, 1 and 3 wait in collective 8 of the world; rank 2 issued 7 and no more
    waiting = dump(WORLD, [entry("0", 8)], {0: (8, 7)})
    absent = dump(WORLD, [], {0: (7, 7)})
    folder = write_dumps(tmp_path / "a", {0: waiting, 1: waiting, 2: absent, 3: waiting})
    assert judged(folder) == ({2: "stopped"}, [])


def test_a_rank_behind_what_needs_its_part_is_stalled(tmp_path):
    # rank 1 does not know that 5 is done, yet rank 0 has completed 8: its GPU gave its part to 6, 7 and 8
    done = dump(WORLD, [entry("0", 9)], {0: (9, 8)})
    behind = dump(WORLD, [entry("0", n) for n in (5, 6, 7, 8, 9)], {0: (9, 4)})
    folder = write_dumps(tmp_path, {0: done, 1: behind, 2: done, 3: done})
    assert judged(folder)[0] == {1: "stalled"}


def test_a_rank_held_up_by_another_is_a_victim(tmp_path):
    # 0 has not come to collective 3 of the world because it waits in group 1 for rank 1, which never came
    groups = {"0": [0, 1, 2, 3], "1": [0, 1]}
    two = dump(groups, [entry("0", 3)], {0: (3, 2), 1: (5, 5)})
    dumps = {
        0: dump(groups, [entry("1", 6, local=1)], {0: (2, 2), 1: (6, 5)}),
        1: dump(groups, [], {0: (2, 2), 1: (5, 5)}),
        2: two,
        3: two,
    }
    states, notes = judged(write_dumps(tmp_path, dumps))
    assert states == {1: "stopped"}
    assert len(notes) == 1
    assert "rank 0 waits for others itself" in notes[0]


def test_the_root_of_a_broadcast_may_be_ahead(tmp_path):
    ahead = dump(WORLD, [entry("0", 5, "broadcast")], {0: (5, 5)})
    behind = dump(WORLD, [entry("0", 5, "broadcast")], {0: (5, 4)})
    folder = write_dumps(tmp_path, {0: ahead, 1: behind, 2: behind, 3: behind})
    assert judged(folder)[0] == {}


def test_point_to_point_counters_prove_nothing(tmp_path):
    one = dump(WORLD, [entry("0", 1, "send 0->1", p2p=True)], {0: (40, 39)})
    other = dump(WORLD, [entry("0", 1, "recv 1<-0", p2p=True)], {0: (12, 12)})
    folder = write_dumps(tmp_path, {0: one, 1: other, 2: other, 3: other})
    assert judged(folder)[0] == {}


def test_a_rank_without_a_dump_is_suspected(tmp_path):
    same = dump(WORLD, [entry("0", 8)], {0: (8, 7)})
    folder = write_dumps(tmp_path, {0: same, 1: same, 3: same})
    assert judged(folder)[0] == {2: "stopped"}


def test_ranks_that_agree_are_no_suspects(tmp_path):
    same = dump(WORLD, [entry("0", 8)], {0: (8, 7)})
    folder = write_dumps(tmp_path, dict.fromkeys(range(4), same))
    elements = elements_of(None)
    result = diagnose(elements, recorder_evidence(elements, read_recorder([folder])))
    assert result.suspects == ()
    assert result.none == pytest.approx(1.0)


@needs_samples
@pytest.mark.parametrize(("case", "injected"), [("gpu_error_1st", {12, 14}), ("lock_gil_1st", {9, 14})])
def test_published_cases_name_all_injected_ranks_and_no_others(case, injected):
    """fault_injection.log of both cases (NVIDIA/nvidia-resiliency-ext @d8686d9c)."""
    folder = SAMPLES / "flight_recorder_nvrx" / "fr_traces" / case
    elements = elements_of(None)
    result = diagnose(elements, recorder_evidence(elements, read_recorder([folder])))
    assert {s.element for s in result.faults} == {f"rank-{n}" for n in injected}
    assert {s.element for s in result.suspects} == {f"rank-{n}" for n in injected}
