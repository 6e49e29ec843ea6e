"""What needs a Chromium: whether everything has room on its slide, and the PDF."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paceline.records.errors import PacelineError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
          "--disable-background-networking", "--disable-component-update")  # fmt: skip
_TIMEOUT_S = 120


def chromium() -> str | None:
    """The browser on PATH, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def overflowing(page: Path) -> list[int]:
    """Numbers of the slides on which something does not fit.

    Raises:
        PacelineError: the browser failed.
    """
    said = _run(
        ["--window-size=1280,720", "--virtual-time-budget=4000", "--dump-dom", f"{page.resolve().as_uri()}#check"]
    )
    found = re.search(r'<body[^>]* data-overflow="([\d ]*)"', said)
    if found is None:
        raise PacelineError(f"whether {page.name} overflows was not found out", why=said[-300:])
    return [int(number) for number in found[1].split()]


def print_pdf(page: Path, to: Path) -> None:
    """A slide a page.

    Raises:
        PacelineError: the browser failed.
    """
    _run(["--no-pdf-header-footer", f"--print-to-pdf={to}", page.resolve().as_uri()])
    if not to.is_file():
        raise PacelineError(f"{to} was not made", hint="print the HTML from a browser instead")


def _run(arguments: Sequence[str]) -> str:
    program = chromium()
    if program is None:
        raise PacelineError("there is no Chromium on PATH", hint="install one, or build html and pptx, which need none")
    with tempfile.TemporaryDirectory(prefix="paceline-chromium-") as profile:
        command = [program, *_FLAGS, f"--user-data-dir={profile}", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise PacelineError(f"Chromium did not end within {_TIMEOUT_S} s") from error
    if done.returncode:
        raise PacelineError(f"Chromium ended with {done.returncode}", why=done.stderr[-300:])
    return done.stdout
