"""The commands of `railwright`: which module brings each, and its line in `railwright --help`.

A module of `railwright.cli` is imported when one of its commands is asked for, so that neither `--help` nor
another command pays for it. The lines are those of the commands themselves
(tests/errors/test_cli_startup.py loads them all and compares).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_group

from railwright.cli.groups import QuickGroup


class Entry(NamedTuple):
    """A command, or a group of them: the module under `railwright.cli` whose `add_to` brings it; its help."""

    module: str
    help: str


# In the order of `railwright --help`: commands, then groups of commands.
COMMANDS = {
    "run": Entry("studies", "Answer a study."),
    "check": Entry("studies", "Report every mistake in a study."),
    "init": Entry("studies", "Write a commented starter study."),
    "schema": Entry("studies", "Print the JSON Schema of study files."),
    "import": Entry("imports", "Read a run's own settings as a job."),
    "search": Entry("search", "Find the best layouts of a job."),
    "perf": Entry("perf", "Predict a collective as nccl-tests prints it."),
    "moe": Entry("moe", "Predict dispatch and combine of a mixture-of-experts layer."),
    "demand": Entry("demand", "Say what a training run takes."),
    "serve": Entry("serve", "Say what users of a served model see."),
    "kernels": Entry("kernels", "Read measured kernels of an installed aiconfigurator-core."),
    "cost": Entry("cost", "Say what a cluster costs: owned, colocated, rented, mixed."),
    "grow": Entry("grow", "Say which equipment fits now, and what comes after it."),
    "bill": Entry("bill", "List everything to buy, for procurement."),
    "deploy": Entry("deploy", "Say how people should share the machines."),
    "queue": Entry("queue", "Put a queue of jobs on this cluster, placed in different ways."),
    "goodput": Entry("reliability", "Say what failures cost the first job of a study."),
    "validate": Entry("validation", "Replay published measurements."),
    "compare": Entry("measure", "Hold a benchmark's or a job's log against a study."),
    "crosscheck": Entry("crosscheck", "Give the same problem to other simulators."),
    "emulate": Entry("emulate", "Run real processes on a study's fabric."),
    "calibrate": Entry("calibrate", "Fit constants to a cluster's logs, or an engine's."),
    "diagnose": Entry("diagnose", "Name the element at fault, from any evidence."),
    "burnin": Entry("diagnose", "Write the acceptance plan of a new cluster."),
    "fabric": Entry("fabric", "Design, audit and export fabrics; check real ones."),
    "catalog": Entry("catalog", "List parts and software eras, every value with its source."),
    "model": Entry("model", "Show model architectures and their cost."),
    "bench": Entry("measure", "Measure collectives, under torchrun, srun or mpirun."),
    "trace": Entry("traces", "Traces of a step: write, replay, compare."),
    "site": Entry("site", "Racks, power, cooling, cables and storage of a room."),
}


def load(name: str) -> Any:
    """The command `name` of COMMANDS itself, its module imported."""
    brought = typer.Typer(cls=QuickGroup, rich_markup_mode=None, add_completion=False)
    import_module(f"railwright.cli.{COMMANDS[name].module}").add_to(brought)
    return get_group(brought).commands[name]


class LazyGroup(QuickGroup):
    """A group that lists COMMANDS by their lines in the table, and loads the one that is to run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load(name), rest
