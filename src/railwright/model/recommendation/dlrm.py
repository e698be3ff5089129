"""A deep-learning recommendation model (DLRM) as a value: embedding tables, two MLPs, their interaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard

from railwright.errors import Mistake, SpecError, among, nearest

Part = Literal["bottom", "interaction", "top"]

FIELDS = (
    *("kind", "width", "dense_features", "bottom", "interaction", "cross_layers", "cross_rank", "top"),
    *("rows", "lookups", "source"),
)


class Product(NamedTuple):
    """A dense product of a recommender.

    part     'bottom', 'interaction' or 'top'
    inputs, outputs  widths
    crosses  whether its result multiplies the interaction's input and is added to the layer's: the second
             product of a low-rank cross layer
    """

    part: Part
    inputs: int
    outputs: int
    crosses: bool = False


@dataclass(frozen=True)
class Recommender:
    """A DLRM.

    rows      (T,) rows of each embedding table
    lookups   (T,) rows of each table that one sample looks up and adds up (its pooling factor)
    width     columns of every table
    dense_features  numbers beside the lookups, the input of the bottom MLP
    bottom, top     widths of the layers of both MLPs; the bottom one ends in `width`
    interaction     'dot': products of all pairs of vectors; 'dcn': low-rank cross layers (DCN v2)
    cross_layers, cross_rank  of 'dcn'
    """

    name: str
    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    width: int
    dense_features: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: Literal["dot", "dcn"]
    cross_layers: int = 0
    cross_rank: int = 0
    source: str = ""

    @property
    def vectors(self) -> int:
        """Vectors of `width` that interact: one per table, and the bottom MLP's."""
        return len(self.rows) + 1

    @property
    def interacted(self) -> int:
        """Width of the interaction's output, the top MLP's input."""
        if self.interaction == "dcn":
            return self.vectors * self.width
        return self.width + self.vectors * (self.vectors - 1) // 2

    def products(self, part: Part | None = None) -> tuple[Product, ...]:
        """Every dense product, or those of one part, in the order of a forward pass."""
        wide = self.vectors * self.width
        down, up = (
            Product("interaction", wide, self.cross_rank),
            Product("interaction", self.cross_rank, wide, crosses=True),
        )
        every = (
            *_mlp("bottom", self.dense_features, self.bottom),
            *((down, up) * self.cross_layers if self.interaction == "dcn" else ()),
            *_mlp("top", self.interacted, self.top),
        )
        return tuple(product for product in every if part in (None, product.part))

    def dense_parameters(self, part: Part | None = None) -> int:
        """Weights and biases of the dense products, of one part or of all.

        A low-rank cross layer has a bias on its second product only (DCN v2, arXiv 2008.13535, equation 3).
        """
        products = self.products(part)
        biased = (p for p in products if p.part != "interaction" or p.crosses)
        return sum(p.inputs * p.outputs for p in products) + sum(p.outputs for p in biased)

    def flops_per_sample(self) -> float:
        """Model FLOPs of one sample, forward and backward: 6 per weight, and the pair products. [flop]

        Adding up looked-up rows is a FLOP per byte or less and not counted, as MLPerf's reference does not.
        """
        products = 6.0 * sum(p.inputs * p.outputs for p in self.products())
        pairs = 6.0 * self.vectors**2 * self.width if self.interaction == "dot" else 0.0
        return products + pairs


def _mlp(part: Part, inputs: int, widths: tuple[int, ...]) -> tuple[Product, ...]:
    """An MLP's products: `inputs` wide, then as wide as it says."""
    return tuple(Product(part, a, b) for a, b in zip((inputs, *widths), widths, strict=False))


def bundled_recommenders() -> tuple[str, ...]:
    """Names that `load_recommender` knows."""
    folder = files("railwright.model") / "data" / "recommendation"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))


def load_recommender(name: str) -> Recommender:
    """A bundled recommender, or one from a YAML file of the same fields. Raises SpecError."""
    if name in bundled_recommenders():
        path = files("railwright.model") / "data" / "recommendation" / f"{name}.yaml"
        return parse_recommender(path.read_text(encoding="utf-8"), f"{name}.yaml", name)
    if not name.endswith((".yaml", ".yml")):
        known = bundled_recommenders()
        hint = among(name, known)
        told = f"no such recommendation model{hint}. A model of your own is a YAML file ending in .yaml."
        raise SpecError([Mistake(name, 0, 0, "", told)])
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Mistake(name, 0, 0, "", f"cannot be read: {error}")]) from error
    return parse_recommender(text, name, Path(name).stem)


