"""Do N ranks train what one process would? Records a training, replays it in one process, and judges the difference."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline import __version__
from paceline.observe.parity.script_rank import ScriptJob
from paceline.pool.overlay_view import join
from paceline.pool.processes import fork_server
from paceline.records.findings import read_findings
from paceline.records.observation import read_observation
from paceline.records.parity import Compared, Divergence, ParityResult, ParityStep, ParityTask
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding
from paceline.verify.script_runs import ScriptRun, protected, run_script
from paceline.verify.states import Difference, differences, read_steps

MOST_STEPS = 50
TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
"""Relative difference of a tensor; right trainings differ by 1e-14 in float64, faults by 1e-6 and more."""
_FLOORS = 100.0
"""A difference of so many times that of two orders of summation is no rounding error."""
_FEW = 5
"""Steps in float32: later ones tell nothing, since rounding errors grow."""


@dataclass(frozen=True)
class Question:
    """What is verified.

    Attributes:
        job: the script.
        world: ranks.
        steps: optimizer steps that are compared, at most `MOST_STEPS`.
        scratch: an empty folder for the records of all runs.
        patience_s: for each run.
        allow_writes: let the script change files; else it writes into a view that is dropped.
        audit: run the script as it is as well, for the audits.
        say: is told what runs now.
    """

    job: ScriptJob
    world: int
    steps: int
    scratch: Path
    patience_s: float = 60.0
    allow_writes: bool = False
    audit: bool = True
    say: Callable[[str], None] = field(default=lambda _: None)


@dataclass
class _Evidence:
    """What has been run so far."""

    question: Question
    findings: list[Finding]
    audits: str
    """Why audits prove nothing; empty where they saw the script train."""
    double: bool = True
    ranks: ScriptRun | None = None
    one: ScriptRun | None = None
    runs: int = 0

    def run(self, task: ParityTask, world: int, what: str) -> ScriptRun:
        """Start a run in a directory of its own."""
        self.runs += 1
        folder = self.question.scratch / f"run-{self.runs}"
        self.question.say(what)
        return run_script(
            self.question.job,
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
    findings, audits = _audited(question) if question.audit else ([], "the script was not audited")
    result = _verify(question, findings, audits)
    return msgspec.structs.replace(
        result,
        script_sha256=_digest(question.job),
        versions=_versions(),
        seconds=round(time.monotonic() - began, 2),
    )


def _verify(question: Question, findings: list[Finding], audits: str) -> ParityResult:
    evidence = _Evidence(question, findings, audits)
    for double in (True, False):
        evidence.double = double
        steps = question.steps if double else min(question.steps, _FEW)
        task = ParityTask(folder="", steps=steps, double=double, world=question.world)
        precision = "float64" if double else "float32"
        evidence.ranks = evidence.run(task, question.world, f"{question.world} ranks in {precision}")
        if evidence.ranks.whole and read_steps(evidence.ranks.folder, 0):
            evidence.one = _replay(evidence, task)
            if evidence.one.whole:
                return _judge(evidence, evidence.ranks, evidence.one)
    assert evidence.ranks is not None
    return _not_run(evidence, evidence.ranks)


def _audited(question: Question) -> tuple[list[Finding], str]:
    """Findings of the script as it is, until it ends or its time is up, and why there may be none."""
    question.say(f"{question.world} ranks, as they are")
    run, job = question.scratch / "audited", question.job
    question.scratch.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(question.world), "--run-dir", str(run)]
    with (
        (question.scratch / "audited.log").open("wb") as log,
        fork_server().session() as session,
        protected(session, question.scratch, allow_writes=question.allow_writes) as view,
    ):

        def enter() -> None:
            if view is not None:
                join(view)
            os.chdir(job.directory)

        ranks = subprocess.Popen([*command, *_command(job)], stdout=log, stderr=log, preexec_fn=enter)
        try:
            ranks.wait(question.patience_s)
        except subprocess.TimeoutExpired:
            ranks.send_signal(signal.SIGINT)  # findings so far are kept
            ranks.wait()
    observed = read_observation(RunDir(run))
    why = "" if observed is not None and observed.steps else "the audits observed no training"
    return read_findings(RunDir(run).findings)[0], why


def _replay(evidence: _Evidence, task: ParityTask, *, reverse: bool = False) -> ScriptRun:
    """One process; if it takes N micro-batches for each one of a rank, they are replayed one by one."""
    ranks = evidence.ranks
    assert ranks is not None
    task = msgspec.structs.replace(task, source=str(ranks.folder), reverse=reverse)
    one = evidence.run(task, 1, "one process, on the same batches")
    theirs, ours = read_steps(ranks.folder, 0), read_steps(one.folder, 0)
    if theirs and ours and ranks.world > 1 and ours[0].backwards == ranks.world * theirs[0].backwards:
        draws = [path for path in (ranks.folder / "rank-00000" / "draws").glob("*.pt") if "-" not in path.stem]
        each = round(len(draws) / max(1, sum(step.backwards for step in theirs)))
        task = msgspec.structs.replace(task, interleave=True, draws_per_batch=max(1, each))
        one = evidence.run(task, 1, "one process, on the batches of the ranks in turn")
    return one


def _not_run(evidence: _Evidence, ranks: ScriptRun) -> ParityResult:
    """The script did not come to an end that could be compared."""
    question = evidence.question
    if not ranks.whole:
        alone = evidence.run(ParityTask(folder="", steps=_FEW, double=False, world=1), 1, "one process")
        verdict = "fail" if alone.whole else "inconclusive"
        where = f"on {question.world} ranks, and not in one process" if alone.whole else "in one process as well"
        reason = f"the script fails {where}: {ranks.error or alone.error}"
        if None in ranks.exit_codes:
            reason = f"{question.world} ranks do not come to an end within {question.patience_s:.0f} s" + (
                ", one process does" if alone.whole else ", nor does one process"
            )
    elif not read_steps(ranks.folder, 0):
        verdict, reason = "inconclusive", "no optimizer of torch took a step"
    else:
        why = evidence.one.error if evidence.one is not None else ""
        reason = f"one process cannot be given the batches of {question.world} ranks: {why or 'it does not end'}"
        verdict = "inconclusive"
    return ParityResult(
        verdict=verdict, reason=reason, command=_command(question.job), world=question.world, findings=evidence.findings
    )


@dataclass(frozen=True)
class _Found:
    """The first state that is too far off, and everything else."""

    first: Divergence | None
    gradients: Divergence | None
    tensors: dict[str, float]
    worst: float

    @property
    def any_parameter(self) -> bool:
        """Whether a parameter was compared: counters of an optimizer prove nothing."""
        return any(name.startswith("parameter:") for name in self.tensors)


def _look(pairs: list[tuple[int, str, list[Difference]]], tolerance: float) -> _Found:
    """Search ranks' differences: states decide, gradients explain."""
    tensors: dict[str, float] = {}
    first: Divergence | None = None
    gradients: Divergence | None = None
    for rank, against, found in pairs:
        for each in found:
            off = each.found.first_off(tolerance)
            if each.what == "state":
                for name, value in each.found.relative.items():
                    tensors[name] = max(tensors.get(name, 0.0), value)
            if off is None:
                continue
            tensor, relative = off
            divergence = Divergence(
                step=each.step,
                what=each.what,
                tensor=tensor,
                relative=relative,
                rank=rank,
                against=against,
                factor=each.found.factor,
            )
            if each.what == "gradients":
                if gradients is None or divergence.step < gradients.step:
                    gradients = divergence
            elif each.what == "state" and (first is None or divergence.step < first.step):
                first = divergence
    return _Found(first, gradients, tensors, max(tensors.values(), default=0.0))


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
    found = _look(pairs, tolerance)
    among = [
        (rank, "rank 0", list(differences((ranks.folder, rank), (ranks.folder, 0), steps)))
        for rank in range(1, ranks.world)
    ]
    apart = _look(among, tolerance)
    floor = 0.0
    if found.first is not None:
        floor = _floor(evidence, one, steps)
        if floor <= TOLERANCES["float32"]:
            found = _look(pairs, max(tolerance, _FLOORS * floor))
    rates = [_rates(lines) for lines in (theirs, ours)]
    ends = [each for each in [*ranks.ends, *one.ends] if each is not None]
    notes = list(dict.fromkeys(note for each in ends for note in each.notes))
    if taken[0] != taken[1]:
        notes.insert(0, f"one process takes {taken[1]} steps where the ranks take {taken[0]}")
    if not found.any_parameter:
        notes.insert(0, "no parameter could be compared: ranks hold parts of it (FSDP, tensor parallelism)")
    result = ParityResult(
        verdict="pass",
        reason="",
        command=_command(question.job),
        world=question.world,
        first_divergence=_with_place(found.first, theirs),
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
        findings=evidence.findings,
        not_compared=["the evaluation", *filter(None, [evidence.audits]), *_alone(pairs)],
    )
    own = [*_own(ranks), *_meet_again(among, tolerance)]
    if apart.first is not None and found.first is not None:
        result = msgspec.structs.replace(result, first_divergence=_with_place(apart.first, theirs))
    return _verdict(result, found, notes, _Circumstances(own, apart.first, uneven=taken[0] != taken[1]), floor)


