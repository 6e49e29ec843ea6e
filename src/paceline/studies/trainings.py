"""Trainings of one task, one after the other, each in a process of its own: `paceline train` as a user would call it.

What has finished is not done again, what was interrupted goes on from its checkpoint, so that a plan of many trainings
can be stopped at any time. A training that diverges has an answer too; any other failure ends the plan.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from paceline.records.errors import REFUSAL_FILE, Exit, PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, make_dirs, read_info
from paceline.records.schema import End, Evaluation, Start
from paceline.records.validation import Refusal
from paceline.train.handover import RANK_MODULES

PROGRAM = (sys.executable, "-m", "paceline")
PATIENCE_S = 45.0
"""How long a training has to end after it was told to: its own grace is 30 s."""
_DONE = ("finished", "target", "diverged")


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        name: of its directory.
        flags: of `paceline train`, those that decide its result.
    """

    name: str
    flags: tuple[str, ...]


Grid = dict[tuple[int, int], Training]
"""Trainings by size and seed."""


def grid(kind: str, sizes: Iterable[int], seeds: Iterable[int], flags: Callable[[int, int], Iterable[str]]) -> Grid:
    """A training of each size with each seed, seed by seed, so that a study cut short has every size.

    Args:
        kind: of size, for names: `batch`, `samples`.
        sizes: a batch, or a number of samples.
        seeds: of each size.
        flags: of `paceline train`, by size and seed.
    """
    sizes = list(sizes)
    return {
        (size, seed): Training(f"{kind}-{size}-seed-{seed}", tuple(flags(size, seed)))
        for seed in seeds
        for size in sizes
    }


def carry_out(
    trainings: Collection[Training],
    folder: Path,
    task: str,
    shared: Sequence[str] = (),
    *,
    tell: Callable[[int, int, str], None],
) -> dict[str, RunDir]:
    """Train what has not been trained yet, in this order.

    Args:
        trainings: with different names.
        folder: where their run directories stand, each under its name.
        task: a built-in name, or the path of a Python file.
        shared: flags of all, those that decide how a training is carried out (--workers, --data-dir): another call may
            have others.
        tell: is called with how many are done, of how many, and the name of the one that runs next; "" at the end.

    Returns:
        run directories by name, in the order of `trainings`. Those that diverged are among them: see `ended`.

    Raises:
        PacelineError: a training failed; the message is its own. Or a directory holds a training with other flags.
        KeyboardInterrupt: stopped by Ctrl-C, or by SIGTERM or SIGHUP, whose number is then its argument. The one that
            ran has written a checkpoint.
    """
    make_dirs(folder)
    runs = {training.name: RunDir(folder / training.name) for training in trainings}
    pending = [training for training in trainings if not _is_done(training, runs[training.name], task)]
    done = len(trainings) - len(pending)
    for training in pending:
        tell(done, len(trainings), training.name)
        _train(training, runs[training.name], task, shared)
        done += 1
    tell(done, len(trainings), "")
    return runs


def last_end(run: RunDir) -> End | None:
    """How a training ended; None when it did not, or goes on."""
    if not run.events().exists():
        return None
    last = None
    for event in EventStream(run.events()):
        if isinstance(event, (Start, End)):
            last = event
    return last if isinstance(last, End) else None


def ended(run: RunDir) -> str | None:
    """Why a training ended: a reason of `records.schema.End`; None when it did not, or goes on."""
    last = last_end(run)
    return last.reason if last is not None else None


def last_evaluation(run: RunDir, metric: str) -> Evaluation | None:
    """The last evaluation of the metric; None where there was none."""
    found = None
    for event in EventStream(run.events()):
        if isinstance(event, Evaluation) and metric in event.metrics:
            found = event
    return found


def _is_done(training: Training, run: RunDir, task: str) -> bool:
    if not run.exists():
        return False
    asked = ["train", task, *training.flags]
    there = read_info(run.path).command[1 : 1 + len(asked)]
    if there != asked:
        raise PacelineError(
            f"{run.path} holds another training",
            why=f"it was made by: paceline {' '.join(there)}",
            hint="start a new plan with another --run-dir",
        )
    return ended(run) in _DONE