def parse_recommender(text: str, file: str, name: str) -> Recommender:
    """A Recommender from the text of a model file. Raises SpecError with every mistake at once."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise SpecError([Mistake(file, 0, 0, "", f"not YAML: {error}")]) from error
    if not isinstance(data, Mapping):
        raise SpecError([Mistake(file, 0, 0, "", "a recommendation model is fields with values")])
    reading = _Reading(file, data)
    found = reading.model(name)
    if reading.mistakes:
        raise SpecError(reading.mistakes)
    return found


ABOUT = {
    "rows": ": the rows of each table",
    "lookups": ": how many rows a sample reads of every table, or a list of one number each",
    "width": ": the columns of a table",
    "dense_features": ": the numbers of a sample that are no lookups",
    "bottom": ": the widths of the MLP of dense features, the last that of a table",
    "top": ": the widths of the last MLP",
    "cross_layers": ": the cross layers of a dcn interaction",
    "cross_rank": ": the width in the middle of a cross layer",
}
"""What a field of a model file is, for who left it out."""


MOST = 2**63 - 1
"""The largest number of a model: 64-bit indices name its rows."""


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _bounds(*values: Any) -> str:
    """What counts are to be, with the upper bound only where that is what is wrong."""
    return "above 0 and below 2^63" if any(isinstance(v, int) and v > MOST for v in values) else "above 0"


class _Reading:
    """Fields of one file; mistakes are collected, and stand-in values let the reading go on."""

    def __init__(self, file: str, data: Mapping[str, Any]) -> None:
        self.file, self.data = file, data
        self.mistakes: list[Mistake] = []

    def model(self, name: str) -> Recommender:
        for field in self.data:
            if field not in FIELDS:
                hint = nearest(str(field), FIELDS) or f"; fields are {', '.join(FIELDS)}"
                self._wrong(str(field), f"not a field{hint}")
        if self.data.get("kind") != "recommendation":
            given = repr(self.data["kind"]) if "kind" in self.data else "missing"
            self._wrong("kind", f"{given}; 'recommendation' is expected (transformers have a config.json)")
        interaction = self.data.get("interaction")
        if interaction not in ("dot", "dcn"):
            given = f"{interaction!r} is not known" if "interaction" in self.data else "missing"
            self._wrong("interaction", f"{given}; dot or dcn is expected")
        rows, width = self._list("rows"), self._number("width")
        lookups = self.data.get("lookups")
        pooled = (
            self._list("lookups") if isinstance(lookups, list) else (self._number("lookups"),) * len(rows)
        )
        bottom, cross = self._list("bottom"), interaction == "dcn"
        if len(pooled) != len(rows) and self._right("rows", "lookups"):
            self._wrong("lookups", f"{len(pooled)} numbers for {len(rows)} tables; give one for each, or one")
        if bottom[-1] != width and self._right("bottom", "width"):
            self._wrong("bottom", f"ends in {bottom[-1]}, but interacts with tables of width {width}")
        return Recommender(
            name=name,
            rows=rows,
            lookups=pooled,
            width=width,
            dense_features=self._number("dense_features"),
            bottom=bottom,
            top=self._list("top"),
            interaction="dcn" if cross else "dot",
            cross_layers=self._number("cross_layers") if cross else 0,
            cross_rank=self._number("cross_rank") if cross else 0,
            source=str(self.data.get("source", "")),
        )

    def _number(self, field: str) -> int:
        value = self.data.get(field)
        if not _is_count(value):
            given = f"{value!r} is not one" if field in self.data else "missing"
            self._wrong(field, f"{given}; a whole number {_bounds(value)} is expected{ABOUT.get(field, '')}")
            return 1
        return value

    def _list(self, field: str) -> tuple[int, ...]:
        value = self.data.get(field)
        if not isinstance(value, list) or not value or not all(map(_is_count, value)):
            given = f"{value!r} is not one" if field in self.data else "missing"
            bounds = _bounds(*value) if isinstance(value, list) else _bounds()
            self._wrong(field, f"{given}; a list of whole numbers {bounds} is expected{ABOUT.get(field, '')}")
            return (1,)
        return tuple(value)

    def _right(self, *fields: str) -> bool:
        """Whether nothing is wrong with any of the fields, so that they can be held against each other."""
        return not {m.field for m in self.mistakes} & set(fields)

    def _wrong(self, field: str, message: str) -> None:
        self.mistakes.append(Mistake(self.file, 0, 0, field, message))
