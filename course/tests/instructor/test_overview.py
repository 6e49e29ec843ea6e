"""The class at a glance: right about everybody, for classes of any size, and safe with any name."""

from __future__ import annotations

import html
import html.parser
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from course.tests.instructor.people import NAMES, make_class

from paceline.cli.main import call
from paceline_course.assess.grade import Grade, Line, State, write_grade
from paceline_course.browser import chromium
from paceline_course.content import Course
from paceline_course.instructor import overview
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.histogram import histogram
from paceline_course.instructor.meaning import meaning
from paceline_course.instructor.standing import Standing, look, read_quietly
from paceline_course.overview import labs_of
from paceline_course.progress import ExerciseProgress, Prediction, Progress


class Cells(html.parser.HTMLParser):
    """What a browser sees: text of all, the elements, the fields of the heat map."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        if tag == "td":
            self.titles.append(dict(attrs).get("title") or "")

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.words.append(data)


def seen(room: Classroom, course: Course, *, anonymous: bool = False) -> tuple[Standing, str, str]:
    """Facts, text and page, without the meanings, which load torch."""
    standing = look(room, course, labs_of(course, "one-day"))
    page = overview.as_page(standing, lambda *_: None, "class", anonymous=anonymous)
    return standing, overview.as_text(standing, lambda *_: None, anonymous=anonymous), page


def put(room: Classroom, learner: str, progress: Progress) -> None:
    """Make it what a learner handed in."""
    folder = room.of(learner)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "progress.json").write_bytes(msgspec.json.encode(progress))
    moment = "2027-03-01T10:00:00+00:00"
    (folder / "received.json").write_bytes(
        msgspec.json.encode({"source": "x", "digest": "x", "taken_at": moment, "made_at": moment})
    )


def at(minute: int) -> str:
    """So long after nine."""
    return f"2027-03-01T09:{minute:02d}:00+00:00"


def test_the_map_has_every_learner_and_every_exercise(room: Classroom, whole: Course) -> None:
    """And each field says what the learner's own file says, read here a second time."""
    standing, _, page = seen(room, whole)
    shown = Cells(page)
    titles = [title for title in shown.titles if title]
    exercises = [each.id for lab in standing.begun_labs for each in lab.exercises]

    assert len(titles) == 18 * len(exercises)
    for number, learner in enumerate(standing.present):
        theirs = read_quietly(room.of(learner.person.id) / "progress.json")
        for place, exercise in enumerate(exercises):
            title = titles[number * len(exercises) + place]
            state = theirs.exercises.get(exercise)
            assert title.startswith(f"{exercise}: ")
            if state is None:
                assert title.endswith("not begun")
            elif state.passed_at is not None:
                assert f"at check {state.attempts_to_pass}" in title
            else:
                assert "passed" in title
                assert f"{state.attempts} check" in title


def test_who_is_stuck_is_found_by_minutes_and_by_tries(tmp_path: Path, whole: Course) -> None:
    """More than 15 minutes without another exercise begun, or more than 5 failed checks; not at the limit itself."""
    room = make_class(tmp_path / "class", whole, [], 6, absent=6)
    tries = {"p001": (5, at(50)), "p002": (6, at(50)), "p003": (1, at(44)), "p004": (1, at(45))}
    for learner, (attempts, first) in tries.items():
        state = ExerciseProgress(attempts=attempts, first_at=first, last_message="hang")
        put(room, learner, Progress(exercises={"L1.2": state}))
    gone_on = {
        "L1.2": ExerciseProgress(attempts=2, first_at=at(1)),
        "L1.3": ExerciseProgress(attempts=1, first_at=at(59)),
    }
    put(room, "p005", Progress(exercises=gone_on))
    late = ExerciseProgress(attempts=7, attempts_to_pass=7, first_at=at(1), passed_at=at(50))
    put(room, "p006", Progress(exercises={"L1.2": late}))
    standing, text, page = seen(room, whole)
    (sticking,) = standing.sticking

    assert sticking.exercise.id == "L1.2"
    assert [learner.person.id for learner, _ in sticking.learners] == ["p002", "p003"]
    assert (sticking.message, sticking.same) == ("hang", 2)
    assert "hang (2 of 2)" in text
    assert "hang (2 of 2)" in page


