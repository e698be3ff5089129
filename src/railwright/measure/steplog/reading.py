"""A training log's lines into steps, whichever framework wrote them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from railwright.errors import RailwrightError
from railwright.measure.steplog.bars import bar, faded, trains, tuned, unblurred
from railwright.measure.steplog.formats import (
    FORMATS,
    HEADED,
    TRAINER,
    TUNED,
    ZERO,
    Told,
    generates,
    reported,
    said,
    steps_in_all,
    zero,
)
from railwright.measure.steplog.log import LoggedStep, StepLog
from railwright.measure.steplog.untimed import unreadable, untimed
from railwright.units import number as counted

KNOWN = ", ".join((*(name for name, _, _ in FORMATS), *(one.name for one in HEADED), TUNED, ZERO))
EXPECTED = f"a training log with lines that number steps and time them, as {KNOWN} print them"
"""What is asked of a training log."""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RESTARTED = 20
"""A bar whose first station is beyond this step goes on behind a restart."""
LONGEST = 4000
"""Characters of a line that are read."""


def is_step_log(path: Path) -> bool:
    """Whether a file has a step of a training framework that is known.

    All of it is looked through: NCCL's words of a thousand ranks, or a bar that ends in the mean of its run,
    are more lines than any bound.
    """
    found = _Found()
    try:
        for number, text in _lines(path):
            found.take(number, text)
            if found.steps or found.generates:
                return True
    except OSError:
        return False
    found.settle()
    return bool(found.steps)


def why_untimed(path: Path) -> str | None:
    """What a log of training without the time of a step holds instead, and what to give; None of other files
    (`is_step_log` says that it has no step)."""
    found = _Found()
    try:
        for number, text in _lines(path):
            found.take(number, text)
    except OSError:
        return None
    return found.why_none(path)


def read_step_log(path: Path) -> StepLog:
    """The steps of a training job's log.

    A step that several ranks print is kept once.  Raises RailwrightError naming the file where it cannot be
    read, has no step, or steps of two frameworks.
    """
    found = _Found()
    try:
        for number, text in _lines(path):
            found.take(number, text)
    except OSError as error:
        raise RailwrightError(f"cannot read '{path}': {error.strerror or error}") from None
    if found.generates:
        raise RailwrightError(
            f"{path}:{found.generates}: a step of reinforcement learning, which generates its samples before "
            "it trains on them: a training job's step is a part of it; give a log of pre-training "
            "or fine-tuning"
        )
    found.settle()
    if not found.steps:
        raise RailwrightError(found.why_none(path) or f"{path}: has no training step; expected {EXPECTED}")
    if len(found.frameworks) > 1:
        raise RailwrightError(
            f"{path}: has steps of {' and of '.join(found.frameworks)}; give the log of one job"
        )
    held = [step.reserved for step in found.steps.values() if step.reserved is not None] + found.reports
    return StepLog(
        file=str(path),
        framework=found.frameworks[0],
        steps=tuple(found.steps.values()),
        said=tuple(found.said.items()),
        reserved=max(held, default=None),
        before=found.before,
        again=len(found.again),
        blurred=found.blurred,
    )


@dataclass
class _Found:
    """What was read so far.

    A job that was started again counts steps twice: the later ones stand.  Started on other GPUs or in
    another layout it is another job, and those before it do not count.
    latest, past  the step of the last line, and that from which the log last went back
    again  steps that ran a second time since it did
    bars  (line, average) at every step of Trainer's progress bars, by their length; only the training's
          counts, which Trainer announces, or whose stations stand before what it tells of training
    begun, from_step  bars that were just begun, and the step from which one that goes on behind a restart
          tells times
    engine  what DeepSpeed's engine tells of steps, which counts where nothing else does
    generates  first line of a step that generates its samples, 0 where there is none
    heads  framework that tells of a step over many lines -> the step of its last head
    laps   (line, average) at every step of torchtune's bars, by epoch; lap: steps of one
    untimed  (line, what it tells) of the first line of training that times no step
    useless  (line, framework) of every line that numbers a step and whose time is none
    """

    steps: dict[int, LoggedStep] = field(default_factory=dict)
    frameworks: list[str] = field(default_factory=list)
    said: dict[str, int] = field(default_factory=dict)
    reports: list[float] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    before: int = 0
    latest: int = 0
    past: int = 0
    again: set[int] = field(default_factory=set)
    bars: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    last_bar: int | None = None
    begun: set[int] = field(default_factory=set)
    from_step: Counter[int] = field(default_factory=Counter)
    trained: Counter[int | None] = field(default_factory=Counter)
    announced: int | None = None
    blurred: bool = False
    engine: dict[int, LoggedStep] = field(default_factory=dict)
    generates: int = 0
    laps: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    lap: int = 0
    untimed: tuple[int, str] | None = None
    useless: list[tuple[int, str]] = field(default_factory=list)

    def take(self, number: int, text: str) -> None:
        if not self.generates and generates(text):
            self.generates = number
        if told_of_job := said(text):
            self._start(told_of_job)
        if (held := reported(text)) is not None:
            self.reports.append(held)
        if told := self._headed(text) or _told(text):
            self._keep(told[0], number, told[1])
        elif (engines := zero(text)) is not None:
            self.engine[engines["number"]] = LoggedStep(number, **engines)
        elif framework := unreadable(text):
            self.useless.append((number, framework))
        elif self.untimed is None and (why := untimed(text)):
            self.untimed = number, why
        self._draw(number, text)

    def _headed(self, text: str) -> tuple[str, Told] | None:
        """(framework, step) of a rate on a line of its own, below the line that numbers the step."""
        for one in HEADED:
            if one.opens in text and (head := one.number.search(text)):
                self.heads[one.name] = int(head[1])
            if one.name in self.heads and (rate := one.rate(text)):
                return one.name, {"number": self.heads[one.name], "rate": rate}
        return None

    def _draw(self, line: int, text: str) -> None:
        """Progress bars of torchtune and Trainer, and what tells which of Trainer's is the training's."""
        if (lap := tuned(text)) is not None:
            self.lap, held = lap.steps, self.laps.setdefault(lap.epoch, {})
            # drawn again with its own loss it says the same, and at its end the mean of all
            if lap.step != next(reversed(held), None):
                held.pop(lap.step, None)
                held[lap.step] = line, lap.seconds
            return
        if (station := bar(text)) is not None:
            step, self.last_bar, seconds = station
            if step == 0:
                self.begun.add(self.last_bar)
                return
            if self.last_bar in self.begun:
                self.begun.discard(self.last_bar)
                self.from_step[self.last_bar] = step + faded(step) if step > RESTARTED else 0
            held = self.bars.setdefault(self.last_bar, {})
            # drawn again it says the same, and at its end the mean of all
            if step >= self.from_step[self.last_bar] and step != next(reversed(held), None):
                held.pop(step, None)
                held[step] = line, seconds
        if trains(text):
            self.trained[self.last_bar] += 1
        if (total := steps_in_all(text)) is not None:
            self.announced = total

    def settle(self) -> None:
        """Trainer's bar in place of the mean at its end; torchtune's, and DeepSpeed's engine, where nothing
        else tells."""
        self._settle_bar()
        if self.laps and not self.steps:
            self._settle_laps()
        windows = [one.name for one in HEADED if one.window]
        self.blurred = self.blurred or any(name in windows for name in self.frameworks)
        if self.engine and not self.steps:
            self.frameworks, self.steps = [ZERO], self.engine

    def _settle_bar(self) -> None:
        mine: list[int | None] = [bar for bar, _ in self.trained.most_common(1)]
        if self.announced in self.bars:
            mine = [self.announced]
        held = self.bars.get(mine[0], {}) if mine and mine[0] is not None else {}
        if not held or (self.frameworks and self.frameworks != [TRAINER]):
            return
        mean = self.steps.get(0)
        between = None if mean is None else mean.between
        self.frameworks, self.blurred = [TRAINER], True
        times = unblurred({step: average for step, (_, average) in held.items()})
        self.steps = {
            step: LoggedStep(held[step][0], step, seconds=seconds, between=between)
            for step, seconds in times.items()
        }

    def _settle_laps(self) -> None:
        """torchtune's bars; tqdm's averages begin anew in every epoch."""
        self.frameworks, self.blurred = [TUNED], True
        for epoch, held in sorted(self.laps.items()):
            before = min(held) - 1
            times = unblurred({step - before: average for step, (_, average) in held.items()})
            for step, seconds in sorted(times.items()):
                line, number = held[step + before][0], (epoch - 1) * self.lap + step + before
                self.steps[number] = LoggedStep(line, number, seconds=seconds)

    def why_none(self, path: Path) -> str | None:
        """Why a log of training has no step; None where it is none that is known."""
        if self.trained:
            return (
                f"{path}: has losses of {TRAINER} and nothing that times its steps; give it with the "
                "progress bar (both streams of the job, 2>&1), or to its end (train_steps_per_second)"
            )
        if self.untimed:
            return f"{path}:{self.untimed[0]}: {self.untimed[1]}"
        if self.useless:
            line, framework = self.useless[0]
            lines = counted(len(self.useless), "line")
            return (
                f"{path}:{line}: the first of {lines} in which {framework} tells "
                "of a step; none has a time or rate above 0: give the log of a job whose steps ran"
            )
        return None

    def _start(self, told: dict[str, int]) -> None:
        if any(self.said.get(field, value) != value for field, value in told.items()):
            self.before += len(self.steps)
            self.steps.clear()
            self.again.clear()
            self.reports.clear()
            self.bars.clear()
            self.trained.clear()
            self.engine.clear()
        self.said |= told

    def _keep(self, framework: str, line: int, told: Told) -> None:
        if framework not in self.frameworks:
            self.frameworks.append(framework)
        step = LoggedStep(line, **told)
        if (step.seconds or step.rate or 0.0) > 0.0:
            # ranks that all print are no two steps apart
            self.past = self.latest if step.number < self.latest - 1 else self.past
            self.latest = step.number
            if step.number in self.steps and step.number <= self.past:
                self.again.add(step.number)
            self.steps.pop(step.number, None)
            self.steps[step.number] = step
        else:
            self.useless.append((line, framework))


def _told(text: str) -> tuple[str, Told] | None:
    """(framework, what a line tells of a step); None where it tells nothing, or not of which step."""
    for name, words, reader in FORMATS:
        if words in text and (told := reader(text)) is not None:
            return name, told
    return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number of a line, its text without colours); the stations of a progress bar, which carriage returns
    part, each stand alone."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for number, raw in enumerate(file, 1):
            for text in raw.split("\r"):
                line = text.rstrip("\n")[:LONGEST]
                yield number, COLOUR.sub("", line) if "\x1b" in line else line
