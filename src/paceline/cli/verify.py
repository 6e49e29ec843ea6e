"""`paceline verify`: do N ranks train what one process would?"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from paceline.cli.help_text import Row, help_text
from paceline.records.errors import Exit, PacelineError
from paceline.records.wrap import text_card

if TYPE_CHECKING:
    from paceline.observe.parity.script_rank import ScriptJob
    from paceline.records.parity import ParityResult

_TEXT = """Prove that N ranks train what one process would, without changing the script.

The script runs on N ranks, whose batches and random numbers are recorded, and in one process, which receives the same
batches, joined. Parameters, buffers and optimizer state of both are compared after each step, in float64 where the
script allows it. The audits of paceline run look at the script as it is.

With --before, OLD runs on one device: on the batches of SCRIPT's ranks, for the same comparison, and on its own, for
its data, learning rates, evaluation and checkpoints.

With --task, ranks of paceline train are compared with a plain loop over the global batches in one process.

Verdicts: pass (exit code 0), fail (1), inconclusive (5)."""
_ARGUMENTS: list[Row] = [
    ("SCRIPT", "Python file; with -m, a module."),
    ("ARGS", "Arguments of the script."),
]
OPTIONS: list[Row] = [
    ("--nproc-per-node N", "Ranks. [default: 2]"),
    (
        "--task TASK",
        "Verify paceline train on a task instead: a built-in one, or a file with a function task().",
    ),
    ("--steps N", "Optimizer steps that are compared, 1 to 50. [default: 20]"),
    ("--before 'OLD [ARGS]'", "The script before it was made distributed: SCRIPT has to train what it does."),
    ("--time-limit SECONDS", "For each of the runs. [default: 60]"),
    ("--output FILE", "Where to write the result. [default: parity.json]"),
    ("--keep DIR", "Keep batches and states of all runs in this directory, which must not exist yet."),
    ("--allow-writes", "Let the script change files, where the system cannot protect them."),
    ("--format NAME", "text, or json for one JSON object on stdout. [default: text]"),
    ("-m, --module", "SCRIPT is a module, as for python -m."),
    ("-h, --help", "Show this message and exit."),
]
_EXIT = {"pass": Exit.OK, "fail": Exit.FAILED, "inconclusive": Exit.INCONCLUSIVE}


def verify_command(argv: list[str]) -> int:
    """Verify a script.

    Args:
        argv: what follows `paceline verify` on the command line.

    Returns:
        The exit code.
    """
    from paceline.cli.verbs import find

    if not argv or argv[0] in ("-h", "--help"):
        _, command = find(["verify"])
        examples = getattr(command, "examples", ())
        sections = [("Arguments", _ARGUMENTS), ("Options", OPTIONS)]
        sys.stdout.write(help_text("paceline verify [OPTIONS] SCRIPT [ARGS]...", _TEXT, examples, sections))
        return 0
    given = _parse(argv)
    # They need torch, which takes seconds: --help does not.
    from paceline.observe.parity.script_rank import ScriptJob
    from paceline.records.parity import encode_parity
    from paceline.records.rundir import write_atomic
    from paceline.verify.script_parity import Question, verify_script

    scratch = given.keep.resolve() if given.keep else Path(tempfile.mkdtemp(prefix="paceline-verify-"))
    named = given.task or given.script
    job = ScriptJob(
        script=str(Path(named).resolve()) if named.endswith(".py") or not (given.module or given.task) else named,
        arguments=given.arguments,
        directory=os.getcwd(),  # noqa: PTH109
        module=given.module,
        is_task=given.task is not None,
    )
    try:
        question = Question(
            job,
            given.nproc_per_node,
            given.steps,
            scratch / "runs",
            patience_s=given.time_limit,
            allow_writes=given.allow_writes,
            before=_old(given.before) if given.before is not None else None,
            say=_say,
        )
        result = verify_script(question)
    finally:
        if not given.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    write_atomic(given.output, encode_parity(result))
    if given.format == "json":
        sys.stdout.write(encode_parity(result).decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(parity_card(result, given.output, width) + "\n")
    return int(_EXIT[result.verdict])


def _old(text: str) -> ScriptJob:
    """The script that `--before` names, with its arguments."""
    from paceline.observe.parity.script_rank import ScriptJob

    parts = shlex.split(text)
    module = parts[:1] == ["-m"]
    script, *arguments = parts[module:] or [""]
    if not module and not Path(script).is_file():
        raise PacelineError(
            f"--before {text}", why=f"{script or 'nothing'} is not a file", hint="--before 'OLD [ARGS]'"
        )
    script = script if module else str(Path(script).resolve())
    return ScriptJob(script=script, arguments=arguments, directory=os.getcwd(), module=module)  # noqa: PTH109


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PacelineError(message, hint="paceline verify --help")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--before")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--output", type=Path, default=Path("parity.json"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--allow-writes", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("--task")
    parser.add_argument("script", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    if not 1 <= given.steps <= 50:
        raise PacelineError(f"--steps {given.steps}", why="1 to 50 steps can be compared")
    if given.nproc_per_node < 2:
        raise PacelineError(f"--nproc-per-node {given.nproc_per_node}", why="a proof needs at least 2 ranks")
    if given.task is not None:
        _check_task(given)
    elif given.script is None:
        raise PacelineError("no script was named", hint="paceline verify SCRIPT, or --task TASK")
    elif not given.module and not Path(given.script).is_file():
        raise PacelineError(f"{given.script} is not a file", hint="name a Python file, or a module with -m")
    if given.keep is not None and given.keep.exists():
        raise PacelineError(f"--keep {given.keep} exists already", hint="name a new directory")
    return given


def _check_task(given: argparse.Namespace) -> None:
    from paceline.tasks.names import check_task_name

    if given.script is not None or given.module or given.before is not None:
        raise PacelineError(
            f"--task {given.task} and a script or --before", why="one of them is verified", hint="leave one of them out"
        )
    check_task_name(given.task)


def parity_card(result: ParityResult, path: Path, width: int | None = None) -> str:
    """The card of a result. Paths below the working directory are relative to it.

    Args:
        result: what was found.
        path: of the record.
        width: of the terminal; None does not wrap.
    """
    from paceline.report.parity.evaluation_text import describe

    rows: list[tuple[str, str]] = [("verdict", f"{result.verdict.upper()}: {result.reason}")]
    if result.faults:
        rows.append(("faults", ", ".join(result.faults)))
    first = result.first_divergence
    if first is not None:
        where = f", {first.path}:{first.line}" if first.path else ""
        rows.append(
            ("first", f"{first.tensor} of rank {first.rank} at step {first.step}, {first.relative:.1e} off{where}")
        )
    compared = result.compared
    if compared is not None:
        rows.append(
            (
                "compared",
                f"{compared.tensors} tensors after each of {compared.steps} steps in {compared.dtype}: parameters, "
                f"buffers, optimizer state; largest relative difference {compared.worst:.1e}, "
                f"tolerance {compared.tolerance:.0e}",
            )
        )
    if result.evaluation is not None:
        rows.append(("evaluation", describe(result.evaluation, "one process")))
    rows += _before_rows(result)
    rows += [("both runs" if number == 0 else "", text) for number, text in enumerate(result.adjusted)]
    rows += [("not compared" if number == 0 else "", text) for number, text in enumerate(result.not_compared)]
    for number, each in enumerate(each for each in result.findings if each.severity != "info"):
        rows.append(("audits" if number == 0 else "", f"{each.severity} {each.code} {each.name}: {each.message}"))
    rows.append(("record", str(path)))
    title = f"paceline verify: {' '.join(result.command)} on {result.world} ranks and in one process"
    here = f"{os.getcwd()}/"  # noqa: PTH109
    shown = [(label, text.replace(here, "")) for label, text in rows]
    return text_card(title.replace(here, ""), shown, label=14, width=width)


def _before_rows(result: ParityResult) -> list[tuple[str, str]]:
    """How OLD compares."""
    from paceline.report.parity.evaluation_text import describe

    before = result.before
    if before is None:
        return []
    rows = [("before", " ".join(before.command))]
    if before.compared is not None:
        tensors, steps, worst = before.compared.tensors, before.compared.steps, before.compared.worst
        rows.append(("", f"{tensors} tensors after each of {steps} steps; largest difference {worst:.1e}"))
    if before.evaluation is not None:
        rows.append(("", f"evaluation: {describe(before.evaluation, 'OLD')}"))
    return rows + [
        ("NEW differs" if number == 0 else "", f"{each.verdict}: {each.text}")
        for number, each in enumerate(before.changes)
    ]


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"paceline: {text}\n")
        sys.stderr.flush()
