"""Carry what MLPerf Training's logs and their submissions' own configurations say of language models on NeMo.

Reads git snapshots of mlcommons/training_results_vX.Y (folder as first argument, which holds
mlcommons+training_results_vX.Y/repo) and writes, of the systems listed in carry_mlperf_runs.txt, rows of
src/railwright/measure/data/training_read.csv, and mlperf_configurations.csv: what the configurations say
beyond a row.  A system's log decides where it prints the configuration it ran with; else its configuration
file does, with what that sources and the settings that its code (conf/*.yaml) takes of it.  Where both are
there, they are compared and differences printed.
Figures and names only; run once per new round, after carry_training.py; the product never needs it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from mlperf_settings import Settings, Snapshot, exported, printed

DATA = Path(__file__).parent.parent / "src" / "railwright" / "measure" / "data"
RUNS = Path(__file__).with_name("carry_mlperf_runs.txt")
SAID = (
    *("mbs", "vpp", "dtype", "graphs", "amax", "ends"),
    *("tp_overlap", "eager_loss", "te_ops", "context_kind", "bucket"),
)
BENCHMARKS = {
    "llama2_70b_lora": ("lora", "llama2-70b", "llama2-70b"),
    "gpt3": ("pretrain", "gpt3-175b", "gpt3-175b"),
    "llama31_405b": ("pretrain", "llama3.1-405b-126l", "llama3.1-405b"),
    "llama31_8b": ("pretrain", "llama3-8b", "llama3-8b"),
}
"""Kind, model and the family's name of it."""
CODE = {
    "conf/custom.yaml": ("pretrain.py", "megatron_gpt_pretraining_custom.py"),
    "conf/megatron_gpt_peft_tuning_config.yaml": ("train.py",),
}
"""Settings of an implementation, and the scripts that read them."""

BUCKETS = "bucket_size=config.model.optim.bucket_size"
"""Passes it to MegatronCommOverlapCallback, which else overwrites what the strategy was given (round 5.0:
200) with its own (NeMo, lightning/pytorch/callbacks/megatron_comm_overlap.py)."""

Snapshots = Callable[[str], Snapshot]
"""Of a round."""


@dataclass(frozen=True)
class Run:
    """One submitted system.

    code     the implementation whose settings it took ('<round>/<folder>'), where not that of `path`
    path     its configuration in the snapshot; '' where its logs alone say it
    given    variables that it was started with, where its log shows that they were not the configuration's
    release  of NeMo
    nic      of each GPU [Gb/s].  Source: <submitter>/systems/<system>.json, host_networking; where that is
             empty, 400 (every H100, H200 and B200 submitted with NDR or the like)
    """

    round: str
    submitter: str
    benchmark: str
    gpu: str
    release: str
    nic: int
    system: str
    path: str
    code: str
    given: Mapping[str, str]

    @property
    def id(self) -> str:
        """Name of its record."""
        bench, system = (re.sub(r"[ _.+]", "-", s).lower() for s in (self.benchmark, self.system))
        submitter = self.submitter.lower().replace("+", "-")
        return f"mlperf-v{self.round.replace('.', '-')}-{bench}-{submitter}-{system}"


def runs(text: str) -> Iterator[Run]:
    """The listed systems.  A line without indent is what those below it have in common."""
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if not line.startswith(" "):
            head, folder, code = words[:6], words[6], words[7] if len(words) > 7 else ""
            continue
        path = "" if words[1] == "-" else f"{head[1]}/{folder.format(words[0])}/{words[1]}"
        given = dict(word.split("=") for word in words[2:])
        of_round, submitter, benchmark, gpu, release, nic = head
        yield Run(of_round, submitter, benchmark, gpu, release, int(nic), words[0], path, code, given)


@dataclass(frozen=True)
class Logged:
    """What the logs of a system say.

    step     median of its steps, else its batch over the median throughput between evaluations [s]
    """

    batch: int
    accumulated: int
    sequence: int | None
    step: float
    steps_logged: bool
    configuration: Mapping[str, Any] | None