def _train(training: Training, run: RunDir, task: str, shared: Sequence[str]) -> None:
    anew = [task, *training.flags, "--run-dir", str(run.path)]
    arguments = ["--resume", str(run.path)] if run.exists() else anew
    with tempfile.TemporaryDirectory(prefix="paceline-training-") as scratch:
        refused = Path(scratch) / "refusal.json"
        code, stderr = _call([*PROGRAM, "train", *arguments, *shared, "--format", "json"], refused)
        refusal = Refusal.read(refused)
    if code not in (Exit.OK, Exit.DIVERGED):
        raise _failure(training, run, code, refusal, stderr)
    if ended(run) not in _DONE:
        raise PacelineError(
            f"the training {training.name} left no end in {run.events()}",
            why=_last(stderr),
            hint="the same plan again goes on with it",
            exit_code=Exit.FAILED,
        )


def _call(command: Sequence[str], refused: Path) -> tuple[int, str]:
    """Run a command.

    Args:
        command: to run; in a process group of its own.
        refused: where it leaves its error, see `REFUSAL_FILE`.

    Returns:
        its exit code, and what it wrote to stderr.

    Raises:
        KeyboardInterrupt: when it has ended.
    """
    from paceline.launch.local_machine import job_server

    with _signals_taken() as passed_on:
        with job_server(RANK_MODULES).lent() as (lent, handles):
            # A group of its own: the terminal sends Ctrl-C to whole groups, and a training that hears it twice, from
            # the terminal and from us, does not wait for its checkpoint.
            process = subprocess.Popen(
                command,
                env=os.environ | lent | {REFUSAL_FILE: str(refused)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,
                pass_fds=handles,
            )
        passed_on(process)
        try:
            _, stderr = process.communicate()
        except BaseException as stop:
            _end(process, signal.SIGINT if isinstance(stop, KeyboardInterrupt) and not stop.args else signal.SIGTERM)
            raise
    if process.returncode in (Exit.INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt  # somebody else stopped it
    if process.returncode in (Exit.TERMINATED, -signal.SIGTERM):
        raise KeyboardInterrupt(int(signal.SIGTERM))
    return process.returncode, stderr


@contextlib.contextmanager
def _signals_taken() -> Iterator[Callable[[subprocess.Popen[str]], None]]:
    """While a training runs: a stop raises KeyboardInterrupt, and SIGUSR1 asks the training for a checkpoint.

    Yields:
        what is called with the training's process; until then SIGUSR1 is pending, in the training as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda process: None  # only there Python lets handlers be set
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise KeyboardInterrupt if number == signal.SIGINT else KeyboardInterrupt(number)

    def pass_on_to(process: subprocess.Popen[str]) -> None:
        signal.signal(signal.SIGUSR1, lambda number, frame: process.send_signal(number))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    before = {signal.SIGUSR1: signal.getsignal(signal.SIGUSR1)}
    # Also of Ctrl-C: the command's own handler ends the process at the second one, and the training would be left.
    before |= {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Tell it to stop, and wait; a second Ctrl-C here is a second one there, which does not wait for a checkpoint."""
    for patience_s in (PATIENCE_S, 5.0):
        process.send_signal(number)
        try:
            process.communicate(timeout=patience_s)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
    process.kill()  # its ranks die with it
    process.wait()


def _failure(training: Training, run: RunDir, code: int, refusal: Refusal | None, stderr: str) -> PacelineError:
    again = f"logs: {run.logs}; the same plan again goes on with this training"
    if refusal is None:  # it was killed, or left a traceback
        what = f"the training {training.name} ended with exit code {code}"
        known = code if code in set(Exit) else int(Exit.FAILED)
        return PacelineError(what, why=_last(stderr), hint=again, exit_code=known)
    return PacelineError(
        f"the training {training.name} failed: {refusal.what}",
        why=refusal.why,
        hint=refusal.hint or (again if refusal.exit_code == Exit.FAILED else ""),
        exit_code=refusal.exit_code,
    )


def _last(stderr: str) -> str:
    return stderr.strip()[-1500:]
