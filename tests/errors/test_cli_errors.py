"""A user's mistake ends in one message on stderr and status 2: no traceback, and nothing is written."""
# ruff: noqa: E501 - one row per mistake: what is typed, what is said

import io
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cli.tables import print_table
from railwright.spec import template

SMALL = """\
railwright: 1
name: small
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
sweeps:
  - {op: all_reduce, begin: 1 MiB, end: 1 MiB}
"""
MAIN = "from railwright.cli.main import main; main()"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(SMALL)
    return tmp_path


def refused(*arguments):
    before = sorted(os.listdir())
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert sorted(os.listdir()) == before
    return result.stderr


def shown(*arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", [["run"], ["check"], ["fabric", "count"], ["perf", "all_reduce", "-c"]])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("servers: 2", "serves: 2", "wrong.yaml:4:3: cluster.serves: not a field; did you mean 'servers'"),
        ("switch: qm9700", "switch: qm9701", "'qm9701'"),
        ("server: dgx-h100", "server: dgx-h1000", "'dgx-h1000'"),
        ("begin: 1 MiB", "begin: 1024", "1024 has no unit"),
        ("name: small", "name: small\nname: large", "wrong.yaml:3:1: name: written twice"),
        ("  servers", "\tservers", "wrong.yaml:4:1: not YAML: a tab indents this line"),
    ],
)
def test_a_wrong_study(folder, command, old, new, said):
    assert old in SMALL
    (folder / "wrong.yaml").write_text(SMALL.replace(old, new, 1))
    assert said in refused(*command, "wrong.yaml")


@pytest.mark.parametrize("command", [["run"], ["check"], ["fabric", "count"], ["perf", "all_reduce", "-c"]])
def test_what_is_no_study(folder, command):
    (folder / "binary.yaml").write_bytes(b"\x00\x01\x02")
    (folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (folder / "empty.yaml").write_bytes(b"")
    assert "this is a binary file" in refused(*command, "binary.yaml")
    assert "not UTF-8" in refused(*command, "latin.yaml")
    assert "the file is empty" in refused(*command, "empty.yaml")
    assert "stduy.yaml: no such file; did you mean 'study.yaml'" in refused(*command, "stduy.yaml")
    assert "this is a folder" in refused(*command, ".")


def test_an_existing_output_folder_is_left_alone_and_a_free_name_offered(folder):
    for name in ("results/study", "results/study-2"):
        (folder / name).mkdir(parents=True)
    (folder / "results/study/report.html").write_text("mine")
    message = refused("run", "study.yaml")
    assert "'results/study' exists and results are never overwritten" in message
    assert "--out results/study-3" in message
    assert (folder / "results/study/report.html").read_text() == "mine"
    assert "--out study.yaml-2" in refused("run", "study.yaml", "--out", "study.yaml")


def test_a_plan_that_cannot_work_is_said_in_one_sentence(folder):
    crowd = SMALL.replace("servers: 2", "servers: 100").replace("rail-optimised", "single-switch")
    (folder / "crowd.yaml").write_text(crowd)
    message = refused("run", "crowd.yaml")
    assert message.startswith("Error: ")
    assert "64" in message
    assert "64" in refused("perf", "all_reduce", "-c", "crowd.yaml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["perf", "all_redcue", "-c", "study.yaml"], "'all_redcue' is not a collective; did you mean 'all_reduce'"),
        (["perf", "all_reduce", "-c", "study.yaml", "-b", "8Q"], "'8Q' is not a message size"),
        (["perf", "all_reduce", "-c", "study.yaml", "-b", "8M", "-e", "8K"], "-e 8K is smaller than -b 8M"),
        (["perf", "all_reduce", "-c", "study.yaml", "-b", "0"], "must be above 0"),
        (["perf", "all_reduce", "-c", "study.yaml", "-f", "1"], "at least twice"),
        (["perf", "all_reduce", "-c", "study.yaml", "--compare", "pxn"], "write NAME=VALUE, like pxn=off"),
        (["perf", "all_reduce", "-c", "study.yaml", "--compare", "pxm=off"], "there is no setting 'pxm'; did you mean 'pxn'?"),
        (["perf", "all_reduce", "-c", "study.yaml", "--compare", "nccl.pxm=off"], "--compare nccl.pxm=off: nccl.pxm: 'pxm' is not a field; did you mean 'pxn'?"),
        (["perf", "all_reduce", "-c", "study.yaml", "--compare", "speed=2"], "there is no setting 'speed'; known are pxn, sharp"),
        (["perf", "all_reduce", "-c", "study.yaml", "--compare", "family=fat-tee"], "did you mean 'fat-tree'?"),
        (["perf", "all_reduce"], "--cluster"),
        (["catalog", "show", "qm9701"], "'qm9700'"),
        (["catalog", "list", "cables"], "kinds are gpus, nics, switches, servers"),
        (["catalog", "list", "--catalog", "nothing.yaml"], "nothing.yaml"),
        (["model", "show", "mixtral-8x8b"], "mixtral-8x7b"),
        (["init", "--template", "rail-24"], "there is no template 'rail-24'; did you mean 'rail-240'?"),
        (["init", "study.yaml"], "'study.yaml' exists and is never overwritten"),
        (["init", "nowhere/study.yaml"], "cannot write 'nowhere/study.yaml'"),
        (["runn"], "No such command 'runn'"),
        (["run"], "STUDY"),
    ],
)  # fmt: skip
def test_wrong_words_on_the_command_line(folder, arguments, said):
    assert said in refused(*arguments)


