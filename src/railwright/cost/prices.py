"""The price book: dated ranges with their sources, and a user's own prices laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from railwright.catalog.parts import Status
from railwright.cost.price_rules import wrong_figures, wrong_name, wrong_unit
from railwright.errors import Mistake, RailwrightError, SpecError, nearest
from railwright.shipped import read_data

STATUSES = (*get_args(Status), "estimated", "user")
CLOUD_NAMES = {
    "h100-sxm": "h100", "h100-pcie": "h100", "h200-sxm": "h200", "b200-sxm": "b200", "b300-sxm": "b300",
    "a100-sxm-80": "a100-80", "a100-sxm-40": "a100-40", "v100-sxm2-32": "v100", "v100-sxm2-16": "v100",
}  # fmt: skip
"""Catalogue GPU -> its name in cloud price lists, where it differs."""
FIELDS = ("item", "unit", "low", "middle", "high", "source", "date", "status")


@dataclass(frozen=True)
class Price:
    """One price, share or rate.

    low, high  the ends in the sense of what costs less and more (a high residual value is `low`)
    status     read, read_third_party, computed, memory, estimated; user: the user's own
    assumed    whether nothing but `middle` was read, and the ends are those of its kind (`spreads`)
    """

    item: str
    low: float
    middle: float
    high: float
    unit: str
    source: str
    date: str
    status: str
    assumed: bool = False

    @property
    def unread(self) -> bool:
        """Whether nobody has read it in a source."""
        return self.status in ("memory", "estimated")

    @property
    def provenance(self) -> str:
        """'OCI's price list (2026, read)', and whether its range is assumed."""
        return f"{self.source} ({self.date}, {self.status}{', range assumed' if self.assumed else ''})"


Book = Mapping[str, Price]


@dataclass(frozen=True)
class Region:
    """intensity  location-based yearly mean [g CO2e per kWh]"""

    name: str
    intensity: float
    source: str
    date: str
    status: str


def price_book(user_file: str | Path | None = None) -> Book:
    """All prices; a user's file goes before the shipped book. Raises SpecError naming every mistake in it."""
    book = dict(_shipped())
    if user_file is not None:
        book |= _user(str(user_file))
    return book


def find_price(book: Book, item: str) -> Price:
    """A price by name. Raises RailwrightError that says how to add it."""
    if item not in book:
        raise RailwrightError(
            f"the price book has no '{item}'{nearest(item, book)}; write it into a file of your own "
            f"(money.prices), like\nprices:\n  - {{item: {item}, unit: USD, low: 1, middle: 2, high: 3, "
            "source: 'quote of …', date: '2026-11'}",
            "money.prices",
        )
    return book[item]


def added(book: Book) -> list[str]:
    """Items that are not as shipped: a user's own."""
    shipped = _shipped()
    return [item for item, price in book.items() if shipped.get(item) is not price]


@cache
def regions() -> dict[str, Region]:
    found: dict[str, Region] = {}
    source = ""
    for row in _data("carbon")["regions"]:
        source = source if row["source"].startswith("same") else row["source"]
        name = row["region"]
        found[name] = Region(name, float(row["intensity"]), source, row["date"], row["status"])
    return found


@cache
def embodied() -> dict[str, tuple[float, str]]:
    """Part -> (kg CO2e of making one, source)."""
    return {row["item"]: (float(row["kg"]), row["source"]) for row in _data("carbon")["embodied"]}


@dataclass(frozen=True)
class Spread:
    """By how much prices of a kind ('cloud', 'spot', 'electricity') were seen to differ.

    low, high  least and largest ratio, on either side of 1
    seen       every pair behind them, in words, with its source
    """

    kind: str
    low: float
    high: float
    seen: tuple[str, ...]


@cache
def spreads() -> Mapping[str, Spread]:
    """Kind of item -> what a single listed price of it is drawn from, times the price."""
    ratios: dict[str, list[float]] = {}
    seen: dict[str, list[str]] = {}
    source = ""
    for row in _data("prices")["spreads"]:
        source = source if row["source"] == "same" else row["source"]
        ratio = float(row["after"]) / float(row["before"])
        ratios.setdefault(row["kind"], [1.0]).append(ratio)
        words = f"{row['what']}: {ratio:.2f} times, {source} ({row['date']}, {row['status']})"
        seen.setdefault(row["kind"], []).append(words)
    return {kind: Spread(kind, min(all_), max(all_), tuple(seen[kind])) for kind, all_ in ratios.items()}


