"""XML of a dump as elements, its errors as ours."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from railwright.asbuilt.read.dump import Dump

_HINTS = {
    "no element found": "the file ends in the middle",
    "mismatched tag": "an element is closed that is not open; lines are missing before this one",
    "unclosed token": "the file ends in the middle",
    "not well-formed (invalid token)": "a character that XML does not allow here",
}


def parse_xml(dump: Dump) -> ElementTree.Element:
    """Root of the document. SpecError with the line where it breaks."""
    try:
        return ElementTree.fromstring(dump.data if not dump.notes else dump.text)
    except ElementTree.ParseError as error:
        line = error.position[0]
        what = str(error).split(":")[0]
        dump.fail(line, f"not valid XML: {_HINTS.get(what, what)}; write the file again with its tool")
    except (ValueError, LookupError) as error:  # an encoding that its heading names and Python does not have
        dump.fail(1, f"not valid XML: {error}")
