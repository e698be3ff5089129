"""Rows of an .xlsx workbook, by the standard library alone: a zip archive of XML.

Format: ECMA-376, part 1, clause 18 (SpreadsheetML): workbook.xml, sharedStrings.xml, worksheets.
"""

from __future__ import annotations

import io
import re
import struct
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from collections.abc import Iterator

from railwright.asbuilt.read.dump import Dump

Row = tuple[int, list[str]]
"""Row number as the sheet counts, and its cells from column A on."""

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PACKAGE = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_CELL = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_LIMIT = 256 * 2**20
"""Bytes a workbook may unpack to; a sheet of 100,000 cables takes some 40 MB."""


def sheets(dump: Dump) -> list[tuple[str, list[Row]]]:
    """(name, rows) of every sheet, in the workbook's order. SpecError when it is no readable workbook."""
    try:
        with zipfile.ZipFile(io.BytesIO(dump.data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > _LIMIT:
                dump.fail(
                    0,
                    f"the workbook unpacks to more than {_LIMIT // 2**20} MiB; save the cable "
                    "sheet alone as CSV",
                )
            if "xl/workbook.xml" not in archive.namelist():
                dump.fail(
                    0, "this archive is no Excel workbook (.xlsx); save the cable sheet as .xlsx or CSV"
                )
            strings = _strings(archive)
            return [(name, list(_rows(archive.read(part), strings))) for name, part in _parts(archive)]
    except (
        zipfile.BadZipFile,
        zlib.error,
        ElementTree.ParseError,
        KeyError,
        ValueError,
        EOFError,
        OSError,
    ) as error:
        dump.fail(0, f"the workbook cannot be read ({error}); save it again, or save the sheet as CSV")
    except (
        RuntimeError,
        NotImplementedError,
        struct.error,
        LookupError,
    ) as error:  # encrypted, odd compression
        dump.fail(
            0, f"the workbook cannot be read ({error}); save it without a password, or save the sheet as CSV"
        )


def _parts(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """(sheet name, file inside the archive)."""
    relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {r.get("Id", ""): r.get("Target", "") for r in relations.iter(f"{_PACKAGE}Relationship")}
    for sheet in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter(f"{_MAIN}sheet"):
        target = targets.get(sheet.get(_RELATION, ""), "").lstrip("/")
        part = target if target.startswith("xl/") else f"xl/{target}"
        if "worksheets/" in part:
            yield sheet.get("name", ""), part


def _strings(archive: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    root = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
    return ["".join(text.text or "" for text in entry.iter(f"{_MAIN}t")) for entry in root.iter(f"{_MAIN}si")]


def _rows(data: bytes, strings: list[str]) -> Iterator[Row]:
    for count, row in enumerate(ElementTree.fromstring(data).iter(f"{_MAIN}row"), start=1):
        cells: list[str] = []
        number = row.get("r", "")
        for cell in row.iter(f"{_MAIN}c"):
            if match := _CELL.fullmatch(cell.get("r", "")):
                column = 0
                for letter in match[1]:
                    column = 26 * column + ord(letter) - ord("A") + 1
                cells.extend([""] * (column - 1 - len(cells)))
            cells.append(_text(cell, strings))
        yield (int(number) if re.fullmatch(r"\d{1,7}", number) else count), cells


def _text(cell: ElementTree.Element, strings: list[str]) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(text.text or "" for text in cell.iter(f"{_MAIN}t")).strip()
    value = cell.findtext(f"{_MAIN}v", "").strip()
    if kind == "s":
        at = int(value) if re.fullmatch(r"\d{1,9}", value) else -1
        return strings[at].strip() if 0 <= at < len(strings) else ""
    # Excel keeps whole numbers as floats.
    return value[:-2] if kind == "n" and value.endswith(".0") else value
