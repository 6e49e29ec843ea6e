"""Grading a class: one after the other, resumable, one that fails does not stop the rest. The grader is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.errors import PacelineError
from paceline_course.assess.grade import Grade, Line, read_grade
from paceline_course.instructor import grading
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.grading import attesting, grade_class, summary
from paceline_course.instructor.roster import Person, write_roster
from paceline_course.instructor.similarity import compare


@pytest.fixture
def place(tmp_path: Path) -> Classroom:
    """Three who handed in, one who did not."""
    room = Classroom(tmp_path / "class")
    room.make()
    write_roster(room, [Person("p1", "Anna"), Person("p2", "王小明"), Person("p3", "Bo"), Person("p4", "Cy")])
    for learner, points in (("p1", 90), ("p2", 0), ("p3", 60)):
        folder = room.of(learner) / "assessment"
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(f"points = {points}\n")
    return room


class Stand:
    """Reads the points from the program, fails on 0, and counts its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, folder: Path, out: Path) -> Grade:
        """Grade one."""
        self.seen.append(folder.parent.name)
        points = float((folder / "train.py").read_text().split("=")[1])
        if not points:
            raise ZeroDivisionError("a defect\x1b[2J\n")
        names = [("A.oracle", 40), ("B.accuracy", 20), ("C.steps", 20), ("D.answers", 20)]
        lines = [
            Line(id=name, title=name, most=most, points=most * points / 100, gate=name[0] == "A", state="passed")
            for name, most in names
        ]
        return Grade(
            kind="final", learner="?", submission="a" * 64, grader="b" * 64, course="1.0", nonce="c" * 32,
            started_at="2027-03-01T16:00:00+00:00", seconds=3.0, lines=lines, target=0.7, seeds={"one": 1},
            machine={"processor": "x"},
        )  # fmt: skip


def test_one_that_fails_does_not_stop_the_others(place: Classroom) -> None:
    """Each is told as it comes, in the order of the roster; the table has all of them."""
    results = list(grade_class(place, Stand()))

    assert [(each.person.id, each.state) for each in results] == [("p1", "graded"), ("p2", "failed"), ("p3", "graded")]
    assert "a defect" in results[1].said
    assert results[1].said.isprintable()
    assert read_grade(place.graded / "p1").result == "merit"
    table = summary(results)
    assert "1 of 3 passed" in table
    assert "not graded: ZeroDivisionError" in table


def test_what_was_graded_is_not_graded_again(place: Classroom) -> None:
    """Unless its files changed, or it is asked for; then the older grade is kept aside."""
    stand = Stand()
    list(grade_class(place, stand))
    list(grade_class(place, stand))
    assert stand.seen == ["p1", "p2", "p3", "p2"]

    (place.of("p3") / "assessment" / "train.py").write_text("points = 75\n")
    states = {each.person.id: each.state for each in grade_class(place, stand)}
    assert states == {"p1": "kept", "p2": "failed", "p3": "graded"}
    assert read_grade(place.older / "p3" / "graded-1").points == 60
    assert read_grade(place.graded / "p3").points == 75
    assert [each.state for each in grade_class(place, stand, only="p1", again=True)] == ["graded"]


