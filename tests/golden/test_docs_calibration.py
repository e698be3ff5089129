"""Figures that people read first are today's: docs/training/calibration.md and unseen.md say what
docs/validation.md (`railwright validate`, checked in CI), the eras and the runs of other people say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "docs" / "training"
TWO_FAMILIES = """
family                      points skip median   mean    p90   bias   worst
training dense H100 fp8          2    1   5.2%   5.6%  10.2%  +1.5%  +24.6%  met
training dense GB200 nvfp4       1    0  11.0%  11.0%  11.0% -11.0%  -11.0%
runs dense GH200 16-bit          8    0  17.9%  22.0%  36.4% -22.0%  -42.6%

## Training dense H100 fp8

```text
  bar: median at most 12.0%; recipes differ in what they cast; guards against regressions
  median where the fit has not seen the record: 5.5%
   +24.6%       16.072 predicted       12.901 measured  s/step     one
```

## Training dense GB200 nvfp4

```text
  median where the fit has not seen the record: 12.5%
```

## Runs dense GH200 16-bit

```text
  median where the fit has not seen the record: 17.9%
```
"""


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delitem(sys.modules, "calibration_tables", raising=False)
    import calibration_tables

    return calibration_tables


def page(name: str) -> str:
    return (TRAINING / name).read_text(encoding="utf-8")


def block(name: str) -> list[str]:
    text = page("calibration.md")
    return text.split(f"<!-- {name} -->\n\n")[1].split(f"\n\n<!-- /{name} -->")[0].splitlines()


def test_what_a_table_makes_of_a_page_of_validation(tables: ModuleType) -> None:
    """One step is told, 10 % and more is bold, and a GPU without a record has other people's runs."""
    assert tables.first(TWO_FAMILIES)[2:] == [
        "| H100 | – | 5.5 % | – | – |",
        "| GB200 | – | NVFP4 **12.5 %** (one step) | – | – |",
        "| GH200 (no record) | **17.9 %** | – | – | – |",
    ]
    assert [line for line in tables.by_gpu(TWO_FAMILIES) if "H100" in line] == [
        "| H100, fp8 | 2 | 5.6 % | 10.2 % | 5.5 % | +24.6 % |"
    ]


def test_errors_by_gpu_are_those_of_the_page_of_validation(tables: ModuleType) -> None:
    validation = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert block("first") == tables.first(validation)
    assert block("by-gpu") == tables.by_gpu(validation)


def test_errors_by_framework_are_those_of_the_eras(tables: ModuleType) -> None:
    assert block("by-framework") == tables.by_framework()
    of_nvidia = [line for line in block("by-framework")[2:] if "MI3" not in line]
    records = [int(line.split(" | ")[2]) for line in of_nvidia]
    assert f"| NVIDIA's GPUs | {sum(records)} |" in page("calibration.md")
    for nth, figure in ((3, "5.3"), (4, "6.1")):
        means = [float(line.rstrip(" |").split(" | ")[nth].removesuffix(" %")) for line in of_nvidia]
        whole = sum(n * mean for n, mean in zip(records, means, strict=True)) / sum(records)
        assert whole == pytest.approx(float(figure), abs=0.06)


def test_other_people_s_runs_are_as_far_off_as_their_test_holds() -> None:
    held = runpy.run_path(str(ROOT / "tests" / "validation" / "test_training_unseen_runs.py"))
    text = page("unseen.md")
    rows = re.findall(r"^\| .+ \| \d+ \| ([\d.]+) % \| ([-+][\d.]+) % \| .+ \|$", text, re.MULTILINE)
    said = [(float(error), float(bias)) for error, bias in rows]
    first = said.index(next(iter(held["GROUPS"].values())))
    assert said[first : first + len(held["GROUPS"])] == list(held["GROUPS"].values())
    for words in (
        f"| 26 series, now | {held['ALL_GROUPS']} % | {held['ALL_BIAS']} % |",
        f"| 138 steps, now | {held['ALL_RUNS']:.1f} % | | {held['IN_RANGE']:.0f} % |",
    ):
        assert words in text
    assert f"which no fit has seen, are {held['ALL_GROUPS']} % off" in page("calibration.md")


def test_how_good_it_is_in_one_sentence() -> None:
    short = r"(\d+) published training steps are predicted ([\d.]+)% off in the mean, ([\d.]+)%"
    steps, mean, left_out = re.search(short, page("validation.md")).groups()
    said = f"{int(steps):,} published steps are predicted {mean} % off in the mean, and {left_out} % off"
    assert said in page("calibration.md")