def test_ctrl_c_ends_quietly_with_130(folder, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("railwright.spec.load_study", interrupted)
    result = CliRunner().invoke(app, ["check", "study.yaml"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_closed_pipe_is_no_error_of_ours():
    command = f"{sys.executable} -c '{MAIN}' schema | head -1"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert ended.stdout == "{\n"
    assert ended.stderr == ""


def test_our_own_mistakes_keep_their_traceback(folder, monkeypatch):
    def broken(path):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("railwright.spec.load_study", broken)
    assert isinstance(CliRunner().invoke(app, ["check", "study.yaml"]).exception, ZeroDivisionError)


def test_a_variant_that_cannot_be_built_is_named_beside_those_that_can(folder):
    text = (
        SMALL
        + "variants:\n  - {name: crowd, set: {cluster.servers: 100, cluster.compute.family: single-switch}}\n"
    )
    (folder / "study.yaml").write_text(text)
    table = shown("fabric", "count", "study.yaml")
    assert "cables server-leaf" in table
    assert "impossible: crowd: " in table


def test_unknown_names_of_variants_are_found_before_anything_is_computed(folder):
    text = SMALL + "jobs:\n  - {name: j, model: lama-3-8b, sequence: 1, global_batch: 1, tokens: 1}\n"
    text += "variants:\n  - {name: v, set: {cluster.compute.switch: qm9701}}\n"
    (folder / "study.yaml").write_text(text)
    for command in ("check", "run"):
        message = refused(command, "study.yaml")
        assert "cluster.compute.switch (variant 'v'): no switch 'qm9701'" in message
        assert message.count("jobs.j.model: ") == 1
        assert "llama-3-8b" in message


def test_init_writes_a_study_that_is_correct(folder):
    assert "wrote new.yaml" in shown("init", "new.yaml", "--template", "single-rack")
    assert (folder / "new.yaml").read_text() == template("single-rack")
    assert shown("check", "new.yaml").startswith(
        "new.yaml: correct (4 x dgx-h100, single-switch, 1 job, 2 sweeps"
    )


def test_run_writes_its_files_and_says_where(folder):
    listed = shown("run", "study.yaml", "--quiet").split()
    assert listed[0] == "results/study/report.html"
    assert all((folder / name).stat().st_size for name in listed)


@pytest.mark.parametrize("place", ["", ".", "/", ".."])
def test_an_output_place_without_a_name_of_its_own_is_refused_with_one_that_is_free(folder, place):
    message = refused("run", "study.yaml", "--out", place)
    assert "exists and results are never overwritten" in message
    assert "--out results/study-2" in message


def test_a_name_that_is_neither_file_nor_template_is_offered_the_nearest_template(folder):
    assert "'rail240' is neither a file nor a template; did you mean 'rail-240'?" in refused("run", "rail240")
    assert "templates are workstation, server," in refused("check", "xyz")


def test_a_software_era_that_nobody_knows_is_found_before_anything_is_computed(folder):
    job = (
        "{name: a, model: llama-3-8b, sequence: 4096, global_batch: 16, tokens: 1e9, software: megatron2025}"
    )
    (folder / "study.yaml").write_text(f"{SMALL}jobs:\n  - {job}\n")
    for command in ("check", "run"):
        message = refused(command, "study.yaml")
        said = "jobs.0.software: 'megatron2025' is not allowed; write one of 'megatron-2021',"
        assert re.search(rf"study\.yaml:\d+:\d+: {re.escape(said)}", message)
        assert "did you mean 'megatron-2025'" in message


def test_every_layout_that_cannot_work_is_found_before_anything_is_computed(folder):
    jobs = "".join(
        f"  - {{name: {name}, model: llama-3-8b, sequence: 4096, global_batch: 16, tokens: 1e9, layout: {cut}}}\n"
        for name, cut in [
            ("a", "{tensor: 3}"),
            ("b", "{tensor: 2}"),
            ("c", "{pipeline: 5}"),
            ("d", "{zero: 0}"),
        ]
    )
    (folder / "study.yaml").write_text(f"{SMALL}jobs:\n{jobs}")
    message = refused("check", "study.yaml")
    assert "jobs.a: layout.tensor 3 does not divide the 8 GPUs of a server" in message
    assert "jobs.c: 16 GPUs are not a multiple of tensor x pipeline = 1 x 5" in message
    assert "jobs.b" not in message
    line = (folder / "study.yaml").read_text().split("\n").index(jobs.split("\n")[0]) + 1
    for command in ("check", "run"):
        said = f"study.yaml:{line}:5: jobs.a: layout.tensor 3 does not divide"
        assert said in refused(command, "study.yaml"), "the name stands once"


def serving(**changes: str) -> str:
    fields = {
        "name": "chat",
        "model": "llama-3-70b",
        "engine": "vllm-2026",
        "layout": "{tensor: 8}",
        "client": "{kind: poisson, rate: 4, requests: 100, input: 128, output: 64}",
    }
    return "  - {" + ", ".join(f"{name}: {value}" for name, value in (fields | changes).items()) + "}\n"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "serving:\n" + serving(model="llama-3-70bb"),
            "serving.chat.model: unknown model 'llama-3-70bb'; did you mean 'llama-3-70b'",
        ),
        (
            "serving:\n" + serving(engine="vlm-2026"),
            "serving.chat.engine: engine 'vlm-2026' is not a known profile; did you mean 'vllm-2026'",
        ),
        (
            "serving:\n" + serving(speculative="{tokens: 2, acceptance: 0.8, draft: llama3}"),
            "serving.chat.speculative.draft: unknown model 'llama3'",
        ),
        (
            "serving:\n" + serving(layout="{tensor: 1}"),
            "serving.chat: llama-3-70b in bf16 needs 131.4 GiB of weights",
        ),
        ("serving:\n" + serving(layout="{tensor: 3}"), "serving.chat: "),
        ("serving:\n" + serving(replicas="3"), "serving.chat: "),
        ("serving:\n" + serving(prefill="{layout: {tensor: 2}}", servers="[0]"), "serving.chat: "),
        (
            "money: {years: 4, region: texass}\n",
            "money.region: no price of electricity in 'texass'; did you mean 'texas'",
        ),
        ("reliability: {rates: llama}\n", "reliability.rates: there is no published fleet 'llama'"),
        ("site: {rack: rack-48}\n", "site.rack: no rack 'rack-48' is known; did you mean 'rack-48u'"),
        ("site: {power: {pdu: apc}}\n", "site.power.pdu: no PDU 'apc' is known"),
        ("site: {power: {busway: none-such}}\n", "site.power.busway: no busway 'none-such' is known"),
    ],
)
def test_check_knows_the_names_and_limits_of_every_section(folder, section, said):
    (folder / "study.yaml").write_text(f"{SMALL}{section}")
    assert said in refused("check", "study.yaml")


