"""What learners send is taken, or refused with the reason; what is hostile writes nothing."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.errors import PacelineError
from paceline_course.content import Course
from paceline_course.instructor import archive
from paceline_course.instructor.archive import Refused, from_zip
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.collect import collect
from paceline_course.instructor.hand_in import make_hand_in
from paceline_course.instructor.matching import whose
from paceline_course.instructor.roster import Person, write_roster
from paceline_course.workspace import Workspace, start_workspace

PEOPLE = [
    Person("p01", "Anna Berger"),
    Person("p02", "Anna Berger Moser"),
    Person("p03", "王 小明"),
    Person("p04", "Bo Li"),
]
PROGRESS = '{"schema": 1, "exercises": {"L1.1": {"attempts": %d, "first_at": "2027-03-01T09:%02d:00+00:00"}}}'


@pytest.fixture
def place(tmp_path: Path) -> Classroom:
    """A class of four."""
    room = Classroom(tmp_path / "class")
    room.make()
    write_roster(room, PEOPLE)
    return room


def one(room: Classroom, *sources: Path, learner: str | None = None) -> list[tuple[str, str, str]]:
    """State, learner, words of each source."""
    return [(each.state, each.learner, each.said) for each in collect(room, sources, learner)]


def sent(path: Path, attempts: int = 1, minute: int = 0) -> Path:
    """A progress.json under another name."""
    path.write_text(PROGRESS % (attempts, minute))
    return path


def packed(path: Path, files: dict[str, str | bytes]) -> Path:
    """A zip of these."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def test_a_hand_in_goes_from_one_folder_to_the_other(course: Course, workspace: Workspace, place: Classroom) -> None:
    """Progress, answers and assessment, with its logs; what is no text stays behind and is named."""
    assessment = workspace.path / "assessment"
    (assessment / "runs" / "a").mkdir(parents=True)
    (assessment / "train.py").write_text("print(1)\n")
    (assessment / "config.toml").write_text("chosen = 'a'\n")
    (assessment / "runs" / "a" / "log.csv").write_text("step,loss\n")
    (assessment / "runs" / "a" / "model.pt").write_bytes(b"\0" * 100)
    (workspace.path / "work" / "link.py").symlink_to("/etc/passwd")
    made = make_hand_in(workspace, workspace.path.parent / "sent.zip", "p03")

    assert made.assessment
    assert sorted(made.left) == ["assessment/runs/a/model.pt", "work/link.py"]
    assert [state for state, _, _ in one(place, made.path)] == ["taken"]
    kept = place.of("p03")
    assert (kept / "assessment" / "runs" / "a" / "log.csv").read_text() == "step,loss\n"
    assert (kept / "work" / "L1_1.py").read_bytes() == (workspace.path / "work" / "L1_1.py").read_bytes()
    assert not (kept / "work" / "link.py").exists()
    assert one(place, made.path)[0][0] == "same"


def test_the_newest_is_kept_and_older_ones_are_put_aside(place: Classroom, tmp_path: Path) -> None:
    """By what was done, not by the time of a file, in whatever order they come."""
    new, old = sent(tmp_path / "p01.json", 3, 30), sent(tmp_path / "p01_first.json", 1, 10)
    os.utime(old, (2_000_000_000, 2_000_000_000))

    assert [state for state, _, _ in one(place, new, old)] == ["taken", "older"]
    assert json.loads((place.of("p01") / "progress.json").read_text())["exercises"]["L1.1"]["attempts"] == 3
    newest = sent(tmp_path / "p01_more.json", 4, 30)  # one more failed check, which notes no time
    os.utime(newest, (1_000_000_000, 1_000_000_000))
    assert [state for state, _, _ in one(place, newest)] == ["taken"]
    assert len(list((place.older / "p01").glob("*/progress.json"))) == 2


def test_parts_that_were_not_sent_again_are_kept(place: Classroom, tmp_path: Path) -> None:
    """A later progress.json does not take the assessment away, nor an assessment the progress."""
    full = {"progress.json": PROGRESS % (1, 1), "assessment/train.py": "a = 1\n"}
    one(place, packed(tmp_path / "p01.zip", full))
    one(place, sent(tmp_path / "p01.json", 5, 50))
    assert (place.of("p01") / "assessment" / "train.py").read_text() == "a = 1\n"

    assert one(place, packed(tmp_path / "p01b p01.zip", {"assessment/train.py": "a = 2\n"}))[0][0] == "taken"
    assert (place.of("p01") / "assessment" / "train.py").read_text() == "a = 2\n"
    assert '"attempts": 5' in (place.of("p01") / "progress.json").read_text()


