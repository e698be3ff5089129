"""What a shell script sets and launches, read without running it.

Variables, arrays, defaults, arithmetic and conditions on them are followed; a variable that nothing sets is
empty, as it is to Bash, and told.  What depends on files, commands or loops is not known, and told too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from railwright.runs.conditions import COMPARING, both, compared, computed, either
from railwright.runs.words import Array, Operator, Token, Word, tokens

UNSET = "\0"
"""Stands on both sides of the name of a variable that is not set: '\\0SEQ\\0'."""

EXPANSION = re.compile(r"\$\{(\w+|[@*#])(\[[^\]]*\])?(?:(:?[-=?+])(.*))?\}$", re.DOTALL)
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")
BRINGING = ("export", "local", "readonly", "declare", "typeset")
MISSING = re.compile(f"{UNSET}([^{UNSET}]*){UNSET}")


def unset(name: str) -> str:
    """What stands for a variable or expansion without a value."""
    return f"{UNSET}{name}{UNSET}"


@dataclass(frozen=True)
class Command:
    """A command that runs, or may: its words, each with the line it comes from."""

    fields: tuple[str, ...]
    line: int


@dataclass
class Script:
    """What a script's variables are at its end, its commands, and what could not be followed.

    values   name -> text, or the texts of an array
    empty    names of variables that are not set and decided a condition or stood for nothing
    doubts   sentences on what could not be followed
    """

    values: dict[str, str | list[str]]
    commands: list[Command] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)


def follow(text: str, file: str, given: Mapping[str, str]) -> Script:
    """A script's variables and commands; `given` are values that stand whatever the script says.

    Raises RailwrightError, naming file and line, where a quote or bracket stays open.
    """
    run = _Run(Script(dict(given)), file, frozenset(given))
    run.all(tokens(text, file))
    return run.script


@dataclass
class _Frame:
    """An open compound command.

    runs   whether its commands run now; None is not known
    taken  whether one of its branches has run
    """

    kind: str
    runs: bool | None = True
    taken: bool | None = False
    subject: str = ""


@dataclass
class _Run:
    script: Script
    file: str
    fixed: frozenset[str]
    frames: list[_Frame] = field(default_factory=list)
    last: bool | None = True

    def all(self, every: list[Token]) -> None:
        """Command by command; conditions and patterns take those that belong to them."""
        at, joined = 0, ""
        while at < len(every):
            token = every[at]
            if isinstance(token, Operator):
                inner = self.frames[-1] if self.frames else None
                if token.text == ";;" and inner and inner.kind == "case":
                    inner.runs = False
                    at, joined = self._pattern(every, at + 1), ""
                    continue
                joined = token.text if token.text in ("&&", "||") else ""
                at += 1
                continue
            end = at
            while end < len(every) and not isinstance(every[end], Operator):
                end += 1
            at = self._command(every, at, end, joined)
            joined = ""

    def _command(self, every: list[Token], at: int, end: int, joined: str) -> int:
        """One command, from its first token to the operator behind it; returns where to go on."""
        first = every[at]
        word = first.bare if isinstance(first, Word) else ""
        behind = every[end] if end < len(every) else None
        following = behind.text if isinstance(behind, Operator) else ""
        if end == at + 1 and word and following == "(" and word not in ("if", "then", "else", "do"):
            return self._past_function(every, end)
        if word == "function":
            return self._past_function(every, at)
        if word in ("if", "elif"):
            return self._condition(every, at, word)
        if word in ("while", "until", "for", "select"):
            self.frames.append(_Frame("loop", None))
            return end
        if word == "case":
            words = [t for t in every[at:end] if isinstance(t, Word)]
            subject = " ".join(self._fields(words[1])) if len(words) > 1 else ""
            self.frames.append(_Frame("case", False, False, self._emptied(subject)))
            return self._pattern(every, at + 3)
        if word in ("then", "else", "do", "{", "!"):
            if word == "else" and self.frames:
                frame = self.frames[-1]
                frame.runs = None if frame.taken is None else not frame.taken
            return at + 1
        if word in ("fi", "done", "esac", "}"):
            if self.frames and word != "}":
                self.frames.pop()
            return at + 1
        self._simple(every[at:end], joined)
        return end

    def _past_function(self, every: list[Token], at: int) -> int:
        """Past a function's body: nobody is told what calls it."""
        depth, opened = 0, False
        while at < len(every):
            token = every[at]
            word = token.bare if isinstance(token, Word) else ""
            depth += (word == "{") - (word == "}")
            opened = opened or word == "{"
            at += 1
            if opened and depth == 0:
                break
        return at

    def _condition(self, every: list[Token], at: int, word: str) -> int:
        """The condition of an `if` or `elif`, up to `then`."""
        start = at = at + 1
        while at < len(every):
            token = every[at]
            if isinstance(token, Word) and token.bare == "then":
                break
            at += 1
        reached = word == "elif" or self._running() is not False
        holds = self._holds(every[start:at]) if reached else False
        if word == "if":
            self.frames.append(_Frame("if", holds, holds))
        elif self.frames:
            frame = self.frames[-1]
            frame.runs = False if frame.taken else holds if frame.taken is False else None
            frame.taken = True if frame.taken or frame.runs else None if frame.runs is None else frame.taken
        return at + 1

    def _pattern(self, every: list[Token], at: int) -> int:
        """The pattern of a branch of `case`, up to its bracket; whether it fits."""
        patterns, start = [], at
        while at < len(every):
            token = every[at]
            if isinstance(token, Operator) and token.text == ")":
                break
            if isinstance(token, Word):
                if token.bare == "esac":
                    return at
                patterns.append(self._emptied(" ".join(self._fields(token))))
            at += 1
        if at < len(every) and self.frames and at > start:
            frame = self.frames[-1]
            frame.runs = not frame.taken and any(fnmatchcase(frame.subject, one) for one in patterns)
            frame.taken = bool(frame.taken or frame.runs)
        return at + 1

    def _holds(self, every: Iterable[Token]) -> bool | None:
        """Whether a chain of tests holds; None where that is not known."""
        joined, test = "&&", list[Word]()
        chain: list[tuple[str, list[Word]]] = []
        for token in every:
            if isinstance(token, Operator):
                if test:
                    chain.append((joined, test))
                    test = []
                joined = token.text if token.text in ("&&", "||") else joined
            elif isinstance(token, Word):
                test.append(token)
        if test:
            chain.append((joined, test))
        result: bool | None = True
        for joins, words in chain:
            result = (both if joins == "&&" else either)(result, self._test(words))
        return result

    def _test(self, words: list[Word]) -> bool | None:
        """Whether '[ a = b ]', '[[ … ]]' or 'test …' holds; None for any other command."""
        bare = [word.bare for word in words]
        words = [word for word in words if word.bare not in ("[", "]", "[[", "]]", "test")]
        # without brackets it stands between && and || of one [[ … ]], or is another command
        if len(words) == len(bare) and not COMPARING & set(bare):
            return None
        says = True
        while words and words[0].bare == "!":
            says, words = not says, words[1:]
        texts = [self._emptied(" ".join(self._fields(word))) for word in words]
        found = compared(texts)
        return None if found is None else found == says

    def _simple(self, command: list[Token], joined: str) -> None:
        """Assignments, or a command with its words."""
        runs = self._running()
        if joined and runs is not False:
            through = self.last if joined == "&&" else None if self.last is None else not self.last
            runs = both(through, runs)
        words = [token for token in command if isinstance(token, Word)]
        if words and words[0].bare in ("[", "[[", "test"):
            self.last = self._test(words)
            return
        self.last = True
        for token in command:
            if isinstance(token, Array):
                self._assign_array(token, runs)
        while words and words[0].bare in BRINGING:
            words = [word for word in words[1:] if not word.plain.startswith("-")]
        while words and (found := ASSIGNED.match(words[0].plain)):
            self._assign(found, words[0], runs)
            words = words[1:]
        if not words or runs is False:
            return
        if words[0].bare in ("source", "."):
            self.script.doubts.append(
                f"{self.file}:{words[0].line}: reads another file, whose settings are not known here"
            )
        fields = [field for word in words for field in self._fields(word)]
        if fields:
            self.script.commands.append(Command(tuple(fields), words[0].line))

    def _running(self) -> bool | None:
        """Whether commands run here: every frame's must."""
        found: bool | None = True
        for frame in self.frames:
            found = both(found, frame.runs)
        return found

    def _assign(self, found: re.Match[str], word: Word, runs: bool | None) -> None:
        name = found[1]
        if runs is False or name in self.fixed:
            return
        if runs is None:
            self.script.values[name] = unset(name)
            return
        rest = _behind(word, len(found[0]))
        value = " ".join(self._fields(rest, splits=False))
        before = self.script.values.get(name, "")
        if found[2] and isinstance(before, str):
            value = before + value
        self.script.values[name] = value

    def _assign_array(self, token: Array, runs: bool | None) -> None:
        if runs is False or token.name in self.fixed:
            return
        fields = [one for word in token.words for one in self._fields(word)]
        if runs is None:
            if fields:
                self.script.doubts.append(
                    f"{self.file}:{token.line}: whether {token.name} gets {' '.join(fields[:3])}"
                    f"{' …' if len(fields) > 3 else ''} is not known; it is taken without"
                )
            return
        before = self.script.values.get(token.name, [])
        kept = (before if isinstance(before, list) else [before]) if token.appends else []
        self.script.values[token.name] = [*kept, *fields]

    def _emptied(self, text: str) -> str:
        """A text in which variables that are not set are nothing, and noted."""
        self.script.empty.update(MISSING.findall(text))
        return MISSING.sub("", text)

    def _fields(self, word: Word, splits: bool = True) -> list[str]:
        """A word as Bash hands it on: expanded, and split where it is not quoted."""
        fields, open_field = list[str](), False
        for part in word.parts:
            value = self._value(part.text) if part.expands else part.text
            if isinstance(value, list):
                pieces = value if part.quoted else " ".join(value).split()
            elif part.expands and splits and not part.quoted:
                pieces = value.split()
            else:
                pieces = [value]
            if not pieces:
                continue
            if open_field:
                fields[-1] += pieces[0]
            else:
                fields.append(pieces[0])
            fields += pieces[1:]
            open_field = True
        kept = any(part.quoted for part in word.parts)
        return [one for one in fields if one or kept]

    def _value(self, written: str) -> str | list[str]:
        """What an expansion stands for."""
        if written.startswith("$(("):
            return self._arithmetic(written[3:-2], written)
        if written.startswith(("$(", "`")):
            return unset(" ".join(written.split()))
        found = EXPANSION.match(written)
        if written.startswith("${") and not found:
            return unset(written)
        name = found[1] if found else written[1:]
        value = self.script.values.get(name)
        whole = bool(found and found[2])
        if found and found[3]:
            value = self._default(found[3], found[4] or "", value, name)
        if value is None:
            return unset(name)
        if isinstance(value, list) and not whole:
            return value[0] if value else ""
        return value

    def _default(
        self, kind: str, written: str, value: str | list[str] | None, name: str
    ) -> str | list[str] | None:
        """${A:-b} and its like."""
        absent = value is None or (kind.startswith(":") and value in ("", []))
        if kind.endswith("+"):
            return "" if absent else self._text(written)
        if not absent or kind.endswith("?"):
            return value
        text = self._text(written)
        if kind.endswith("="):
            self.script.values[name] = text
        return text

    def _text(self, written: str) -> str:
        """What is written inside an expansion, as one text."""
        words = [token for token in tokens(written, self.file) if isinstance(token, Word)]
        return " ".join(" ".join(self._fields(word, splits=False)) for word in words)

    def _arithmetic(self, written: str, whole: str) -> str:
        """$(( … )) of whole numbers."""
        text = re.sub(r"\$\{?([A-Za-z_]\w*)\}?|([A-Za-z_]\w*)", self._number, written)
        try:
            return str(computed(ast.parse(text.strip().replace("/", "//"), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, KeyError):
            return unset(" ".join(whole.split()))

    def _number(self, found: re.Match[str]) -> str:
        value = self.script.values.get(found[1] or found[2], "?")
        return value if isinstance(value, str) else "?"


def _behind(word: Word, count: int) -> Word:
    """A word without its first letters, which are in no expansion."""
    parts, left = [], count
    for part in word.parts:
        taken = min(left, len(part.text)) if not part.expands else 0
        left -= taken
        parts.append(type(part)(part.text[taken:], part.expands, part.quoted))
    return Word(tuple(parts), word.line)
