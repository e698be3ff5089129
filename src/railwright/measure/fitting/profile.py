"""The profile file: constants measured on a cluster, each with its error, its logs and the shipped value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.family import BANDS, families
from railwright.collectives.group import GENERATIONS
from railwright.collectives.profile import Overrides
from railwright.errors import Mistake, SpecError, nearest
from railwright.measure.fitting.fit import LIMITS
from railwright.spec.document import read_text, read_yaml
from railwright.spec.study import Study

CONSTANTS = ("launch", "ramp", "usable")
UNITS = {"launch": "s", "ramp": "1", "usable": "of NCCL's usable bandwidth"}
SCOPES = ("one-node", "ib", "efa")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LogRecord(_Record):
    """A log that was used; `date` is that of the file."""

    file: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    date: str


class CurveRecord(_Record):
    """One curve of a log and what the calibrated model leaves of it; sizes [byte]."""

    log: str
    line: int
    op: str
    ranks: int
    nodes: int
    sizes: tuple[float, ...]
    measured_over_predicted: tuple[float, ...]


class ConstantRecord(_Record):
    """One measured constant; `low` and `high` are its 80 % interval."""

    value: float
    standard_error: Annotated[float, Field(ge=0)]
    low: float
    high: float
    shipped: float
    unit: str
    logs: tuple[str, ...]


class HeldRecord(_Record):
    """A constant that keeps the shipped value, and why."""

    constant: Literal["launch", "ramp", "usable"]
    shipped: float
    why: str


class FamilyRecord(_Record):
    """One family: what was measured, what was held, and how well it fits.

    bands  80 % band of measured/predicted up to 256 KiB, up to 128 MiB, above
    """

    launch: ConstantRecord | None = None
    ramp: ConstantRecord | None = None
    usable: ConstantRecord | None = None
    held: tuple[HeldRecord, ...] = ()
    bands: tuple[tuple[float, float], ...]
    median_error_in_sample: float
    median_error_left_out: float
    left_out_in_turn: Literal["curve", "size"]
    median_error_shipped: float
    curves: tuple[CurveRecord, ...]

    def measured(self) -> dict[str, ConstantRecord]:
        """The measured constants by name, in the order of CONSTANTS."""
        found = {name: getattr(self, name) for name in CONSTANTS}
        return {name: record for name, record in found.items() if record is not None}


class ProfileFile(_Record):
    """Everything a profile holds."""

    railwright_profile: Literal[1]
    version: str
    study: str
    server: str
    gpu: str
    nic: str
    logs: tuple[LogRecord, ...]
    families: dict[str, FamilyRecord]
    refused: tuple[str, ...] = ()

    def overrides(self, name: str) -> dict[str, Overrides]:
        """What predictions use, by family.

        name  what to call the profile in the basis of a prediction
        """
        return {
            family: Overrides(
                launch=record.launch.value if record.launch else None,
                ramp=record.ramp.value if record.ramp else None,
                usable=record.usable.value if record.usable else None,
                bands=record.bands,
                basis=f"calibrated by {name}: {', '.join(record.measured())} from {_curves(record)}",
            )
            for family, record in self.families.items()
        }

    def log(self, file: str) -> LogRecord:
        """The log of a name."""
        return next(log for log in self.logs if log.file == file)


def read_profile(path: str | Path) -> ProfileFile:
    """Read a profile.

    Raises SpecError with every mistake: file, line, field, what is allowed, the nearest family.
    """
    path = Path(path)
    document = read_yaml(read_text(path), str(path))
    plain = document.plain
    if not isinstance(plain, dict) or "railwright_profile" not in plain:
        message = (
            "this is no profile: it does not begin with 'railwright_profile: 1'; write one with "
            "`railwright calibrate LOG STUDY -o profile.yaml`"
        )
        raise SpecError([document.mistake((), message)])
    mistakes = list(document.mistakes)
    try:
        profile = ProfileFile.model_validate(plain)
    except ValidationError as flaws:
        mistakes += [
            document.mistake(tuple(flaw["loc"]), _said(flaw), flaw["type"] == "extra_forbidden")
            for flaw in flaws.errors(include_url=False)
        ]
        raise SpecError(mistakes) from None
    for place, message in _doubts(profile):
        mistakes.append(document.mistake(place, message, at_key=len(place) == 2))
    if mistakes:
        raise SpecError(mistakes)
    return profile


def write_profile(profile: ProfileFile, path: Path, *, replace: bool = False) -> None:
    """Write a profile. Raises SpecError where it cannot be written, or exists and `replace` is not said."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedSeq

    def laid_out(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: laid_out(v, k) for k, v in value.items() if v is not None}
        if isinstance(value, list | tuple):
            row = CommentedSeq([laid_out(v) for v in value])
            if key in ("sizes", "measured_over_predicted", "logs", "bands") and not isinstance(
                next(iter(value), None), dict
            ):
                row.fa.set_flow_style()
            return row
        return int(value) if isinstance(value, float) and value >= 1 and value.is_integer() else value

    writer = YAML()
    writer.width = 100
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(
                f"# Written by railwright {profile.version}: `railwright calibrate --show {path.name}` tells "
                "where each\n# constant came from; a study uses it with `calibration: " + path.name + "`.\n"
            )
            writer.dump(laid_out(profile.model_dump()), file)
    except FileExistsError:
        message = "exists and is not overwritten; name another file, or say --force to replace it"
        raise SpecError([Mistake(str(path), 0, 0, "", message)]) from None
    except OSError as no:
        message = f"cannot be written: {no.strerror or no}; name another file"
        raise SpecError([Mistake(str(path), 0, 0, "", message)]) from None