@cache
def _shipped() -> Book:
    book: dict[str, Price] = {}
    source = ""
    for row in _data("prices")["prices"]:
        source = source if row["source"] in ("same", "same file") else row["source"]
        middle, assumed = float(row["middle"]), "low" not in row
        if assumed:
            spread = spreads()[row["item"].split("/")[0]]
            low, high = middle * spread.low, middle * spread.high
        else:
            low, high = float(row["low"]), float(row["high"])
        book[row["item"]] = Price(
            row["item"], low, middle, high, row["unit"], source, str(row["date"]), row["status"], assumed
        )
    return book


@cache
def _data(name: str) -> Any:
    return read_data("cost", f"{name}.yaml")


def _user(file: str) -> dict[str, Price]:
    rows = _rows(file)
    mistakes: list[Mistake] = []
    book: dict[str, Price] = {}
    for row in rows:
        line = row.lc.line + 1 if hasattr(row, "lc") else 0
        if not isinstance(row, Mapping):
            mistakes.append(
                Mistake(file, line, 0, "prices", f"'{row}' is no price: item, low, middle, high, …")
            )
            continue
        wrong = _wrong(row)
        if wrong:
            mistakes += [Mistake(file, line, 0, f"prices.{row.get('item', '?')}", said) for said in wrong]
            continue
        item = str(row["item"])
        shipped = _shipped().get(item)
        unit = str(row.get("unit") or (shipped.unit if shipped else _unit(item)))
        low, middle, high = (float(row.get(k, row["middle"])) for k in ("low", "middle", "high"))
        source, date = str(row.get("source") or file), str(row.get("date") or "")
        book[item] = Price(item, low, middle, high, unit, source, date, str(row.get("status") or "user"))
    if mistakes:
        raise SpecError(mistakes)
    return book


def _wrong(row: Mapping[str, Any]) -> list[str]:
    said = [f"not a field{nearest(key, FIELDS)}" for key in map(str, row) if key not in FIELDS]
    said += [f"{key} is missing" for key in ("item", "middle") if key not in row]
    numbers = {k: row[k] for k in ("low", "middle", "high") if k in row}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            said.append(f"{key}: '{value}' is no amount of 0 or more; write a bare number, unit in `unit`")
    if "item" in row and (text := wrong_name(str(row["item"]), _shipped())):
        said.append(text)
    if not said:
        said += wrong_figures(str(row["item"]), numbers)
        said += [text] if (text := wrong_unit(str(row.get("unit") or "USD"), _unit(str(row["item"])))) else []
    if row.get("status", "user") not in STATUSES:
        said.append(f"status: '{row['status']}' is none of {', '.join(STATUSES)}")
    if not said and not (
        numbers.get("low", row["middle"]) <= row["middle"] <= numbers.get("high", row["middle"])
        or numbers.get("low", row["middle"]) >= row["middle"] >= numbers.get("high", row["middle"])
    ):
        said.append("middle lies outside low and high")
    return said


def _unit(item: str) -> str:
    """The unit of an item: of its own in the shipped book, else of the first of its kind there."""
    book = _shipped()
    alike = (price.unit for name, price in book.items() if name.split("/")[0] == item.split("/")[0])
    return book[item].unit if item in book else next(alike, "USD")


def _rows(file: str) -> list[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        tree = YAML(typ="rt").load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
        raise SpecError([Mistake(file, 0, 0, "", f"cannot read this price file: {reason}")]) from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        raise SpecError([Mistake(file, line, 0, "", f"not YAML: {error.problem}")]) from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise SpecError([Mistake(file, 0, 0, "", f"not YAML: {error}")]) from None
    if not isinstance(tree, Mapping) or not isinstance(tree.get("prices"), list):
        raise SpecError(
            [Mistake(file, 1, 1, "", "a price file has a list `prices`, of item, low, middle, high, …")]
        )
    return list(tree["prices"])