def logged(snapshot: Snapshot, run: Run) -> Logged:
    """All logs of a system."""
    files = snapshot.under(f"{run.submitter}/results/{run.system}/{run.benchmark}", r"result_\d+\.txt")
    steps: list[float] = []
    rates: list[float] = []
    said: dict[str, int] = {}
    configuration = None
    for file in files:
        log, start = snapshot.show(file), None
        configuration = configuration or printed(log)
        for event in _events(log):
            key, value, more = event["key"], event["value"], event.get("metadata") or {}
            if key in ("global_batch_size", "gradient_accumulation_steps", "max_sequence_length"):
                said[key] = int(value)
            elif key == "tracked_stats" and isinstance(value, dict):
                rates += [value["throughput"]] if "throughput" in value else []
                steps += [value[k] for k in ("train_step_time", "train_step_timing in s") if k in value]
            elif key == "block_start":
                start = event["time_ms"], more.get("epoch_count")  # GPT-3's: tokens until the evaluation
            elif key == "block_stop" and start:
                seconds, tokens = (event["time_ms"] - start[0]) / 1e3, start[1]
                rates += [tokens / said["max_sequence_length"] / seconds] if tokens else []
                start = None
    batch = said["global_batch_size"]
    step = median(steps) if steps else batch / median(rates)
    return Logged(
        batch,
        said["gradient_accumulation_steps"],
        said.get("max_sequence_length"),
        round(step, 5),
        bool(steps),
        configuration,
    )


def _events(log: str) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        if ":::MLLOG" in line:
            try:
                yield json.loads(line.split(":::MLLOG", 1)[1])
            except json.JSONDecodeError:  # lines of two ranks in one
                continue


def code_of(snapshots: Snapshots, run: Run) -> tuple[Snapshot, str, str, str]:
    """Folder of the implementation that a system ran, in its snapshot; its settings (yaml) and its script."""
    round_, _, folder = run.code.partition("/") if run.code else (run.round, "", run.path.rpartition("/")[0])
    snapshot = snapshots(round_)
    while folder:
        for settings, scripts in CODE.items():
            here = [f"{folder}/{s}" for s in scripts if f"{folder}/{s}" in snapshot.names]
            if here and f"{folder}/{settings}" in snapshot.names:
                return snapshot, folder, snapshot.show(f"{folder}/{settings}"), snapshot.show(here[0])
        folder = folder.rpartition("/")[0]
    raise ValueError(f"{run.id}: no implementation around {run.path}: name one")


def layout(said: Settings) -> dict[str, Any]:
    """Columns of a row that a configuration says."""
    per, nodes = said("trainer.devices"), said("trainer.num_nodes")
    cut = {
        "tp": said.model("tensor_model_parallel_size"),
        "pp": said.model("pipeline_model_parallel_size"),
        "vpp": said.model("virtual_pipeline_model_parallel_size") or 1,
        "cp": said.model("context_parallel_size", 1),
    }
    if cut["pp"] == 1:
        cut["vpp"] = 1
    for name in ("activations_checkpoint_granularity", "recompute_granularity", "cpu_offloading"):
        if said.model(name):
            raise ValueError(f"{name} = {said.model(name)}: no column holds that yet")
    if said.model("fp4") or not said.model("fp8"):
        raise ValueError("not in fp8: no column holds that yet")
    return cut | {
        "gpus": per * nodes,
        "gpus_per_node": per,
        "seq": said.model("encoder_seq_length"),
        "dp": per * nodes // (cut["tp"] * cut["pp"] * cut["cp"]),
        "mbs": said.model("micro_batch_size"),
        "gbs": said.model("global_batch_size"),
        "dtype": "fp8",
        "sp": bool(said.model("sequence_parallel")),
    }


def beyond(said: Settings, cut: Mapping[str, Any], release: str, script: str) -> dict[str, Any]:
    """What a configuration says that a row has no column for (`railwright.measure.training.mlperf`)."""
    first, last = (said.model(f"account_for_{end}_in_pipeline_split") for end in ("embedding", "loss"))
    layers = said.model("enable_cuda_graph") or said.model("external_cuda_graph")
    whole = said.model("full_cuda_graph") or (
        said.model("enable_cuda_graph") and said.model("cuda_graph_scope") == "full_iteration"
    )
    return {
        "graphs": "step" if whole else "attention mlp" if layers else "",
        "amax": _maxima(said, release, script),
        "ends": "both" if first and last else "embedding" if first else "head" if last else "",
        "tp_overlap": "no" if cut["tp"] > 1 and not said.model("ub_tp_comm_overlap") else "",
        "eager_loss": "no" if said.model("cross_entropy_loss_fusion") else "yes",
        "te_ops": "yes" if said.model("use_transformer_engine_op_fuser") else "",
        "context_kind": "all-to-all" if cut["cp"] > 1 and said.model("cp_comm_type") == "a2a" else "",
        "bucket": said("model.optim.bucket_size") if BUCKETS in script else "",
    }