def test_a_message_is_explained_in_the_words_of_its_lab(whole: Course) -> None:
    """One of a lab, one of all; of one that nobody knows nothing is made up."""
    exercise = whole.exercise("L1.1")

    assert "mean" in (said := meaning(whole, exercise, "sum-not-mean")).likely, said
    assert meaning(whole, exercise, "todo") is not None
    assert meaning(whole, exercise, "no-such-message") is None


def test_names_of_any_script_are_shown_as_they_are(room: Classroom, whole: Course) -> None:
    """Also those that look like markup: as text, never as an element."""
    _, text, page = seen(room, whole)
    shown = Cells(page)

    for name in NAMES:
        assert name in shown.words, name
    assert "b" not in shown.tags
    assert "王小明" in text
    assert re.search(r"<script(?![^>]*>\s*\"use strict\")", page) is None


def test_without_names_there_are_none(room: Classroom, whole: Course) -> None:
    """Neither in the page nor in the text; ids are."""
    _, text, page = seen(room, whole, anonymous=True)

    for name in NAMES:
        assert name not in text or name == "Bo"
        assert f"<bdi>{name}</bdi>" not in page
    assert "p001" in text
    assert "<bdi>p001</bdi>" in page
    assert "holds names" not in page


@pytest.mark.parametrize(("count", "absent"), [(0, 0), (1, 1), (1, 0), (200, 3)])
def test_classes_of_every_size_have_a_page(tmp_path: Path, whole: Course, count: int, absent: int) -> None:
    """Also one of which nothing was collected."""
    room = make_class(tmp_path / "class", whole, labs_of(whole, "one-day"), count, absent)
    standing, text, page = seen(room, whole)

    assert len(standing.present) == count - absent
    assert text
    assert len(page) < 1_500_000
    assert page.count("<html") == page.count("</html>") == 1


def test_the_page_loads_nothing(room: Classroom, whole: Course) -> None:
    """No address, and a policy that forbids it."""
    _, _, page = seen(room, whole)

    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"(?:src|href)=[\"'](?!data:,|#main)", page)
    assert "http" not in page.replace("http-equiv", "")


def test_predictions_stand_beside_what_was_measured(tmp_path: Path, whole: Course) -> None:
    """Median of the measurements; numbers that are none are counted apart."""
    room = make_class(tmp_path / "class", whole, [], 4, absent=4)
    for learner, expected, measured in (("p001", 1.0, 4.0), ("p002", 2.0, 6.0), ("p003", 3.0, None)):
        put(room, learner, Progress(predictions={"L1.4:v": Prediction(expected=expected, at=at(1), measured=measured)}))
    put(room, "p004", Progress(predictions={"XX.1:v": Prediction(expected=1, at=at(1))}))
    standing, text, page = seen(room, whole)
    (wall,) = standing.walls

    assert wall.expected == [1.0, 2.0, 3.0]
    assert wall.outcome == 5.0
    assert "1, 2, 3; measured 5 (3)" in text
    assert "Measured: 5" in page


def test_a_histogram_counts_each_value_once() -> None:
    """Whatever the numbers are; wide ones on a logarithmic axis; what came out has room on it."""
    for values, outcome, log in (
        ([1.0, 2.0, 3.0], None, False),
        ([5.0], 5.0, False),
        ([0.0], None, False),
        ([-3.0, 1e6], 0.0, False),
        ([1.0, 1000.0], 1e7, True),
        ([1e-300, 1e300], None, True),
        ([5e-324, 1.0], None, True),
    ):
        found = histogram(values, outcome)
        assert found is not None
        assert sum(found.counts) == len(values)
        assert found.log == log
        assert 0 <= found.place(outcome if outcome is not None else values[0]) <= 1
    assert histogram([], 1.0) is None


def test_a_damaged_file_costs_one_learner_their_row(room: Classroom, whole: Course) -> None:
    """It is said whose, and the file is left as it is."""
    (room.of("p001") / "progress.json").write_text("[")
    standing, _, page = seen(room, whole)

    assert len(standing.present) == 17
    assert "p001/progress.json cannot be read" in page
    assert (room.of("p001") / "progress.json").read_text() == "["


def test_what_a_learner_wrote_into_the_file_cannot_reach_the_terminal(tmp_path: Path, whole: Course) -> None:
    """Control characters in the id of a message, or in the name of a number."""
    room = make_class(tmp_path / "class", whole, [], 1, absent=1)
    state = ExerciseProgress(attempts=9, first_at=at(1), last_message="\x1b]0;x\x07")
    put(
        room,
        "p001",
        Progress(exercises={"L1.1": state}, predictions={"L1.4:\x1b[2J": Prediction(expected=1, at="", unit="\x1b")}),
    )
    _, text, page = seen(room, whole)

    assert "\x1b" not in text
    assert "\x1b" not in page


