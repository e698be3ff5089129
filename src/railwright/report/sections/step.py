"""The page's training step: where its time goes on every variant, its exposed communication, its timeline."""

from __future__ import annotations

from railwright.report.drawings.timeline import MOST_RANKS, close_look, draw_timeline, look_of
from railwright.report.files.trace import left_out, traced
from railwright.report.parts.charts import badge, colour_key, stacked_bar
from railwright.report.parts.markup import Html, join, tag
from railwright.report.parts.table import data_table
from railwright.report.words.figures import KIND_NAMES, KINDS, job_names, job_of, letter, told_first
from railwright.study.bottleneck import exposed_between
from railwright.study.result import Result
from railwright.training.lanes.result import COMMUNICATION, StepResult
from railwright.training.lanes.timeline import Timeline
from railwright.units import show_count, show_share, show_time

NETWORK = COMMUNICATION
THIN = "Events too thin to see apart are one bar, as high as their lane is busy."
LOOK_NAMES = {
    "k-compute": "compute",
    "k-attention": "attention",
    "k-backward": "backward",
    "k-optimizer": "optimizer",
    "k-tp": "tensor parallel",
    "k-cp": "context parallel",
    "k-ep": "expert parallel",
    "k-emb": "embeddings",
    "k-pp": "pipeline",
    "k-dp": "data parallel",
    "k-host": "host",
    "k-copy": "host copies",
    "k-adam": "CPU Adam",
    "k-bubble": "bubble",
    "k-data": "waiting for data",
}

Steps = list[tuple[int, StepResult]]


def step_section(result: Result) -> Html | None:
    """Each job: a bar per variant, exposed communication, the recommended variant's timeline."""
    parts: list[Html] = []
    names = job_names(result)
    drawn = traced(result)
    for nth, name in enumerate(names):
        found = ((i, job_of(v, name)) for i, v in enumerate(result.variants))
        steps = [(i, job.step) for i, job in found if job is not None and job.step is not None]
        if len(names) > 1:
            parts.append(tag("h3", f"Job: {name}"))
        if not steps:
            parts.append(
                tag("p", f"{name} runs on none of the variants; the reasons stand under the first table.")
            )
            continue
        parts += [_breakdown(result, steps, name), _communication(result, steps, name)]
        index = next(i for i in told_first(result) if i in dict(steps))
        step = dict(steps)[index]
        if step.timeline.events:
            who = f"{letter(index)} {result.variants[index].name}"
            elsewhere = drawn[1].name if drawn is not None and drawn[1].name != name else ""
            parts += _timeline(who, step.timeline, f"timeline-{nth}", _about(step, elsewhere))
    return join(parts) if parts else None


def _counted(steps: Steps) -> str:
    """'1,048,576 tokens'; 'A 524,288, B 1,048,576 tokens' where variants differ."""
    every = {step.tokens for _, step in steps}
    told = ", ".join(f"{letter(index)} {show_count(step.tokens)}" for index, step in steps)
    return f"{show_count(every.pop()) if len(every) == 1 else told} {steps[0][1].unit}"


def _breakdown(result: Result, steps: Steps, name: str) -> Html:
    """Bars of one scale: exposed time of each kind adds up to the step."""
    longest = max(step.step_time for _, step in steps)
    kinds = [k for k in KINDS if any(step.exposed(k) > 0 for _, step in steps)]
    bars: list[Html] = []
    for index, step in steps:
        pieces = [
            (f"k-{kind}", step.exposed(kind), f"{KIND_NAMES[kind]}: {show_time(step.exposed(kind))}")
            for kind in kinds
        ]
        label = f"{result.variants[index].name}: " + ", ".join(tip for _, _, tip in pieces)
        bars.append(tag("div", badge(index, letter(index)), result.variants[index].name, class_="who"))
        bars.append(tag("div", stacked_bar(pieces, longest, label=label)))
        bars.append(tag("div", show_time(step.step_time), class_="value"))
    heads = ["variant", *(KIND_NAMES[k] for k in kinds), "step"]
    rows = [
        [
            join([badge(i, letter(i)), result.variants[i].name]),
            *(show_time(step.exposed(k)) for k in kinds),
            show_time(step.step_time),
        ]
        for i, step in steps
    ]
    caption = f"{name}: exposed time of one step by kind"
    table = data_table(caption, heads, rows, numbers=range(1, len(heads)))
    return join(
        [
            tag("h3", "Where the time goes"),
            tag(
                "p",
                f"{name}, {_counted(steps)} a step; "
                f"exposed time: work that runs behind other work is left out{_of_stage(steps)}.",
                class_="note",
            ),
            _key([f"k-{kind}" for kind in kinds]),
            tag("figure", tag("div", *bars, class_="bars")),
            tag("details", tag("summary", "Table: where the time goes"), table, data_print=""),
        ]
    )