def _maxima(said: Settings, release: str, script: str) -> str:
    """Ranks that agree on the maxima of fp8 tensors.

    FP8_REDUCE_AMAX is read by nothing: models of Megatron-LM core have its own recipe (TEDelayedScaling), and
    that leaves Transformer Engine's reduce_amax at True.  The group is Megatron-LM's: in core_v0.7.0.beta
    (NeMo 24.04) tensor-parallel ranks (transformer_block.py); in 24.09-alpha.rc0 tensor- and context-parallel
    ones (parallel_state.py, get_amax_reduction_group); later all of a stage but for tp_only_amax_red, which
    a script must pass on.  The Dockerfiles of rounds 4.0 to 5.1 name these revisions; round 4.1's preview of
    B200 has none, but sets cp_comm_type, which is younger than tp_only_amax_red.
    """
    if said.model("fp8_recipe", "delayed") != "delayed":
        return "none"
    old = release < "25" and said.model("cp_comm_type") is None
    narrow = said.model("tp_only_amax_red") and (release < "25" or "tp_only_amax_red" in script)
    return "tensor" if old or narrow else "stage"


def main(folder: Path) -> None:
    """Write both files."""
    snapshots: Snapshots = cache(lambda round_: Snapshot(folder, round_))
    collected = {r["id"]: r for r in _rows("training.csv")}
    rows: list[dict[str, Any]] = []
    configurations: list[dict[str, Any]] = []
    for run in runs(RUNS.read_text(encoding="utf-8")):
        log = logged(snapshots(run.round), run)
        code, place, settings, script = code_of(snapshots, run)
        sources = [Settings(log.configuration, {})] if log.configuration else []
        if run.path:
            shared = code.scripts(place) | code.scripts(f"{place}/configs")
            environment, lost = exported(snapshots(run.round), run.path, shared, run.given)
            for name in lost:
                print(f"{run.id}: its file takes from {name}, which is not there")
            if not (lost and sources):
                sources.append(Settings(yaml.safe_load(settings), environment))
        cuts = [layout(one) for one in sources]
        more = [beyond(one, cut, run.release, script) for one, cut in zip(sources, cuts, strict=True)]
        cut, said = cuts[0], more[0]
        for other in [c | m for c, m in zip(cuts[1:], more[1:], strict=True)]:
            changed = {k: (other[k], v) for k, v in (cut | said).items() if other[k] != v}
            if changed:
                print(f"{run.id}: its file says otherwise than its log: {changed}")
        if (log.batch, log.sequence or cut["seq"]) != (cut["gbs"], cut["seq"]):
            raise ValueError(f"{run.id}: logs {log.batch} sequences, configuration {cut['gbs']}")
        if cut["dp"] * cut["mbs"] * log.accumulated != log.batch:
            raise ValueError(f"{run.id}: {log.accumulated} microbatches of {cut} are not its batch")
        if record := collected.get(run.id):
            said |= _left_out(record, cut)
        else:
            rows.append(_row(run, cut, log))
        where = run.path.rsplit("/", 1)[-1] or "its logs"
        configurations.append({"id": run.id, **said, "source": where})
    _write("mlperf_configurations.csv", ("id", *SAID, "source"), configurations)
    ours = {row["id"] for row in rows}
    read = _rows("training_read.csv")
    _write("training_read.csv", tuple(read[0]), [r for r in read if r["id"] not in ours] + rows)
    print(f"{len(rows)} records, {len(configurations)} configurations")


def _left_out(record: Mapping[str, str], cut: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a collected record that its table leaves out; where it has them, they must agree."""
    for name in ("gpus", "tp", "pp", "cp", "dp", "gbs", "seq", "gpus_per_node"):
        if record[name] and int(float(record[name])) != cut[name]:
            raise ValueError(f"{record['id']}: {name} {record[name]} in the table, {cut[name]} in its script")
    found = {"mbs": cut["mbs"]}
    found |= {"vpp": cut["vpp"]} if cut["vpp"] > 1 else {}
    return found | ({"dtype": cut["dtype"]} if record["dtype"] != cut["dtype"] else {})


def _row(run: Run, cut: Mapping[str, Any], log: Logged) -> dict[str, Any]:
    kind, model, name = BENCHMARKS[run.benchmark]
    results = f"{run.submitter}/results/{run.system}/{run.benchmark}"
    where = run.path.rsplit("/", 1)[-1] or "configuration in its logs"
    how = "global batch over the median throughput that it logged between evaluations"
    return {
        "id": run.id,
        "family": f"mlperf-{name}-{run.gpu}",
        "kind": kind,
        "model": model,
        "gpu": run.gpu,
        **cut,
        "nic_gbps": run.nic if cut["gpus"] > cut["gpus_per_node"] else "",
        "step_time_s": log.step,
        "quality": "R",
        "software": f"NeMo {run.release} (MLPerf {run.round})",
        "source": f"mlcommons/training_results_v{run.round} {results}, {where}",
        "source_status": "read",
        "notes": "median of the steps it logged" if log.steps_logged else how,
    }


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines()))


def _write(name: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    (DATA / name).write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
