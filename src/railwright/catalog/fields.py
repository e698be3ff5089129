"""What each kind of part consists of: its fields, how a value is written in a file, and how it is shown.

This table is the only place that knows them; reading a record and describing a part follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from railwright.catalog.parts import Gpu, Nic, Server, Switch
from railwright.errors import RailwrightError, nearest
from railwright.units import EXAMPLES, Dimension, parse

Part = Gpu | Nic | Switch | Server
Form = Literal["text", "choice", "whole number", "yes or no", "quantity", "peaks", "gpu name", "nic name"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


@dataclass(frozen=True)
class Field:
    """One field of a part.

    form       how it is written
    dimension  of a quantity or of the peaks
    unit       it is shown in
    choices    allowed words of a choice
    least      smallest number allowed [in base units]; a quantity of least > 0 may not be zero
    otherwise  value where a new part does not give one; None: it must
    """

    form: Form
    dimension: Dimension = "power"
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: float = 0.0
    otherwise: float | str | None = None


_POSITIVE = 5e-324
"""The smallest positive float: a quantity whose `least` is this may not be zero."""

_TEXT = Field("text")
_GB_PER_S = Field("quantity", "bandwidth", "GB/s")
_GBIT_PER_S = Field("quantity", "bandwidth", "Gb/s", least=_POSITIVE)
_WATTS = Field("quantity", "power", "W")
_MICROSECONDS = Field("quantity", "time", "us")
_SOME = Field("whole number", least=1)

FIELDS: dict[str, dict[str, Field]] = {
    "gpus": {
        "vendor": _TEXT,
        "generation": _TEXT,
        "peak_flops": Field("peaks", "flop rate", "TFLOP/s", DTYPES, _POSITIVE),
        "hbm_bytes": Field("quantity", "size", "MiB", least=_POSITIVE),
        "hbm_bandwidth": Field("quantity", "bandwidth", "GB/s", least=_POSITIVE),
        "scale_up_bandwidth": _GB_PER_S,
        "scale_up_links": Field("whole number", otherwise=0),
        "power": _WATTS,
        "sms": _SOME,
    },
    "nics": {
        "vendor": _TEXT,
        "rate": _GBIT_PER_S,
        "ports": _SOME,
        "pcie_bandwidth": Field("quantity", "bandwidth", "GB/s", least=_POSITIVE),
        "latency": _MICROSECONDS,
        "power": _WATTS,
        "technology": Field("choice", choices=("infiniband", "ethernet", "both"), otherwise="both"),
    },
    "switches": {
        "vendor": _TEXT,
        "technology": Field("choice", choices=("infiniband", "ethernet")),
        "ports": Field("whole number", least=2),
        "cages": _SOME,
        "rate": _GBIT_PER_S,
        "latency": _MICROSECONDS,
        "power_typical": _WATTS,
        "power_max": _WATTS,
        "rack_units": _SOME,
        "adaptive_routing": Field("yes or no"),
        "sharp": Field("yes or no"),
        "director_spines": Field("whole number"),
    },
    "servers": {
        "vendor": _TEXT,
        "gpu": Field("gpu name"),
        "gpus": _SOME,
        "nic": Field("nic name"),
        "nics": _SOME,
        "cpu": Field("choice", choices=("intel", "amd", "arm")),
        "rack_units": _SOME,
        "power_max": Field("quantity", "power", "kW"),
        "hosts": Field("whole number", least=1, otherwise=1),
        "memory": Field("quantity", "size", "GB", otherwise=0.0),
    },
}
"""Kind of part -> its fields in the order they are shown; `name` is the key of the record."""

CLASSES: dict[str, type[Part]] = {"gpus": Gpu, "nics": Nic, "switches": Switch, "servers": Server}
SINGULAR = {"gpus": "GPU", "nics": "NIC", "switches": "switch", "servers": "server"}


def read(field: Field, value: Any) -> Any:
    """One value of a file in base units; a part's name comes back as it was written.

    Raises RailwrightError saying what is wrong and what is allowed.
    """
    if field.form in ("text", "gpu name", "nic name"):
        if not isinstance(value, str) or not value.strip():
            raise RailwrightError(f"{value!r} is not a word; write a name, e.g. 'nvidia' or 'h100-sxm'")
        return str(value).strip()
    if field.form == "choice":
        if value not in field.choices:
            allowed = ", ".join(field.choices)
            raise RailwrightError(f"'{value}' is not one of {allowed}{nearest(str(value), field.choices)}")
        return str(value)
    if field.form == "yes or no":
        if not isinstance(value, bool):
            raise RailwrightError(f"'{value}' is neither true nor false")
        return bool(value)
    if field.form == "whole number":
        if isinstance(value, bool) or not isinstance(value, int):
            raise RailwrightError(f"'{value}' is not a whole number")
        if value < field.least:
            raise RailwrightError(f"{value} is too small; the least is {field.least:.0f}")
        return int(value)
    return _quantity(field, value)


def kind_of(part: Part) -> str:
    """'gpus', 'nics', 'switches' or 'servers'."""
    return next(kind for kind, cls in CLASSES.items() if isinstance(part, cls))


def show(field: Field, value: Any) -> str:
    """A value for people, exact to six digits, in the unit data sheets use."""
    if field.form in ("quantity", "peaks"):
        return f"{value / parse(f'1 {field.unit}', field.dimension):.10g} {field.unit}"
    if field.form == "yes or no":
        return "yes" if value else "no"
    return str(value)


def _quantity(field: Field, value: Any) -> float:
    if not isinstance(value, str):
        examples = " or ".join(f"'{example}'" for example in EXAMPLES[field.dimension])
        raise RailwrightError(
            f"{value!r} has no unit; write a {field.dimension} with its unit, like {examples}"
        )
    number = parse(value, field.dimension)
    if number < field.least:
        raise RailwrightError(f"'{value}' is zero; a part without it cannot be modelled")
    return number
