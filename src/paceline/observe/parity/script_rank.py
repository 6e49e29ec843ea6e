"""A rank of a parity run, in a process of the fork server: attaches the observer and runs the script as `__main__`."""

from __future__ import annotations

import faulthandler
import os
import runpy
import sys
import traceback
from pathlib import Path

import msgspec

from paceline.observe.attach import attach_to_rank
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.parity.parity_run import ParityRun
from paceline.pool.overlay_view import join
from paceline.pool.rank import rank_environment, stack_file
from paceline.records.parity import PARITY_VARIABLE, ParityTask
from paceline.records.standing import stack_signal


class ScriptJob(msgspec.Struct, frozen=True, kw_only=True):
    """The script of a rank, and where it runs."""

    script: str
    """A file, or the name of a module."""
    arguments: list[str]
    directory: str
    module: bool = False
    alone: bool = False
    """It knows nothing of ranks: their variables are not in its environment."""
    is_task: bool = False
    """`script` names a task of `paceline train`, not a script."""
    view: int | None = None
    """Process that holds the view of the file system in which it runs; None for the real one."""

    @property
    def command(self) -> list[str]:
        """Arguments for a launcher such as torchrun: the script and its own arguments."""
        before = ["--task"] if self.is_task else ["-m"] if self.module else []
        return [*before, self.script, *self.arguments]


def enter(job: ScriptJob, task: ParityTask) -> None:
    """Begin as a rank of a run: in the view of its job and the directory of the script, ready to tell its stack."""
    stacks = stack_file(task.folder, int(os.environ["RANK"])).open("w")  # as long as the process
    faulthandler.register(stack_signal(), file=stacks, all_threads=True)
    faulthandler.enable(file=stacks, all_threads=True)  # where it was when a signal killed it
    if job.view is not None:
        join(job.view)
    os.chdir(job.directory)


def run(given: bytes) -> int:
    """Run the script. Returns its exit code."""
    job = msgspec.json.decode(given, type=ScriptJob)
    task = msgspec.json.decode(Path(os.environ[PARITY_VARIABLE]).read_bytes(), type=ParityTask)
    enter(job, task)
    sys.argv = [job.script, *job.arguments]
    sys.path.insert(0, os.getcwd() if job.module else str(Path(job.script).parent))  # noqa: PTH109
    rank = int(os.environ["RANK"])

    def parity(models: ModelRegistry) -> ParityRun:
        return ParityRun(task, rank, models)

    attached = attach_to_rank(parity)
    if job.alone:
        for name in rank_environment(0, 1, 0):
            os.environ.pop(name, None)
    probe = next(each for each in attached.session.probes if isinstance(each, ParityRun))
    code, error = 0, ""
    try:
        if job.module:
            runpy.run_module(job.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(job.script, run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001
        error = traceback.format_exc()
        sys.stderr.write(error)
        code = 1
    probe.end(code, error)
    attached.script_ends()
    sys.stdout.flush()
    sys.stderr.flush()
    return code
