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
    for nth, figure in ((3, "4.9"), (4, "5.7")):
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
        f"| all {len(held['GROUPS'])} series, now | {held['ALL_GROUPS']} % | {held['ALL_BIAS']} % |",
        f"| all 466 steps, now | {held['ALL_RUNS']:.1f} % | | {held['IN_RANGE']:.0f} % |",
    ):
        assert words in text
    assert f"which no fit has seen, are {held['ALL_GROUPS']} % off" in page("calibration.md")


def test_how_good_it_is_in_one_sentence() -> None:
    short = r"(\d+) published training steps are predicted ([\d.]+)% off in the mean, ([\d.]+)%"
    steps, mean, left_out = re.search(short, page("validation.md")).groups()
    said = f"{int(steps):,} published steps are predicted {mean} % off in the mean, and {left_out} % off"
    assert said in page("calibration.md")


def factors(names: tuple[str, ...], gpu: str, factor: str) -> list[float]:
    """Fitted factors of eras on GPUs whose names begin so; attention's over that of products."""
    from railwright.training.software.eras import eras

    rows = [
        row
        for name in names
        for where, row in eras()[name].pace.items()
        if where.startswith(gpu) and row.records
    ]
    if factor == "attention":
        return [row.attention / row.gemm for row in rows]
    return [getattr(row, factor) for row in rows]


ENGINE = ("nemo-2024", "megatron-2025", "megatron-2026", "megatron-2026-06-01", "xla-2024", "xla-2025")


def test_what_the_factors_say_is_what_the_eras_hold() -> None:
    def told(begins: str) -> str:
        return next(line for line in page("calibration.md").splitlines() if line.startswith(f"| {begins}"))

    def spanned(values: list[float], digits: int) -> str:
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    hopper = [*factors(ENGINE, "h100", "attention"), *factors(ENGINE, "h200", "attention")]
    blackwell = [value for gpu in ("b", "gb") for value in factors(ENGINE, gpu, "attention")]
    engine = f"{spanned(hopper, 2)} on Hopper, {spanned(blackwell, 2)} on Blackwell |"
    assert told("attention over products").endswith(engine)
    triton = [factors(("fsdp-2023",), gpu, "attention")[0] for gpu in ("a100", "h100")]
    assert told("the same, llm-foundry's").endswith(f"{triton[0]:.2f} on A100, {triton[1]:.2f} on H100 |")
    torch = [factors((name,), "h100", "attention")[0] for name in ("fsdp-2024", "fsdp-2025")]
    assert told("the same, PyTorch's on H100").endswith(f"{torch[0]:.2f}, {torch[1]:.2f} |")
    x86 = [value for gpu in ("h", "b") for value in factors(ENGINE, gpu, "host")]
    calls = f"{spanned(x86, 1)} on x86, {spanned(factors(ENGINE, 'gb', 'host'), 1)} on Grace |"
    assert told("host's calls").endswith(calls)
