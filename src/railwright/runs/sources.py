"""Files that a run of Megatron-LM leaves or starts from: its script, its arguments, its log.

- a shell script that launches pretrain_gpt.py, or one with a `.py` of its own;
- a file of nothing but arguments, such as `railwright search --export megatron` writes;
- YAML with the arguments under MODEL_ARGS (Megatron-LM's functional tests, Megatron-MoE-ModelZoo), or of
  another framework (`bridge`, `trainer`);
- the list of all arguments at the head of a log (megatron/training/arguments.py, _print_args).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from railwright.errors import RailwrightError
from railwright.runs.bridge import is_bridges, of_bridge
from railwright.runs.given import FIELDS, Given, Value, dollar, number_format, texts
from railwright.runs.shell import MISSING, Command, Script, follow, unset
from railwright.runs.trainer import KINDS, of_mapping

LISTED = re.compile(r"(?:^|\s)([a-z]\w*) (\.+) (.*)$")
BEGINS = re.compile(r"-{10,} arguments -{10,}")
ENDS = re.compile(r"-{10,} end of arguments -{10,}")

NEGATED = {
    "disable_bias_linear": "add_bias_linear",
    "no_bias_swiglu_fusion": "bias_swiglu_fusion",
    "no_bias_gelu_fusion": "bias_gelu_fusion",
    "no_rope_fusion": "apply_rope_fusion",
    "no_position_embedding": "add_position_embedding",
    "no_align_param_gather": "align_param_gather",
    "no_overlap_p2p_communication": "overlap_p2p_comm",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion",
    "torch_fsdp2_no_reshard_after_forward": "torch_fsdp2_reshard_after_forward",
    "no_async_tensor_model_parallel_allreduce": "async_tensor_model_parallel_allreduce",
}
"""Switches that turn something off, and what (arguments.py: store_false)."""

RENAMED = {
    **FIELDS,
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "model_parallel_size": "tensor_model_parallel_size",
}
"""Other names of arguments, and those that are kept (arguments.py: dest; older releases)."""

TRAINS = {
    "num_layers", "micro_batch_size", "tensor_model_parallel_size", "seq_length",
    "model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps", "deepspeed",
}  # fmt: skip
"""Arguments by two of which a launch of training is known."""

NODES = ("nnodes", "N", "nodes", "num_nodes", "num_machines")
EACH = ("nproc_per_node", "gpus_per_node", "num_gpus", "gres", "ntasks_per_node")
PROCESSES = ("num_processes",)
"""Options of launchers, and of Slurm, for nodes, GPUs of each, and GPUs in all."""
LAUNCHERS = ("torch.distributed", "accelerate", "deepspeed")
"""First words of modules that launch another program."""
SBATCH = re.compile(r"^#SBATCH\s+(?:--([\w-]+)|-(\w))(?:[=\s]\s*)(\S+)", re.MULTILINE)


def arguments_of(text: str, file: str, variables: Mapping[str, str]) -> Given:
    """The arguments in a file of any of the kinds above.

    variables  values of a script's variables that stand whatever it says
    Raises RailwrightError where no arguments are found, several launches have some, or a file is broken.
    """
    if any(BEGINS.search(row) for row in text.splitlines()):
        return _of_log(text, file)
    if file.endswith((".yaml", ".yml")):
        return _of_yaml(text, file, variables)
    return _of_script(text, file, variables)


PRINTING = (("echo",), ("printf",))
"""Commands that print what they are given."""


def _of_script(text: str, file: str, variables: Mapping[str, str]) -> Given:
    """Those of the one launch in a script; where none is, all words of the file."""
    script = follow(text, file, variables)
    # a script that runs its command often prints it too
    run = [command for command in script.commands if command.fields[:1] not in PRINTING]
    launched = [found for command in run for found in _launches(command, file)]
    launched = launched or [found for command in script.commands for found in _launches(command, file)]
    if len(launched) > 1:
        lines = " and ".join(str(command.line) for command in launched)
        raise RailwrightError(f"{file}: lines {lines} each launch a program with arguments; keep one of them")
    if launched:
        fields = launched[0].fields
        program = _program(fields)
        before, behind = fields[:program] if program >= 0 else fields, fields[program + 1 :]
        named = MISSING.sub(lambda found: dollar(found[1]), fields[program]) if program >= 0 else ""
        launches = Value((named,), launched[0].line, named) if named else None
    else:
        launches = None
        before, behind = (), tuple(one for command in script.commands for one in command.fields)
    values = _values(behind, _lines(text))
    if not values:
        raise RailwrightError(
            f"{file}: no arguments of a training run are found; expected is a shell script that launches "
            "pretrain_gpt.py or a Trainer, a file of its arguments, a log that lists them, YAML of "
            "LLaMA-Factory or Axolotl, or a TOML file of torchtitan"
        )
    script.empty |= _dropped(behind, values)
    gpus, each = _size(before, text, script)
    environment = {name: value for name, value in script.values.items() if isinstance(value, str)}
    doubts = [*script.doubts, *_told(script, file)]
    return Given(file, values, gpus, each, environment, doubts=doubts, program=launches)


def _dropped(fields: Iterable[str], values: Mapping[str, Value]) -> set[str]:
    """Variables that are not set and stand for words of their own, which Bash leaves out."""
    alone = {found[1] for one in fields if (found := MISSING.fullmatch(one))}
    return alone - {name for value in values.values() for one in value.words for name in MISSING.findall(one)}


def _told(script: Script, file: str) -> list[str]:
    """What was taken for empty."""
    if not script.empty:
        return []
    names = sorted(map(dollar, script.empty))
    which = f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"
    return [f"{file}: {which} not set in it, and taken for empty (--set NAME=VALUE sets one)"]


def _program(fields: Iterable[str]) -> int:
    """Where the launched program or module stands; -1 where none with arguments behind it is named."""
    words = list(fields)
    programs = [i for i, word in enumerate(words) if word.endswith(".py")]
    modules = [i for i in range(1, len(words)) if words[i - 1] == "-m"]
    own = [i for i in modules if not words[i].startswith(LAUNCHERS)]
    return next((i for i in programs + own if any(one.startswith("--") for one in words[i + 1 :])), -1)


def _launches(command: Command, file: str) -> list[Command]:
    """The launch of a training program in a command, in what it hands to another shell too."""
    found = []
    for one in command.fields:
        if " " in one and "--" in one and TRAINS & set(map(_own, re.findall(r"--[\w-]+", one))):
            marked = MISSING.sub(lambda name: unset(re.sub(r"\W+", "_", name[1])), one)
            try:
                inner = follow(marked, file, {}).commands
            except RailwrightError:
                continue
            found += [
                launch
                for c in inner
                for launch in _launches(Command(c.fields, command.line), file)
                if c.fields != command.fields
            ]
    if found:
        return found
    behind = {_own(one.split("=")[0].split()[0]) for one in command.fields[1:] if one.startswith("--")}
    return [command] if len(TRAINS & behind) > 1 and not command.fields[0].startswith("--") else []


def _lines(text: str) -> Mapping[str, int]:
    """Argument -> the first line of a file on which it stands."""
    found: dict[str, int] = {}
    for number, row in enumerate(text.splitlines(), 1):
        for name in re.findall(r"(?:^|[\s\"'(])(--[A-Za-z][\w-]*)", row.split(" #")[0]):
            found.setdefault(name, number)
    return found


def _values(fields: Iterable[str], lines: Mapping[str, int]) -> dict[str, Value]:
    """Arguments and their words; the last of several of one name counts, as to argparse."""
    found: dict[str, Value] = {}
    name, words = "", list[str]()
    for given in fields:
        # an element of an array that holds an argument with its value, which Bash would split
        for one in given.split(None, 1) if given.startswith("--") else [given]:
            if not re.match(r"--[A-Za-z]", one):
                words.append(one)
                continue
            _keep(found, name, words, lines)
            name, _, value = one.partition("=")
            words = [value] if value else []
    _keep(found, name, words, lines)
    return found


def _keep(found: dict[str, Value], name: str, words: list[str], lines: Mapping[str, int]) -> None:
    if not name:
        return
    own, given = _own(name), tuple(words)
    if own in NEGATED:
        own, given = NEGATED[own], ("False",)
    found[own] = Value(given, lines.get(name, 0), name)


def _own(argument: str) -> str:
    """The name that an argument is kept under."""
    name = argument.removeprefix("--").replace("-", "_")
    return RENAMED.get(name, name)


def _size(fields: Iterable[str], text: str, script: Script) -> tuple[int | None, int | None]:
    """GPUs, and those of one node, by the launcher's words, else Slurm's; None where nothing tells."""
    given = {_own(name).strip("_"): value for name, value in _pairs(list(fields))}
    known = {k: v for k, v in script.values.items() if isinstance(v, str)}
    for long, short, value in SBATCH.findall(text):
        given.setdefault(_own(long or short), _filled(value, known))
    every, each = _first(given, PROCESSES), _first(given, EACH)
    # one node, to every launcher, where none are asked for
    nodes = _first(given, NODES) if any(name in given for name in NODES) else 1
    return every or (nodes * each if nodes and each else None), each


def _pairs(fields: list[str]) -> Iterable[tuple[str, str]]:
    for i, one in enumerate(fields):
        if one.startswith("-"):
            name, _, value = one.partition("=")
            yield name, value or (fields[i + 1] if i + 1 < len(fields) else "")


def _first(given: Mapping[str, str], names: Iterable[str]) -> int | None:
    for name in names:
        value = given.get(name, "").rsplit(":", 1)[-1]  # gpu:h100:8
        if value.isdigit():
            return int(value)
    return None


def _of_log(text: str, file: str) -> Given:
    """The list at the head of a log; of several runs in one log the last."""
    values: dict[str, Value] = {}
    inside = False
    for number, row in enumerate(text.splitlines(), 1):
        if ENDS.search(row):
            inside = False
        elif BEGINS.search(row):
            inside, values = True, {}
        elif inside and (found := LISTED.search(row)):
            own = RENAMED.get(found[1], found[1])
            values[own] = Value((number_format(found[3].strip()),), number, found[1])
    if not values:
        raise RailwrightError(f"{file}: the list of arguments that begins in it is empty or cut off")
    given = Given(file, values, everything=True)
    given.gpus = given.whole("world_size")
    return given


def _of_yaml(text: str, file: str, variables: Mapping[str, str]) -> Given:
    import yaml

    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RailwrightError(f"{file}: this is no YAML: {' '.join(str(error).split())}") from None
    if is_bridges(read):
        return of_bridge(read, file, _keys(text))
    if isinstance(read, dict) and any(key in read for key in KINDS):
        return of_mapping(read, file, _keys(text))
    listed = read.get("MODEL_ARGS") if isinstance(read, dict) else None
    if not isinstance(listed, dict):
        raise RailwrightError(
            f"{file}: Megatron-LM's arguments are expected under MODEL_ARGS, each a line ('--num-layers: 8')"
            " or a configuration of LLaMA-Factory (model_name_or_path), Axolotl (base_model) or "
            "Megatron-Bridge (model, train, ddp)"
        )
    mode = str(read.get("MODE"))
    around = {**texts(read.get("ENV_VARS")), **variables}
    lines, values = _lines(text), dict[str, Value]()
    for name, value in listed.items():
        if value is False or value is None:
            continue
        given = value if isinstance(value, list) else [] if value is True else [value]
        words = [_filled(str(one), around) for one in given]
        _keep(values, str(name), [part for one in words for part in one.split()], lines)
    program = Value((mode,), 0, f"MODE: {mode}") if "MODE" in read else None
    return Given(file, values, environment=around, program=program)


def _keys(text: str) -> Mapping[str, int]:
    """Key of a YAML file -> the first line on which it stands."""
    found: dict[str, int] = {}
    for number, row in enumerate(text.splitlines(), 1):
        if key := re.match(r"\s*([A-Za-z_]\w*):", row):
            found.setdefault(key[1], number)
    return found


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """A text with its ${…} replaced by their values, or by their names between marks."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: variables.get(found[1], unset(found[1])), text)
