"""Decks are built of text and records, or it is said what is wrong with them."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest
from pptx import Presentation

from paceline.records.errors import PacelineError
from paceline_course.browser import chromium, overflowing
from paceline_course.content import load_course
from paceline_course.slides import build as building
from paceline_course.slides.blocks import Code, Paragraph, Table, blocks
from paceline_course.slides.deck import read_deck
from paceline_course.slides.fill import FilledDeck, fill
from paceline_course.slides.html import as_html
from paceline_course.slides.pptx import write_pptx
from paceline_course.slides.registry import Registry, load_registry

COURSE = load_course()
NOTES = "\n\n::: notes\nWhat is said.\n:::\n"
PARTS = """
from paceline_course.slides.registry import figure, value

@value("speed", "runs")
def speed(record):
    return f"{record.result['speed']:.1f} times"

@value("lost", "runs")
def lost(record):
    return record.result["nothing"]

@value("unmeasured", "absent")
def unmeasured(record):
    return "1"

@figure("bar", "runs")
def bar(canvas, record):
    axes = canvas.axes()
    canvas.step(axes.bar([0], [record.result["speed"]])[0], 2)
    axes.set_title("bars & <more>")
    return 'one "bar"'

@figure("line")
def line(canvas):
    canvas.axes().plot([0, 1], "o-")
    return "a line"
"""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Some values, a figure, a source, a record."""
    slides, runs = tmp_path / "slides", tmp_path / "records" / "runs"
    slides.mkdir()
    runs.mkdir(parents=True)
    about = {"command": ["python", "bench/x.py"], "environment": {"cpu": "Some CPU", "cores": 2}, "speed": 1.75}
    (runs / "result.json").write_text(json.dumps(about))
    (slides / "parts.py").write_text(PARTS)
    (slides / "sources.toml").write_text('[one]\nshort = "One 2020"\ntitle = "T"\nlink = "https://arxiv.org/abs/1"\n')
    return load_registry(slides, tmp_path / "records")


def filled(tmp_path: Path, registry: Registry, *slides: str) -> FilledDeck:
    """A deck with a first slide and these."""
    path = tmp_path / "D9_test.md"
    path.write_text('+++\ntitle = "A test"\n+++\n\n' + "\n---\n\n".join([f"# Begin{NOTES}", *slides]))
    return fill(read_deck(path), registry)


def test_values_sources_and_figures_are_put_in_with_where_they_are_from(tmp_path: Path, registry: Registry) -> None:
    """Each record once at the foot; the source is a link."""
    deck = filled(
        tmp_path, registry, f"# S\n\nIt is {{{{value: speed}}}}, {{{{cite: one}}}}.\n\n{{{{figure: bar}}}}{NOTES}"
    )
    slide = deck.slides[1]

    assert deck.problems == ()
    assert slide.text == "It is 1.8 times, [One 2020](https://arxiv.org/abs/1)."
    assert slide.measured == ("record runs, python bench/x.py, Some CPU, 2 cores",)
    assert slide.picture is not None
    assert (slide.picture.alt, slide.picture.steps) == ('one "bar"', 2)
    assert 'aria-label="one &quot;bar&quot;"' in slide.picture.svg
    assert 'data-step="2"' in slide.picture.svg


def test_figures_of_one_page_share_no_id(tmp_path: Path, registry: Registry) -> None:
    """A clip of a slide that is not shown would clip the figure of the one that is."""
    deck = filled(tmp_path, registry, f"# S\n\n{{{{figure: bar}}}}{NOTES}", f"# T\n\n{{{{figure: line}}}}{NOTES}")
    one, two = (slide.picture.svg for slide in deck.slides[1:] if slide.picture is not None)
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, two)]

    assert ids[0]
    assert not ids[0] & ids[1]
    for svg, own in zip((one, two), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= own


@pytest.mark.parametrize(
    ("slide", "said"),
    [
        (f"# S\n\n{{{{value: none}}}}{NOTES}", "there is no value none"),
        (f"# S\n\n{{{{value: unmeasured}}}}{NOTES}", "there is no record absent"),
        (f"# S\n\n{{{{value: lost}}}}{NOTES}", "record runs does not hold lost"),
        (f"# S\n\n{{{{cite: none}}}}{NOTES}", "there is no source none"),
        (f"# S\n\n{{{{figure: none}}}}{NOTES}", "there is no figure none"),
        (f"# S\n\n{{{{vaule: speed}}}}{NOTES}", "{{vaule: speed}} is not known"),
        ("# S\n\nText.", "it has no notes"),
        (f"# S\n\n[here](nowhere.html){NOTES}", "the link nowhere.html leads nowhere"),
        (f"# S\n\nIt is 3.1 times faster.{NOTES}", "a number without a record, a source or a word"),
    ],
)
def test_what_is_wrong_with_a_slide_is_said_with_its_place(
    slide: str, said: str, tmp_path: Path, registry: Registry
) -> None:
    """And the build fails for it."""
    (problem,) = filled(tmp_path, registry, slide).problems

    assert problem.startswith("D9_test, slide 2: ")
    assert said in problem


@pytest.mark.parametrize(
    "slide",
    [
        f"# S\n\nLab 3, ResNet-50, `2 (W - 1)` and rank 0.{NOTES}",
        f"# S\n\nIt was 3.1 times faster, {{{{cite: one}}}}.{NOTES}",
        "# S\n\nTwice 64 samples.\n\n::: notes\n{{example: two workers}}\nSaid.\n:::\n",
        f"# S\n\n1. first\n2. second{NOTES}",
    ],
)
def test_names_code_cited_numbers_and_examples_need_no_record(slide: str, tmp_path: Path, registry: Registry) -> None:
    """The numbers of a list, too."""
    assert filled(tmp_path, registry, slide).problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# no head", "has no head"),
        ("+++\nname = 1\n+++\n# S", "has no title"),
        ('+++\ntitle = "T"\n+++\nNo heading', "slide 1 of D9.md has no title"),
        ('+++\ntitle = "T"\n+++\n# S\n{{figure: a}}\n{{figure: b}}', "slide 1 of D9.md has 2 figures"),
    ],
)
def test_a_file_that_is_no_deck_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """Before anything is looked up."""
    path = tmp_path / "D9.md"
    path.write_text(text)
    with pytest.raises(PacelineError, match=said):
        read_deck(path)


