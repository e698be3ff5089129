"""Read a dump whose format nobody names: it is recognised from its content."""

from __future__ import annotations

from pathlib import Path

from railwright.asbuilt.formats import FORMATS, Format, Yields
from railwright.asbuilt.forwarding import ForwardingTables
from railwright.asbuilt.host import HostTopology
from railwright.asbuilt.read.dump import Dump, load, shorten
from railwright.asbuilt.read.names import read_names
from railwright.asbuilt.wiring import Wiring

_CALLS: dict[Yields, str] = {
    "fabric": "asbuilt.read.read",
    "host": "asbuilt.read.read_host",
    "tables": "asbuilt.read.read_tables",
    "names": "the `names` argument of asbuilt.read.read",
}
_WORDS: dict[Yields, str] = {
    "fabric": "a fabric",
    "host": "one server's topology",
    "tables": "forwarding tables",
    "names": "a node-name map",
}


def read(path: Path | str, names: Path | str | None = None) -> Wiring:
    """Nodes and links of a fabric dump of any format in FORMATS; one cable is one link, told once.

    names  node-name map of infiniband-diags: its names win over those in the dump
    Parts the dump lacks, says twice or says wrongly are in the result's notes.
    SpecError when the file is absent, empty, binary, of no known format, or describes no device.
    """
    dump = load(path)
    renamed = read_names(names) if names is not None else {}
    wiring = _parse(dump, "fabric", renamed)
    assert isinstance(wiring, Wiring)
    return wiring


def read_host(path: Path | str) -> HostTopology:
    """CPUs, PCIe bridges, GPUs, NICs and NVLink of one server. SpecError as for `read`."""
    host = _parse(load(path), "host", {})
    assert isinstance(host, HostTopology)
    return host


def read_tables(path: Path | str) -> ForwardingTables:
    """Forwarding tables of a fabric's switches. SpecError as for `read`."""
    tables = _parse(load(path), "tables", {})
    assert isinstance(tables, ForwardingTables)
    return tables


def recognised(path: Path | str) -> str:
    """Name in FORMATS of a file's format. SpecError when it is none of them."""
    return _recognise(load(path))[0]


def _parse(dump: Dump, wanted: Yields, names: dict[str, str]) -> object:
    name, form = _recognise(dump, wanted)
    if form.yields != wanted:
        dump.fail(
            0,
            f"this is {form.description}, which tells {_WORDS[form.yields]}, not {_WORDS[wanted]}; "
            f"read it with {_CALLS[form.yields]}",
        )
    try:
        return form.parse(dump, names)
    except RecursionError:
        dump.fail(0, f"nested too deeply for {name}; the file is damaged")


def _recognise(dump: Dump, wanted: Yields | None = None) -> tuple[str, Format]:
    """The first format that knows the file, one of the wanted kind before others."""
    for kind in (True, False):
        for name, form in FORMATS.items():
            if (wanted in (None, form.yields)) == kind and form.recognise(dump):
                return name, form
    known = ", ".join(name for name, form in FORMATS.items() if wanted in (None, form.yields))
    number, first = next(((n, line) for n, line in enumerate(dump.lines, 1) if line.strip()), (0, ""))
    begins = f"it begins with '{shorten(first, 40)}'" if first else "it holds no text"
    return dump.fail(number, f"not a known format ({begins}); known are: {known}")
