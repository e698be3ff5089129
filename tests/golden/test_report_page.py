"""The page: whole, self-contained, well-formed, the same every time, and honest about what is missing."""

import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from railwright.report import page
from railwright.spec.study import Variant
from railwright.study.result import JobResult, VariantResult
from railwright.units import show_time
from report_fixture import example_result, example_study, section_text, toy_fabric, variant

VOID = {"br", "col", "hr", "link", "meta"}


class Outline(HTMLParser):
    """Fails on tags that do not close; collects ids, links, headings and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[int] = []
        self.tables = self.captions = 0

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.tables += tag == "table"
        self.captions += tag == "caption"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html() -> str:
    return page(example_result())


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_nothing_is_fetched(html):
    fetched = re.findall(r"""(?:src|href|xlink:href|action|poster)\s*=\s*["']?([^"'\s>]*)""", html)
    assert fetched
    assert all(link.startswith(("#", "data:,")) for link in fetched)
    assert "url(" not in html
    assert "@import" not in html
    assert not re.search(r"https?://", html)


def test_a_content_security_policy_forbids_fetching(html):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "http" not in policy[1]


def test_the_policy_lets_exactly_our_script_run(html):
    import base64
    import hashlib

    scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in html


def test_tags_close_and_ids_are_unique_and_links_lead_somewhere(html):
    found = outline(html)
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links} <= set(found.ids)


def test_headings_descend_one_by_one_and_every_table_has_a_caption(html):
    found = outline(html)
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(found.headings, found.headings[1:], strict=False))
    assert found.tables == found.captions > 5


def test_every_drawing_is_well_formed_and_says_what_it_is(html):
    drawings = re.findall(r"<svg.*?</svg>", html, re.S)
    assert len(drawings) > 20
    for text in drawings:
        svg = ElementTree.fromstring(text)
        assert svg.get("role") == "img"
        named = svg.get("aria-labelledby")
        assert svg.get("aria-label") or any(e.get("id") == named for e in svg.iter("title"))


def test_no_coordinate_is_not_a_number(html):
    assert not re.search(r'="[^"]*\b(?:nan|inf)\b[^"]*"', html, re.I)


def test_all_variants_and_the_answer_are_there(html):
    result = example_result()
    for text in (*result.answer, *(v.name for v in result.variants), *(s.name for s in result.sensitivity)):
        assert text in html.replace("\u00a0", " ")


def test_a_number_stays_with_its_unit(html):
    answer = html[html.index('class="answer"') : html.index('class="keys"')]
    assert "\u00a0%" in answer
    assert not re.search(r"\d (?:%|[KMGT]iB|GB/s)", answer)


def test_the_key_figures_say_whose_they_are(html):
    assert html.index("Of A, ") < html.index('class="keys"')


def test_sections_come_in_the_order_question_answer_why(html):
    anchors = "variants fabric audit collectives step sensitivity published communication memory"
    anchors += " assumptions error made"
    order = ['class="question"', 'class="answer"', 'class="keys"', *(f'id="{a}"' for a in anchors.split())]
    places = [html.index(text) for text in order]
    assert places == sorted(places)


def test_whoever_wants_another_layout_is_sent_to_the_search(html):
    assert "'railwright search' finds the fastest of all" in section_text(html, "sensitivity")
    result = example_result()
    base = result.variants[0]
    ranking = replace(base.jobs[0], step=replace(base.jobs[0].step, unit="samples"))
    samples = page(replace(result, variants=(replace(base, jobs=(ranking,)),)))
    assert "railwright search" not in samples, "it searches layouts of transformers"


def test_sensitivity_has_the_largest_effect_first(html):
    section = html[html.index('id="sensitivity"') : html.index('id="published"')]
    names = ("Overlap the expert all-to-all", "Expert imbalance 1.5", "ECMP routing", "NIC latency doubled")
    places = [section.index(name) for name in names]
    assert places == sorted(places)
    assert "needs 96 GB of memory and the GPU has 80 GB" in section


def test_one_drawing_serves_variants_with_the_same_fabric(html):
    assert html.count('class="fabric"') == 4
    assert "the same fabric as A" in html


def test_a_failed_leaf_is_marked(html):
    assert "leaf-03 (rail 3) · failed" in html
    assert "1 cable of 400 Gb/s, all failed" in html


def test_what_pxn_changes_is_drawn_for_the_pair_that_differs_in_it(html):
    assert "all-to-all: what PXN changes" in html
    assert "A/C" in html


def test_the_same_result_gives_the_same_bytes():
    assert page(example_result()) == page(example_result())


