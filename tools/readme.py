"""Keep the README true: run its commands, and keep the figures it quotes equal to what the tool prints.

readme.py command run|test   print the one-line command under that marker, for .ci/run
readme.py write              put `railwright validate`'s table into README.md and docs/validation.md
readme.py check              exit 1 if either differs from what `write` would put there
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
VALIDATION = ROOT / "docs" / "validation.md"


def command(name: str) -> str:
    """The shell line in the code block after `<!-- command: name -->`."""
    match = re.search(
        rf"<!-- command: {name} -->\s*```(?:sh|bash)?\n(.+?)\n```", README.read_text(encoding="utf-8")
    )
    if match is None:
        raise SystemExit(f"README.md has no one-line command marked '<!-- command: {name} -->'")
    return match.group(1)


def filled(path: Path, block: str, lines: list[str]) -> str:
    """The file's text with the block between its two markers replaced."""
    begin, end = f"<!-- {block} -->", f"<!-- /{block} -->"
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{path.name} lacks the markers '{begin}' and '{end}'")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    return f"{before}{begin}\n```text\n" + "\n".join(lines) + f"\n```\n{end}{after}"


def wanted() -> dict[Path, str]:
    """Both files as they should read."""
    from railwright.measure import validate

    table = validate()
    return {
        README: filled(README, "validate", table.lines()),
        VALIDATION: filled(VALIDATION, "validate-detail", table.lines(detail=True)),
    }


def main(arguments: list[str]) -> int:
    """Run one of the three calls."""
    if arguments[:1] == ["command"] and len(arguments) == 2:
        print(command(arguments[1]))
        return 0
    if arguments == ["write"]:
        for path, text in wanted().items():
            path.write_text(text, encoding="utf-8")
        return 0
    if arguments == ["check"]:
        stale = [p.name for p, text in wanted().items() if p.read_text(encoding="utf-8") != text]
        if stale:
            print(f"stale: {', '.join(stale)}; run `.venv/bin/python tools/readme.py write` and commit")
        return bool(stale)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
