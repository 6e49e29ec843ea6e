"""What `paceline run` and `paceline audit` leave of an observed run, and what they print."""

import json

import pytest

from paceline.audits.run_judge import RunJudge
from paceline.cli import observation as observation_module
from paceline.cli.main import call
from paceline.cli.observation import LiveJudge, observed_run
from paceline.cli.observed_job import observed_job
from paceline.records.findings import append_findings, read_findings
from paceline.records.observation import Unseen, read_observation
from paceline.records.ring import Progress
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding
from tests.report.conftest import Runs
from tests.report.observed import ERROR, NOTE, observation, taken, training, write_run


@pytest.fixture
def differing(tmp_path):
    """A run whose ranks use different learning rates, not judged yet."""
    rates = {0: [taken(step, 1.0) for step in (1, 2, 3)], 1: [taken(step, 1.0, lr=[0.2]) for step in (1, 2, 3)]}
    return write_run(tmp_path / "train", rates)


def audited(capsys, *argv):
    """Exit code and document of `paceline audit --format json`."""
    code = call(["audit", *map(str, argv), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_audit_prints_the_document_that_it_keeps(differing, capsys):
    """The page is made from the file."""
    code, document = audited(capsys, differing)

    assert code == 0
    assert [(each["code"], each["severity"]) for each in document["findings"]] == [("DP131", "error")]
    assert document["ranks"] == {"observed": [0, 1], "world": 2}
    assert document == json.loads(RunDir(differing).observation.read_text())
    assert "data" in [each["what"] for each in document["not_observed"]]


def test_an_audit_of_a_clean_run_says_what_was_watched(tmp_path, capsys):
    """Never `no findings` alone."""
    path = write_run(tmp_path / "train", {0: training(0), 1: training(1)})

    assert call(["audit", str(path)]) == 0

    text = capsys.readouterr().out
    assert "no findings in what was watched (2 of 2 ranks, 10 steps)" in text
    assert "learning rates at 10 steps" in text
    assert "not observed" in text


def test_an_audit_keeps_what_only_the_launcher_knew(tmp_path, capsys):
    """Speed and ranks without an observer; findings.jsonl stays as it is, findings about the job go along."""
    lost = Unseen(what="rank 1", why="python -I", by_launcher=True)
    path = write_run(tmp_path / "train", {0: training(0)}, found=observation([ERROR], not_observed=[lost]))
    job = Finding(code="DP180", name="rank-failed", severity="error", message="rank 1 failed first", advice="")
    append_findings(RunDir(path).findings, [job, NOTE])

    _, document = audited(capsys, path)

    assert (document["steps_per_s"], document["samples_per_s"]) == (5.0, 40.0)
    assert document["not_observed"][0] == {"what": "rank 1", "why": "python -I", "by_launcher": True}
    assert [each["code"] for each in document["findings"]] == ["DP180"]
    assert read_findings(RunDir(path).findings)[0] == [job, NOTE]


def test_a_damaged_observation_is_made_again(differing, capsys):
    """As the report says."""
    RunDir(differing).observation.write_text("{")

    code, _ = audited(capsys, differing)

    assert code == 0
    assert read_observation(RunDir(differing)).findings[0].code == "DP131"


def test_a_run_that_may_only_be_read_is_judged_all_the_same(differing, capsys):
    """A line on stderr says that nothing was kept."""
    RunDir(differing).observation.mkdir()

    assert call(["audit", str(differing)]) == 0

    printed = capsys.readouterr()
    assert "DP131 learning-rate-differs" in printed.out
    assert "observation.json was not written" in printed.err


@pytest.mark.parametrize(("limit", "code"), [("error", 1), ("warning", 1)])
def test_fail_on_ends_with_1_where_a_finding_is_as_severe(differing, capsys, limit, code):
    """The document says so, too."""
    found, document = audited(capsys, differing, "--fail-on", limit)

    assert (found, document["exit_code"]) == (code, code)


def test_fail_on_warning_passes_over_notes(tmp_path, capsys):
    """And a clean run."""
    path = write_run(tmp_path / "train", {0: training(0), 1: training(1)})

    assert audited(capsys, path, "--fail-on", "warning")[0] == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--fail-on", "info"], "Invalid value for '--fail-on': 'info' is not one of"),
        (["--fail-on", "all"], "'error', 'warning'"),
    ],
)
def test_other_severities_are_refused(differing, capsys, argv, words):
    """With the legal ones."""
    assert call(["audit", str(differing), *argv]) == 2

    assert words in capsys.readouterr().err


