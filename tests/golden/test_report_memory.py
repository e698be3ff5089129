"""GPU memory in the report: its units, the peak of every stage and what the allocator holds."""

import re
from dataclasses import replace
from html import unescape

from railwright.report import page
from railwright.report.files.results import results
from railwright.training.lanes.result import StageMemory
from railwright.training.memory.cached import Reserved
from report_fixture import example_result


def test_gpu_memory_is_in_gib_throughout():
    """81559 MiB, as nvidia-smi has it, is 79.6 GiB to a reader; the catalogue keeps the exact figure."""
    from railwright.catalog import describe, find, load_catalog
    from railwright.spec import load_study_text, template
    from railwright.study.assumptions import assumptions
    from railwright.study.evaluate import Workshop

    study = load_study_text(template("rail-240"), "rail-240")
    shown = {a.name: a.value for a in assumptions(study, Workshop.of(study))}
    assert shown["h100-sxm HBM"] == "79.6 GiB"
    exact = {field: value for field, value, _ in describe(find(load_catalog().gpus, "h100-sxm"))}
    assert exact["hbm_bytes"] == "81559 MiB"
    text = page(example_result())
    section = text[text.index('id="memory"') : text.index('id="assumptions"')]
    assert "60.2\u00a0GiB" in section or "60.2 GiB" in section
    assert " GB" not in section.replace("\u00a0", " ")


def test_no_two_parts_of_memory_share_a_colour_but_the_grey_small_ones():
    result = example_result()
    first = result.variants[0].jobs[0]
    parts = {f"part {i}": (10 + i % 7) * 1e9 for i in range(8)} | {"crumb": 1e6, "dust": 1e5}
    memory = replace(first.step.memory, parts=parts)
    text = page(
        replace(
            result,
            variants=(
                replace(result.variants[0], jobs=(replace(first, step=replace(first.step, memory=memory)),)),
            ),
        )
    )
    section = text[text.index('id="memory"') : text.index('id="assumptions"')]
    assert [len(re.findall(f'swatch m{i}"', section)) for i in range(8)] == [1] * 8
    assert section.count('swatch m-rest"') == 2


def test_the_peak_of_every_pipeline_stage_is_told():
    stages = tuple(
        StageMemory(i, {"weights": size}, size, moment, held)
        for i, (size, moment, held) in enumerate([(50e9, "a layer backward", 2), (40e9, "head backward", 1)])
    )
    result = example_result()
    first = result.variants[0].jobs[0]
    memory = replace(first.step.memory, stages=stages)
    piped = replace(first, step=replace(first.step, memory=memory))
    several = replace(result, variants=(replace(result.variants[0], jobs=(piped,)), *result.variants[1:]))
    text = page(several)
    section = text[text.index('id="memory"') : text.index('id="assumptions"')].replace("\u00a0", " ")
    words = " ".join(re.sub("<[^>]+>", " ", section).split())
    assert "0 46.6 GiB 62.5 % a layer backward 2" in words
    assert "1 37.3 GiB 50.0 % head backward 1" in words
    told = results(several)["variants"][0]["jobs"][0]["step"]["memory"]["stages"]
    assert [(s["stage"], s["total_bytes"], s["passes_held"]) for s in told] == [(0, 50e9, 2), (1, 40e9, 1)]
    assert "every pipeline stage" not in page(result)


def test_what_the_allocator_holds_is_told_of_the_study_as_written():
    result = example_result()
    assert "PyTorch's allocator" not in page(result)
    held = Reserved(0, 42 * 2**30, 3 * 2**30, 40 * 2**30, 5.0 * 2**30, 0, 0.0)
    first = replace(result.variants[0].jobs[0], reserved=held)
    told = replace(result, variants=(replace(result.variants[0], jobs=(first,)), *result.variants[1:]))
    section = page(told)
    section = section[section.index('id="memory"') : section.index('id="assumptions"')]
    words = " ".join(unescape(re.sub("<[^>]+>", " ", section)).replace("\u00a0", " ").split())
    assert (
        "PyTorch's allocator holds 42 GiB, 3 GiB of them in holes between tensors; with CUDA and NCCL, "
        "nvidia-smi shows 47 GiB of it in use. With expandable_segments:True it would be 45 GiB."
    ) in words
    memory = results(told)["variants"][0]["jobs"][0]["step"]["memory"]["allocator"]
    assert (memory["reserved_bytes"], memory["holes_bytes"]) == (held.reserved, held.holes)
    assert results(told)["variants"][1]["jobs"][0]["step"]["memory"]["allocator"] is None
