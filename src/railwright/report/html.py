"""The report as one self-contained HTML page: question, answer, key figures, then why.

Nothing is fetched: styles and one small script are inside, and a content security policy forbids the rest.
Without the script everything but opening the details for printing still works.
"""

from __future__ import annotations

import base64
import hashlib

from railwright.report.parts.markup import Html, join, tag, unbroken
from railwright.report.parts.style import stylesheet
from railwright.report.sections.audit import audit_section, networks_section
from railwright.report.sections.collectives import collectives_section
from railwright.report.sections.fabric import fabric_section, variants_section
from railwright.report.sections.goodput import goodput_section
from railwright.report.sections.money import money_section
from railwright.report.sections.serving import serving_section
from railwright.report.sections.site import site_section
from railwright.report.sections.step import step_section
from railwright.report.sections.trust import error_section, made_section, sources_section
from railwright.report.sections.why import (
    critical_section,
    memory_section,
    published_section,
    sensitivity_section,
    used_section,
)
from railwright.report.words.figures import (
    busbw_band,
    job_names,
    job_of,
    large_point,
    letter,
    pxn_pairs,
    show_band,
    show_tokens,
    sweeps,
)
from railwright.study.result import Result
from railwright.units import show_change, show_count, show_rate, show_share, show_size, show_time

MOST_KEYS = 10
OF_THE_DESIGN = ("networks", "audit", "serving", "failures", "site", "money", "assumptions")
"""Sections of the recommended variant alone whose own text does not name it."""

SCRIPT = """
(function(){var opened=[];
addEventListener("beforeprint",function(){document.querySelectorAll("details[data-print]:not([open])")
.forEach(function(d){d.open=true;opened.push(d)})});
addEventListener("afterprint",function(){opened.forEach(function(d){d.open=false});opened=[]})})();
"""


def page(result: Result) -> str:
    """The whole page; the same result gives the same text."""
    sections = [
        (
            "variants",
            "Variants side by side" if len(result.variants) > 1 else "What it takes",
            variants_section(result),
        ),
        ("fabric", "The fabric", fabric_section(result)),
        ("networks", "The other networks", networks_section(result)),
        ("audit", "Audit", audit_section(result)),
        ("collectives", "Collectives, small to large", collectives_section(result)),
        ("step", "One training step", step_section(result)),
        ("critical", "What sets the step's length", critical_section(result)),
        ("sensitivity", "What moves the answer", sensitivity_section(result)),
        ("published", "Published effects", published_section(result)),
        ("communication", "The step's communication", used_section(result)),
        ("memory", "Memory", memory_section(result)),
        ("serving", "Serving", serving_section(result)),
        ("failures", "Failures and goodput", goodput_section(result)),
        ("site", "The room", site_section(result)),
        ("money", "Money and carbon", money_section(result)),
        ("assumptions", "Assumptions and their sources", sources_section(result)),
        ("error", "Expected error, and warnings", error_section(result)),
        ("made", "How this was made", made_section(result)),
    ]
    shown = [(anchor, name, body) for anchor, name, body in sections if body is not None]
    links = (tag("a", name, href=f"#{anchor}") for anchor, name, _ in shown)
    body = join(
        [
            tag(
                "header",
                tag("p", "Railwright report", class_="made"),
                tag("h1", result.study.name),
                tag("p", result.study.question, class_="question") if result.study.question else None,
            ),
            tag(
                "main",
                _answer(result),
                _keys(result),
                tag("nav", join(links, " "), aria_label="Contents"),
                *(
                    tag("section", tag("h2", name), _whose(result, anchor in OF_THE_DESIGN), body, id=anchor)
                    for anchor, name, body in shown
                ),
            ),
            tag("footer", tag("p", f"Railwright {result.version} · study {result.spec_hash[:12]}")),
            tag("script", Html(SCRIPT)),
        ],
        "\n",
    )
    return document(result.study.name, body, result.version)


def document(title: str, body: Html, version: str) -> str:
    """A whole page around a body: our styles inside, and a policy that forbids fetching anything."""
    return f"<!DOCTYPE html>\n{tag('html', _head(title, version), tag('body', body), lang='en')}\n"


def _head(title: str, version: str) -> Html:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"railwright {version}"),
        tag("title", f"{title} · Railwright"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(stylesheet())),
    )