def test_numbers_that_nobody_can_have_cost_nobody_the_page(tmp_path: Path, whole: Course) -> None:
    """Counts of thousands of digits, digits that are none, quizzes with more right answers than questions."""
    room = make_class(tmp_path / "class", whole, [], 2, absent=2)
    huge = "9" * 4000
    text = (
        '{"exercises": {"L1.1": {"attempts": %s, "hints": %s}, "L1.2": {"passed_at": "x", "attempts_to_pass": %s}}, '
        '"quizzes": {"L1": {"tries": 1, "best": %s, "questions": %s}}, '
        '"predictions": {"L1.\\u00b2:x": {"expected": 1, "at": ""}}}'
    ) % ((huge,) * 5)
    for learner in ("p001", "p002"):
        put(room, learner, Progress())
        (room.of(learner) / "progress.json").write_text(text)
    standing, shown, page = seen(room, whole)

    assert len(standing.present) == 2
    assert huge not in shown + page


def graded(gate: State) -> Grade:
    """With 75.5 points where the line of the gate passed."""
    lines = [
        Line(
            id="A.x",
            title="t",
            most=40,
            points=40 * (gate == "passed"),
            gate=True,
            state=gate,
            message="" if gate == "passed" else "hang",
        )
    ]
    lines.append(Line(id="B.x", title="t", most=60, points=35.5, state="partly"))
    return Grade(
        kind="final", submission="s", grader="g", course="1", started_at=at(1), seconds=1, lines=lines, pass_points=70
    )


def test_grades_are_shown(room: Classroom, whole: Course) -> None:
    """Each part, what closed the gate, and who waits for one."""
    write_grade(graded("passed"), room.graded / "p003")
    write_grade(graded("failed"), room.graded / "p001")
    (room.of("p004") / "assessment").mkdir()
    (room.of("p004") / "assessment" / "train.py").write_text("")
    _, text, page = seen(room, whole)

    assert re.search(r"Жанна Ли +passed +75.5 points$", text, re.MULTILINE)
    assert re.search(r"failed +35.5 points  gate closed by A\.x \(hang\)$", text, re.MULTILINE)
    assert "<td>open</td>" in page
    assert "<td>closed by A.x (hang)</td>" in page
    assert "35.5 of 60" in page
    assert "Handed in, not graded: <bdi>محمد الفاتح</bdi>" in page


def test_the_command_writes_the_page_into_the_folder(room: Classroom, capsys: pytest.CaptureFixture[str]) -> None:
    """And says that it holds names."""
    folder = str(room.path)
    assert call(["learn", "instructor", "overview", folder, "--track", "one-day"]) == 0
    told = capsys.readouterr()

    assert "Anna Berger" in (room.path / "overview.html").read_text()
    assert "with names" in told.err
    assert "20 in the class, progress of 18" in told.out


@pytest.mark.skipif(chromium() is None, reason="needs a Chromium on PATH")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(room: Classroom, whole: Course, tmp_path: Path, width: int) -> None:
    """Only tables scroll, in their own frames, and no name is broken up. Measured by a browser, without the policy."""
    write_grade(graded("passed"), room.graded / "p003")
    page = seen(room, whole)[2]
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    measure = (
        "<script>document.title = 'W' + document.documentElement.scrollWidth + '/' + innerWidth + '/' + "
        "Math.round(document.querySelector('.marks tbody th').getBoundingClientRect().height)</script></body>"
    )
    (tmp_path / "p.html").write_text(page.replace("</body>", measure))
    program = chromium()
    assert program is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    frame = tmp_path / "frame.html"
    # A window of a desktop browser is not made narrower than 500; a frame in it is.
    frame.write_text(
        f"<iframe src='p.html' style='width:{width}px;height:900px;border:0' onload='document.title = "
        "this.contentDocument.title'></iframe>"
    )
    done = subprocess.run(
        [program, *flags, "--allow-file-access-from-files", "--window-size=1400,1000", "--virtual-time-budget=3000",
         "--dump-dom", frame.as_uri()],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found = re.search(r"W(\d+)/(\d+)/(\d+)", done.stdout)

    assert found is not None, done.stdout[:300]
    assert int(found[2]) == width
    assert int(found[1]) <= width
    assert int(found[3]) < 60