def test_an_older_hand_in_fills_what_is_missing(place: Classroom, tmp_path: Path) -> None:
    """It was sent late, and it is all there is of the assessment."""
    one(place, sent(tmp_path / "p01.json", 5, 50))
    late = packed(tmp_path / "p01.zip", {"progress.json": PROGRESS % (1, 1), "assessment/train.py": "a = 1\n"})

    assert one(place, late)[0][0] == "older"
    assert (place.of("p01") / "assessment" / "train.py").exists()
    assert '"attempts": 5' in (place.of("p01") / "progress.json").read_text()


@pytest.mark.parametrize(
    ("name", "learner"),
    [
        ("p01", "p01"),
        ("hand-in-P01", "p01"),
        ("Anna_Berger", "p01"),
        ("Berger, Anna - 12345 - file", "p01"),
        ("anna-berger-moser", "p02"),
        ("王 小明", "p03"),
        ("bo li (2)", "p04"),
    ],
)
def test_files_are_matched_by_id_or_name(name: str, learner: str) -> None:
    """In any case of letters, with what learning platforms add; of two names that fit, the longer one."""
    assert whose(PEOPLE, [name]) == learner


@pytest.mark.parametrize("name", ["progress2", "anna", "p0", "p011", "", "boli"])
def test_who_is_not_known_for_sure_is_refused(name: str) -> None:
    """A part of a name or of an id is not enough."""
    with pytest.raises(Refused, match="--as"):
        whose(PEOPLE, [name])


def test_two_who_are_called_alike_are_told_apart_by_nobody() -> None:
    """Their ids are named."""
    with pytest.raises(Refused, match="a or b"):
        whose([Person("a", "Jo Doe"), Person("b", "Jo Doe")], ["jo doe"])


def test_a_folder_of_downloads_is_gone_through(place: Classroom, tmp_path: Path) -> None:
    """Files, course folders, and a folder a person as platforms make them; others are refused, none stops the rest."""
    downloads = tmp_path / "downloads"
    (downloads / "p02").mkdir(parents=True)
    sent(downloads / "p02" / "progress.json")
    (downloads / "Bo Li_77_file").mkdir()
    packed(downloads / "Bo Li_77_file" / "hand-in.zip", {"progress.json": PROGRESS % (2, 2)})
    sent(downloads / "p01.json")
    sent(downloads / "nobody.json")
    (downloads / "p03.ZIP").write_bytes(b"no zip")
    (downloads / "notes.docx").write_bytes(b"?")

    found = one(place, downloads)
    assert sorted(learner for state, learner, _ in found if state == "taken") == ["p01", "p02", "p04"]
    assert [state for state, _, _ in found].count("refused") == 2


