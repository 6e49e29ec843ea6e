"""What the assessment's notebook uses: programs with a line of progress, the learner's own logs as curves, the report.

It shows and starts, and judges nothing: that is the grader's work.
"""

from __future__ import annotations

import csv
import itertools
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import IFrame, Markdown, display

from paceline_course.assess.analysis.forecast import points_of
from paceline_course.assess.answers import FILE, QUESTIONS, read_answers
from paceline_course.assess.grade import Grade, read_grade
from paceline_course.assess.kit import kit_folder
from paceline_course.assess.rubric import content_folder, load_rubric
from paceline_course.assess.submission import read_rows
from paceline_course.assess.task_folder import DEFAULT, STATE, start
from paceline.records.errors import PacelineError

_NOTEBOOK = Path.cwd()
"""Where the notebook stands: what it shows by a link is seen from there."""
_QUICK = ["--samples", "512", "--eval-samples", "211", "--epochs", "2"]
"""In the place of a whole training, where the variable PACELINE_QUICK is set."""
_LAST = 30
_LAUNCHER = "torch/distributed/elastic"
"""In lines that torchrun adds when a process failed; what the process said itself stands before them."""


def enter() -> None:
    """Go into the folder of the assessment: this one, or ./assessment, which is made where it is missing."""
    here = Path.cwd()
    if not (here / STATE).is_file():
        os.chdir(here / DEFAULT if _made(here / DEFAULT) else here)
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])
    print(f"working in {Path.cwd().name}/, which holds {', '.join(sorted(path.name for path in Path().iterdir()))}")
    if not yours():
        print("train.py is still the one that was given: it trains on one device")


def _made(folder: Path) -> bool:
    try:
        start(folder)
    except PacelineError as error:
        print(error)
        return False
    return True


def yours() -> bool:
    """Whether train.py is another one than was given."""
    try:
        return Path("train.py").read_bytes() != (kit_folder() / "train.py").read_bytes()
    except OSError:
        return False


def text(name: str) -> None:
    """A file of Markdown."""
    display(Markdown(Path(name).read_text(encoding="utf-8")))


def rubric() -> None:
    """What is judged, and what it gives."""
    held = load_rubric()
    rows = [f"| {line.id} | {line.title} | {line.points:g} | {'gate' if line.gate else ''} |" for line in held.lines]
    said = f"{held.pass_points} points pass, {held.merit_points} are with merit. A line of the gate has to hold."
    display(Markdown("\n".join(["| line | what | points | |", "|---|---|---|---|", *rows, "", said])))


def processes(count: int, *flags: str) -> None:
    """Start train.py on so many processes."""
    if count > 1 and not yours():
        print(
            f"train.py is still the one that was given: {count} processes would each do all of it, and write into the"
            " same files.\nWrite yours first, then run this cell again."
        )
        return
    _run(count, ["train.py", *flags])


def train(*names: str, seeds: Sequence[int] = (0,)) -> None:
    """Train configurations of config.toml, one after the other, into runs/NAME or runs/NAME-SEED.

    Args:
        names: of the configurations.
        seeds: of the weights and of the order.
    """
    if not names or not all(names):
        print("put names of your config.toml into the quotes; nothing was trained")
        return
    held = {str(run.get("name")): run for run in _configurations()}
    if strangers := [name for name in names if name not in held]:
        print(f"config.toml has no run named {strangers[0]}; it has {', '.join(held) or 'none'}")
        return
    for name, seed in itertools.product(names, seeds):
        out = f"runs/{name}-{seed}" if seed else f"runs/{name}"
        more = ["--seed", str(seed)] if len(seeds) > 1 else []
        workers = held[name].get("workers", 1)
        count = workers if isinstance(workers, int) else 1
        processes(count, "--config", "config.toml", "--name", name, *more, "--out", out)


def train_all() -> None:
    """Every configuration of config.toml."""
    if names := [str(run.get("name")) for run in _configurations()]:
        train(*names)


def configurations() -> None:
    """What config.toml says, a line a configuration, a column a key."""
    runs, task = _configurations(), load_rubric().task
    keys = list(dict.fromkeys(["name", *(key for run in runs for key in run)]))
    rows = ["| " + " | ".join(str(run.get(key, "")) for key in keys) + " |" for run in runs]
    display(Markdown("\n".join(["| " + " | ".join(keys) + " |", "|---" * len(keys) + "|", *rows])))
    if len(runs) < task.least_runs:
        print(f"{len(runs)} of the {task.least_runs} configurations that are wanted at least")


def _configurations() -> list[dict[str, Any]]:
    try:
        runs = tomllib.loads(Path("config.toml").read_text(encoding="utf-8")).get("runs", [])
    except (OSError, ValueError) as error:
        print(f"config.toml cannot be read: {error}")
        return []
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []


def measure() -> None:
    """measure.py, on two processes."""
    _run(2, ["measure.py", "--out", "comm.csv"])


