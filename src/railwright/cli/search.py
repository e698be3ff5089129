"""`railwright search`: the best layouts of a study's job, and why they beat its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.jobs import training_job
from railwright.cli.studies import StudyArgument, open_study, study_text
from railwright.errors import RailwrightError, nearest
from railwright.units import GIB

if TYPE_CHECKING:
    from railwright.collectives.machine import Machine
    from railwright.model.shape.architecture import Transformer
    from railwright.search import Candidate, SearchResult, Space
    from railwright.spec.study import Study
    from railwright.spec.training import TrainingJob

OBJECTIVES = ("time", "memory")
FORMS = ("megatron", "nemo", "torchtitan", "study")
FRAMEWORKS = ("megatron", "nemo", "torchtitan")
MARKS = {
    "*": "with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which exports set",
    "!": "memory ends in every step, and the GPU waits while unused segments go back",
    "x": "more than there is",
}
"""Of what PyTorch's allocator holds."""
MOST_OVERFULL = 3
"""How many layouts that it cannot hold are shown."""


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("search")(search)


def search(
    study: StudyArgument,
    job: Annotated[str | None, typer.Option("--job", help="Which job; default: the first.")] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="GPUs to use; default: the job's.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many layouts to list.")] = 10,
    space: Annotated[
        Path | None, typer.Option("--space", help="YAML file of axes and values; default: every divisor.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="time: fastest; memory: fastest of the leanest.")
    ] = "time",
    front: Annotated[
        int, typer.Option("--front", min=0, help="Leaner points to look for, each with 85 % of the memory.")
    ] = 3,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            help="Print the best one: megatron, nemo, torchtitan or study (yours, with it in the job); of a "
            "serving job vllm, sglang, trtllm or study.",
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=1, help="Export this one of the layouts that are listed; default: 1."),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            help="Only layouts that megatron, nemo or torchtitan runs, with its software; default with "
            "--export: that one.",
        ),
    ] = None,
    serving: Annotated[
        bool, typer.Option("--serving", help="Search for a serving job: the fewest GPUs that keep its SLO.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=1e-6, help="Serving: requests a second; default: the job's client."),
    ] = None,
    dtypes: Annotated[
        bool, typer.Option("--dtypes", help="Serving: try bf16 and fp8 weights and keys and values too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, what --export makes in it.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Find the best layouts of a job.

    Of a training job: every layout of the space is bounded from below; the most promising are simulated until
    none left can win. Of a recommendation job (named, or where no other trains): every sharding of its
    tables. Of a serving job (--serving, or where there is no other): the fewest GPUs that keep its SLO at its
    load.
    """
    _known("--objective", objective, OBJECTIVES)
    from railwright.cli.search_serving import search_serving_job, serving_wanted

    asked = open_study(study)
    if serving_wanted(asked, job, serving):
        if framework is not None:
            raise RailwrightError("--framework is of training jobs; leave it out of a serving search")
        if rank is not None:
            raise RailwrightError("--rank is of training jobs; leave it out of a serving search")
        search_serving_job(asked, study, job, gpus, top, space, front, export, as_json, quiet, rate, dtypes)
        return
    from railwright.cli.search_recommendation import recommendation_wanted, search_recommendation_job

    if recommendation_wanted(asked, job):
        search_recommendation_job(asked, job, gpus, top, space, objective, export, framework, as_json)
        return
    if rate is not None or dtypes:
        raise RailwrightError("--rate and --dtypes are of serving jobs; add --serving")
    if rank is not None and export is None:
        raise RailwrightError("--rank says which layout --export writes; add --export")
    if export is not None:
        _known("--export", export, FORMS)
        framework = framework or (export if export in FRAMEWORKS else None)
    if framework is not None:
        _known("--framework", framework, FRAMEWORKS)
        _same(framework, export)
    chosen = training_job(asked, job, "a search for a layout")
    if gpus is not None:
        chosen = chosen.model_copy(update={"gpus": gpus})
    result, arch, machine = _run(asked, chosen, _space(space), top, objective, front, framework, quiet)
    written = ""
    if export is not None:
        from railwright.search.exports.dispatcher import Hosts
        from railwright.search.training.export import export as exported

        picked = _ranked(result, rank or 1)
        written = exported(picked, arch, Hosts.of(picked.job, machine), export, result.priced)
        if export == "study":
            from railwright.cli.exported_study import in_study

            written = in_study(study_text(study), "jobs", chosen.name, written)
    if as_json:
        typer.echo(json.dumps(_plain(result) | ({"export": written} if written else {}), indent=2))
    elif written:
        typer.echo(written, nl=False)
    else:
        _show(result)


def _run(
    asked: Study,
    chosen: TrainingJob,
    space: Space,
    top: int,
    objective: str,
    front: int,
    framework: str | None,
    quiet: bool,
) -> tuple[SearchResult, Transformer, Machine]:
    from railwright.cli.progress import progress
    from railwright.model import load_model
    from railwright.search import search as run_search
    from railwright.study.evaluate import Workshop

    arch = load_model(chosen.model)
    machine = Workshop.of(asked).machine(asked)
    with progress(quiet) as tell:
        result = run_search(
            chosen,
            arch,
            machine,
            space,
            top=top,
            objective=objective,  # type: ignore[arg-type]
            steps=front,
            framework=framework,
            progress=tell,
        )
    return result, arch, machine


def _ranked(result: SearchResult, rank: int) -> Candidate:
    """The layout that is listed under a number."""
    if rank > len(result.ranked):
        raise RailwrightError(
            f"--rank: there is no layout {rank}; {len(result.ranked)} are listed, and --top or --front lists "
            "more"
        )
    return result.ranked[rank - 1]


def _space(file: Path | None) -> Space:
    from railwright.cli.spaces import space_of
    from railwright.search import Space

    return Space() if file is None else space_of(file, lambda given: Space.of(given, str(file)))


def _known(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = nearest(value, known) or f"; choose one of {', '.join(known)}"
        raise RailwrightError(f"{option}: there is no '{value}'{hint}")


def _same(framework: str, export: str | None) -> None:
    """Refuse an export to another framework than the one whose layouts are wanted."""
    from railwright.search.training.frameworks import FRAMEWORKS as known

    if export in known and known[export].eras != known[framework].eras:
        raise RailwrightError(
            f"--export {export} writes what {framework} runs (--framework) for another framework; leave "
            "--framework out, or export to the same"
        )


def _show(result: SearchResult) -> None:
    from railwright.cli.tables import print_table, print_words
    from railwright.units import number, show_time

    effort = result.effort
    of_them = "of them " if effort.layouts > 1 else ""
    typer.echo(
        f"{number(effort.layouts, 'layout')}, {effort.fitting:,} {of_them}within memory; "
        f"{effort.evaluated} simulated, in {show_time(effort.seconds)}."
    )
    best = result.best
    limits = [
        *(["needs more memory than these"] if result.objective == "memory" else []),
        *([f"takes at least {show_time(result.proof)} a step"] if result.proof < float("inf") else []),
        "is no faster than a variant of it that is listed",
        "does not fit",
    ]
    print_words(f"Every layout that was not simulated {', '.join(limits[:-1])}, or {limits[-1]}.\n")
    header = ("", "step", "GiB", "held", "net GB", "tp", "cp", "pp x v", "ep", "mb", "recompute", "other")
    rows = [_row(str(i + 1), one) for i, one in enumerate(best)]
    if result.own is not None:
        rows.append(_row("own", result.own))
    print_table(header, rows)
    listed = "The fastest of the leanest" if result.objective == "memory" else "The fastest"
    listed += " whose tensors fit a GPU"
    if best[0].held:
        listed += " and that PyTorch's allocator can hold there"
    print_words(
        f"\n{listed}. "
        "GiB: tensors, CUDA and NCCL of the fullest GPU; held: with the holes between tensors"
        + "".join(f"; {mark} {MARKS[mark]}" for mark in MARKS if any(mark in row[3] for row in rows))
        + ". net GB: what one GPU sends a step in groups that span servers, on the stage that sends most. "
        "pp x v: stages, and virtual ones on each. mb: sequences of a microbatch. sp: sequence parallelism."
    )
    print_words(_trust(best[0]))
    if result.overfull:
        count, faster = effort.overfull, sum(one.time < best[0].time for one in result.overfull)
        least = "at least " if faster == len(result.overfull) < count else ""
        many = number(count, "layout")
        typer.echo("")
        print_words(
            f"Left out: {many} ({least}{faster or 'none'} faster than the first) whose tensors fit, but "
            "PyTorch's allocator has no room for the holes between them, not even with segments that grow, "
            "by a replay that is good to some 5 %.\n"
        )
        shown = result.overfull[:MOST_OVERFULL]
        print_table(header, [_row("", one) for one in shown])
        if len(shown) < count:
            typer.echo(f"and {count - len(shown)} more; --json lists the first {len(result.overfull)}")
    if len(result.front) > 1:
        typer.echo("")
        print_words(
            "Faster, leaner or lighter on the network than any other that was simulated and PyTorch's "
            "allocator can hold:\n"
            if best[0].held
            else "Faster, leaner or lighter on the network than any other that was simulated:\n"
        )
        settings = [one.setting for one in result.ranked]
        shown = result.front[: max(len(best), 5)]
        print_table(header, [_row(str(settings.index(one.setting) + 1), one) for one in shown])
        if len(shown) < len(result.front):
            typer.echo(f"and {len(result.front) - len(shown)} more; --json lists all")
    typer.echo("")
    for sentence in result.words:
        print_words(sentence)
    # As `run` has them: the range above may be that of other software, the step implausibly fast.
    for warning in best[0].step.warnings:
        print_words(f"! {warning}")


def _trust(best: Candidate) -> str:
    """How far off the steps may be, and what that means for layouts close to each other."""
    from railwright.units import show_time

    low, high = best.step.error_low, best.step.error_high
    return (
        f"80 % of measured steps are expected at {low:.2f} to {high:.2f} times the predicted ones, for the "
        f"first {show_time(low * best.time)} to {show_time(high * best.time)}. Layouts a few per cent apart "
        "may change places: measure the first few. 'railwright validate training' prints how well published "
        "layouts are ranked."
    )


def _row(title: str, one: Candidate) -> tuple[str, ...]:
    from railwright.units import show_time

    s = one.setting
    other = [
        *(["sp"] if s["sequence_parallel"] and s["tensor"] > 1 else []),
        f"zero {s['zero']}",
        *([f"shard {s['shard']}"] if s["shard"] else []),
        *([] if s["reshard"] or s["zero"] < 3 else ["parameters kept"]),
        *([str(s["schedule"])] if s["schedule"] != "auto" else []),
        *([str(s["context_kind"])] if s["context"] > 1 else []),
        *(["expert tp 1"] if s["expert_tensor"] == 1 and s["tensor"] > 1 else []),
        *([str(s["placement"]).replace("-", " ")] if s["placement"] != "packed" else []),
        *([f"offload {' '.join(s['offload'])}"] if s["offload"] else []),
        "overlap " + (" ".join(_overlapped(s)) or "none"),
    ]
    return (
        title,
        show_time(one.time),
        f"{one.memory / GIB:.1f}",
        _held(one),
        f"{one.network / 1e9:.1f}",
        str(s["tensor"]),
        str(s["context"]),
        f"{s['pipeline']} x {s['virtual_pipeline']}",
        str(s["expert"]),
        str(s["micro_batch"]),
        _again(s),
        ", ".join(other),
    )


def _again(setting: Mapping[str, Any]) -> str:
    """'full 4': the first 4 layers of every stage."""
    layers = setting["recompute_layers"] if setting["recompute"] == "full" else None
    return f"{setting['recompute']}{'' if layers is None else f' {layers}'}"


def _held(one: Candidate) -> str:
    """What the allocator holds, as the export sets it, and a mark of `MARKS` where that is at its limit."""
    from railwright.training.memory.cached import is_held, relies_on_growth

    held, capacity = one.held, one.step.memory.capacity
    if held is None:
        return ""
    if relies_on_growth(held, capacity):
        size, mark = held.growing, "*"
    elif not is_held(held, capacity):
        size, mark = min(held.growing, held.reserved), "x"
    else:
        size, mark = held.reserved, "!" if held.retries else ""
    return f"{(size + held.system) / GIB:.1f}{mark}"


def _overlapped(setting: Mapping[str, Any]) -> list[str]:
    """Kinds of communication that are there and overlapped."""
    there = {"tp": "tensor", "ep": "expert", "cp": "context", "pp": "pipeline"}
    kinds = ("tp", "cp", "ep", "dp", "pp")
    return [k for k in kinds if setting[f"overlap_{k}"] and (k == "dp" or setting[there[k]] > 1)]


def _plain(result: SearchResult) -> dict[str, Any]:
    effort, settings = result.effort, [one.setting for one in result.ranked]

    def rank(one: Candidate) -> dict[str, int]:
        return {"rank": settings.index(one.setting) + 1}

    return {
        "objective": result.objective,
        "layouts": effort.layouts,
        "fitting": effort.fitting,
        "evaluated": effort.evaluated,
        "proof_seconds": None if result.proof == float("inf") else result.proof,
        "best": [_candidate(one) | rank(one) for one in result.best],
        "front": [_candidate(one) | rank(one) for one in result.front],
        "overfull": [_candidate(one) for one in result.overfull],
        "own": None if result.own is None else _candidate(result.own),
        "own_refused": result.own_refused,
        "words": list(result.words),
        "refused": [{"layouts": r.layouts, "example": r.example} for r in result.refused],
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    from railwright.training.memory.cached import relies_on_growth

    capacity = one.step.memory.capacity
    return {
        "step_seconds": one.time,
        "error_low": one.step.error_low,
        "error_high": one.step.error_high,
        "bound_seconds": one.bound,
        "memory_bytes": one.memory,
        "held_bytes": one.held.reserved + one.held.system if one.held else None,
        "held_in_growing_segments_bytes": one.held.growing + one.held.system if one.held else None,
        "relies_on_growing_segments": relies_on_growth(one.held, capacity) if one.held else False,
        "retries_per_step": one.held.retries if one.held else None,
        "short_bytes": one.held.short if one.held else None,
        "network_bytes": one.network,
        "tokens_per_second_per_gpu": one.step.tokens_per_second_per_gpu,
        "mfu": one.step.mfu,
        "warnings": list(one.step.warnings),
        "shares": {share.kind: share.exposed for share in one.step.shares},
        "layout": {axis: list(v) if isinstance(v, tuple) else v for axis, v in one.setting.items()},
    }
