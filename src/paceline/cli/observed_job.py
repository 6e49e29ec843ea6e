"""Observes the job of `paceline run`: rings while it runs, findings and a card when it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline.audits.hang import event_card, hang_event, hang_findings
from paceline.audits.last_positions import RankPosition
from paceline.audits.run_judge import judge_ledger, judge_output
from paceline.cli.observation import LiveJudge, observation_card, observed_run
from paceline.launch.hang_watch import LEAST_S, HangWatch
from paceline.launch.ring_drain import RingDrain, make_rings_folder, observation_off, observed_environment
from paceline.launch.tuning import temporary_environment
from paceline.records.errors import PacelineError
from paceline.records.findings import by_severity
from paceline.records.observation import ObservedRun, Unseen
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding


class Observation:
    """The observation of a job: findings, card and record.

    Args:
        run: its directory.
        live: judge of its events.
        drain: of its rings; None where nothing is observed.
        hangs: watches for hangs; None where nothing is observed.
        why_not: where nothing is observed.

    Attributes:
        hangs: as given.
        not_read: the source of the script, if it was not read.
    """

    def __init__(
        self,
        run: RunDir,
        live: LiveJudge,
        drain: RingDrain | None = None,
        hangs: HangWatch | None = None,
        *,
        why_not: str = "",
    ) -> None:
        self.hangs = hangs
        self._run, self._drain, self._live, self._why_not = run, drain, live, why_not
        self.not_read: list[Unseen] = []
        self._unread: list[Unseen] = []

    def findings(self) -> list[Finding]:
        """Findings of all audits. Call it once, after the job has ended."""
        if self._drain is None:
            return []
        for judge in (judge_ledger, judge_output):
            try:
                judge(self._live.judge, self._run.path)
            except PacelineError as error:  # what cannot be read does not change how the job ended
                self._unread.append(_unseen("some records", f"{error.what}: {error.why}"))
        self._live.judge.finish()
        hangs = hang_findings(self.hangs.events, Path.cwd()) if self.hangs is not None else []
        return [*hangs, *self._live.judge.findings()]

    def positions(self, attempt: int) -> dict[int, RankPosition]:
        """How far each observed rank came in an attempt."""
        return self._live.judge.positions(attempt)

    def card(self, findings: Sequence[Finding], width: int | None) -> str:
        """The card; empty where the user asked for plain torchrun.

        Args:
            findings: of the job; why an attempt failed stands on a card of its own and is left out.
            width: of the terminal; None does not wrap.
        """
        if self._drain is None:
            return ""
        return observation_card(
            self._live.judge,
            sorted((each for each in findings if not each.code.startswith("DP18")), key=by_severity),
            run=self._run.path,
            missing=self._missing(),
            throughput=self._throughput(),
            width=width,
        )

    def record(self, findings: Sequence[Finding], exit_code: int) -> ObservedRun:
        """The same as a record."""
        return observed_run(
            self._live.judge,
            findings,
            run=self._run.path,
            exit_code=exit_code,
            missing=self._missing(),
            speed=(self._live.steps_per_s, self._live.samples_per_s),
        )

    def _missing(self) -> list[Unseen]:
        if self._drain is None:
            return [_unseen("everything", self._why_not)]
        found = [*self.not_read, *(_unseen(f"rank {rank}", why) for rank, why in sorted(self._drain.notes.items()))]
        if self._drain.trouble:
            found.append(_unseen("some records", self._drain.trouble))
        if self._drain.unheard:
            why = f"the judge of the live run failed with {self._drain.unheard}; paceline audit judges the records"
            found.append(_unseen("later findings", why))
        if self.hangs is not None and self.hangs.failed:
            found.append(_unseen("hangs", f"the watch for hangs failed with {self.hangs.failed}"))
        found += self._unread
        if not self._drain.seen and len(found) == len(self.not_read):
            why = "no rank imported torch, or python -I, -E or -S kept the observer out"
            found.append(_unseen("everything", why))
        return found

    def _throughput(self) -> str:
        if self._live.steps_per_s is None:
            return ""
        text = f"{self._live.steps_per_s:,.1f} steps/s"
        return f"{self._live.samples_per_s:,.0f} samples/s, {text}" if self._live.samples_per_s else text


def _unseen(what: str, why: str) -> Unseen:
    return Unseen(what=what, why=why, by_launcher=True)


@contextmanager
def observed_job(
    run: RunDir,
    say: Callable[[str], None],
    *,
    hang_patience_s: float = LEAST_S,
    stop_on_hang: bool = False,
    width: int | None = None,
) -> Iterator[Observation]:
    """Within the block, ranks that this process starts are observed, unless PACELINE_OBSERVE=0.

    Args:
        run: its directory.
        say: shows a line, or a card, beside the script's output.
        hang_patience_s: shortest pause that is reported as a hang.
        stop_on_hang: end the ranks of a job that hangs.
        width: of the terminal; None does not wrap.
    """
    live = LiveJudge(say)
    if observation_off(os.environ):
        yield Observation(run, live, why_not="PACELINE_OBSERVE=0")
        return
    try:
        rings = make_rings_folder()
    except OSError as error:
        yield Observation(run, live, why_not=f"no folder for records could be made: {error}")
        return
    here = Path.cwd()
    hangs = HangWatch(
        rings,
        hang_event,
        lambda hang: say(event_card(hang, here, width)),
        say,
        least_s=hang_patience_s,
        stop=stop_on_hang,
    )
    drain = RingDrain(rings, run, live, hangs.progress)
    drain.start()
    try:
        with temporary_environment(observed_environment(rings, os.environ)):
            yield Observation(run, live, drain, hangs)
    finally:
        hangs.stop()
        drain.stop()
