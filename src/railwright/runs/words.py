"""Words of a shell script, before anything in them is put in: quotes, expansions, arrays and operators.

Enough of Bash's grammar (Bash Reference Manual, "Shell Syntax") for scripts that set variables and launch a
program; nothing is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from railwright.errors import RailwrightError

OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
NAME = re.compile(r"[A-Za-z_]\w*")
ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=$")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
REDIRECT = re.compile(r"[<>]+(\(|&?\d*-?)?")


@dataclass(frozen=True)
class Part:
    """A piece of a word: text, or an expansion as it is written ('${A:-b}', '$(date)')."""

    text: str
    expands: bool = False
    quoted: bool = False


@dataclass(frozen=True)
class Word:
    """A word and the line it begins on."""

    parts: tuple[Part, ...]
    line: int

    @property
    def plain(self) -> str:
        """The word where nothing in it expands, else what is before that."""
        text = ""
        for part in self.parts:
            if part.expands:
                return text
            text += part.text
        return text

    @property
    def bare(self) -> str:
        """The word where it is a single unquoted text, as reserved words are; else ''."""
        single = len(self.parts) == 1 and not (self.parts[0].expands or self.parts[0].quoted)
        return self.parts[0].text if single else ""


@dataclass(frozen=True)
class Array:
    """NAME=(…) or NAME+=(…)."""

    name: str
    appends: bool
    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class Operator:
    """What ends a command; a newline is '\\n'."""

    text: str
    line: int


Token = Word | Array | Operator


def tokens(text: str, file: str) -> list[Token]:
    """Those of a script.

    Raises RailwrightError, naming file and line, where a quote or bracket stays open.
    """
    return list(_Lexer(text.replace("\r\n", "\n"), file).all())


@dataclass
class _Lexer:
    text: str
    file: str
    at: int = 0
    line: int = 1
    waiting: list[str] = field(default_factory=list)

    def all(self) -> Iterator[Token]:
        drops = False
        while self.at < len(self.text):
            if self._skips():
                continue
            line = self.line
            if redirected := self._redirect():
                drops = redirected == "file"
                continue
            if operator := next((o for o in OPERATORS if self.text.startswith(o, self.at)), ""):
                self._forward(len(operator))
                drops = False
                yield Operator(operator, line)
                if operator == "\n":
                    yield from self._heredocs()
                continue
            word = self._word(line)
            opened = ARRAY.match(word.bare) if word.bare else None
            if opened and self.text.startswith("(", self.at):
                yield Array(opened[1], bool(opened[2]), tuple(self._inner(line)), line)
            elif drops:
                drops = False
            elif not (word.bare.isdigit() and self.text[self.at : self.at + 1] in ("<", ">")):
                yield word

    def _skips(self) -> bool:
        """Past blanks, continued lines and comments; whether there was one."""
        here = self.text[self.at]
        if here in " \t":
            self._forward(1)
        elif self.text.startswith("\\\n", self.at):
            self._forward(2)
        elif here == "#":
            end = self.text.find("\n", self.at)
            self._forward((len(self.text) if end < 0 else end) - self.at)
        else:
            return False
        return True

    def _redirect(self) -> str:
        """Past a redirection: 'file' where the next word is its file, 'whole' where it has none."""
        if found := HEREDOC.match(self.text, self.at):
            self.waiting.append(found[2])
            self._forward(len(found[0]))
            return "whole"
        found = REDIRECT.match(self.text, self.at)
        if not found:
            return ""
        target = found[1] or ""
        if target == "(":
            start = self.at + len(found[0]) - 1
            self._forward(self._closing(start, "(", ")") + 1 - self.at)
            return "whole"
        self._forward(len(found[0]))
        return "whole" if target not in ("", "&") else "file"

    def _heredocs(self) -> Iterator[Token]:
        """The texts that begin on this line, each as a command of one word: it may be handed to a shell."""
        for mark in self.waiting:
            line, body = self.line, ""
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self._forward(min(end + 1, len(self.text)) - self.at)
                if row.strip() == mark:
                    break
                body += row + "\n"
            inner = _Lexer('"' + body.replace('"', '\\"') + '"', self.file, line=line)
            yield Word(tuple(inner._double()), line)
            yield Operator("\n", self.line)
        self.waiting.clear()

    def _inner(self, line: int) -> Iterator[Word]:
        """Words of an array, of which the bracket is next."""
        self._forward(1)
        while self.at < len(self.text):
            if self.text[self.at] == "\n":
                self._forward(1)
            elif self._skips():
                continue
            elif self.text[self.at] == ")":
                self._forward(1)
                return
            elif self.text[self.at] in "|&;<>(":
                self._forward(1)
            else:
                yield self._word(self.line)
        raise self._open("(", line)

    def _word(self, line: int) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in " \t\n;|&()<>":
                break
            if here == "'":
                parts.append(Part(self._until("'"), quoted=True))
            elif here == '"':
                parts += self._double()
            elif here == "`":
                parts.append(Part(f"`{self._until('`')}`", expands=True))
            elif here == "$":
                parts.append(self._expansion(quoted=False))
            elif here == "\\":
                parts += (
                    []
                    if self.text[self.at + 1 : self.at + 2] == "\n"
                    else [Part(self.text[self.at + 1 : self.at + 2], quoted=True)]
                )
                self._forward(2)
            else:
                end = self.at + 1
                while end < len(self.text) and self.text[end] not in " \t\n;|&()<>'\"`$\\":
                    end += 1
                parts.append(Part(self.text[self.at : end]))
                self._forward(end - self.at)
        return Word(tuple(parts), line)

    def _until(self, quote: str) -> str:
        """What stands between two of them, the first of which is next."""
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise self._open(quote, self.line)
        inside = self.text[self.at + 1 : end]
        self._forward(end + 1 - self.at)
        return inside

    def _double(self) -> list[Part]:
        line = self.line
        self._forward(1)
        parts, text = [Part("", quoted=True)], ""
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == '"':
                self._forward(1)
                return [*parts, Part(text, quoted=True)]
            if here == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                text += self.text[self.at + 1].replace("\n", "")
                self._forward(2)
            elif here == "$" or here == "`":
                parts.append(Part(text, quoted=True))
                text = ""
                whole = Part(f"`{self._until('`')}`", True, True) if here == "`" else self._expansion(True)
                parts.append(whole)
            else:
                text += here
                self._forward(1)
        raise self._open('"', line)

    def _expansion(self, quoted: bool) -> Part:
        """An expansion, or a dollar that begins none."""
        following = self.text[self.at + 1 : self.at + 2]
        if following in ("{", "("):
            end = self._closing(self.at + 1, following, "})"["{(".index(following)]) + 1
        elif found := NAME.match(self.text, self.at + 1):
            end = found.end()
        elif following and following in "0123456789@*#?$!-":
            end = self.at + 2
        else:
            self._forward(1)
            return Part("$", quoted=True)
        inside = self.text[self.at : end]
        self._forward(end - self.at)
        return Part(inside, expands=True, quoted=quoted)

    def _closing(self, start: int, opens: str, closes: str) -> int:
        """Where the bracket that opens at `start` is closed."""
        depth = 0
        for i in range(start, len(self.text)):
            depth += (self.text[i] == opens) - (self.text[i] == closes)
            if depth == 0:
                return i
        raise self._open(opens, self.line)

    def _forward(self, by: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + by)
        self.at += by

    def _open(self, mark: str, line: int) -> RailwrightError:
        return RailwrightError(f"{self.file}:{line}: a {mark} that opens here is never closed")
