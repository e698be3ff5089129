"""Every mistake of a study is reported at once, where it stands, with what to write instead."""
# ruff: noqa: E501 - one row per mistake: what is written, what is said

import re
from typing import get_args

import pytest

from railwright.errors import SpecError
from railwright.spec import load_study_text
from railwright.spec.foreign import FIELDS, VALUES
from railwright.spec.lora import Lora
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Layout, TrainingJob

SECTIONS = {
    "Layout": Layout,
    "TrainingJob": TrainingJob,
    "Lora": Lora,
    "Cluster": Cluster,
    "ComputeNetwork": ComputeNetwork,
}

SOUND = """\
railwright: 1
name: a study
cluster:
  servers: 4
  server: dgx-h100
  compute:
    family: rail-optimised
    switch: qm9700
jobs:
  - name: train
    model: llama-3-8b
    sequence: 4096
    global_batch: 32
    tokens: 2e9
"""


def mistakes(text):
    with pytest.raises(SpecError) as error:
        load_study_text(text, "s.yaml")
    return str(error.value).split("\n")


def only(text):
    found = mistakes(text)
    assert len(found) == 1, found
    return found[0]


def test_the_sound_study_is_sound():
    study = load_study_text(SOUND)
    assert study.jobs[0].tokens == 2e9
    assert study.cluster.compute.lengths.leaf_spine == 30.0


def test_names_take_any_script_and_questions_several_lines():
    text = SOUND.replace("name: train", "name: 'Тест 训练 |<b>'").replace(
        "name: a study", 'name: a\nquestion: "a\\n\\tb"'
    )
    study = load_study_text(text)
    assert (study.jobs[0].name, study.question) == ("Тест 训练 |<b>", "a\n\tb")