def _run(count: int, words: list[str]) -> None:
    """A program, on one line that changes; its last words where it fails."""
    shown = ["torchrun", "--standalone", "--nproc-per-node", str(count)] if count > 1 else ["python"]
    print(f"$ {shlex.join([*shown, *words])}")
    if words[0] == "train.py" and "PACELINE_QUICK" in os.environ:
        words = [*words, *_QUICK]
    begin = ["-m", "torch.distributed.run", *shown[1:]] if count > 1 else []
    command = [sys.executable, *begin, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    said: list[str] = []
    failed = False
    job = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    width = 0
    with job:
        try:
            for line in job.stdout or ():
                failed = failed or _LAUNCHER in line
                if failed:
                    continue
                said = [*said, line.rstrip()][-_LAST:]
                text_now = f"  {line.strip()[:96]}"
                print(f"\r{text_now:<{width}}", end="", flush=True)
                width = len(text_now)
        except KeyboardInterrupt:
            job.terminate()
            job.wait()
            print("\n  stopped")
            return
    print()
    if job.returncode:
        print("\n".join(["  it failed, and said last:", *(f"    {line}" for line in said)]))


def curves(*names: str) -> None:
    """Accuracy of your own runs, against samples and against seconds; all that runs/ holds when none is named."""
    folders = [Path("runs") / name for name in names] or sorted(path.parent for path in Path("runs").glob("*/log.csv"))
    held = {folder.name: rows for folder in folders if (rows := _log(folder / "log.csv"))}
    if not held:
        print("there is no runs/NAME/log.csv yet: train something first")
        return
    _, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for name, rows in held.items():
        accuracy = [row["right"] / row["counted"] for row in rows]
        seconds, spent = [], 0.0
        for row in rows:
            spent += row["seconds"]
            seconds.append(spent)
        axes[0].plot([row["samples"] for row in rows], accuracy, marker="o", markersize=3, label=name)
        axes[1].plot(seconds, accuracy, marker="o", markersize=3, label=name)
    if (grade := _newest_grade()) is not None and grade.target:
        for axis in axes:
            axis.axhline(grade.target, color="0.5", linestyle="--", linewidth=1, label="target")
    axes[0].set(xlabel="training samples", ylabel="accuracy of the evaluation samples")
    axes[1].set(xlabel="seconds, those of the log added up")
    axes[1].legend(fontsize=8, loc="lower right")
    plt.show()


def _log(path: Path) -> list[dict[str, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        return [row for row in rows if row["counted"] > 0 and row["samples"] >= 0 and row["seconds"] >= 0]
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"{path} is left out: {type(error).__name__}: {error}")
        return []


def messages() -> None:
    """What measure.py wrote, as points."""
    tables = (("comm.csv", "bytes", "bytes of a message"), ("compute.csv", "batch", "samples of a step"))
    if missing := [name for name, _, _ in tables if not Path(name).is_file()]:
        print(f"{' and '.join(missing)} is not there yet: show.measure() makes it")
        return
    _, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
    for axis, (name, column, label) in zip(axes, tables, strict=True):
        # As the grader reads them: lines that are none are left out.
        points = points_of(read_rows(Path(name).read_bytes()), column)
        axis.loglog([size for size, _ in points], [seconds for _, seconds in points], "o")
        axis.set(xlabel=label, ylabel="seconds", title=name)
        axis.grid(alpha=0.3)
    plt.show()


def answers() -> None:
    """Which questions are still open."""
    path = Path(FILE)
    held = read_answers(path.read_bytes() if path.is_file() else None)
    if held.problem:
        print(held.problem)
        return
    for name, keys in QUESTIONS.items():
        lacking = [key for key in keys if not held.given(name, key)]
        print(f"{name:<10} {'open: ' + ', '.join(lacking) if lacking else 'answered'}")


def report() -> None:
    """The page of the newest grading."""
    pages = sorted(Path("graded").glob("*/report.html"))
    if not pages:
        print("there is no report yet: run a practice first")
        return
    path = pages[-1].resolve()
    display(IFrame(Path(os.path.relpath(path, _NOTEBOOK)).as_posix(), width="100%", height=640))
    print(f"the same in a browser: {path.relative_to(Path.cwd())}")


def certificate() -> None:
    """Make the certificate of the newest final grading that passed."""
    finals = [path.parent for path in sorted(Path("graded").glob("*_final*/grade.json"))]
    passed = [folder for folder in finals if (grade := _grade(folder)) is not None and grade.passed]
    if not passed:
        print("there is no final grading that passed yet")
        return
    words = ["learn", "certificate", "issue", str(passed[-1])]
    print(f"$ paceline {shlex.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "paceline", *words], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)


def ours() -> None:
    """Where our way of doing it stands."""
    print(content_folder() / "solution" / "train.py")


def _newest_grade() -> Grade | None:
    folders = sorted(path.parent for path in Path("graded").glob("*/grade.json"))
    return _grade(folders[-1]) if folders else None


def _grade(folder: Path) -> Grade | None:
    try:
        return read_grade(folder)
    except PacelineError as error:
        print(error)
        return None
