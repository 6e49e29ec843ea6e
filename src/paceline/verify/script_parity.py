"""Do N ranks train what one process would? Records a training, replays it in one process, and judges the difference."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from paceline import __version__
from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.parity import Before, Change, Compared, ParityResult, ParityStep, ParityTask, read_steps
from paceline.records.schema import Finding
from paceline.verify.audited_run import audited_run
from paceline.verify.before import Training, compare_scripts, judge_before
from paceline.verify.divergence import Found, alone, look, meet_again, with_factor, with_place
from paceline.verify.evaluations import compare_evaluations, evaluation_change
from paceline.verify.explanation import Explanation, explain
from paceline.verify.facts import facts_at
from paceline.verify.hang_evidence import is_hang, words
from paceline.verify.operations import first_operation
from paceline.verify.own_precision import HALF, wanted_precision, with_own_precision
from paceline.verify.script_runs import ScriptRun, read_task, run_script
from paceline.verify.states import differences, steps_of
from paceline.verify.verdict import TOLERANCES, Circumstances, give_verdict, named, with_audits

MOST_STEPS = 50
_FLOORS = 100.0
"""A difference of so many times that of two orders of summation is no rounding error."""
_FEW = 5
"""Steps in float32: later ones tell nothing, since rounding errors grow."""


@dataclass(frozen=True)
class Question:
    """A question to `verify_script`.

    Attributes:
        job: the script.
        world: ranks.
        steps: optimizer steps that are compared, at most `MOST_STEPS`.
        scratch: an empty folder for the records of all runs.
        patience_s: for each run.
        allow_writes: let the script change files; else it writes into a view that is dropped.
        audit: run the script as it is as well, for the audits; they look at scripts only, not at tasks.
        before: the script that ran on one device; it is compared with the ranks as well.
        findings: of an audited run, where there has been one.
        say: is told what runs now.
    """

    job: ScriptJob
    world: int
    steps: int
    scratch: Path
    patience_s: float = 60.0
    allow_writes: bool = False
    audit: bool = True
    before: ScriptJob | None = None
    findings: Sequence[Finding] | None = None
    say: Callable[[str], None] = field(default=lambda _: None)


@dataclass
class _Evidence:
    """All runs so far."""

    question: Question
    findings: list[Finding]
    audits: str
    """Why audits prove nothing; empty where they saw the script train."""
    double: bool = True
    ranks: ScriptRun | None = None
    one: ScriptRun | None = None
    runs: int = 0

    def task(self) -> ParityTask:
        """The task of the ranks that record."""
        steps = self.question.steps if self.double else min(self.question.steps, _FEW)
        return ParityTask(folder="", steps=steps, double=self.double, world=self.question.world)

    def run(self, task: ParityTask, world: int, what: str, job: ScriptJob | None = None) -> ScriptRun:
        """Start a run in a directory of its own."""
        self.runs += 1
        folder = self.question.scratch / f"run-{self.runs}"
        self.question.say(what)
        return run_script(
            job or self.question.job,
            msgspec.structs.replace(task, folder=str(folder)),
            world,
            self.question.patience_s,
            allow_writes=self.question.allow_writes,
        )


def verify_script(question: Question) -> ParityResult:
    """Verify a script.

    Args:
        question: the script, the number of ranks and of steps.

    Returns:
        The result; its verdict is "inconclusive" wherever evidence is missing.
    """
    began = time.monotonic()
    findings, audits = list(question.findings or ()), ""
    unseen = question.findings is None and not question.job.is_task
    if unseen and not question.audit:
        audits = "the script was not audited"
    elif unseen:
        question.say(f"{question.world} ranks, as they are")
        audited = audited_run(
            question.job,
            question.world,
            question.scratch / "audited",
            question.patience_s,
            allow_writes=question.allow_writes,
        )
        findings, audits = audited.findings, audited.missing
    evidence = _Evidence(question, findings, audits)
    result = _verify(evidence)
    if question.before is not None and evidence.ranks is not None and evidence.ranks.whole:
        result = _against(evidence, question.before, result)
    return msgspec.structs.replace(
        result,
        script_sha256=_digest(question.job),
        versions=_versions(),
        seconds=round(time.monotonic() - began, 2),
    )


def _verify(evidence: _Evidence) -> ParityResult:
    question = evidence.question
    for double in (True,) if question.job.is_task else (True, False):
        evidence.double = double
        precision = "float64" if double else "float32"
        evidence.ranks = evidence.run(evidence.task(), question.world, f"{question.world} ranks in {precision}")
        if evidence.ranks.whole and read_steps(evidence.ranks.folder, 0):
            evidence.one = _replay(evidence)
            if evidence.one.whole:
                return _in_own_precision(evidence, _judge(evidence, evidence.ranks, evidence.one))
        if is_hang(evidence.ranks.where) and None in evidence.ranks.exit_codes:
            break  # another precision would not end it
    assert evidence.ranks is not None
    return _not_run(evidence, evidence.ranks)


def _in_own_precision(evidence: _Evidence, result: ParityResult) -> ParityResult:
    """A pass in float64 is tried in the precision of the script as well, where that is another than float32 alone."""
    assert evidence.ranks is not None
    dtype, world = wanted_precision(evidence.ranks), evidence.question.world
    if result.verdict != "pass" or not evidence.double or not dtype:
        return result
    in_double = steps_of(evidence.ranks.folder, world)
    other = replace(evidence, double=False)
    ranks = other.ranks = other.run(other.task(), world, f"{world} ranks in {dtype}")
    one = _replay(other) if ranks.whole else ranks
    evidence.runs = other.runs
    return with_own_precision(result, dtype, in_double, ranks, one)


def _replay(evidence: _Evidence, *, reverse: bool = False, job: ScriptJob | None = None) -> ScriptRun:
    """One process; if it takes N micro-batches for each one of a rank, they are replayed one by one."""
    name = "OLD" if job is not None else "one process"
    ranks = evidence.ranks
    assert ranks is not None
    task = msgspec.structs.replace(evidence.task(), source=str(ranks.folder), reverse=reverse)
    one = evidence.run(task, 1, f"{name}, on the same batches", job)
    if one.error and any(ranks.folder.glob("rank-*/draws/*.pt")):
        # Numbers that choose no batch have a size that the script fixes: actions in environments.
        task = msgspec.structs.replace(task, keep_sizes=True)
        one = evidence.run(task, 1, f"{name}, with random numbers of the size that it asks for", job)
    theirs, ours = read_steps(ranks.folder, 0), read_steps(one.folder, 0)
    if theirs and ours and ranks.world > 1 and 0 < ranks.world * theirs[0].backwards == ours[0].backwards:
        draws = [path for path in (ranks.folder / "rank-00000" / "draws").glob("*.pt") if "-" not in path.stem]
        each = round(len(draws) / max(1, sum(step.backwards for step in theirs)))
        task = msgspec.structs.replace(task, interleave=True, draws_per_batch=max(1, each))
        one = evidence.run(task, 1, f"{name}, on the batches of the ranks in turn", job)
    return one


def _against(evidence: _Evidence, old: ScriptJob, result: ParityResult) -> ParityResult:
    """The result, with what NEW does in another way than OLD."""
    assert evidence.ranks is not None
    old = msgspec.structs.replace(old, alone=True)
    natural = evidence.run(msgspec.structs.replace(evidence.task(), world=1), 1, "OLD, as it is", old)
    replay = _replay(evidence, job=old)
    before = Before(command=old.command, script_sha256=_digest(old))
    if failed := next((run for run in (natural, replay) if not run.whole), None):
        what = "OLD fails" if failed is natural else "OLD cannot be given the batches of NEW"
        why = Change(verdict="inconclusive", text=f"{what}: {failed.error or 'it does not end'}")
        return judge_before(result, msgspec.structs.replace(before, changes=[why]))
    new = Training(evidence.ranks.folder, evidence.question.world)
    before = compare_scripts(before, new, Training(natural.folder, 1), Training(replay.folder, 1), result.compared)
    notes = [note for end in replay.ends if end is not None for note in end.notes]
    return judge_before(result, before, notes)


def _not_run(evidence: _Evidence, ranks: ScriptRun) -> ParityResult:
    """The script did not come to an end that could be compared."""
    question = evidence.question
    if not ranks.whole:
        alone = evidence.run(ParityTask(folder="", steps=_FEW, double=False, world=1), 1, "one process")
        verdict = "fail" if alone.whole else "inconclusive"
        where = f"on {question.world} ranks, and not in one process" if alone.whole else "in one process as well"
        what = "task" if question.job.is_task else "script"
        reason = f"the {what} fails {where}: {ranks.error or alone.error}"
        if None in ranks.exit_codes and not ranks.error:
            reason = f"{question.world} ranks do not come to an end within {question.patience_s:.0f} s" + (
                ", one process does" if alone.whole else ", nor does one process"
            )
            if not is_hang(ranks.where):
                verdict = "inconclusive"  # they compute, and are slow perhaps
        if len({each.state for each in ranks.where}) > 1 or None in ranks.exit_codes or ranks.lost_connection:
            reason = f"{reason}: {words(ranks.where)}"
    elif not read_steps(ranks.folder, 0):
        verdict, reason = "inconclusive", "no optimizer of torch took a step"
    else:
        why = evidence.one.error if evidence.one is not None else ""
        reason = f"one process cannot be given the batches of {question.world} ranks: {why or 'it does not end'}"
        verdict = "inconclusive"
    result = ParityResult(
        verdict=verdict,
        reason=reason,
        command=question.job.command,
        world=question.world,
        hang=ranks.where,
        findings=evidence.findings,
    )
    if verdict == "inconclusive":
        return with_audits(result, f"{reason};")
    return msgspec.structs.replace(result, faults=named(result))


def _judge(evidence: _Evidence, ranks: ScriptRun, one: ScriptRun) -> ParityResult:
    question = evidence.question
    theirs, ours = read_steps(ranks.folder, 0), read_steps(one.folder, 0)
    taken = [max((each.step for each in lines), default=0) for lines in (theirs, ours)]
    steps = min(taken)
    dtypes = sorted({name for end in ranks.ends if end is not None for name in end.dtypes})
    dtype = "float64" if dtypes == ["float64"] else ", ".join(dtypes) or "float32"
    tolerance = TOLERANCES.get(dtype, TOLERANCES["float32"])
    pairs = [
        (rank, "one process", list(differences((ranks.folder, rank), (one.folder, 0), steps)))
        for rank in range(ranks.world)
    ]
    found = look(pairs, tolerance)
    among = [
        (rank, "rank 0", list(differences((ranks.folder, rank), (ranks.folder, 0), steps)))
        for rank in range(1, ranks.world)
    ]
    apart = look(among, tolerance)
    floor = 0.0
    if found.first is not None:
        floor = _floor(evidence, one, steps)
        if floor <= TOLERANCES["float32"]:
            found = look(pairs, max(tolerance, _FLOORS * floor))
    rates = [_rates(lines) for lines in (theirs, ours)]
    ends = [each for each in [*ranks.ends, *one.ends] if each is not None]
    notes = list(dict.fromkeys(note for each in ends for note in each.notes))
    if not evidence.double and (half := wanted_precision(ranks)) in HALF:
        notes.append(f"the script does not run in float64, and rounding errors of {half} are as large as faults")
    if taken[0] != taken[1]:
        notes.insert(0, f"one process takes {taken[1]} steps where the ranks take {taken[0]}")
    if not found.any_parameter and not notes:
        notes.append("no parameter of one process has the name of one of the ranks")
    result = ParityResult(
        verdict="pass",
        reason="",
        command=question.job.command,
        world=question.world,
        first_divergence=with_place(with_factor(found), theirs),
        compared=Compared(
            steps=steps,
            tensors=len(found.tensors),
            dtype=dtype,
            tolerance=tolerance,
            floor=floor,
            worst=found.worst,
        ),
        tensors=found.tensors,
        adjusted=list(dict.fromkeys(text for each in ends for text in each.adjusted)),
        learning_rates=rates[0],
        learning_rates_of_one=rates[1],
        evaluation=(evaluation := compare_evaluations(ranks.folder, ranks.world, one.folder)),
        findings=evidence.findings,
        not_compared=[*([] if evaluation else ["the evaluation"]), *filter(None, [evidence.audits]), *alone(pairs)],
    )
    own = [*_own(ranks), *meet_again(among, tolerance)]
    if apart.first is not None and found.first is not None:
        result = msgspec.structs.replace(result, first_divergence=with_place(apart.first, theirs))
    around = Circumstances(
        own=own,
        notes=notes,
        apart=apart.first,
        uneven=taken[0] != taken[1],
        floor=floor,
        closure=_closure(ranks),
        explain=lambda: _explanation(evidence, found, ranks, one),
    )
    result = _with_evaluation(give_verdict(result, found, around))
    return result if apart.first is not None else _with_operation(result, evidence)


def _with_operation(result: ParityResult, evidence: _Evidence) -> ParityResult:
    """The line where a step becomes another one, for a fail."""
    ranks, one = evidence.ranks, evidence.one
    if result.verdict != "fail" or result.first_divergence is None or ranks is None or one is None:
        return result
    in_turn = read_task(one.folder).interleave  # then one process begins with the batch of rank 0
    operation = first_operation(ranks.folder, 1 if in_turn else ranks.world, one.folder, double=evidence.double)
    if operation is None or operation.place is None:
        return result
    reason = f"{result.reason}; the first operation that differs is {operation.name} at {operation.place}"
    return msgspec.structs.replace(result, reason=reason, first_operation=operation)


def _with_evaluation(result: ParityResult) -> ParityResult:
    """Equal weights have to give equal results."""
    change = evaluation_change(result.evaluation, "one process") if result.evaluation is not None else None
    if change is None or result.verdict != "pass":
        return result
    if change.verdict == "fail":
        named = [each for each in result.findings if set(each.faults) & set(change.faults)]
        faults = named[0].faults if named else change.faults
        return msgspec.structs.replace(result, verdict="fail", reason=change.text, faults=faults)
    return msgspec.structs.replace(result, not_compared=[*result.not_compared, change.text])


def _explanation(evidence: _Evidence, found: Found, ranks: ScriptRun, one: ScriptRun) -> Explanation:
    """Why states differ. One process runs on the batches of each rank alone where their gradients tell why."""
    assert found.first is not None
    step = found.first.step
    if found.gradients is not None:
        step = min(step, found.gradients.step)

    def alone(rank: int, begins: int) -> ScriptRun:
        source = str(ranks.folder)
        task = msgspec.structs.replace(evidence.task(), steps=begins, source=source, alone=rank, alone_from=begins)
        return evidence.run(task, 1, f"one process, on the batches of rank {rank}")

    return explain(found, facts_at(step, ranks, one, alone), closure=_closure(ranks))


def _closure(ranks: ScriptRun) -> bool:
    return any(end is not None and end.closure for end in ranks.ends)


def _own(ranks: ScriptRun) -> list[str]:
    return [each for end in ranks.ends if end is not None for each in end.nature]


def _floor(evidence: _Evidence, one: ScriptRun, steps: int) -> float:
    """How far two replays are apart that add up in another order."""
    other = _replay(evidence, reverse=True)
    apart = differences((other.folder, 0), (one.folder, 0), steps)
    return max((each.found.worst[1] for each in apart if each.what == "state"), default=0.0)


def _rates(lines: list[ParityStep]) -> list[float]:
    return [each.lr[0] for each in lines if each.lr and each.optimizer == lines[0].optimizer]


def _digest(job: ScriptJob) -> str:
    try:
        return hashlib.sha256(Path(job.script).read_bytes()).hexdigest()
    except OSError:
        return ""


def _versions() -> dict[str, str]:
    import torch

    return {"python": platform.python_version(), "torch": str(torch.__version__), "paceline": __version__}
