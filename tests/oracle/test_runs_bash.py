"""Scripts as Bash itself runs them: what the launcher gets is what we read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.runs.shell import follow

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

SCRIPTS = {
    "arrays": """
        MODEL=( --num-layers 32   # as published
            --hidden-size 4096
            "--swiglu"
        )
        MODEL+=(--seq-length $((2 * 2048)))
        torchrun ${MODEL[@]} "${MODEL[@]}" ${MODEL[*]} "$MODEL"
    """,
    "one string": """
        ARGS=" --tp 8 \\
            --pp 4 "
        torchrun $ARGS --name "a b" 'c d' e\\ f
    """,
    "defaults": """
        TP=${TP:-4}; PP=${PP-2}; EMPTY=
        torchrun $TP ${PP} ${EMPTY:-x} ${EMPTY-y} ${TP:+--sequence-parallel} ${NONE:+z} ${A:=7} $A \\
            ${B:-${TP}${PP}} "${C:-"q r"}"
    """,
    "conditions": """
        DTYPE=fp8; N=16; X=()
        if [[ "$DTYPE" == "fp8" ]] && [ $N -gt 8 ]; then X+=(--fp8-format hybrid); else X+=(--bf16); fi
        if [ $N -lt 8 ]; then X+=(a); elif [ "$DTYPE" != fp8 ]; then X+=(b);
        elif [[ -z $UNSET ]]; then X+=(c); else X+=(d); fi
        if ! [ -n "$UNSET" ]; then
            if [[ $DTYPE = fp* ]]; then X+=(star); fi
        fi
        [ $N -eq 16 ] && X+=(and)
        [ $N -eq 17 ] || X+=(or)
        [ $N -eq 17 ] && X+=(not)
        [[ $N -ge 16 && $DTYPE == fp8 ]] && X+=(both)
        torchrun "${X[@]}"
    """,
    "case": """
        SIZE=70B
        case $SIZE in
            7B) L=32 ;;
            70B|405B) L=80; H=8192 ;;
            *) L=0 ;;
        esac
        case "$SIZE" in 8*) Z=1;; *B) Z=2;; esac
        torchrun $L $H $Z
    """,
    "functions and redirections": """
        usage() { echo "--no"; exit 1; }
        function other {
            L=99
        }
        L=12
        echo hello > out.txt 2>&1
        cat <<EOF > conf.txt
        L=$L "quoted"
        EOF
        torchrun --layers $L 2> err.txt
    """.replace("        EOF", "EOF"),
    "sums": """
        G=8; N=4
        W=$(($G*$N)); V=$((W / 2 - 1)); U=$(( (G + N) % 5 ))
        export Q=$W
        torchrun $W $V $U $Q
    """,
    "names of arrays inside": """
        A=(1 2); B=("${A[@]}" 3 ${A[@]})
        A=(9)
        torchrun "${B[@]}" pre"${B[@]}"post
    """,
}


def launched(script: str, folder: Path) -> list[str]:
    """What Bash hands to `torchrun`."""
    stub = folder / "torchrun"
    stub.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    stub.chmod(0o755)
    assert BASH is not None
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    ran = subprocess.run([BASH, "-c", script], cwd=folder, env=path, capture_output=True, check=True)
    return [one.decode() for one in ran.stdout.split(b"\0")[:-1]]


def read(script: str) -> list[str]:
    """What we read that it would hand there."""
    found = follow(script, "run.sh", {})
    assert not found.doubts
    commands = [command.fields for command in found.commands if command.fields[0] == "torchrun"]
    assert len(commands) == 1
    return list(commands[0][1:])


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_bashs_own(name: str, tmp_path: Path) -> None:
    assert read(SCRIPTS[name]) == launched(SCRIPTS[name], tmp_path)


WORDS = st.text(st.sampled_from("ab1 -*.,\"$'"), max_size=6)
ESCAPED = str.maketrans({'"': '\\"', "$": "\\$"})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=5))
def test_quotes_are_bashs_own(tmp_path: Path, words: list[tuple[str, bool]]) -> None:
    """Words in either quotes, held in variables, used in quotes."""
    script = ""
    for i, (text, double) in enumerate(words):
        quoted = f'"{text.translate(ESCAPED)}"' if double else "'" + text.replace("'", "") + "'"
        script += f"V{i}={quoted}\n"
    script += "torchrun " + " ".join(f'"$V{i}"' for i in range(len(words))) + "\n"
    assert read(script) == launched(script, tmp_path)