def link(name: str = "work/link") -> zipfile.ZipInfo:
    """An entry that is a symbolic link."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("../../evil", "points outside"),
        ("work/../../evil", "points outside"),
        ("/etc/evil", "points outside"),
        ("C:/evil", "points outside"),
        ("work\\..\\..\\evil", "points outside"),
        (link(), "link"),
        (link("work/\x1b[31m"), "link"),
        ("progress.json/evil", "of the same name"),
        ("work/" + "/".join(["x" * 200] * 8), "no name that every machine"),
        ("work/" + "x" * 300, "no name that every machine"),
        ("work/\x1b[31m", "no name that every machine"),
        ("a/" * 20 + "b", "no name that every machine"),
    ],
)
def test_a_hostile_entry_refuses_the_whole_zip(
    place: Classroom, tmp_path: Path, entry: str | zipfile.ZipInfo, said: str
) -> None:
    """Nothing of it is written anywhere."""
    path = packed(tmp_path / "p01.zip", {"progress.json": PROGRESS % (1, 1)})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(entry, "x")
    before = sorted(tmp_path.rglob("*"))

    ((state, _, words),) = one(place, path)
    assert state == "refused"
    assert said in words
    assert words.isprintable()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bomb_is_refused_while_it_is_read(place: Classroom, tmp_path: Path) -> None:
    """By its size, also where its head tells another one; in many small files; and inside one that is allowed."""
    big = packed(tmp_path / "p01.zip", {"progress.json": b"\0" * (archive.MOST_FILE + 1)})
    assert "larger than" in one(place, big)[0][2]
    ratio = packed(tmp_path / "p02.zip", {f"work/{n}.py": b"\0" * (4 << 20) for n in range(4)})
    assert "bomb" in one(place, ratio)[0][2]
    many = packed(tmp_path / "p03.zip", {f"work/{n}.py": b"" for n in range(archive.MOST_FILES + 1)})
    assert "more than" in one(place, many)[0][2]
    assert place.handed_in() == []


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    """Its directory says 1 byte; what is read counts."""
    path = packed(tmp_path / "x.zip", {"progress.json": PROGRESS % (1, 1) + " " * 5000})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02") + 24
    raw[at : at + 4] = (1).to_bytes(4, "little")
    path.write_bytes(raw)

    with pytest.raises(Refused):
        from_zip(path)


def test_other_zips_that_cannot_be_taken_say_why(place: Classroom, tmp_path: Path) -> None:
    """Twice the same name, for some machines; nothing in it; damaged progress; a later version."""
    twice = packed(tmp_path / "p01.zip", {"progress.json": "{}", "work/A.py": "", "work/a.py": ""})
    assert "twice" in one(place, twice)[0][2]
    assert "neither" in one(place, packed(tmp_path / "p01.zip", {"notes.txt": ""}))[0][2]
    assert "damaged" in one(place, packed(tmp_path / "p01.zip", {"progress.json": "[1"}))[0][2]
    assert "later version" in one(place, packed(tmp_path / "p01.zip", {"progress.json": '{"schema": 99}'}))[0][2]
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        file.writestr("progress.json", PROGRESS % (1, 1))
    (tmp_path / "p01.zip").write_bytes(memory.getvalue()[:-30])
    assert "no zip" in one(place, tmp_path / "p01.zip")[0][2]
    assert place.handed_in() == []


def test_a_zip_of_the_course_folder_is_taken_as_well(place: Classroom, tmp_path: Path) -> None:
    """As a file manager packs it: one folder at the top, and rubbish of the system; what is no part is named."""
    files = {
        "paceline-course/progress.json": PROGRESS % (1, 1),
        "paceline-course/L1.ipynb": "{}",
        "__MACOSX/paceline-course/._progress.json": "x",
    }
    ((state, learner, words),) = one(place, packed(tmp_path / "p04.zip", files))

    assert (state, learner) == ("taken", "p04")
    assert "not taken: L1.ipynb" in words


def test_files_beside_the_course_folder_are_named_and_left(place: Classroom, tmp_path: Path) -> None:
    """As are the folder itself as an entry, which some programs pack, and a file in the place of a folder."""
    beside = {"./": "", "./c/progress.json": PROGRESS % (1, 1), "./c/work": "", "./readme.txt": "read me"}
    ((state, _, words),) = one(place, packed(tmp_path / "p01.zip", beside))

    assert (state, words) == ("taken", "progress; not taken: work, readme.txt")


def test_what_is_damaged_in_a_zip_does_not_stop_the_others(place: Classroom, tmp_path: Path) -> None:
    """Whatever way it was packed in."""
    for name, method in (("p01", zipfile.ZIP_DEFLATED), ("p02", zipfile.ZIP_BZIP2), ("p03", zipfile.ZIP_LZMA)):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", method) as file:
            file.writestr("progress.json", PROGRESS % (1, 1) + "".join(map(chr, range(32, 127))))
        raw = bytearray((tmp_path / f"{name}.zip").read_bytes())
        raw[55:75] = bytes(0xFF ^ each for each in raw[55:75])
        (tmp_path / f"{name}.zip").write_bytes(raw)
    sources = [tmp_path / f"{name}.zip" for name in ("p01", "p02", "p03")]
    found = one(place, *sources, sent(tmp_path / "p04.json"))

    assert [state for state, _, _ in found] == ["refused"] * 3 + ["taken"]


def test_numbers_and_files_beyond_all_measure_are_cut_or_refused(place: Classroom, tmp_path: Path) -> None:
    """Thousands of digits in a count; a progress that is larger than any, alone and in a zip."""
    huge = tmp_path / "p01.json"
    state = {"attempts": int("9" * 4290)}
    huge.write_text(json.dumps({"exercises": {"a": state, "b": state}}))
    assert one(place, huge)[0][0] == "taken"
    text = PROGRESS % (1, 1) + " " * ((8 << 20) - 50)
    (tmp_path / "p02.json").write_text(text)
    assert "larger than any" in one(place, tmp_path / "p02.json")[0][2]
    full = packed(tmp_path / "p02.zip", {"progress.json": text, "work/a.py": os.urandom(1 << 16)})
    assert "larger than any" in one(place, full)[0][2]


def test_a_learners_folder_on_the_same_machine_cannot_hold_the_collecting_up(place: Classroom, tmp_path: Path) -> None:
    """Pipes, links, escapes in names, names that are no text, endless folders, times that no calendar has."""
    folder = tmp_path / "drop" / "p01"
    (folder / "work").mkdir(parents=True)
    os.mkfifo(folder / "work" / "pipe.py")
    os.mkfifo(tmp_path / "drop" / "p02.json")
    (tmp_path / "drop" / "p03").symlink_to(folder)
    (tmp_path / "drop" / "p04.zip").symlink_to("/dev/zero")
    for name in (b"\x1b[31m.py", b"\xff.py", b"a:b.py", b"A.py", b"a.py"):
        Path(os.fsdecode(bytes(folder / "work") + b"/" + name)).write_bytes(b"")
    (folder / "work" / "/".join("d" * 300)).mkdir(parents=True)
    sent(folder / "progress.json")
    os.utime(folder / "work" / "a.py", (2**33, 2**33))

    states = {learner or said: state for state, learner, said in one(place, tmp_path / "drop")}
    assert states == {"p01": "taken", "it is no ordinary file": "refused", "it is a link": "refused"}
    assert sorted(each.name for each in (place.of("p01") / "work").iterdir()) == ["A.py"]
    left = archive.from_folder(folder).left
    assert len(left) == 6
    assert all(name.isprintable() for name in left)


def test_a_hand_in_holds_no_name_that_collecting_would_refuse(workspace: Workspace, place: Classroom) -> None:
    """Such files stay with the learner and are named; the rest arrives."""
    for name in ("a:b.py", "back\\slash.py", "Twice.py", "twice.py"):
        (workspace.path / "work" / name).write_text("")
    (workspace.path / "work" / "/".join("d" * 20)).mkdir(parents=True)
    made = make_hand_in(workspace, workspace.path.parent / "p01.zip")

    assert len(made.left) == 4
    assert one(place, made.path)[0][0] == "taken"


def test_a_zip_that_says_another_name_than_its_platform_is_refused(place: Classroom, tmp_path: Path) -> None:
    """Nobody hands in for somebody else; where the name on it may be that of two, what is in it decides."""
    letter = '{"made_at": "2027-03-01T09:00:00+00:00", "learner": "%s"}'
    (tmp_path / "Bo Li_77_file").mkdir()
    forged = {"progress.json": PROGRESS % (9, 9), "hand-in.json": letter % "p01"}
    ((state, _, words),) = one(place, packed(tmp_path / "Bo Li_77_file" / "x.zip", forged))
    assert (state, words) == ("refused", "'p01' may be p01 and 'Bo Li_77_file' may be p04; --as says which")
    both = packed(tmp_path / "p01 p02.zip", forged)
    assert one(place, both)[0][:2] == ("taken", "p01")


def test_the_number_of_a_second_download_is_no_id(tmp_path: Path) -> None:
    """It comes from the browser."""
    room = Classroom(tmp_path / "class")
    room.make()
    write_roster(room, [Person("1", "Anna"), Person("2", "Bo")])

    assert one(room, sent(tmp_path / "2 (1).json"))[0][:2] == ("taken", "2")
    assert one(room, sent(tmp_path / "progress (1).json"))[0][0] == "refused"


def test_whose_it_is_can_be_said(place: Classroom, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By an id that is in the roster, for one file; without a roster any id will do."""
    file = sent(tmp_path / "progress.json")
    folder = str(place.path)
    assert call(["learn", "instructor", "collect", folder, str(file), "--as", "P02"]) == 0
    assert place.handed_in() == ["p02"]
    assert call(["learn", "instructor", "collect", folder, str(file), "--as", "nobody"]) == 2
    assert call(["learn", "instructor", "collect", folder, str(file), str(file), "--as", "p01"]) == 2
    assert call(["learn", "instructor", "collect", folder, str(sent(tmp_path / "who.json"))]) == 1
    with pytest.raises(PacelineError, match="no roster"):
        one(Classroom(tmp_path / "other"), file)
    assert one(Classroom(tmp_path / "other"), file, learner="x")[0][0] == "taken"
    assert "refused" in capsys.readouterr().out


def test_the_learners_command_names_its_file(
    course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says that nothing was sent."""
    workspace = start_workspace(course, tmp_path / "mine")
    out = tmp_path / "x.zip"
    assert call(["learn", "hand-in", "--dir", str(workspace.path), "--out", str(out), "--name", "p07"]) == 0

    assert "nothing was sent" in capsys.readouterr().out
    with zipfile.ZipFile(out) as file:
        assert json.loads(file.read("hand-in.json"))["learner"] == "p07"