def _answer(result: Result) -> Html | None:
    if not result.answer:
        return None
    return tag("div", *(tag("p", unbroken(sentence)) for sentence in result.answer), class_="answer")


def _keys(result: Result) -> Html | None:
    """The figures one wants to remember, of the recommended variant."""
    if not result.variants:
        return None
    chosen = result.recommended
    base = result.variants[chosen]
    found: list[tuple[str, str, str]] = []
    for name in job_names(result)[:1]:
        job = job_of(base, name)
        if job is not None and job.step is not None:
            step = job.step
            band = (step.error_low, step.error_high)
            # Of a rate: the longer the step, the lower the rate.
            rate = (1 / step.error_high, 1 / step.error_low)
            found += [
                (
                    f"a step of '{name}'",
                    show_time(step.step_time),
                    show_band(step.step_time, *band, show_time),
                ),
                (
                    f"{step.unit}/s",
                    show_tokens(step.tokens_per_second),
                    show_band(step.tokens_per_second, *rate, show_tokens),
                ),
                ("of the step is exposed communication", show_share(step.exposed_share), ""),
                ("model FLOPs utilisation", show_share(step.mfu), show_band(step.mfu, *rate, show_share)),
                (
                    f"for {show_count(step.tokens_total)} {step.unit}, nothing failing",
                    show_time(step.time_to_train),
                    show_band(step.time_to_train, *band, show_time),
                ),
            ]
    found += [(name, value, "") for name, value in _pxn(result)]
    for sweep in sweeps(result):
        curves = dict(sweep.curves)
        if chosen in curves:
            point = large_point(curves[chosen].points)
            title = f"{sweep.title} bus bandwidth at {show_size(point.size)}"
            found.append((title, show_rate(point.busbw), busbw_band(point)))
    if base.counts is not None:
        c = base.counts
        found += [
            (
                f"{'switch' if c.switches == 1 else 'switches'} ({_tiers(c.leaves, c.spines, c.cores)})",
                show_count(c.switches),
                "",
            ),
            ("cable" if c.cables == 1 else "cables", show_count(c.cables), ""),
            (
                "GPUs in " + show_count(c.servers) + (" server" if c.servers == 1 else " servers"),
                show_count(c.gpus),
                "",
            ),
        ]
    shown = found[:MOST_KEYS]
    told = [_of(result)] if len(result.variants) > 1 else []
    if any(band for _, _, band in shown):
        told.append("80 %: the range in which 80 % of measurements are expected.")
    return join(
        [
            tag("p", unbroken(" ".join(told)), class_="note whose") if told else None,
            tag("dl", *(_key(*one) for one in shown), class_="keys"),
        ]
    )


def _whose(result: Result, of_one: bool) -> Html | None:
    """Which variant a section is of, where it is of one and there are several."""
    return tag("p", unbroken(_of(result)), class_="note") if of_one and len(result.variants) > 1 else None


def _of(result: Result) -> str:
    """'Of C, Rail-only, which the answer recommends.'"""
    chosen = result.recommended
    whose = "the study as written" if chosen == 0 else "which the answer recommends"
    return f"Of {letter(chosen)}, {result.variants[chosen].name}, {whose}."


def _key(name: str, value: str, band: str) -> Html:
    """A figure with its name, and its band where measurements of it have been published."""
    small = tag("small", unbroken(f"80 %: {band}")) if band else None
    return tag("div", tag("dt", unbroken(name), small), tag("dd", unbroken(value)))


def _pxn(result: Result) -> list[tuple[str, str]]:
    """What PXN is worth to the first job, from the first pair of variants that differ in just that."""
    for on, off in pxn_pairs(result)[:1]:
        steps = [job.step for i in (on, off) for job in result.variants[i].jobs[:1]]
        if len(steps) == 2 and steps[0] is not None and steps[1] is not None:
            gain = steps[0].tokens_per_second / steps[1].tokens_per_second - 1
            return [(f"training throughput from PXN ({letter(on)} over {letter(off)})", show_change(gain))]
    return []


def _tiers(leaves: int, spines: int, cores: int) -> str:
    """'8 leaves, 4 spines'."""
    parts = [f"{show_count(leaves)} {'leaf' if leaves == 1 else 'leaves'}"]
    parts += [
        f"{show_count(n)} {noun}{'' if n == 1 else 's'}"
        for n, noun in ((spines, "spine"), (cores, "core"))
        if n
    ]
    return ", ".join(parts)