# One row per kind of mistake: what is replaced by what, and what is said about it.
KINDS = {
    "wrong field": ("servers: 4", "serves: 4", ["s.yaml:4:3: cluster.serves: not a field; did you mean 'servers', 'server'?"]),
    "field of a section inside": ("servers: 4", "servers: 4\n  routing: ecmp", ["s.yaml:5:3: cluster.routing: not a field here; it is one of the section 'compute': write it there"]),
    "unknown literal": (
        "rail-optimised",
        "rail-optimized",
        ["s.yaml:7:13: cluster.compute.family: 'rail-optimized' is not allowed; write one of", "did you mean 'rail-optimised'"],
    ),
    "name of two lines": ("name: train", 'name: "one\\ntwo"', ["s.yaml:10:11: jobs.0.name: a name is one line of text; delete the character U+000A from it"]),
    "name with an escape": ("name: a study", 'name: "a\\e[31m"', ["s.yaml:2:7: name: a name is one line of text; delete the character U+001B from it"]),
    "half a surrogate pair": ("name: train", 'name: "\\ud800"', ["s.yaml:10:11: jobs.0.name:", "U+D800"]),
    "blank name": ("name: train", 'name: " "', ["s.yaml:10:11: jobs.0.name: a name cannot be blank; write what to call it"]),
    "escape in a question": ("name: a study", 'name: a study\nquestion: "why\\e[2J"', ["s.yaml:3:11: question: the character U+001B cannot be printed; delete it"]),
    "missing unit": (
        "switch: qm9700",
        "switch: qm9700\n    lengths: {node_leaf: 10}",
        ["s.yaml:9:26: cluster.compute.lengths.node_leaf: 10 has no unit; write a length with its unit, like '25 m'"],
    ),
    "missing unit in text": ("switch: qm9700", "switch: qm9700\n    lengths: {node_leaf: '10'}", ["s.yaml:9:26:", "has no unit"]),
    "unknown unit": ("switch: qm9700", "switch: qm9700\n    lengths: {node_leaf: 10 mt}", ["s.yaml:9:26:", "did you mean 'm"]),
    "missing field": ("    sequence: 4096\n", "", ["s.yaml:10:5: jobs.0.sequence: missing (sequence length in tokens)"]),
    "text for a number": ("servers: 4", "servers: four", ["s.yaml:4:12: cluster.servers: 'four' is not allowed; write a whole number"]),
    "letter behind a count": ("sequence: 4096", "sequence: 128k", ["s.yaml:12:15: jobs.0.sequence: '128k' is not allowed; write a whole number without letters, like 128000 or 131072"]),
    "letter behind a budget": ("tokens: 2e9", "tokens: 1.5T", ["jobs.0.tokens: '1.5T' is not allowed; write a number without letters, like 1.5e12"]),
    "fraction for a count": ("servers: 4", "servers: 4.0", ["s.yaml:4:12: cluster.servers: 4.0 is not allowed; write a whole number, 4"]),
    "number for text": ("name: a study", "name: 7", ["s.yaml:2:7: name: 7 is not allowed; write text (put it in quotes: '7')"]),
    "out of range": ("servers: 4", "servers: 0", ["s.yaml:4:12: cluster.servers: 0 is out of range; it must be above 0"]),
    "endless number": ("tokens: 2e9", "tokens: .inf", ["s.yaml:14:13: jobs.0.tokens: inf is not allowed; write a finite number"]),
    "empty list": (
        "tokens: 2e9",
        "tokens: 2e9\n    lora: {rank: 8, targets: []}",
        ["s.yaml:15:30: jobs.0.lora.targets: an empty list; name at least one, or leave the line out"],
    ),
    "wrong entry of a list": (
        "tokens: 2e9",
        "tokens: 2e9\n    lora: {rank: 8, targets: [q_proj]}",
        ["s.yaml:15:31: jobs.0.lora.targets.0: 'q_proj' is not allowed; write one of 'qkv', 'attention output'"],
    ),
    "a type of frozen weights that is not modelled": (
        "tokens: 2e9",
        "tokens: 2e9\n    lora: {rank: 8, frozen_dtype: nf3}",
        ["s.yaml:15:35: jobs.0.lora.frozen_dtype: 'nf3' is not allowed; write one of 'fp32', 'bf16', 'nf4'"],
    ),
    "empty value": ("servers: 4", "servers:", ["s.yaml:4:3: cluster.servers: empty; write a whole number"]),
    "word for a truth": ("jobs:", "nccl: {pxn: on}\njobs:", ["s.yaml:9:13: nccl.pxn: 'on' is not allowed; write true or false (true)"]),
    "truth for a number": ("switch: qm9700", "switch: qm9700\n    tiers: true", ["s.yaml:9:12: cluster.compute.tiers: true is not allowed"]),
    "section for a value": ("server: dgx-h100", "server: {a: 1}", ["s.yaml:5:11: cluster.server: a section is not allowed; write text"]),
    "value for a section": ("jobs:", "nccl: 5\njobs:", ["s.yaml:9:7: nccl: 5 is not allowed; write a section with the fields pxn"]),
    "value for a list": ("jobs:", "sweeps: all_reduce\njobs:", ["s.yaml:9:9: sweeps: 'all_reduce' is not allowed; write a list"]),
    "job on no server": (
        "model: llama-3-8b",
        "model: llama-3-8b\n    servers: []",
        ["s.yaml:12:14: jobs.0.servers: an empty list; name at least one, or leave the line out"],
    ),
    "number beyond all counts": (
        "sequence: 4096",
        f"sequence: {10**19}",
        ["s.yaml:12:15: jobs.0.sequence: 10000000000000000000 is too large for a whole number"],
    ),
    "number of thousands of digits": (
        "sequence: 4096",
        f"sequence: {'9' * 5000}",
        [f"s.yaml:12:15: jobs.0.sequence: {'9' * 40}… is too large for a whole number"],
    ),
    "key written twice": ("servers: 4", "servers: 4\n  servers: 5", ["s.yaml:5:3: cluster.servers: written twice; the first is in line 4"]),
    "name written twice": (
        "    tokens: 2e9\n",
        "    tokens: 2e9\n  - {name: train, model: m, sequence: 1, global_batch: 1, tokens: 1}\n",
        ["s.yaml:15:12: jobs.1.name: 'train' is already the name of jobs.0"],
    ),
    "backwards sweep": (
        "jobs:",
        "sweeps: [{op: all_reduce, begin: 1 MiB, end: 1 KiB}]\njobs:",
        ["s.yaml:9:46: sweeps.0.end: smaller than 'begin'"],
    ),
    "newer format": ("railwright: 1", "railwright: 2", ["s.yaml:1:13: railwright: the file has format 2; this Railwright reads up to 1"]),
    "YAML tag": ("servers: 4", "servers: !!python/name:os 4", ["s.yaml:4:12: cluster.servers: unknown YAML tag"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_mistake(kind):
    old, new, said = KINDS[kind]
    assert old in SOUND
    found = mistakes(SOUND.replace(old, new, 1))
    line = found[0]
    for part in said:
        assert part in line, found


def test_a_list_without_its_wrong_entries_is_not_called_empty():
    old, new, _ = KINDS["wrong entry of a list"]
    assert "'q_proj' is not allowed" in only(SOUND.replace(old, new, 1))


def test_all_mistakes_come_at_once_in_the_order_of_the_file():
    text = SOUND
    for kind in ("wrong field", "unknown literal", "missing field", "number for text"):
        old, new, _ = KINDS[kind]
        text = text.replace(old, new, 1)
    found = mistakes(text)
    lines = [int(re.match(r"s\.yaml:(\d+):", line).group(1)) for line in found]
    assert lines == sorted(lines)
    # 'serves' is reported once, not also as the absence of 'servers'.
    assert [line.split(": ")[1] for line in found] == [
        "name", "cluster.serves", "cluster.compute.family", "jobs.0.sequence",
    ]  # fmt: skip


VARIANT = SOUND + "variants:\n  - name: other\n    set:\n      "


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("cluster.compute.famly: fat-tree", "s.yaml:18:7: variants.0.set.cluster.compute.famly: 'famly' is not a field; did you mean 'family'?"),
        ("cluster.compute.family: fat-tee", "s.yaml:18:31: variants.0.set.cluster.compute.family: 'fat-tee' is not allowed"),
        ("jobs.train.layout.tensor: 0", "s.yaml:18:33: variants.0.set.jobs.train.layout.tensor: 0 is out of range"),
        ("jobs.trian.layout.tensor: 2", "s.yaml:18:7: variants.0.set.jobs.trian.layout.tensor: 'trian' names no entry"),
        ("jobs.1.layout.tensor: 2", "the list has 1 entry, counted from 0"),
        ("cluster.servers.x: 2", "'cluster.servers' is one value and has no fields"),
        ("nccl: {pxn: false}", "a section is changed field by field; write 'nccl.pxn' as the name"),
        ("variants: []", "'variants' is the same for all variants"),
        ("cluster.faults: [{element: leaf-01, rate: 3}]", "s.yaml:18:23: variants.0.set.cluster.faults: in '0.rate': 3 has no unit"),
        ("cluster.compute.lengths.node_leaf: 10", "10 has no unit"),
    ],
)  # fmt: skip
def test_changes_of_a_variant_are_checked_where_they_stand(change, said):
    assert said in only(VARIANT + change + "\n")


def test_changes_are_checked_even_when_the_study_itself_is_wrong():
    found = mistakes(VARIANT.replace("servers: 4", "servers: 0") + "nccl.pxm: false\n")
    assert len(found) == 2
    assert "s.yaml:18:7: variants.0.set.nccl.pxm: 'pxm' is not a field; did you mean 'pxn'?" in found[1]


def test_a_mistake_of_the_study_is_not_repeated_for_each_variant():
    found = mistakes(VARIANT.replace("servers: 4", "servers: 0") + "nccl.pxn: false\n")
    assert len(found) == 1


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    layout: {tp: 2}\n",
            "layout.tp: not a field; write 'tensor'",
        ),
        # `overlap.tp` is another thing
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    tp: 2\n",
            "tp: not a field; write 'tensor' in the section 'layout'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    dp: 2\n",
            "dp: not a field; data parallelism is what the other sizes leave",
        ),
        ("global_batch: 32", "batch_size: 32", "batch_size: not a field; write 'global_batch', in sequences"),
        (
            "    tokens: 2e9\n",
            "    epochs: 3\n",
            "epochs: not a field; write 'tokens', of all steps and epochs together",
        ),
        ("servers: 4", "nodes: 4", "cluster.nodes: not a field; write 'servers'"),
        (
            "family: rail-optimised",
            "topology: rail-optimised",
            "compute.topology: not a field; write 'family'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    software: torchtitan\n",
            "'torchtitan' is not allowed; write 'fsdp-2026'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    optimizer: AdamW\n",
            "'AdamW' is not allowed; write 'adam', whose",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    dtype: nf4\n",
            "write 'bf16', in which products are multiplied then, and frozen_dtype: nf4 in the section lora",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    load_in_4bit: true\n",
            "write 'lora', with 'frozen_dtype: nf4' in it",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    lora: {rank: 8, load_in_4bit: true}\n",
            "write 'frozen_dtype: nf4'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    samples: 5000\n",
            "write 'tokens': samples times their length, of all epochs together",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    max_length: 2048\n",
            "max_length: not a field; write 'sequence'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    packing: true\n",
            "write 'sample_length', the mean length of what is packed",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    learning_rate: 1e-5\n",
            "it changes neither time nor memory, so leave it out",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    eval_steps: 100\n",
            "a step has no evaluation in it",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    save_steps: 500\n",
            "write reliability: {checkpoint: {interval: 1 h}} beside the jobs",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    dpo: true\n",
            "passes of a second model (DPO) and generated samples (GRPO, PPO) are not predicted",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    torch_compile: true\n",
            "write 'software', fsdp-2026",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    freeze: [embedding]\n",
            "a job trains all weights, or adapters beside frozen ones ('lora')",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    lora: {rank: 8, modules: all}\n",
            "modules: not a field; write 'targets'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    dtype: fp32\n",
            "'fp32' is not allowed; products in 32 bits are not predicted; write 'bf16'",
        ),
        (
            "    tokens: 2e9\n",
            "    tokens: 2e9\n    lora: {rank: 8, frozen_dtype: int8}\n",
            "weights stored in 8 bits are not modelled; write 'nf4' or 'bf16'",
        ),
    ],
)
def test_words_of_other_frameworks_are_told_in_ours(written, instead, says):
    """'tp' was answered with all 21 fields of a layout, and in a job with the section `overlap`."""
    assert says in only(SOUND.replace(written, instead, 1))


def test_what_foreign_words_are_told_to_be_is_there():
    """Every quoted word of their table is a field of its section or of `layout`, or a value of its field."""
    for section, words in FIELDS.items():
        own = (
            set(SECTIONS[section].model_fields)
            | set(Layout.model_fields)
            | {"layout", "zero: 3", "zero: 0", "frozen_dtype: nf4"}
        )
        for word, said in words.items():
            assert set(re.findall(r"'([^']+)'", said)) <= own, (section, word)
            assert word not in SECTIONS[section].model_fields or (section, word) == ("TrainingJob", "data")
    for field, words in VALUES.items():
        owner = TrainingJob if field in TrainingJob.model_fields else Lora
        annotation = owner.model_fields[field].annotation
        allowed = [one for part in (annotation, *get_args(annotation)) for one in get_args(part)]
        for said in words.values():
            named = re.findall(r"'([^']+)'", said)
            assert set(named) <= set(allowed)
            assert named
