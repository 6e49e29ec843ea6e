"""What every audit keeps to, whoever adds it, and how a judge runs them all."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from paceline.audits.audit import HEADINGS, TOPICS, Audit
from paceline.audits.catalog import AUDITS
from paceline.audits.dp101_replicas_diverge import ReplicasDiverge
from paceline.audits.dp133_loss_scale_differs import LossScaleDiffers
from paceline.audits.run_judge import RunJudge
from tests.audits.observed_events import NAMES, job, started, states, step

each_audit = pytest.mark.parametrize("kind", AUDITS, ids=lambda kind: kind.code)


class Broken(Audit):
    """Fails at its first event."""

    code, name, topic = "DP199", "broken", "replicas"
    faults = ()
    needs = ()

    def feed(self, rank, event):
        """Fail."""
        raise KeyError(rank)

    def findings(self):
        """Nothing."""
        raise AssertionError("an audit that was given up is not asked")

    def looked_at(self):
        """Nothing."""
        return ""


def judged(ranks, audits=AUDITS):
    """A judge that was fed a job."""
    judge = RunJudge(audits)
    for rank, events in ranks.items():
        for event in events:
            judge.feed(rank, event)
    judge.finish()
    return judge


def headings(kind):
    """The text below each heading of a module's docstring."""
    parts = re.split(r"^([A-Z][a-z ]+):$", inspect.getdoc(inspect.getmodule(kind)), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def test_codes_are_unique_and_sorted():
    """They are permanent."""
    codes = [kind.code for kind in AUDITS]

    assert codes == sorted(set(codes))
    assert len({kind.name for kind in AUDITS}) == len(AUDITS)
    assert len(set(AUDITS)) == len(AUDITS)


@each_audit
def test_an_audit_is_in_a_file_of_its_code_and_name(kind):
    """One audit, one file."""
    file = inspect.getmodule(kind).__name__.rpartition(".")[2]

    assert re.fullmatch(r"DP1\d\d", kind.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name)
    assert file == f"{kind.code}_{kind.name}".lower().replace("-", "_")


@each_audit
def test_an_audit_is_documented_under_each_heading(kind):
    """In their order, none of them empty, and with its faults among the references."""
    found = headings(kind)

    assert tuple(found) == HEADINGS
    assert all(found.values())
    assert set(re.findall(r"F\d+", found["References"])) == set(kind.faults)
    assert kind.__doc__


@each_audit
def test_an_audit_names_faults_topic_and_needs(kind):
    """Ids of faults.md, and words of the vocabulary."""
    assert kind.topic in TOPICS
    assert kind.faults
    assert all(re.fullmatch(r"F\d+", fault) for fault in kind.faults)
    assert kind.needs


@pytest.mark.parametrize("world", [0, 1, 3])
def test_no_audit_has_anything_to_say_before_there_is_anything_to_judge(world):
    """Neither before the first event nor at the start of the ranks."""
    judge = judged({rank: [started(rank, world)] for rank in range(world)})

    assert judge.failed == {}
    assert judge.findings() == []
    assert not any(judge.looked_at().values())


def test_no_audit_imports_torch():
    """Reports are made where there is none."""
    code = "import sys, paceline.audits.catalog; assert 'torch' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_audit_that_fails_is_given_up_alone():
    """The others go on."""
    ranks = job(lambda rank: [step(1, loss_scale=1.0 + rank)])

    judge = judged(ranks, [Broken, LossScaleDiffers])

    assert judge.failed == {"DP199": "KeyError: 0"}
    assert [finding.code for finding in judge.findings()] == ["DP133"]


def test_a_tracker_that_fails_ends_only_the_audits_that_use_it():
    """They are listed with the reason."""
    judge = RunJudge([ReplicasDiverge, LossScaleDiffers])
    judge.run.replicas.feed = None

    for rank, events in job(lambda rank: [step(1, loss_scale=1.0 + rank)]).items():
        for event in events:
            judge.feed(rank, event)
    judge.finish()

    assert [finding.code for finding in judge.findings()] == ["DP133"]
    assert "replicas failed with TypeError" in judge.failed["DP101"]


def test_a_difference_that_another_audit_explains_is_not_reported_twice():
    """The other scale is why."""

    def events(rank, *, differ=NAMES):
        yield step(1, loss_scale=1.0 + rank)
        yield from states(rank, (1, 2), differ)

    def unexplained(rank):
        return states(rank, (1, 2), NAMES)

    audits = [ReplicasDiverge, LossScaleDiffers]

    assert [finding.code for finding in judged(job(events), audits).findings()] == ["DP133"]
    assert [finding.code for finding in judged(job(unexplained), audits).findings()] == ["DP101"]


def test_a_note_explains_nothing():
    """Only errors and warnings do."""

    class Noting(LossScaleDiffers):
        def findings(self):
            return [self.finding("info", "a note", "", faults=("F35",))]

    found = judged(job(lambda rank: states(rank, (1, 2), NAMES)), [ReplicasDiverge, Noting]).findings()

    assert [finding.code for finding in found] == ["DP101", "DP133"]
