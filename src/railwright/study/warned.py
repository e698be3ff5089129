"""Warnings of jobs on the variants of a study, each said once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railwright.units import listed


def said_once(warned: Iterable[tuple[str, str, Sequence[str]]]) -> tuple[str, ...]:
    """Every distinct warning of every job, in order of appearance, behind the job's name, and behind those of
    its variants where it is not of all of them.

    warned  a variant, a job that runs on it, and its warnings there
    """
    runs: dict[str, list[str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for variant, job, texts in warned:
        runs.setdefault(job, []).append(f"'{variant}'")
        for text in dict.fromkeys(texts):
            found.setdefault((job, text), []).append(f"'{variant}'")
    whose = {key: "" if on == runs[key[0]] else f", with {listed(on)}" for key, on in found.items()}
    return tuple(f"{job}{whose[job, text]}: {text}" for job, text in found)
