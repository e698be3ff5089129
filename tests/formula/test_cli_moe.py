"""`railwright moe` and `railwright perf custom_all_reduce`: what is printed is what the room predicts."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from collectives_machines import machine
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.cli.moe import KERNELS, _refusals, table
from railwright.collectives import Machine, NcclSettings, predict, predict_dispatch
from railwright.collectives.custom import custom_all_reduce, engine_all_reduce, engine_group
from railwright.errors import PlanError
from railwright.spec import template
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic.demand import Communicator


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def layer(servers: int, kernel: str, tokens: int = 4096):
    on = machine(servers)
    world = [Communicator(np.arange(8 * servers, dtype=np.int32))]
    return predict_dispatch(on, world, tokens, 7168, 8, 256, kernel=kernel, dispatch_bytes=1, nodes_limit=4)


def test_a_row_is_kernel_tokens_stage_time_interval_and_what_moves():
    answer = layer(4, "deepep")
    row = table([(4096, answer)])[2].split(maxsplit=9)
    us = answer.dispatch.time * 1e6
    assert row[:3] == ["deepep", "4096", "dispatch"]
    assert float(row[3]) == pytest.approx(us, abs=0.06)
    assert float(row[4]) == pytest.approx(us * answer.dispatch.error_low, abs=0.06)
    assert float(row[6]) == pytest.approx(us * answer.dispatch.error_high, abs=0.06)
    assert float(row[7]) == pytest.approx(answer.dispatch.logical_bandwidth / 1e9, abs=0.06)
    assert "nic-" in row[9]


def test_every_time_has_an_interval_around_or_beside_it():
    for kernel in KERNELS:
        answer = layer(4, kernel)
        for stage in (answer.dispatch, answer.combine):
            assert 0 < stage.error_low < stage.error_high
            assert stage.error_low <= 1.0 <= stage.error_high


def test_the_command_prints_both_stages_of_every_kernel():
    done = run("moe", "-c", "rail-240", "--ep", "48", "--experts", "240", "--tokens", "128")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if not line.startswith("#")]
    assert [(r[0], r[2]) for r in rows] == [(k, s) for k in KERNELS for s in ("dispatch", "combine")]
    assert "5 group(s) of 48 GPUs on 6 node(s)" in done.output


def test_groups_are_where_the_job_has_them():
    """Two GPUs share each matrix of the example, so its groups of 8 take every other GPU of two servers; 8 in
    a row, which nobody asked for, exchange over NVLink in less than a third of the time."""
    asked = ("moe", "-c", "rail-240", "--kernel", "nccl", "--tokens", "4096")
    placed, consecutive = run(*asked), run(*asked, "--ep", "8")
    assert "30 group(s) of 8 GPUs on 2 node(s)" in placed.output
    assert "nic-" in placed.output
    assert "30 group(s) of 8 GPUs on 1 node(s)" in consecutive.output
    assert "nic-" not in consecutive.output


def test_the_header_says_whose_layer_it_is():
    asked = ("moe", "-c", "rail-240", "--kernel", "nccl", "--tokens", "128")
    assert "# hidden, topk, experts and groups of job 'finetune' (mixtral-8x7b)\n" in run(*asked).output
    own = run(*asked, "--ep", "48", "--experts", "240").output
    assert "# hidden and topk of job 'finetune' (mixtral-8x7b)\n" in own
    whole = ("--ep", "48", "--experts", "240", "--hidden", "4096", "--topk", "2")
    assert "of job" not in run(*asked, *whole).output


def test_of_several_jobs_with_experts_the_first_is_taken_and_said(tmp_path):
    text = template("rail-240").replace("mixtral-8x7b", "llama-3-8b", 1).replace("expert: 8", "expert: 1")
    size = "gpus: 64, tokens: 1e9, sequence: 4096, global_batch: 64"
    job = f"  - {{name: %s, model: %s, {size}, layout: {{expert: 8}}}}\n"
    more = job % ("first", "qwen3-30b-a3b") + job % ("second", "mixtral-8x7b")
    (tmp_path / "s.yaml").write_text(text.replace("jobs:\n", f"jobs:\n{more}", 1))
    done = run("moe", "-c", str(tmp_path / "s.yaml"), "--kernel", "nccl", "--tokens", "128")
    assert "groups of job 'first' (qwen3-30b-a3b), the first of 2 with experts\n" in done.output, done.output
    assert "8 group(s) of 8 GPUs" in done.output
    assert "top-8 of 128 experts" in done.output


def test_a_serving_jobs_experts_are_taken_where_no_training_job_has_any():
    study = Path(__file__).parents[2] / "examples" / "serving-deepseek-disaggregated.yaml"
    done = run("moe", "-c", str(study), "--kernel", "nccl")
    assert "groups of job 'chat' (deepseek-v3)" in done.output
    assert "1 group(s) of 16 GPUs on 2 node(s)" in done.output, "decode's; prefill's has no attention data"


def test_a_study_without_experts_asks_for_the_layer():
    done = run("moe", "-c", "superpod-h100", "--topk", "8")
    assert done.exit_code == 2
    assert "no job of 'DGX SuperPOD, 127 H100 servers' has a model with experts" in done.output
    assert "give --hidden and --experts (DeepSeek-V3's is --hidden 7168" in done.output
    given = ("--hidden", "7168", "--topk", "8", "--experts", "256", "--ep", "8")
    assert run("moe", "-c", "superpod-h100", "--kernel", "nccl", *given).exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ep", "7"), "does not divide the 240 GPUs"),
        (("--kernel", "deep"), "is not a dispatch kernel"),
        (("--ep", "48", "--experts", "100"), "cannot be spread evenly"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words, says):
    done = run("moe", "-c", "rail-240", *words)
    assert done.exit_code == 2
    assert says in done.output


def test_engines_reduce_themselves_up_to_their_limit_and_leave_the_rest_to_nccl():
    on = machine(1)
    small, large = (engine_all_reduce(on, size, "vllm", 8) for size in (2.0**16, 2.0**24))
    assert small == custom_all_reduce(on.gpu, 8, 2.0**16)
    eight = [Communicator(np.arange(8, dtype=np.int32))]
    assert large.time == predict(on, "all_reduce", 2.0**24, eight).time
    assert "leaves it to NCCL" in large.notes[-1]


def test_a_group_in_several_hosts_is_nccls():
    # vLLM disables its own where in_the_same_node_as says no: of an NVL72 from the fifth GPU on
    rack = Cluster(
        servers=1,
        server="gb200-nvl72",
        compute=ComputeNetwork(family="rail-optimised", switch="qm9700", nics_per_tray=4),
    )
    on = Machine.of(rack, load_catalog(), NcclSettings())
    assert [engine_group(on), engine_group(machine(1))] == [4, 8]
    tray, eight = (engine_all_reduce(on, 2.0**16, "vllm", ranks) for ranks in (4, 8))
    assert tray == custom_all_reduce(on.gpu, 4, 2.0**16)
    world = [Communicator(np.arange(8, dtype=np.int32))]
    assert eight.time == predict(on, "all_reduce", 2.0**16, world).time
    assert eight.notes[-1].startswith("8 GPUs are in 2 hosts (operating systems) of 4")
    for ranks in (0, 1, 73):
        with pytest.raises(PlanError, match="over 2 to 72 GPUs of this cluster"):
            engine_all_reduce(on, 2.0**16, "vllm", ranks)


def test_perf_of_an_nvl72_is_over_a_tray(tmp_path):
    study = tmp_path / "rack.yaml"
    study.write_text(
        "railwright: 1\nname: rack\ncluster:\n  servers: 1\n  server: gb200-nvl72\n"
        "  compute: {family: rail-optimised, switch: qm9700, nics_per_tray: 4}\n"
    )
    ask = ("perf", "custom_all_reduce", "-c", str(study), "-b", "64K", "-e", "64K")
    done = run(*ask)
    assert done.exit_code == 0, done.output
    assert ", 4 ranks" in done.output
    assert ", 2 ranks" in run(*ask, "--gpus", "2").output
    assert "where vllm leaves all-reduce to NCCL" in run(*ask, "--gpus", "8").output


def test_a_number_of_gpus_is_of_an_engines_all_reduce_alone():
    done = run("perf", "all_reduce", "-c", "rail-240", "--gpus", "8")
    assert done.exit_code == 2
    assert "--gpus 8: only custom_all_reduce" in done.output


def test_perf_prints_an_engines_all_reduce():
    done = run("perf", "custom_all_reduce", "-c", "rail-240", "-b", "16K", "-e", "16M", "-f", "32")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if not line.startswith("#")]
    assert [row[8] for row in rows] == ["one-shot", "two-shot", "nvls"]
    assert run("perf", "custom_all_reduce", "-c", "rail-240", "--compare", "pxn=off").exit_code == 2
    assert run("perf", "custom_all_reduce", "-c", "rail-240", "--engine", "x").exit_code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--topk", "500"), "A token cannot go to 500 of 8 experts; lower topk."),
        (("--imbalance", "0.3"), "imbalance = 0.3 is the busiest rank over the mean"),
        (("--imbalance", "5"), "imbalance = 5 is more than a rank can get: every token once, 8 / 2 = 4"),
        # a 0 is given, and wrong: not the same as nothing
        (("--topk", "0"), "A layer with topk = 0 moves nothing"),
        (("--ep", "0"), "--ep 0 does not divide the 240 GPUs"),
    ],
)
def test_what_no_kernel_can_run_is_said_once(words, says):
    done = run("moe", "-c", "rail-240", *words)
    assert done.exit_code == 2
    assert done.output.count(says) == 1
    assert not any(f"{kernel}:" in done.output for kernel in KERNELS)


def test_kernels_that_differ_in_their_reasons_say_each():
    assert _refusals({"nccl": "One.", "deepep": "Two."}).split("\n")[1:] == ["nccl: One.", "deepep: Two."]
