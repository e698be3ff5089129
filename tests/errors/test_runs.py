"""Runs that cannot be read: one sentence with file, line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import RailwrightError
from railwright.runs import Asked, read_run

ARGS = """\
--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --ffn-hidden-size 14336
--group-query-attention --num-query-groups 8 --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 128256
--seq-length 8192 --global-batch-size 64 --bf16
"""
ONE = " ".join(ARGS.split())
TOML = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\n'


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("x.sh", "echo 'hello", "x.sh:1: a ' that opens here is never closed"),
        ("x.sh", "A=( --b 1\n", "x.sh:1: a ( that opens here is never closed"),
        ("x.sh", "echo hello", "no arguments of a training run are found"),
        ("x.sh", "python a.py --num-layers 1 --seq-length 2\npython b.py --num-layers 1 --seq-length 2\n",
         "lines 1 and 2 each launch a program with arguments"),
        ("x.sh", f"A='{ARGS}'\npython a.py $A --micro-batch-size $MBS",
         "x.sh:6: --micro-batch-size: it is '$MBS', and nothing in the file says what $MBS is; give --set"),
        ("x.args", ARGS.replace("--num-layers 32", "--num-layers many"),
         "x.args:1: --num-layers: 'many' is given, a whole number is expected"),
        ("x.args", ARGS.replace("--num-layers 32", "--num-layers 0"),
         "--num-layers: 0 is given, 1 or more is expected"),
        ("x.args", ARGS.replace("--seq-length 8192", ""), "--seq-length is not given"),
        ("x.args", ARGS.replace("--global-batch-size 64", ""), "with --gpus it is a microbatch a replica"),
        ("x.args", ARGS.replace("--vocab-size 128256", "").replace("32 ", "31 "), "give --vocab"),
        ("x.args", ARGS + "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 4",
         "28 of 32 layers are left for 3 stages, which they do not fill evenly"),
        ("x.args", ARGS + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*7|t*8L'",
         "it has 15 layers (t), the model 32"),
        ("x.args", ARGS + "--fp8-format hybrid --fp8-recipe new", "'new' is not modelled"),
        ("x.args", ARGS + "--hybrid-layer-pattern M-M*", "name the model with --model"),
        ("x.args", ARGS + "--experimental-attention-variant gated_delta_net --linear-attention-freq 4",
         "x.args:5: --experimental-attention-variant: layers of several kinds are not read from it"),
        ("x.args", ARGS + "--attention-output-gate", "no family that could be written down has such layers"),
        ("x.args", ARGS + "--decoder-seq-length 128",
         "x.args:5: --decoder-seq-length: an encoder beside a decoder is not modelled"),
        ("x.sh", f"torchrun $M/pretrain_bert.py {ONE}",
         "x.sh:1: $M/pretrain_bert.py: BERT, whose attention looks both ways, is not modelled; a decoder of"),
        ("x.sh", f"torchrun pretrain_t5.py {ONE}", "pretrain_t5.py: a model of an encoder and a decoder is"),
        ("x.sh", f"torchrun pretrain_vlm.py {ONE}", "pretrain_vlm.py: a model that sees is not modelled"),
        ("x.sh", f"torchrun tools/run_text_generation_server.py {ONE}",
         "x.sh:1: tools/run_text_generation_server.py: it generates text, which railwright serve predicts"),
        ("x.sh", f"torchrun gpt_static_inference.py {ONE}", "gpt_static_inference.py: it generates text"),
        ("x.sh", f"torchrun -m examples.inference.offline_inference {ONE}",
         "examples.inference.offline_inference: it generates text"),
        ("x.yaml", "MODE: inference\nMODEL_ARGS: {--num-layers: 2}\n", "MODE: inference: it generates text"),
        ("x.args", ARGS + "--tokenizer-type BertWordPieceLowerCase",
         "x.args:5: --tokenizer-type: neither BERT nor T5 is modelled"),
        ("x.args", ARGS + "--decoder-num-layers 12", "an encoder beside a decoder is not modelled"),
        ("x.yaml", "a: [", "this is no YAML"),
        ("x.yaml", "railwright: 1\n", "are expected under MODEL_ARGS"),
        ("x.log", f"{'-' * 24} arguments {'-' * 24}\n", "empty or cut off"),
        ("x.toml", "[training", "this is no TOML"),
        ("x.toml", "[project]\n", "there is no section [training]"),
        ("x.toml", TOML, "give --gpus"),
        ("x.toml", TOML.replace("8B", "9B"), "did you mean 'llama3 8b'"),
        ("x.toml", TOML + 'seq_len = "long"\n[parallelism]\ndata_parallel_shard_degree = 8\n',
         "[training] seq_len: 'long' is given, a whole number is expected"),
        ("x.toml", TOML + '[parallelism]\ndata_parallel_shard_degree = 8\npipeline_parallel_degree = 2\n'
         'pipeline_parallel_schedule = "Looped"\n', "'Looped' is not modelled"),
        ("x.toml", TOML + '[parallelism]\ndata_parallel_shard_degree = 0\n',
         "data_parallel_shard_degree: 0 is given, 1 or more is expected"),
        ("x.toml", TOML + '[parallelism]\ndata_parallel_shard_degree = 8\npipeline_parallel_degree = 2\n'
         'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_layers_per_stage = "two"\n',
         "[parallelism] pipeline_parallel_layers_per_stage: 'two' is given, a whole number is expected"),
        ("x.toml", TOML + 'local_batch_size = 0\n[parallelism]\ndata_parallel_shard_degree = 8\n',
         "[training] local_batch_size: 0 is given, 1 or more is expected"),
        ("x.toml", TOML + 'batch_size = 0\n[parallelism]\ndata_parallel_shard_degree = 8\n',
         "[training] batch_size: 0 is given, 1 or more is expected"),
        ("x.toml", TOML + 'seq_len = -8\n[parallelism]\ndata_parallel_shard_degree = 8\n',
         "[training] seq_len: -8 is given, 1 or more is expected"),
        ("x.args", f"{ARGS}--use-precision-aware-optimizer --exp-avg-dtype fp7", "there is no 'fp7'; one of"),
        ("x.yaml", "model_name_or_path: no/such-model\n", "'no/such-model' is no bundled model"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(file: str, text: str, told: str) -> None:
    with pytest.raises(RailwrightError) as error:
        read_run(text, file, Asked())
    assert told in str(error.value)
    assert str(error.value).startswith(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Expecting property name"),
        ("[]", "zero_optimization: a section is expected"),
        ('{"zero_optimization": {"stage": "two"}}', "stage: 'two' is given, 0, 1, 2 or 3 is expected"),
        (
            '{"zero_optimization": {"stage": 3, "offload_param": true}}',
            "offload_param: a section is",
        ),
    ],
)
def test_what_is_no_configuration_of_deepspeeds_is_said(text: str, told: str) -> None:
    run = "model_name_or_path: meta-llama/Llama-3.1-8B\ndeepspeed: z.json\ncutoff_len: 2048\n"
    with pytest.raises(RailwrightError) as error:
        read_run(run, "x.yaml", Asked(gpus=8, beside=lambda name: text))
    assert str(error.value).startswith("x.yaml:2: deepspeed: 'z.json'")
    assert told in str(error.value)


@pytest.mark.parametrize(
    "lines",
    ["[model]\nconverters = [1]", "[quantize]\nlinear = 3\n[model]\nconverters = ['float8']",
     "float8 = 3\n[model]\nconverters = 'float8'"],
)  # fmt: skip
def test_tables_of_another_kind_end_no_reading(lines: str) -> None:
    top, _, rest = lines.partition("[")
    text = f'{top}[{rest}\nname = "llama3"\nflavor = "8B"\n[training]\n'
    assert read_run(text, "x.toml", Asked(gpus=8)).fields["gpus"] == 8


def test_a_model_that_contradicts_the_arguments_is_refused() -> None:
    with pytest.raises(RailwrightError, match="layers 32 and 80"):
        read_run(ARGS, "x.args", Asked(model="llama-3.1-70b"))


def test_gpus_that_the_degrees_do_not_make_are_refused() -> None:
    text = TOML + "[parallelism]\ndata_parallel_shard_degree = 8\ntensor_parallel_degree = 2\n"
    with pytest.raises(RailwrightError, match="24 GPUs are not the product"):
        read_run(text, "x.toml", Asked(gpus=24))


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["import", *words])
    return done.exit_code, done.output


def test_a_config_is_asked_for_and_nothing_is_overwritten(tmp_path: Path) -> None:
    args, config = tmp_path / "run.args", tmp_path / "config.json"
    args.write_text(ARGS.replace("--num-layers 32", "--num-layers 12"))
    code, said = run(str(args))
    assert code == 2
    assert "say with --config FILE" in said
    config.write_text("mine")
    code, said = run(str(args), "--config", str(config))
    assert code == 2
    assert "exists; it is left as it is" in said
    assert config.read_text() == "mine"


def test_options_that_are_none(tmp_path: Path) -> None:
    args = tmp_path / "run.args"
    args.write_text(ARGS)
    assert "NAME=VALUE is expected" in run(str(args), "--set", "TP")[1]
    assert "did you mean 'megatron-20" in run(str(args), "--software", "megatron-2052")[1]
    assert run(str(tmp_path / "none.sh"))[0] == 2
