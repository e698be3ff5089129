"""Drawings that are wider than a phone scroll in a box of their own; what is written on a machine is dark."""

from __future__ import annotations

import re

import pytest

from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.report.drawings.site import draw_elevations, draw_floor
from railwright.report.pages.punch import punch_page
from railwright.report.pages.suspects import suspects_page
from railwright.report.parts.style import stylesheet
from railwright.site import plan_site
from railwright.spec import load_study_text

STUDY = load_study_text(
    "railwright: 1\nname: small\ncluster: {servers: 4, server: dgx-h100, "
    "compute: {family: rail-optimised, switch: qm9700}}\nsite: {}\n"
)


@pytest.fixture(scope="module")
def fabric():
    return build(STUDY.cluster, load_catalog())


def test_the_fabric_of_a_punch_list_scrolls(fabric):
    page = punch_page("small", [], [], fabric, {}, "")
    assert re.search(r'<div class="scroll"><svg[^>]*class="fabric', page)


def test_the_fabric_of_a_diagnosis_scrolls(fabric):
    page = suspects_page("small", "no fault", [], [], fabric)
    assert re.search(r'<div class="scroll"><svg[^>]*class="fabric', page)


def test_drawings_of_the_room_keep_their_size():
    """Shrunk to a phone, their letters were two pixels high."""
    assert "svg.site{max-width:none}" in stylesheet()


def test_what_stands_on_a_machine_is_dark_on_light_and_dark_pages():
    plan = plan_site(STUDY)
    for drawing in (str(draw_elevations(plan)), str(draw_floor(plan))):
        written = re.findall(r'<text[^>]*class="([^"]*)"[^>]*>[^<]*(?:dgx-h100|qm9700|kW<)', drawing)
        written = [classes for classes in written if "soft" not in classes]
        assert written
        assert all("on" in classes.split() for classes in written)


def test_long_words_of_a_warning_break_on_a_phone():
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True made the page 535 pixels wide on 390."""
    assert "p,li{overflow-wrap:break-word}" in stylesheet()
