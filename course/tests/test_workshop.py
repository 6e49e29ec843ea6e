"""Whoever knows the original workshop finds every piece, and the map is true."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from paceline.cli.verbs import PROGRAM
from paceline.records.errors import PacelineError
from paceline_course.assess.task_folder import notebook_text
from paceline_course.content import Course, load_course
from paceline_course.slides.build import Built, Format, build, deck_files
from paceline_course.slides.deck import read_deck
from paceline_course.workshop import as_page, join, lay_out, load_workshop

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {
    "01_Notebook_Scaling_Training.ipynb",
    "01_Notebook_DDP.ipynb",
    "02_Notebook_A_More_Realistic_Model.ipynb",
    "02_Notebook_Exercising_Optimization_Strategies.ipynb",
}
ASSESSMENT = {"03_Assessment.ipynb", "assessment.ipynb"}
DECKS = ("lab1p1", "lab1p2", "lab1_conclusion", "lab2p1", "lab3p1")
TOPICS = {
    "aims": 4,
    "lab 1": 12,
    "lab 1 slides": 6,
    "lab 1 conclusion": 2,
    "lab 2": 13,
    "lab 3": 10,
    "assessment": 4,
    "the day": 2,
}
"""How many topics each part of the original's outline has: none may get lost."""


@pytest.fixture(scope="module")
def real() -> Course:
    """The course itself."""
    return load_course()


def test_every_topic_leads_to_an_exercise_or_lab_a_deck_and_a_verb(real: Course) -> None:
    """All of which exist."""
    workshop = load_workshop(Path(real.folder))
    labs = {lab.id for lab in real.labs} | {each.id for lab in real.labs for each in lab.exercises} | {"assessment"}
    verbs = set(PROGRAM.commands)

    for topic in workshop.topics:
        assert topic.lab, topic
        assert set(topic.lab) <= labs, topic
        assert topic.deck in {f"D{number}" for number in range(1, 8)}, topic
        assert topic.verb in verbs, topic


def test_what_the_originals_assessment_asks_for_is_in_ours(real: Course) -> None:
    """Each of its topics leads there, and no other part does."""
    topics = load_workshop(Path(real.folder)).topics

    assert [topic.topic for topic in topics if ("assessment" in topic.lab) != (topic.part == "assessment")] == []


def test_no_topic_of_the_original_got_lost(real: Course) -> None:
    """Counted by part; each said once."""
    topics = load_workshop(Path(real.folder)).topics

    counted = {part: sum(topic.part == part for topic in topics) for part in dict.fromkeys(t.part for t in topics)}
    assert counted == TOPICS
    assert len({topic.topic for topic in topics}) == len(topics)


SHOWN = {"lab1p1": 13, "lab1p2": 6, "lab1 conclusion": 5, "lab2p1": 8, "lab3p1": 16}
"""How many topics each deck of the original has."""


def test_every_topic_of_the_originals_slides_has_a_slide(real: Course) -> None:
    """With that title, in the deck from which the original's is built."""
    workshop = load_workshop(Path(real.folder))
    titles = {
        path.stem.partition("_")[0]: {slide.title for slide in read_deck(path).slides}
        for path in deck_files(real).values()
    }

    assert [(each.ours, each.slide) for each in workshop.shown if each.slide not in titles[each.ours]] == []
    assert Counter(each.deck for each in workshop.shown) == SHOWN
    built_from = {each.name.replace("_", " "): each.deck for each in workshop.decks}
    assert {(each.deck, each.ours) for each in workshop.shown} == set(built_from.items())


def test_every_lab_is_somewhere_in_the_map(real: Course) -> None:
    """What we teach has its place in the workshop."""
    named = {name.partition(".")[0] for topic in load_workshop(Path(real.folder)).topics for name in topic.lab}

    assert {lab.id for lab in real.labs} <= named


def test_the_page_is_what_the_map_says(real: Course) -> None:
    """python -m paceline_course.workshop makes it."""
    assert (ROOT / "docs" / "workshop.md").read_text() == as_page(real)


def quick(course: Course, _: Sequence[str], formats: Iterable[Format], out: Path, *, look: bool) -> Iterator[Built]:
    """Of the shortest deck, whichever is wanted: that each can be built is tested where the slides are."""
    return build(course, ["D4"], formats, out, look=look)


def test_the_originals_notebooks_are_laid_out_with_their_exercises(
    real: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid notebooks under the original's names; nothing is overwritten the second time."""
    monkeypatch.setattr("paceline_course.slides.build.build", quick)
    nbformat = pytest.importorskip("nbformat")
    made = lay_out(real, tmp_path / "workshop")

    assert {path.name for path in made if path.suffix == ".ipynb"} == NOTEBOOKS | ASSESSMENT
    decks = {f"{name}{ending}" for name in DECKS for ending in (".html", ".pptx")}
    assert {path.name for path in made if path.parent.name == "slides"} == decks
    for name in (*NOTEBOOKS, "03_Assessment.ipynb", "assessment/assessment.ipynb"):
        nbformat.validate(nbformat.read(tmp_path / "workshop" / name, as_version=4))
    assert (tmp_path / "workshop" / "work" / "L5_6.py").is_file()
    assert (tmp_path / "workshop" / "assessment" / "TASK.md").is_file()
    assert "03_Assessment.ipynb" in (tmp_path / "workshop" / "README.md").read_text()
    assert lay_out(real, tmp_path / "workshop") == []


def test_a_lab_that_is_cut_in_two_has_every_cell_once(real: Course) -> None:
    """But for the first code cell, which both need."""
    first, second = (
        json.loads(join(real, each))
        for each in load_workshop(Path(real.folder)).notebooks
        if {piece.lab for piece in each.pieces} == {"L5"}
    )
    sources = [["".join(cell["source"]) for cell in body["cells"]] for body in (first, second)]

    assert set(sources[0]) & set(sources[1]) == {source for source in sources[0] if "import *" in source}
    assert any("L5.7" in source for source in sources[1])
    assert not any("%%exercise L5.7" in source for source in sources[0])


def test_a_folder_of_something_else_is_refused(real: Course, tmp_path: Path) -> None:
    """Nothing is mixed up."""
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(PacelineError, match="something else"):
        lay_out(real, tmp_path)


@pytest.mark.slow
def test_the_assessments_notebook_runs_before_anything_was_written(
    real: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell, beside its folder; what needs the learner's work says so, and the grader finds the first mistake."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    monkeypatch.setenv("PACELINE_QUICK", "1")
    notebook = nbformat.reads(notebook_text(), as_version=4)

    client.NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert "2 processes would each do all of it" in said
    # Processes that all save may also take each other's file away: an error, then, and the first mistake as well.
    assert "message everybody-sees-all" in said or "in save)" in said
    assert "there is no final grading that passed yet" in said
    assert len(list((tmp_path / "assessment" / "graded").glob("*_practice/report.html"))) == 2
    assert (tmp_path / "assessment" / "comm.csv").is_file()
    frames = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert [frame for frame in frames if 'src="assessment/graded/' in frame] == frames
    assert len(frames) == 2
