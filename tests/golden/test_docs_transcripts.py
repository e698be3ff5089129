"""Transcripts in the documentation are what the commands print now."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["growth.md", "reliability/goodput.md"])
def test_every_line_of_the_transcript_is_printed(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    command, shown = re.search(r"```\n\$ railwright ([^\n]*)\n(.*?)```", text, re.S).groups()
    ran = CliRunner().invoke(app, shlex.split(command))
    assert ran.exit_code == 0, ran.output
    assert " ".join(shown.split()) in " ".join(ran.stdout.split())


def test_the_pace_that_growth_tells_is_the_model_s():
    """The sentence gave 9,415 (7,654 to 11,208), of a calibration before last."""
    from railwright.catalog import find, load_catalog
    from railwright.growth.asking import Ask
    from railwright.growth.fitting import fitting_jobs
    from railwright.growth.machines import networked
    from railwright.growth.pace import predicted, published, steps_of
    from railwright.growth.parts import speeds
    from railwright.model import load_model

    catalog, arch = load_catalog(), load_model("llama-3-8b")
    ask = Ask(2, 20, "llama-3-8b", "pretrain", 8, 8192)
    machine = networked(find(catalog.servers, "hgx-h100"), 1, speeds()[-1], catalog)
    ours = predicted(*steps_of(fitting_jobs(ask, arch, machine, 8), arch, machine)[0]).rate
    theirs = published(ask, arch, "h100-sxm", 8)
    assert theirs is not None
    said = (
        f"{theirs.note.split()[0]} published runs on 8 to 32 have a median of {theirs.rate.middle:,.0f} "
        f"tokens/s a GPU, and our model says {ours.middle:,.0f} ({ours.low:,.0f} to {ours.high:,.0f})"
    )
    assert said in (ROOT / "docs" / "growth.md").read_text(encoding="utf-8")
