"""Python run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def printed(code: str, **environment: str | None) -> str:
    """What some code prints. environment: variables to set, or to leave out (None)."""
    settings = {k: v for k, v in (os.environ | environment).items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()
