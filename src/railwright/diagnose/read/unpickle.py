"""Flight-recorder dumps are pickles; a pickle is a programme.  This reader runs none of it.

Only plain values may come out (dict, list, tuple, set, str, bytes, int, float, bool, None): any request for a
class or function, persistent id or extension is refused before it is looked up, and so is a dump that is too
large, too deep, or that would grow (memo bombs) beyond what a dump of one rank can be.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any, NoReturn

from railwright.errors import Mistake, SpecError

LARGEST = 512 * 2**20
"""Largest dump that is read [byte]."""
MOST_VALUES = 20_000_000
"""Opcodes of the largest dump: about 2,000 entries of 40 values need 100,000."""
_NAMES = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP "
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 "
    "UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 "
    "EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS "
    "EMPTY_SET ADDITEMS FROZENSET PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET MEMOIZE"
)
PLAIN = frozenset(_NAMES.split())
"""Opcodes that build plain values.  What is not here can import, call, or reach outside the stream."""


_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
"""Opcodes that number a value; Python's unpickler makes room for all numbers up to the one asked for."""


def load_plain(path: Path) -> Any:
    """The plain value of a pickle file.

    Raises SpecError, with the file and the reason, for anything else: no such file, not a pickle, cut off,
    asking for code, or too large.
    """
    raw = _bytes(path)
    count = 0
    try:
        for opcode, argument, position in pickletools.genops(raw):
            count += 1
            if opcode.name not in PLAIN:
                _refuse(path, _reason(opcode.name, argument, position))
            if opcode.name in _MEMO and isinstance(argument, int) and argument > 2 * count:
                _refuse(
                    path, f"at byte {position} it numbers a value {argument:,}, to claim memory for nothing"
                )
            if count > MOST_VALUES:
                _refuse(path, f"it has more than {MOST_VALUES:,} values, which no dump of one rank has")
    except SpecError:
        raise
    except Exception as no:  # the parser has no errors of its own: ValueError, IndexError, struct.error, …
        _refuse(path, f"it is no pickle, or cut off ({no}); expected a dump as TORCH_FR_DUMP writes it")
    try:
        return _Plain(io.BytesIO(raw)).load()
    except SpecError:
        raise
    except RecursionError:
        _refuse(path, "its values are nested too deeply")
    except Exception as no:  # a damaged stream of allowed opcodes
        _refuse(path, f"the pickle is damaged ({type(no).__name__}: {no})")


class _Plain(pickle.Unpickler):
    """Second lock: even an opcode that was overlooked finds no class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("asks for a persistent object")


def _reason(name: str, argument: Any, position: int | None) -> str:
    asked = f" ({str(argument)[:80]!r})" if argument is not None else ""
    return (
        f"at byte {position} it asks to import or run something: {name}{asked}; a flight-recorder dump holds "
        "plain values only, so this file is damaged or malicious and nothing of it was run"
    )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
    except FileNotFoundError:
        _refuse(path, "there is no such file")
    except OSError as no:
        _refuse(path, f"the file cannot be read ({no.strerror or no})")
    if len(raw) > LARGEST:
        _refuse(path, f"it is larger than {LARGEST // 2**20} MiB, which no dump of one rank is")
    if not raw:
        _refuse(path, "the file is empty: the rank was killed before it had written its dump")
    return raw


def _refuse(path: Path, reason: str) -> NoReturn:
    raise SpecError([Mistake(str(path), 0, 0, "", reason)])
