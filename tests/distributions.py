"""`make test-dist`: both distributions are built, installed into a clean environment and tried there.

Each wheel is built from its source distribution, so both are tried. First the tool alone: every verb but `learn` works,
and `learn` says how to get the course. Then the course beside it. Takes several minutes, since it installs torch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = (
    "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\ndist.destroy_process_group()\n"
)
TOOL = [
    "--version",
    "train digits --epochs 2 --workers 2 --run-dir first",
    "train --resume first --epochs 3",
    "run --nproc-per-node 2 script.py",
    "report first",
    "landscape first --measure eigenvalues --samples 200 --curvature-samples 200 --workers 1",
    "plan cost --parameters 70B --tokens 1.4T",
    "plan trends",
    "data list",
]
COURSE = [
    "learn doctor",
    "learn list",
    "learn start L1",
    "learn next",
    "learn quiz L1",
    "learn slides build D6 --format html",
    "learn assess start",
    "learn certificate key Institute --out keys",
    "learn instructor schedule --track one-day --start 9:00",
]


class Clean:
    """An environment with nothing in it but what is installed here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        venv.create(folder / "env", with_pip=True)
        self.work.mkdir()
        (self.work / "script.py").write_text(SCRIPT)

    def install(self, *what: str) -> None:
        """With pip."""
        say(f"installing {', '.join(Path(each).name for each in what)}")
        subprocess.run([self._bin("python"), "-m", "pip", "install", "--quiet", *what], check=True)

    def paceline(self, words: str, code: int = 0) -> str:
        """Run a command in a folder outside the checkout; both streams.

        Raises:
            SystemExit: it ended with another exit code.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self._bin("paceline"), *words.split()],
            cwd=self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            input="a\n" * 20,
        )
        said = done.stdout + done.stderr
        if done.returncode != code or "Traceback" in said:
            raise SystemExit(f"paceline {words} ended with {done.returncode}, not {code}:\n{said}")
        say(f"ok  paceline {words}")
        return said

    def _bin(self, name: str) -> str:
        return str(self.folder / "env" / "bin" / name)


def build(builder: Path, project: Path, into: Path) -> Path:
    """The wheel of a project, built from its source distribution."""
    say(f"building {project.relative_to(ROOT.parent)}")
    subprocess.run(
        [builder / "bin" / "python", "-m", "build", "--outdir", into, project], check=True, stdout=subprocess.DEVNULL
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def names_in(wheel: Path) -> list[str]:
    """Its files."""
    return zipfile.ZipFile(wheel).namelist()


def main() -> int:
    """Build, install and try; 0, or a message."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-dist-") as scratch:
        folder = Path(scratch)
        builder = folder / "builder"
        venv.create(builder, with_pip=True)
        subprocess.run([builder / "bin" / "python", "-m", "pip", "install", "--quiet", "build"], check=True)
        tool = build(builder, ROOT, folder / "tool")
        course = build(builder, ROOT / "course", folder / "course")
        if strangers := [name for name in names_in(tool) if not name.startswith(("paceline/", "paceline-"))]:
            raise SystemExit(f"the wheel of the tool holds {strangers[:3]}")
        if strangers := [name for name in names_in(tool) if "learn/" in name or "course" in name]:
            raise SystemExit(f"the wheel of the tool holds parts of the course: {strangers[:3]}")
        clean = Clean(folder)
        clean.install(str(tool))
        for words in TOOL:
            clean.paceline(words)
        if "pip install ./course" not in clean.paceline("learn", code=2):
            raise SystemExit("`paceline learn` without the course does not say how to install it")
        clean.install(str(course))
        for words in COURSE:
            clean.paceline(words)
        if "message todo" not in clean.paceline("learn check L1.1", code=1):
            raise SystemExit("`paceline learn check` does not say that the starter is not solved")
    say("both distributions work in a clean environment")
    return 0


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