def test_markdown_becomes_plain_blocks() -> None:
    """Lists in lists, numbers, tables, code, looks and links."""
    text = "A **b** `c` [d](https://x.org)\n\n- one\n  - two\n\n1. x\n2. y\n\n"
    found = blocks(text + "| h | i |\n|---|---|\n| 1 | *2* |\n\n```\ncode\n```")

    first, one, two, x, y, table, code = found
    assert isinstance(first, Paragraph)
    assert [(run.text, run.bold, run.code, run.link) for run in first.runs if run.text.strip()] == [
        ("A ", False, False, ""),
        ("b", True, False, ""),
        ("c", False, True, ""),
        ("d", False, False, "https://x.org"),
    ]
    assert [(each.text, each.level, each.number) for each in (one, two, x, y)] == [
        ("one", 1, 0),
        ("two", 2, 0),
        ("x", 1, 1),
        ("y", 1, 2),
    ]
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [["h", "i"], ["1", "2"]]
    assert code == Code(("code",))


def test_the_page_needs_nothing_else_and_cannot_be_broken_by_text(tmp_path: Path, registry: Registry) -> None:
    """No script, picture or font from elsewhere; what looks like HTML is text."""
    deck = filled(tmp_path, registry, f"# <b>S</b>\n\n<script>alert(1)</script>\n\n{{{{figure: bar}}}}{NOTES}")
    page = as_html(deck)

    assert "&lt;b&gt;S&lt;/b&gt;" in page
    assert "<script>alert" not in page
    assert not [word for word in ("src=", "<link", "@import", "url(http") if word in page]


def test_pptx_has_text_tables_pictures_and_notes(tmp_path: Path, registry: Registry) -> None:
    """All of them may be edited."""
    deck = filled(tmp_path, registry, f"# S\n\nText **b**.\n\n| h |\n|---|\n| c |\n\n{{{{figure: bar}}}}{NOTES}")
    path = tmp_path / "deck.pptx"

    assert write_pptx(deck, path) == []
    slide = Presentation(str(path)).slides[1]
    assert slide.shapes.title.text == "S"
    texts = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
    assert "Text b." in texts
    assert any("record runs" in text for text in texts)
    assert [shape.table.cell(1, 0).text for shape in slide.shapes if shape.has_table] == ["c"]
    assert slide.notes_slide.notes_text_frame.text == "What is said."
    assert any(name.endswith(".png") for name in zipfile.ZipFile(path).namelist())


def test_too_much_text_is_a_problem_in_pptx(tmp_path: Path, registry: Registry) -> None:
    """With the slide's number."""
    deck = filled(tmp_path, registry, f"# S\n\n{'Words and words. ' * 120}{NOTES}")
    (problem,) = write_pptx(deck, tmp_path / "deck.pptx")
    assert problem.startswith("D9_test, slide 2: ")


@pytest.mark.serial
@pytest.mark.skipif(chromium() is None, reason="no chromium on PATH")
def test_a_browser_finds_the_slides_that_do_not_fit(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those: too many lines, and code that is too wide; also where the page is named from the current folder."""
    short = f"# Short\n\nText.\n\n{{{{figure: bar}}}}{NOTES}"
    long, wide = f"# Long\n\n{'Words and words. ' * 120}{NOTES}", f"# Wide\n\n```\n{'x' * 200}\n```{NOTES}"
    deck = filled(tmp_path, registry, short, long, wide)
    page = tmp_path / "deck.html"
    page.write_text(as_html(deck))

    monkeypatch.chdir(tmp_path)

    assert overflowing(Path(page.name)) == [3, 4]


@pytest.mark.parametrize("path", building.deck_files(COURSE).values(), ids=lambda path: path.stem)
def test_every_deck_of_the_course_can_be_filled_and_has_room_in_pptx(path: Path, tmp_path: Path) -> None:
    """From the records of the repository."""
    deck = fill(read_deck(path), load_registry(path.parent, building.records_folder(COURSE)))

    assert deck.problems == ()
    assert write_pptx(deck, tmp_path / "deck.pptx") == []


def test_an_unknown_deck_is_refused_with_the_known_ones() -> None:
    """By the beginning of its name."""
    assert list(building.chosen(COURSE, ["d4"])) == ["D4_collectives"]
    with pytest.raises(PacelineError, match="there is no deck D99"):
        building.chosen(COURSE, ["D99"])