def _of_stage(steps: Steps) -> str:
    """Whose time it is, where a job has several pipeline stages."""
    if all(len(step.memory.stages) < 2 for _, step in steps):
        return ""
    stages = {step.stage for _, step in steps}
    if len(stages) > 1:
        return ", of each variant on the pipeline stage that waits least for the others"
    return f", on stage {min(stages)}, which waits least for the others"


def _communication(result: Result, steps: Steps, name: str) -> Html:
    """Exposed communication over the step, and how much of the communication is hidden."""
    rows = []
    for index, step in steps:
        busy = sum(s.busy for s in step.shares if s.kind in NETWORK)
        shown = step.exposed(*NETWORK)
        pieces = [
            (f"k-{k}", step.exposed(k), f"{KIND_NAMES[k]}: {show_share(step.exposed(k) / step.step_time)}")
            for k in NETWORK
        ]
        label = f"{result.variants[index].name}: {show_share(step.exposed_share)} of the step"
        rows.append(
            [
                join([badge(index, letter(index)), result.variants[index].name]),
                show_share(step.exposed_share),
                show_share(exposed_between(result.variants[index].fabric, step) / step.step_time),
                stacked_bar(pieces, step.step_time, label=label),
                show_time(busy),
                show_share(max(0.0, 1 - shown / busy)) if busy > 0 else "–",
            ]
        )
    heads = ("variant", "exposed", "between servers", "of the step", "all communication", "hidden")
    caption = (
        f"{name}: exposed communication, during which the GPU computes nothing, over the step; of it between "
        "servers, the rest inside them"
    )
    table = data_table(caption, heads, rows, numbers=(1, 2, 4, 5), wide=(3,))
    return join([tag("h3", "Exposed communication"), table])


def _about(step: StepResult, other: str) -> str:
    """What the drawing leaves out, and where all of it is.

    other  the job whose step trace.json holds instead of this one's, '' where it holds this one
    """
    stages = len({event.rank for event in step.timeline.events})
    drawn = f"Stages 0 to {MOST_RANKS - 1} of {stages}. " if stages > MOST_RANKS else ""
    coarse = left_out(step.timeline)
    if coarse:
        drawn += f"{coarse}. "
    if not other and coarse:
        return (
            f"{drawn}trace.json, for ui.perfetto.dev, says of every pass what is inside; "
            "'railwright trace export -f perfetto' has room for more."
        )
    if not other:
        return f"{drawn}The whole trace is in trace.json, for ui.perfetto.dev."
    elsewhere = (
        "; 'railwright trace export -f perfetto --job' writes this one" if step.unit == "tokens" else ""
    )
    return f"{drawn}trace.json holds the step of {other}{elsewhere}."


def _timeline(who: str, timeline: Timeline, name: str, about: str) -> list[Html]:
    """The whole step, and a stretch of it that can be read.

    about  the sentence under the heading
    """
    start, end = close_look(timeline)
    looks = {look_of(event) for event in timeline.events}
    whole = draw_timeline(
        timeline, 0.0, timeline.span, name=f"{name}-whole", title=f"Timeline of one step on {who}"
    )
    parts = [
        tag("h3", f"The step's timeline on {who}"),
        tag("p", f"{about} {THIN}", class_="note"),
        _key([look for look in LOOK_NAMES if look in looks]),
        tag("figure", tag("div", whole, class_="scroll")),
    ]
    if end - start < 0.8 * timeline.span:
        close = draw_timeline(
            timeline, start, end, name=f"{name}-close", title=f"{show_time(end - start)} of the step on {who}"
        )
        text = f"A close look: {show_time(end - start)} from {show_time(start)} on."
        parts.append(tag("figure", tag("figcaption", text), tag("div", close, class_="scroll")))
    return parts


def _key(looks: list[str]) -> Html:
    """What the colours of a bar or timeline stand for."""
    return colour_key((look, LOOK_NAMES[look]) for look in looks)