@dataclass(frozen=True)
class _Circumstances:
    """What else a verdict depends on.

    Attributes:
        own: why the method itself gives another result on several ranks.
        apart: the first difference of ranks among themselves.
        uneven: one process takes another number of steps.
    """

    own: list[str]
    apart: Divergence | None
    uneven: bool


def _alone(pairs: list[tuple[int, str, list[Difference]]]) -> list[str]:
    """Tensors that only one of the runs has."""
    names = {
        name
        for _, _, found in pairs
        for each in found
        if each.what == "state"
        for name in (*each.found.missing, *each.found.extra)
    }
    shown = ", ".join(sorted(names)[:3])
    return [f"{len(names)} tensors that only one of the runs has: {shown}"] if names else []


def _meet_again(among: list[tuple[int, str, list[Difference]]], tolerance: float) -> list[str]:
    """Whether ranks hold different parameters for some steps and the same ones later: local SGD."""
    for _, _, found in among:
        differ = False
        for each in (one for one in found if one.what == "state"):
            worst = max(
                (value for name, value in each.found.relative.items() if name.startswith("parameter:")), default=0
            )
            if differ and worst <= tolerance:
                return [f"ranks hold different parameters until step {each.step}: they average them now and then"]
            differ |= worst > tolerance
    return []


