"""`railwright fabric whatif --json` on the 240-GPU example: nothing moves unasked.

Written anew with `REWRITE=1 pytest tests/golden/test_network_whatif.py`; the commit says what moved it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_suffix(".json")
WORDS = ("engine", "why", "bottleneck")  # of other rooms, whose own tests hold them


def asked(*options: str) -> dict:
    study = str(ROOT / "examples" / "mixtral-240-h100.yaml")
    done = CliRunner().invoke(app, ["fabric", "whatif", study, "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def numbers(value):
    """Without words, and floats to nine digits: the engines agree to that."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items() if key not in WORDS}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


CASES = {
    "single, no PXN": ("--no-pxn",),
    "single, ring": ("--pattern", "ring"),
    "pairs of switches": ("--no-pxn", "--k", "2", "--kind", "leaf,spine"),
    "expert groups": ("--groups", "ep", "--kind", "nic,leaf"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_stand(case) -> None:
    found = numbers(asked(*CASES[case]))
    if os.environ.get("REWRITE"):
        whole = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
        GOLDEN.write_text(json.dumps(whole | {case: found}, indent=1) + "\n")
    assert found == json.loads(GOLDEN.read_text())[case]


def test_the_same_question_gets_the_same_bytes() -> None:
    options = ("--kind", "nic", "--no-pxn", "--k", "2")
    assert asked(*options) == asked(*options)
