"""AIConfigurator beside Railwright on the same public serving cases, by GPU and engine: errors, time, memory.

AIConfigurator runs in an interpreter of its own, since it wants other versions of common packages:

    python -m venv /tmp/aic && /tmp/aic/bin/pip install aiconfigurator
    python benchmarks/serving_peers.py --peer /tmp/aic/bin/python

Both are asked for every online case of the silicon sample (InferenceX and AIConfigurator's own runs) and tell
mean absolute errors of TPOT and TTFT.  Its database is loaded once and its time is that of one estimate; with
--cold both are also timed from a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

LAYOUT = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
POOL = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "batch_size", "num_workers")
QUANT = {"fp8": "fp8", "fp4": "nvfp4"}
BUNDLED = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
}
"""The names under which AIConfigurator carries these models' shapes: nothing is fetched."""


def question(case: dict[str, str]) -> dict[str, Any]:
    """Arguments of `cli_estimate` for a case, as AIConfigurator's predict_silicon_sample.py forms them."""
    backend, _, version = case["engine"].partition(" ")
    asked: dict[str, Any] = {
        "model_path": BUNDLED.get(case["model"], case["model"]),
        "system_name": case["system"],
        "mode": case["mode"],
        "backend_name": backend,
        "backend_version": version or None,
        "isl": int(case["isl"]),
        "osl": int(case["osl"]),
        "gemm_quant_mode": QUANT.get(case["precision"]),
    }
    if case["mode"] == "agg":
        data = int(case["attention_dp_size"] or 1)
        asked["batch_size"] = max(int(case["concurrency"]) // data, 1)
        asked |= {key: int(case[key]) for key in LAYOUT if case[key]}
    else:
        for pool in ("prefill", "decode"):
            asked |= {f"{pool}_{key}": int(case[f"{pool}_{key}"]) for key in POOL if case[f"{pool}_{key}"]}
    return asked


def peer() -> None:
    """Inside AIConfigurator's interpreter: questions on stdin, answers on stdout."""
    import contextlib
    import io
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    answers: list[dict[str, Any]] = []
    for asked in json.load(sys.stdin):
        started, found, no = time.process_time(), None, ""
        for version in dict.fromkeys((asked["backend_version"], None)):
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    found = cli_estimate(**{**asked, "backend_version": version})
                break
            except Exception as error:  # whatever it says, the case counts as refused
                no = f"{type(error).__name__}: {error}".split("\n")[0][:160]
        spent = time.process_time() - started
        if found is None:
            answers.append({"refused": no})
        else:
            answers.append({"ttft": float(found.ttft), "tpot": float(found.tpot), "seconds": spent})
    json.dump({"answers": answers, "peak_mib": _peak_mib()}, sys.stdout)


def _peak_mib() -> float:
    """Peak memory of this process; getrusage would count that of the process which started it. [MiB]"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def ask(python: str, questions: list[dict[str, Any]]) -> dict[str, Any]:
    """AIConfigurator's answers from its own interpreter."""
    command = [python, str(Path(__file__).resolve()), "--inside"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=offline,
    )
    if done.returncode:
        sys.exit(f"{python} failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index('{"answers"') :])
    return answer


def main(python: str, cold: bool) -> None:
    """Both on every online case; one line a GPU and engine."""
    from railwright.measure.serving.cases import architecture_of, cases, engine_group, figure
    from railwright.measure.serving.replay import score

    chosen = [dict(case) for case in cases() if case["set"] == "silicon"]
    theirs = ask(python, [question(case) for case in chosen])
    started = time.process_time()
    ours = {scored.case["id"]: scored for scored in score("silicon")}
    spent = time.process_time() - started
    errors: dict[tuple[str, str], list[tuple[float | None, float | None]]] = defaultdict(list)
    refused = 0
    for case, answer in zip(chosen, theirs["answers"], strict=True):
        rows = {row.family.split(": ")[1]: row.error for row in ours[case["id"]].rows}
        refused += "refused" in answer
        for what in ("TPOT", "TTFT"):
            measured = figure(case, f"{what.lower()}_ms")
            their = None if "refused" in answer or not measured else answer[what.lower()] / measured - 1.0
            kind = "MoE" if architecture_of(case).is_moe else "dense"
            errors[f"{engine_group(case)}, {kind}", what].append((rows.get(what), their))
    head = f"{'GPU | engine':<34}{'what':<6}{'cases':>6}{'Railwright':>12}{'AIConf.':>10}"
    print(head + f"{'both':>6}{'Railwright':>12}{'AIConf.':>10}")
    for (group, what), pairs in sorted(errors.items()):
        mine = [abs(a) for a, _ in pairs if a is not None]
        his = [abs(b) for _, b in pairs if b is not None]
        both = [(abs(a), abs(b)) for a, b in pairs if a is not None and b is not None]
        print(
            f"{group:<34}{what:<6}{len(pairs):>6}{_mean(mine):>12}{_mean(his):>10}"
            f"{len(both):>6}{_mean([a for a, _ in both]):>12}{_mean([b for _, b in both]):>10}"
        )
    times = [a["seconds"] for a in theirs["answers"] if "seconds" in a]
    empty = sum(not s.rows for s in ours.values())
    print(f"\nAIConfigurator refuses {refused} of {len(chosen)}; Railwright {empty}")
    print(
        f"AIConfigurator: {median(times):.3f} CPU-s an estimate (median), {max(times):.2f} at most, "
        f"{theirs['peak_mib']:.0f} MiB"
    )
    print(
        f"Railwright:     {spent / len(chosen):.3f} CPU-s a case (mean), {_peak_mib():.0f} MiB with all cases"
    )
    if cold:
        _cold(python, question(chosen[0]))


def _mean(values: list[float]) -> str:
    return f"{mean(values):.1%}" if values else "-"


EXAMPLE = Path(__file__).parent.parent / "examples" / "serving-llama-70b-users.yaml"


def _cold(python: str, asked: dict[str, Any]) -> None:
    """One answer of each from a fresh process: wall clock, CPU seconds and memory."""
    serve = [str(Path(sys.executable).parent / "railwright"), "serve", str(EXAMPLE)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    measured = ["/usr/bin/env", "python3", "-c", RUN, *serve]
    done = subprocess.run(measured, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - started
    spent, memory = _spent(before), done.stderr.split()[-1]
    print(f"\none answer, cold: railwright serve {wall:.2f} s, {spent:.2f} CPU-s, {memory} MiB")
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    found = ask(python, [asked])
    wall = time.perf_counter() - started
    spent, memory = _spent(before), f"{found['peak_mib']:.0f}"
    print(f"                  AIConfigurator {wall:.2f} s, {spent:.2f} CPU-s, {memory} MiB")


RUN = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    "print(round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024), file=sys.stderr)"
)
"""Runs a command and says its peak memory [MiB], its own and not that of what ran before it."""


def _spent(before: resource.struct_rusage) -> float:
    """CPU seconds of children since then."""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default="", help="Python interpreter that has aiconfigurator.")
    parser.add_argument("--cold", action="store_true", help="Also time one answer from a fresh process.")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        peer()
    elif not given.peer:
        sys.exit("--peer PYTHON is missing: an interpreter with aiconfigurator (see above)")
    else:
        main(given.peer, given.cold)