def _own(ranks: ScriptRun) -> list[str]:
    return [each for end in ranks.ends if end is not None for each in end.nature]


def _floor(evidence: _Evidence, one: ScriptRun, steps: int) -> float:
    """How far two replays are apart that add up in another order."""
    task = ParityTask(
        folder="",
        steps=evidence.question.steps if evidence.double else min(evidence.question.steps, _FEW),
        double=evidence.double,
        world=evidence.question.world,
    )
    other = _replay(evidence, task, reverse=True)
    apart = differences((other.folder, 0), (one.folder, 0), steps)
    return max((each.found.worst[1] for each in apart if each.what == "state"), default=0.0)


def _verdict(
    result: ParityResult, found: _Found, notes: list[str], around: _Circumstances, floor: float
) -> ParityResult:
    """Put the verdict, its reason and fault ids into a result."""
    change = msgspec.structs.replace
    steps, world = result.compared.steps if result.compared else 0, result.world
    left = [*result.not_compared, *notes]
    if found.first is None and (not found.any_parameter or around.uneven):
        return change(result, verdict="inconclusive", reason=notes[0], not_compared=left)
    if found.first is None:
        errors = [each for each in result.findings if each.severity == "error"]
        if errors:
            reason = f"the mathematics agrees, but an audit found an error: {errors[0].message}"
            return change(result, verdict="fail", reason=reason, faults=errors[0].faults)
        scaled = _scaled_rates(result)
        reason = f"{world} ranks and one process compute the same for {steps} steps{scaled}"
        return change(result, reason=reason, not_compared=left)
    if around.own or notes:
        return change(result, verdict="inconclusive", reason=(around.own or notes)[0], not_compared=left)
    if floor > TOLERANCES["float32"]:
        reason = f"one process computes something else where batches are joined in another order, by {floor:.1e}"
        return change(result, verdict="inconclusive", reason=reason, not_compared=left)
    reason, faults = _explain(found, result, around)
    named = [fault for each in result.findings if each.severity != "info" for fault in each.faults]
    return change(result, verdict="fail", reason=reason, faults=list(dict.fromkeys([*named, *faults]))[:4])


def _explain(found: _Found, result: ParityResult, around: _Circumstances) -> tuple[str, list[str]]:
    """In words, with the ids of faults that look like this."""
    first, gradients, world = found.first, found.gradients, result.world
    assert first is not None
    if around.apart is not None:
        apart = around.apart
        text = f"{apart.tensor} of rank {apart.rank} differs from {apart.against} by {apart.relative:.1e}"
        return f"ranks are not synchronized: at step {apart.step} {text}", []
    where = f"{first.tensor} of rank {first.rank} differs from {first.against} by {first.relative:.1e}"
    text = f"at step {first.step} {where}"
    if gradients is None or gradients.step > first.step:
        return f"{text}, though gradients agree", ["F36"]
    factor = gradients.factor
    if factor is not None and abs(factor - 1 / world) < 1e-6:
        return f"{text}: gradients are 1/{world} of those of one process (1/world size)", ["F23", "F129"]
    if factor is not None and abs(factor - world) < 1e-6:
        return f"{text}: gradients are {world} times those of one process (the world size)", ["F24", "F129"]
    if factor is not None:
        return f"{text}: gradients are {factor:.3f} times those of one process", ["F27"]
    return f"{text}: the mean over ranks is not the mean over all samples", ["F22", "F31"]


def _scaled_rates(result: ParityResult) -> str:
    pairs = zip(result.learning_rates, result.learning_rates_of_one, strict=False)
    ratios = {round(ranks / one, 6) for ranks, one in pairs if one}
    if ratios <= {1.0}:
        return ""
    low, high = min(ratios), max(ratios)
    text = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f", with learning rates that are {text} times those of one process"


def _rates(lines: list[ParityStep]) -> list[float]:
    return [each.lr[0] for each in lines if each.lr and each.optimizer == lines[0].optimizer]


def _with_place(first: Divergence | None, lines: list[ParityStep]) -> Divergence | None:
    if first is None:
        return None
    place = next((each.place for each in lines if each.step >= first.step and each.place), None)
    if place is None:
        return first
    return msgspec.structs.replace(first, path=place.path, line=place.line)


def _command(job: ScriptJob) -> list[str]:
    return [*(["-m"] if job.module else []), job.script, *job.arguments]


def _digest(job: ScriptJob) -> str:
    try:
        return hashlib.sha256(Path(job.script).read_bytes()).hexdigest()
    except OSError:
        return ""


def _versions() -> dict[str, str]:
    import torch

    return {"python": platform.python_version(), "torch": str(torch.__version__), "paceline": __version__}