def profile_of(study: Study) -> dict[str, Overrides] | None:
    """What a study's profile overrides; None without one. Raises SpecError, as `read_profile`."""
    if study.calibration is None:
        return None
    return read_profile(study.calibration).overrides(Path(study.calibration).name)


def known_family(name: str) -> bool:
    """Whether a name is generation, scope and algorithm of our tables: 'hopper ib ring'."""
    words = name.split(" ")
    scopes = {*SCOPES, *(known.split(" ")[1] for known in families())}
    return (
        len(words) == 3
        and words[0] in GENERATIONS
        and words[1] in scopes
        and (words[2] in ALGORITHMS or words[2] == "p2p")
    )


def _doubts(profile: ProfileFile) -> list[tuple[tuple[str | int, ...], str]]:
    """What is well-formed and still cannot be."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    files = {log.file for log in profile.logs}
    for name, record in profile.families.items():
        at: tuple[str | int, ...] = ("families", name)
        if not known_family(name):
            hint = nearest(name, families()) or f"; known are such as {', '.join(list(families())[:3])}"
            found.append((at, f"there is no family '{name}'{hint}"))
        for constant, measured in record.measured().items():
            low, high = LIMITS[constant]
            if not low <= measured.value <= high:
                said = f"{measured.value:g} {UNITS[constant]} cannot be; {low:g} to {high:g} can"
                found.append(((*at, constant, "value"), f"{said}: calibrate again"))
            for log in measured.logs:
                if log not in files:
                    said = f"'{log}' is not one of the profile's logs ({', '.join(sorted(files))})"
                    found.append(((*at, constant, "logs"), f"{said}: calibrate again"))
        if len(record.bands) != len(BANDS) or any(not 0 < low <= high for low, high in record.bands):
            said = f"{len(BANDS)} pairs of positive numbers, the smaller first, are wanted"
            found.append(((*at, "bands"), f"{said}: calibrate again"))
    return found


def _said(flaw: Any) -> str:
    kind, text = flaw["type"], str(flaw["msg"])
    if kind == "extra_forbidden":
        return "not a field of a profile; delete it, or calibrate again"
    if kind == "missing":
        return "is missing; calibrate again, or copy it from the file that was written"
    return f"{text[0].lower()}{text[1:]}, not {flaw['input']!r:.60}; calibrate again"


def _curves(record: FamilyRecord) -> str:
    return ", ".join(dict.fromkeys(f"{c.log} ({c.op}, {c.ranks} ranks)" for c in record.curves))