def test_check_counts_what_it_found_correct(folder):
    (folder / "study.yaml").write_text(f"{SMALL}serving:\n{serving()}")
    found = CliRunner().invoke(app, ["check", "study.yaml"])
    assert found.stdout == "study.yaml: correct (2 x dgx-h100, rail-optimised, 1 serving job, 1 sweep)\n"


def test_sentences_break_between_words_on_a_terminal_and_not_in_a_pipe(monkeypatch):
    asked = ["demand", "-m", "llama-2-70b", "-t", "2e12", "-g", "a100", "--gpus", "2000"]
    piped = CliRunner().invoke(app, asked).stdout
    assert "Power: servers at their catalogued maximum, PUE 1; availability 1: nothing fails.\n" in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub("\x1b\\[[0-9;]*m", "", CliRunner().invoke(app, asked).stdout)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == piped.split()


def test_a_hint_and_the_known_names_are_never_run_together(folder):
    assert "'foo' is not a collective; known are all_reduce," in refused("perf", "foo", "-c", "study.yaml")
    for name in ("qqqq", "", "~nobody-here/config.json"):
        assert f"unknown model '{name}'. Give the path" in refused("model", "show", name)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence_and_a_closed_pipe_none(folder):
    command = f"{sys.executable} -c '{MAIN}' run study.yaml --out"
    done = subprocess.run(f"{command} one > /dev/full", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "Error: cannot read or write: No space left on device\n")
    closed = subprocess.run(
        ["bash", "-c", f"{command} two | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (closed.stdout, closed.stderr) == ("141\n", "")


@pytest.mark.parametrize(
    ("command", "both"),
    [
        (["--help"], False),
        (["--version"], False),
        (["perf", "--help"], False),
        (["catalog", "list"], False),
        ([], True),
        (["check", "nowhere.yaml"], True),
        (["run"], True),
    ],
)
def test_a_closed_pipe_is_no_failure_wherever_it_is_found(folder, command, both):
    """Typer ends with 1 what finds it outside of a command, or while an error is told (`both` in one pipe)."""
    read, write = os.pipe()
    os.close(read)
    stderr = write if both else subprocess.PIPE
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run([sys.executable, "-c", MAIN, *command], stdout=pipe, stderr=stderr)
    assert (done.returncode, done.stderr or b"") == (141, b"")


def test_a_table_that_finds_a_closed_pipe_leaves_it_to_the_command(monkeypatch):
    """What was printed before is flushed where Rich draws the next table; Rich's own answer is status 1."""

    class Closed(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        print_table(("a", "b"), [("1", "2")])


def test_one_gpu_alone_is_compared_without_a_gain(folder):
    alone = SMALL.replace("servers: 2", "servers: 1").replace("dgx-h100", "gh200-1")
    (folder / "alone.yaml").write_text(alone)
    table = shown("perf", "all_reduce", "-c", "alone.yaml", "-b", "8", "-e", "8", "--compare", "pxn=off")
    compared = [line.split() for line in table.splitlines() if not line.startswith("#")][-1]
    assert compared == ["8", "0.00", "0.00", "-"]


def test_a_study_and_what_is_compared_with_it_are_not_taken_for_one_another(folder):
    """Each field of a profile was 'not a field' of a study."""
    for command, order in ((["compare"], "compare LOG STUDY"), (["trace", "compare"], "STUDY PROFILE...")):
        first, second = ("study.yaml", "job.log") if len(command) == 1 else ("profile.json", "study.yaml")
        result = CliRunner().invoke(app, [*command, first, second])
        assert result.exit_code == 2
        assert "stands where the study belongs; the order is: railwright" in result.output
        assert order in result.output
