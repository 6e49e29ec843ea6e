"""The live judge, the card and the record of an observed run, for `paceline run` and `paceline audit`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from paceline.audits.run_judge import RunJudge
from paceline.records.findings import by_severity
from paceline.records.observation import ObservedRun, Unseen, WatchedRanks
from paceline.records.ring import Progress
from paceline.records.schema import AnyEvent, Finding
from paceline.records.wrap import text_card
from paceline.report.words import finding_counts, place

_STATUS_S = (10.0, 30.0, 60.0)
_JUDGE_EVERY_S = 2.0
_EARLIEST_STEP = 50
"""No finding is reported before: a script that averages its parameters now and then looks wrong until it does."""
_SHOWN_INFO = 5


class LiveJudge:
    """Judges a job while it runs: reports each error once, and the progress of the job from time to time.

    Args:
        say: shows a line beside the script's output.

    Attributes:
        judge: of all events so far.
        samples_per_s: over all ranks, from the first step of the last attempt to its last one; None before.
        steps_per_s: likewise.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.judge = RunJudge()
        self.samples_per_s: float | None = None
        self.steps_per_s: float | None = None
        self._say = say
        self._decode = msgspec.json.Decoder(AnyEvent).decode
        self._said: set[tuple[str, int | None]] = set()
        self._started = self._judged = time.monotonic()
        self._statuses = 0
        self._first: Progress | None = None
        self._new = False

    def event(self, rank: int, line: bytes) -> None:
        """Take an event of a rank."""
        self.judge.feed(rank, self._decode(line))
        self._new = True

    def progress(self, ranks: dict[int, Progress]) -> None:
        """Take the progress of all ranks."""
        now = time.monotonic()
        total = Progress(
            steps=max(each.steps for each in ranks.values()),
            samples=sum(each.samples for each in ranks.values()),
            at_s=max(each.at_s for each in ranks.values()),
        )
        if self._first is not None and total.steps < self._first.steps:  # the job was started again
            self._first = None
        if self._first is None:
            self._first = total if total.steps else None
        elif total.steps > self._first.steps:
            elapsed = max(total.at_s - self._first.at_s, 1e-9)
            self.steps_per_s = (total.steps - self._first.steps) / elapsed
            self.samples_per_s = (total.samples - self._first.samples) / elapsed if total.samples else None
        if total.steps >= _EARLIEST_STEP and self._new and now - self._judged >= _JUDGE_EVERY_S:
            self._judged, self._new = now, False
            self._say_errors()
        due = _STATUS_S[self._statuses] if self._statuses < len(_STATUS_S) else 60.0 * (self._statuses - 1)
        if total.steps and now - self._started >= due:
            self._statuses += 1
            self._say(self._status(total.steps))

    def _say_errors(self) -> None:
        for each in self.judge.findings():
            if each.severity == "error" and (each.code, each.rank) not in self._said:
                self._said.add((each.code, each.rank))
                self._say(f"paceline: {_headline(each)}: {each.message}")

    def _status(self, step: int) -> str:
        parts = [f"step {step:,}"]
        if self.samples_per_s:
            parts.append(f"{self.samples_per_s:,.0f} samples/s")
        if step >= _EARLIEST_STEP:
            found = [each for each in self.judge.findings() if each.severity != "info"]
            parts.append(finding_counts(found) or "no errors or warnings so far")
        return f"paceline: {' · '.join(parts)}"


def observation_card(
    judge: RunJudge,
    findings: Sequence[Finding],
    *,
    run: Path,
    missing: Sequence[Unseen] = (),
    throughput: str = "",
    width: int | None = None,
) -> str:
    """The card at the end of an observed run; one line where no training was observed.

    Args:
        judge: of the run.
        findings: in the order in which they are shown.
        run: the run directory.
        missing: further things that were not observed.
        throughput: a line about speed.
        width: of the terminal; None does not wrap.
    """
    unseen = [*missing, *_unseen(judge)]
    if not findings and not judge.steps:
        why = "; ".join(f"{each.what} ({each.why})" for each in unseen)
        return f"paceline: no training was observed{': ' * bool(why)}{why}"
    rows: list[tuple[str, str]] = []
    infos = 0
    for each in findings:
        infos += each.severity == "info"
        if each.severity == "info" and infos > _SHOWN_INFO:
            continue
        rows.append((each.severity, f"{each.code} {each.name}  {place(each.path, each.line)}".rstrip() + _source(each)))
        rows.append(("", f"{each.message}."))
        if each.advice:
            rows.append(("", f"repair: {each.advice}"))
    if infos > _SHOWN_INFO:
        rows.append(("", f"and {infos - _SHOWN_INFO} more of severity info, in findings.jsonl"))
    looked = {topic: texts for topic, texts in judge.looked_at().items() if texts}
    for number, (topic, texts) in enumerate(looked.items()):
        rows.append(("watched" if number == 0 else "", f"{topic}: {'; '.join(texts)}"))
    if throughput:
        rows.append(("speed", throughput))
    rows += [("not observed" if number == 0 else "", f"{each.what}: {each.why}") for number, each in enumerate(unseen)]
    rows.append(("next", f"paceline report {shlex.quote(str(run))}"))
    return text_card(_title(judge, findings), rows, label=14, width=width)


def observed_run(
    judge: RunJudge,
    findings: Sequence[Finding],
    *,
    run: Path,
    exit_code: int,
    missing: Sequence[Unseen] = (),
    speed: tuple[float | None, float | None] = (None, None),
) -> ObservedRun:
    """The record: observation.json, and the document of `--format json`.

    Args:
        judge, run, missing: as for the card.
        findings: in any order.
        exit_code: of the command.
        speed: steps and samples per second.
    """
    return ObservedRun(
        exit_code=int(exit_code),
        run=str(run),
        ranks=WatchedRanks(observed=sorted(judge.ranks), world=judge.world),
        steps=judge.steps,
        steps_per_s=speed[0],
        samples_per_s=speed[1],
        findings=sorted(findings, key=by_severity),
        watched=judge.looked_at(),
        not_observed=[*missing, *_unseen(judge)],
    )


def _unseen(judge: RunJudge) -> list[Unseen]:
    return [Unseen(what=each.what, why=each.why) for each in judge.not_observed()]


def _source(finding: Finding) -> str:
    """How a finding was made, where the script was read."""
    if finding.evidence.get("source") == "read":
        return "  (read in the script)"
    read = [each["code"] for each in finding.evidence.get("read", [])]
    return f"  (also read in the script: {', '.join(read)})" if read else ""


def _title(judge: RunJudge, findings: Sequence[Finding]) -> str:
    what = f"{len(judge.ranks)} of {judge.world} ranks, {judge.steps:,} steps"
    return f"paceline: {finding_counts(findings) or 'no findings in what was watched'} ({what})"


def _headline(finding: Finding) -> str:
    where = place(finding.path, finding.line)
    return f"{finding.severity} {finding.code} {finding.name}" + (f" ({where})" if where else "")
