"""Who is in a class: every bad line is named, and nothing is half taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.errors import PacelineError
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.roster import import_people, read_roster


def imported(tmp_path: Path, text: str | bytes) -> Classroom:
    """A class with the people of a file."""
    room = Classroom(tmp_path / "class")
    file = tmp_path / "people.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    import_people(room, file)
    return room


def test_missing_ids_are_made_and_tell_nothing_about_anybody(tmp_path: Path) -> None:
    """Free ones, in order; given ids stay."""
    room = imported(tmp_path, "name,id\nAnna,\nBo,p02\nCyn,\n")

    assert [(each.id, each.name) for each in read_roster(room)] == [("p01", "Anna"), ("p02", "Bo"), ("p03", "Cyn")]


def test_importing_again_changes_nobody(tmp_path: Path) -> None:
    """The same people keep their ids; new ones are added."""
    room = imported(tmp_path, "name,email\nAnna,a@x.org\n王小明,\n")
    imported(tmp_path, "name;email;firm\n王小明;;z\nZoë;z@x.org;\nAnna;a@x.org;q\n")

    assert [(each.id, each.name) for each in read_roster(room)] == [("p01", "Anna"), ("p02", "王小明"), ("p03", "Zoë")]


def test_an_address_that_comes_later_makes_nobody_new(tmp_path: Path) -> None:
    """Nor one that is not said again, nor an id in other letters; who has another address is another person."""
    imported(tmp_path, "name\nAnna\nBo\n")
    imported(tmp_path, "name,email\nAnna,a@x.org\n")
    imported(tmp_path, "name\nAnna\n")
    room = imported(tmp_path, "id,name,email\nP02,Bo,\n,Anna,b@x.org\n")

    found = [(each.id, each.name, each.email) for each in read_roster(room)]
    assert found == [("p01", "Anna", "a@x.org"), ("p02", "Bo", ""), ("p03", "Anna", "b@x.org")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,email\nA,a@x\n,b@x\n", "line 3: it has no name"),
        ("name,email\nA,a@x\nB,b at x\n", "line 3: 'b at x' is no e-mail"),
        ("id,name\nx,A\nX,B\n", "line 3: the id X stands in line 2"),
        ("id,name\n../up,A\n", "line 2: '../up' is no id"),
        ("id,name\n.,A\n", "line 2: '.' is no id"),
        ("name\nA\n\nA\n", "line 4: A stands in line 2 already"),
        ("name\nA\x1b[31m\n", "line 2: the name is too long, or has signs"),
        ("name\nA,b,c\n", "line 2: it has more cells"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, text: str, said: str) -> None:
    """And nothing is written, not even the folder."""
    with pytest.raises(PacelineError) as error:
        imported(tmp_path, text)

    assert said in str(error.value)
    assert not (tmp_path / "class").exists()


def test_what_a_spreadsheet_saves_is_read(tmp_path: Path) -> None:
    """A mark at the beginning, UTF-16, semicolons, a quoted comma, other endings of lines."""
    for number, text in enumerate(
        (
            "\ufeffName;E-Mail\r\nBerger, Anna;a@x.org\r\n".encode(),
            '"name"\t"e-mail"\nBerger, Anna\ta@x.org\n'.encode("utf-16"),
            b'NAME,EMAIL\r"Berger, Anna",a@x.org\r',
        )
    ):
        room = imported(tmp_path / str(number), text) if (tmp_path / str(number)).mkdir() is None else None
        assert room is not None
        assert [(each.name, each.email) for each in read_roster(room)] == [("Berger, Anna", "a@x.org")]


@pytest.mark.parametrize("content", [b"name\nM\xfcller\n", b"PK\x03\x04\x00\x00", b"first,last\nA,B\n"])
def test_what_is_no_list_of_people_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    """Another encoding, another kind of file, other columns."""
    with pytest.raises(PacelineError) as error:
        imported(tmp_path, content)

    assert error.value.hint


def test_the_folder_stays_out_of_a_repository(tmp_path: Path) -> None:
    """Everything in it is ignored."""
    room = imported(tmp_path, "name\nAnna\n")

    assert (room.path / ".gitignore").read_text().splitlines()[-1] == "*"


def test_the_command_says_that_nothing_leaves_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And shows the class; other words are refused."""
    file = tmp_path / "p.csv"
    file.write_text("name,firm\nAnna,x\n")
    folder = str(tmp_path / "class")

    assert call(["learn", "instructor", "roster", folder, "import", str(file)]) == 0
    told = capsys.readouterr()
    assert "stays on this machine" in told.err
    assert "firm" in told.err
    assert call(["learn", "instructor", "roster", folder]) == 0
    assert capsys.readouterr().out == "p01  Anna\n"
    assert call(["learn", "instructor", "roster", folder, "export", str(file)]) == 2
    assert call(["learn", "instructor", "roster", str(tmp_path / "none")]) == 2