def test_what_a_user_writes_stays_text():
    bad = "<script>alert('x')</script>\"&"
    study = example_study(bad, question=bad, variants=(Variant(name=bad, set={"nccl.pxn": False}),))
    rails = toy_fabric(2, leaves_per_group=8, spines=2, by_rail=True)
    variants = (variant("plain", "", rails, 1.0, 1.0), variant(bad, bad, rails, 0.5, 1.2))
    html = page(example_result(study=study, variants=variants, answer=(bad,), warnings=(bad,)))
    outline(html)
    assert html.count("<script>") == 1
    assert "alert(&#x27;x&#x27;)" in html or "alert('x')&lt;/script&gt;" in html
    for text in re.findall(r"<svg.*?</svg>", html, re.S):
        ElementTree.fromstring(text)


def test_of_several_jobs_each_is_named_and_only_the_first_is_in_the_trace():
    result = example_result()
    first = result.variants[0].jobs[0]
    several = tuple(replace(v, jobs=(*v.jobs, replace(first, name="pretrain"))) for v in result.variants)
    text = page(replace(result, variants=several))
    assert text.count("The whole trace is in trace.json") == 1
    assert f"trace.json holds the step of {first.name}; 'railwright trace export" in unescape(text)
    section = text[text.index('id="critical"') :]
    assert section.index(f"Job: {first.name}") < section.index("Job: pretrain")


def test_a_timeline_with_whole_passes_says_where_and_shades_the_lanes_inside_them():
    result = example_result()
    first = result.variants[0].jobs[0]
    whole = page(result)
    assert "whole passes" not in whole
    assert 'class="coarse"' not in whole
    span = first.step.timeline.span
    timeline = replace(first.step.timeline, coarse=(0.25 * span, 0.75 * span))
    passes = replace(first, step=replace(first.step, timeline=timeline))
    text = page(replace(result, variants=(replace(result.variants[0], jobs=(passes,)),)))
    assert "whole passes stand for the operators and messages inside them" in text
    assert "The whole trace is in trace.json" not in text
    assert 'class="coarse"' in text
    assert "inside the passes" in text


def test_an_infeasible_variant_is_told_with_its_reason():
    result = example_result()
    reason = "a 2-tier fabric of radix 64 takes 2,048 endpoints and this one has 4,096"
    impossible = VariantResult("Two tiers", "cheaper", None, None, (), (), infeasible=reason)
    too_big = replace(result.variants[1], jobs=(JobResult("fine-tune", None, "the model does not fit"),))
    html = page(replace(result, variants=(result.variants[0], impossible, too_big)))
    outline(html)
    assert reason in html
    assert "Two tiers cannot work" in html
    assert "fine-tune: the model does not fit" in html


@pytest.mark.parametrize("missing", ["jobs", "curves", "both", "variants", "all"])
def test_a_study_without_some_parts_still_makes_a_page(missing):
    result = example_result()
    bare = {"jobs": {"jobs": ()}, "curves": {"curves": ()}, "both": {"jobs": (), "curves": ()}}
    variants = tuple(replace(v, **bare.get(missing, {})) for v in result.variants)
    changes = {"variants": variants}
    if missing in ("variants", "all"):
        changes = {"variants": ()}
    if missing == "all":
        changes |= dict.fromkeys(("sensitivity", "published", "assumptions", "warnings", "answer"), ())
    html = page(replace(result, **changes))
    found = outline(html)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert ('id="step"' in html) == (missing == "curves")
    assert ('id="collectives"' in html) == (missing == "jobs")
    assert ('id="sensitivity"' in html) == (missing != "all")


