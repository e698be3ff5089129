"""The catalogue of parts: GPUs, NICs, switches and servers, every value with its source."""

from railwright.catalog.load import find, load_catalog
from railwright.catalog.parts import Catalog, Gpu, Nic, Server, Source, Status, Switch
from railwright.catalog.show import KINDS, describe, rows, source_of

__all__ = [
    "KINDS",
    "Catalog",
    "Gpu",
    "Nic",
    "Server",
    "Source",
    "Status",
    "Switch",
    "describe",
    "find",
    "load_catalog",
    "rows",
    "source_of",
]