def test_a_grading_that_was_stopped_begins_anew(place: Classroom) -> None:
    """Ctrl-C comes through, and what was being graded is not taken for graded."""

    def stopped(folder: Path, out: Path) -> Grade:
        (out / "grade.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(grade_class(place, stopped))
    assert next(iter(grade_class(place, Stand()))).state == "graded"


def test_nothing_to_grade_is_said(place: Classroom, tmp_path: Path) -> None:
    """Of a class, of one who handed nothing in, and of one who is not there."""
    for only in ("p4", "nobody"):
        with pytest.raises(PacelineError):
            list(grade_class(place, Stand(), only=only))
    with pytest.raises(PacelineError, match="no assessment"):
        list(grade_class(Classroom(tmp_path / "none"), Stand()))


def test_who_passed_gets_a_certificate_signed_by_the_key(place: Classroom, tmp_path: Path) -> None:
    """It can be checked with the public half, names the person of the roster, and is made once."""
    pytest.importorskip("cryptography")
    pytest.importorskip("segno")
    from paceline_course.certificate.keys import make_pair
    from paceline_course.certificate.verify import opened

    private, public = make_pair("Institute", tmp_path / "keys")
    sign = attesting(private, None)
    results = list(grade_class(place, Stand(), attest=sign))
    made = [each.certificate for each in results]

    assert made[0] == place.graded / "p1" / "certificate.json"
    assert made[1:] == [None, None]
    document, certificate, _ = opened(made[0].read_bytes())
    assert document["credentialSubject"]["name"] == "Anna"
    assert document["paceline"]["level"] == "attested"
    assert certificate is not None
    before = made[0].read_bytes()
    list(grade_class(place, Stand(), attest=sign))
    assert made[0].read_bytes() == before
    assert call(["learn", "certificate", "verify", str(made[0]), "--key", str(public)]) == 0


def test_the_command_tells_each_and_shows_a_table(
    place: Classroom, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 where one could not be graded; a key without --attest is refused before anything runs."""
    stand = Stand()
    monkeypatch.setattr(grading, "in_quarantine", stand)
    folder = str(place.path)

    assert call(["learn", "instructor", "grade", folder, "--key", "x.key"]) == 2
    assert call(["learn", "instructor", "grade", folder, "--attest"]) == 2
    assert stand.seen == []
    assert call(["learn", "instructor", "grade", folder]) == 1
    out = capsys.readouterr().out
    assert "p1     Anna: merit, 90 points" in out
    assert "1 of 3 passed" in out


GIVEN = "def main():\n    for x in range(10):\n        print(x)\n\n\nmain()\n"
WORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = torch.nn.Linear(width, 2 * width)
        self.two = torch.nn.Linear(2 * width, 10)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))

def average(model, world):
    for parameter in model.parameters():
        if parameter.grad is not None:
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= world

def train(model, batches, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for epoch in range(5):
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            average(model, 4)
            optimizer.step()
    return [float(p.sum()) for p in model.parameters()]
"""
RENAMED = (
    '"""All mine."""\n'
    + WORK.replace("parameter", "weight").replace("model.weights", "model.parameters").replace("width", "n")
    .replace("rate", "eta").replace("epoch", "turn").replace("0.9", "0.8").replace("Net", "Mine")
)  # fmt: skip
OTHER = """
import torch
from torch.nn.parallel import DistributedDataParallel

def build(size):
    layers = [torch.nn.Conv1d(1, size, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)]
    return DistributedDataParallel(torch.nn.Sequential(*layers))

def learn(net, loader, sampler, scaler):
    best = 0.0
    while best < 0.9:
        sampler.set_epoch(sampler.epoch + 1)
        with torch.autocast("cpu"):
            scores = {key: net(value).argmax(1).eq(key).float().mean() for key, value in loader.items()}
        best = max(best, *scores.values())
        assert all(score >= 0 for score in scores.values()), "impossible"
    try:
        torch.save(net.module.state_dict(), "model.pt")
    except OSError as error:
        raise SystemExit(1) from error
    return best
"""


def programs(place: Classroom, texts: dict[str, str]) -> None:
    """What each handed in."""
    for learner, text in texts.items():
        (place.of(learner) / "assessment" / "train.py").write_text(text)


def test_a_renamed_copy_is_found_and_two_own_programs_are_not(place: Classroom, tmp_path: Path) -> None:
    """Names, numbers and comments do not hide it; what was given to all does not count."""
    given = tmp_path / "given.py"
    given.write_text(GIVEN)
    programs(place, {"p1": GIVEN + WORK, "p2": RENAMED + GIVEN, "p3": GIVEN + OTHER})
    report = compare(place, given)

    assert [(pair.one.id, pair.other.id) for pair in report.pairs] == [("p1", "p2")]
    assert report.pairs[0].similarity > 0.9
    assert [pair.similarity for pair in compare(place, given, 0.0).pairs][1] < 0.3


def test_what_was_given_to_all_does_not_count(place: Classroom, tmp_path: Path) -> None:
    """Two small own parts behind a large given one: alike with it, not alike without."""
    given = tmp_path / "given.py"
    given.write_text(WORK)
    programs(place, {"p1": WORK + OTHER, "p2": WORK + GIVEN, "p3": WORK})

    assert [person.id for person, _ in compare(place, given, 0.0).skipped] == ["p2", "p3"]
    assert ("p2", "p3") in [(pair.one.id, pair.other.id) for pair in compare(place, None, 0.8).pairs]


def test_the_same_log_is_named(place: Classroom) -> None:
    """Byte for byte, of two people; two logs of one person are their own matter."""
    for learner, name, text in (
        ("p1", "a", "same" * 50),
        ("p2", "b", "same" * 50),
        ("p3", "a", "x" * 99),
        ("p3", "b", "x" * 99),
    ):
        runs = place.of(learner) / "assessment" / "runs" / name
        runs.mkdir(parents=True)
        (runs / "log.csv").write_text(text)
    (log,) = compare(place).logs

    assert [person.id for person in log.people] == ["p1", "p2"]


def test_a_given_program_that_is_none_is_refused(
    place: Classroom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named."""
    (tmp_path / "given.py").write_text("def (")
    assert call(["learn", "instructor", "similarity", str(place.path), "--given", str(tmp_path / "given.py")]) == 2
    assert "given.py is no Python program" in capsys.readouterr().err


def test_programs_that_cannot_be_compared_are_said_to_be(place: Classroom, capsys: pytest.CaptureFixture[str]) -> None:
    """No Python, nested too deep, nothing but what was given. The report says that it is advisory."""
    programs(place, {"p1": "def (", "p2": "(" * 5000 + ")" * 5000, "p3": "x = 1\n"})

    assert call(["learn", "instructor", "similarity", str(place.path)]) == 0
    out = capsys.readouterr().out
    assert out.count("not compared") == 3
    assert "Advisory only" in out
    assert "pairs from 60% on" in out