def test_colours_of_text_have_contrast_enough():
    """WCAG 2.1, 1.4.3: 4.5 to 1 for text, in both schemes."""
    from railwright.report.parts.style import DARK, LIGHT

    def luminance(colour: str) -> float:
        digits = colour.lstrip("#")
        digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for scheme in (LIGHT, DARK):
        colours = dict(part.split(":") for part in scheme.split(";"))
        for name in ("--ink", "--soft", "--accent", "--bad", *(f"--s{i}" for i in range(8))):
            for ground in ("--paper", "--wash"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name in ("compute", "attention", "backward", "optimizer", "tp", "ep", "pp", "dp", "host"):
            assert contrast(colours["--event"], colours[f"--{name}"]) >= 4.5, name
        assert contrast(colours["--ink"], colours["--bubble"]) >= 4.5


@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_lays_the_page_out_without_sideways_scrolling(html, tmp_path, width):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium on this machine; the page is checked as text above")
    target = tmp_path / "frame.html"
    measure = "this.parentNode.dataset.found=this.contentDocument.documentElement.scrollWidth"
    frame = f'<iframe srcdoc="{escape(html)}" style="border:0;width:{width}px" onload="{measure}"></iframe>'
    target.write_text(f'<meta charset="utf-8"><body>{frame}', encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-sync"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [browser, *flags.split(), profile, "--dump-dom", target.as_uri()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"chromium does not run here: {error}")
    found = re.search(r'<body data-found="(\d+)"', done.stdout)
    assert found
    assert int(found[1]) == width


def test_communication_that_reads_the_same_is_one_row():
    """Gradient buckets a few bytes apart are one row with their number and time added up."""
    result = example_result()
    first = result.variants[0]
    step = first.jobs[0].step
    gradients = step.collectives[1]
    twin = replace(
        gradients, prediction=replace(gradients.prediction, size=gradients.prediction.size + 16384)
    )
    other = replace(gradients, prediction=replace(gradients.prediction, size=1e9))
    jobs = (JobResult("fine-tune", replace(step, collectives=(gradients, twin, other))),)
    text = page(replace(result, variants=(replace(first, jobs=jobs),)))
    section = text[text.index('id="communication"') : text.index('id="memory"')]
    rows = re.findall(r"<tr>.*?</tr>", section)[1:]
    assert len(rows) == 2
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    time = gradients.prediction.time
    assert cells[0][1] == "2", "twice a step"
    assert [unescape(c).replace("\u00a0", " ") for c in cells[0][3:5]] == [
        show_time(time),
        show_time(2 * time),
    ]
    assert cells[1][1] == "1"


def test_the_audit_is_a_table_and_a_block_to_copy(html):
    """30 servers of 8 on 8 rail leaves: 30 x 28 pairs inside servers, 8 x 30 x 29 / 2 on one leaf."""
    section = html[html.index('id="audit"') : html.index('id="collectives"')].replace("\u00a0", " ")
    text = unescape(re.sub("<[^>]+>", "|", section))
    for expected in (
        "840 (2.9 %)",
        "3,480 (12.1 %)",
        "24,360 (84.9 %)",
        "48 Tb/s",
        "loss of one leaf (of 8)",
    ):
        assert expected in text
    block = re.search(r'<pre class="copy"><code>(.*?)</code></pre>', section, re.S)[1]
    lines = unescape(block).splitlines()
    assert lines == ["NCCL_IB_HCA==" + ",".join(f"<nic-{i}>" for i in range(8))]
    assert "the groups of fine-tune" in text


def test_a_fabric_without_a_job_is_audited_for_all_its_gpus():
    result = example_result()
    study = result.study.model_copy(update={"jobs": ()})
    text = page(replace(result, study=study, variants=(result.variants[3],)))
    section = text[text.index('id="audit"') : text.index('id="collectives"')]
    assert "one group of all GPUs" in section
    assert "NCCL_PXN_DISABLE=0" in section, "rail-only reaches other rails by relay"


def test_the_other_networks_of_one_rack_are_told(html):
    """5 GPU servers and 2 storage machines with 2 ports each: 14 cables on one switch."""
    from pathlib import Path

    from railwright.spec import load_study

    assert 'id="networks"' not in html, "the example has only a compute network"
    study = load_study(Path(__file__).parents[2] / "examples" / "echelon-single-rack.yaml")
    text = page(example_result(study=study))
    section = text[text.index('id="networks"') : text.index('id="audit"')]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", section)]
    found = {row[0]: tuple(row[1:5]) for row in rows[1:]}
    assert found == {
        "storage": ("7", "1 × qm8790", "14", "0"),
        "in-band management": ("5", "1 × sn3700c", "5", "0"),
        "out-of-band management": ("5", "1 × ethernet-1g-48", "5", "0"),
    }


def test_one_server_has_no_halves_and_one_cable_is_no_cables():
    alone = toy_fabric(1, leaves_per_group=1, spines=0, by_rail=False, gpus=1)
    text = page(example_result(variants=(variant("alone", "", alone, 1.0, 1.0),)))
    row = re.search(r"bisection, one direction</th>(.*?)</tr>", text)[1]
    assert re.findall("<td[^>]*>(.*?)</td>", row) == ["–"]
    assert "1 server, 1 leaf, 1 cable<" in text


def test_kernel_constants_are_assumptions_only_where_a_job_runs_kernels():
    from railwright.spec import load_study_text, template
    from railwright.study.assumptions import assumptions
    from railwright.study.evaluate import Workshop

    study = load_study_text(template("rail-240"), "rail-240")
    bare = study.model_copy(update={"jobs": ()})
    with_job, without = (
        [a.name for a in assumptions(one, Workshop.of(one)) if "GEMM" in a.name] for one in (study, bare)
    )
    assert with_job
    assert not without