def test_runs_of_other_verbs_are_refused(tmp_path, capsys):
    """They have no observed ranks."""
    assert call(["audit", str(Runs(tmp_path).plain("digits"))]) == 2

    assert "a run of paceline train, which has no observed ranks" in capsys.readouterr().err


def test_an_audit_of_a_run_without_events_of_ranks_claims_nothing(tmp_path, capsys):
    """`No findings` would be a claim; the document says why, too."""
    path = write_run(tmp_path / "train", {})

    assert call(["audit", str(path)]) == 0

    why = "the run directory has no events of ranks"
    assert capsys.readouterr().out == f"paceline: no training was observed: everything ({why})\n"
    assert read_observation(RunDir(path)).not_observed == [Unseen(what="everything", why=why)]


def test_damaged_lines_of_findings_are_reported(differing, capsys):
    """A finding about the job may have been in them."""
    RunDir(differing).findings.write_text("{}\n")

    assert call(["audit", str(differing)]) == 0

    assert "findings.jsonl: 1 damaged line(s) were passed over" in capsys.readouterr().err


def test_damaged_events_are_not_observed(differing, capsys):
    """A finding may have been in them; files with other names are no rank's."""
    events = RunDir(differing).events(1)
    events.write_text("{broken\n" + events.read_text())
    events.with_name("rank-foo.jsonl").write_text("{}\n")

    _, document = audited(capsys, differing)

    why = next(each["why"] for each in document["not_observed"] if each["what"] == "some events (rank 1)")
    assert "1 damaged line" in why
    assert [each["code"] for each in document["findings"]] == ["DP131"]


def test_a_status_line_names_no_findings_before_step_50(monkeypatch):
    """Some scripts look wrong until they average their parameters for the first time."""
    monkeypatch.setattr(observation_module, "_STATUS_S", (0.0, 0.0))
    said = []
    live = LiveJudge(said.append)

    live.progress({0: Progress(49, 98, 1.0), 1: Progress(48, 96, 1.0)})
    live.progress({0: Progress(50, 100, 2.0), 1: Progress(50, 100, 2.0)})

    assert said == ["paceline: step 49", "paceline: step 50 · 6 samples/s · no errors or warnings so far"]


def test_speed_is_that_of_the_last_attempt():
    """A restarted job counts its steps from 0, and its start-up is no training."""
    live = LiveJudge(print)

    for steps, at_s in ((1, 1.0), (101, 11.0), (0, 11.0), (1, 100.0), (21, 104.0)):
        live.progress({0: Progress(steps, 8 * steps, at_s), 1: Progress(steps, 8 * steps, at_s)})

    assert (live.steps_per_s, live.samples_per_s) == (5.0, 80.0)


def test_findings_of_a_record_are_in_order_of_severity(tmp_path):
    """Those about the job as well."""
    record = observed_run(RunJudge(), [NOTE, ERROR], run=tmp_path, exit_code=0)

    assert [each.severity for each in record.findings] == ["error", "info"]


def test_records_that_cannot_be_read_do_not_change_how_a_job_ended(tmp_path):
    """They are not observed; `paceline audit`, which has nothing else to do, refuses the run in one message."""
    path = write_run(tmp_path / "train", {0: training(0), 1: training(1)})
    file = RunDir(path).ledger(0, 0, 0)
    file.mkdir(parents=True)

    with observed_job(RunDir(path), print) as seen:
        pass
    record = seen.record(seen.findings(), 0)

    assert record.not_observed[-1] == Unseen(
        what="some records", why=f"cannot read {file}: Is a directory", by_launcher=True
    )
    assert call(["audit", str(path)]) == 2


def test_without_an_observer_the_record_says_that_nothing_was_observed(tmp_path, monkeypatch):
    """PACELINE_OBSERVE=0 is plain torchrun: no card, and no word of `no findings` without its reason."""
    monkeypatch.setenv("PACELINE_OBSERVE", "0")

    with observed_job(RunDir(tmp_path), print) as seen:
        pass
    record = seen.record(seen.findings(), 0)

    assert seen.card([], 80) == ""
    assert record.ranks.observed == []
    assert record.not_observed == [Unseen(what="everything", why="PACELINE_OBSERVE=0", by_launcher=True)]
