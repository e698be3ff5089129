"""`railwright import` as a user meets it: a script becomes a job of a study, and the study runs."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.spec import load_study, load_study_text, template

SCRIPT = Path(__file__).parent.parent / "data" / "runs" / "pretrain_mixtral.sh"

JOB = """\
# railwright; read from pretrain_mixtral.sh
# not read: --use-tp-pp-dp-mapping
# software megatron-2025 is the default; another era, other times (--software)
jobs:
  - name: pretrain_mixtral
    model: mixtral-8x7b
    gpus: 32
    sequence: 4096
    global_batch: 128
    micro_batch: 1
    tokens: 4.096e+09
    dtype: bf16
    software: megatron-2025
    layout:
      tensor: 2
      expert: 8
      expert_tensor: 1
      sequence_parallel: true
"""


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["import", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_script_is_printed_as_a_job() -> None:
    assert run(str(SCRIPT)) == JOB


def test_a_study_gets_the_job_beside_its_own(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(template("rail-240"))
    text = run(str(SCRIPT), "--study", str(study), "--software", "megatron-2026", "--set", "TP=4")
    assert study.read_text() == template("rail-240")  # the study itself stays
    jobs = load_study_text(text).jobs
    assert [job.name for job in jobs] == ["finetune", "pretrain_mixtral"]
    assert (jobs[1].layout.tensor, jobs[1].software) == (4, "megatron-2026")
    kept = [line for line in template("rail-240").splitlines() if line.lstrip().startswith("#")]
    assert all(line in text.splitlines() for line in kept)
    assert jobs[0] == load_study_text(template("rail-240")).jobs[0]


def test_a_job_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "railwright: 1\nname: s\ncluster: {servers: 4, server: dgx-h100, "
        "compute: {family: rail-optimised, switch: qm9700}}\n" + JOB
    )
    text = run(str(SCRIPT), "--study", str(study), "--gpus", "16")
    jobs = load_study_text(text).jobs
    assert [(job.name, job.gpus) for job in jobs] == [("pretrain_mixtral", 16)]


def test_a_model_of_its_own_is_written_where_the_study_finds_it(tmp_path: Path) -> None:
    study, config = tmp_path / "study.yaml", tmp_path / "models" / "small.json"
    config.parent.mkdir()
    study.write_text(template("rail-240"))
    small = tmp_path / "small.sh"
    small.write_text(SCRIPT.read_text().replace("--num-layers 32", "--num-layers 16"))
    out = tmp_path / "out.yaml"
    out.write_text(run(str(small), "--study", str(study), "--config", str(config)))
    assert json.loads(config.read_text())["model_type"] == "mixtral"
    job = load_study(out).jobs[1]
    assert Path(job.model) == config
    from railwright.model import load_model

    assert load_model(job.model).layers == 16


def test_a_log_is_read_from_its_head_however_long_and_odd_it_is(tmp_path: Path) -> None:
    """Logs outgrow what a study may be, and hold bytes that are no text."""
    listed = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32,
              "group_query_attention": True, "num_query_groups": 8, "swiglu": True,
              "normalization": "RMSNorm",
              "add_bias_linear": False, "untie_embeddings_and_output_weights": True, "bf16": True,
              "position_embedding_type": "rope", "vocab_size": 128256, "seq_length": 8192, "world_size": 64,
              "global_batch_size": 64, "micro_batch_size": 1, "train_iters": 10}  # fmt: skip
    rows = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in listed.items()]
    head = [f"{'-' * 24} arguments {'-' * 24}", *rows, f"{'-' * 20} end of arguments {'-' * 21}"]
    log = tmp_path / "train.log"
    step = b"iteration 1/ 10 | elapsed \xff\x00 |\n"
    log.write_bytes("\n".join(head).encode() + b"\n" + step * (5 * 2**20 // len(step)))
    printed = run(str(log))
    assert "model: llama-3.1-8b" in printed
    assert "gpus: 64" in printed


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.bin"
    weights.write_bytes(b"\x7fELF\0\0\0")
    refused = CliRunner().invoke(app, ["import", str(weights)])
    assert refused.exit_code == 2
    assert "a script, a log or a configuration is expected" in refused.output
    assert "this is a folder" in CliRunner().invoke(app, ["import", str(tmp_path)]).output
