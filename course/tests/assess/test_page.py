"""The page of a grade: complete, well formed, self-contained, and deaf to what a submission says; also in a browser."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import math
import re
from pathlib import Path

import msgspec
import pytest
from course.tests.assess import grades

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import read_grade, write_grade
from paceline_course.assess.page.curves import accuracy_table, drawn, target_table
from paceline_course.assess.page.evidence import shown
from paceline_course.assess.page.lines import bars, cards
from paceline_course.assess.page.render import render_grade, write_page
from tests.report.test_page import Page

# As tests/report loads it: by its file, since it is a program as well.
_spec = importlib.util.spec_from_file_location(
    "grade_browser", Path(__file__).parents[3] / "tests" / "report" / "browser.py"
)
browser_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(browser_module)

replace = msgspec.structs.replace


def policy_of(page):
    """The page's content security policy."""
    return next(a["content"] for _, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy")


def words_of(page):
    """What a person reads, without the data of the figures."""
    return page.text.replace(" ".join(page.scripts[0].split()), "")


@pytest.mark.parametrize("name", grades.ALL)
def test_pages_are_well_formed_and_ask_for_nothing(name):
    """Tags balanced, ids unique, links and labels point at something, and only the page's own two scripts may run."""
    page = Page(render_grade(grades.ALL[name]()))

    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))
    pointed = {attrs["aria-labelledby"] for _, attrs in page.attributes if "aria-labelledby" in attrs}
    pointed |= {attrs["href"][1:] for _, attrs in page.attributes if attrs.get("href", "").startswith("#")}
    assert pointed <= set(page.ids)
    outside = [(t, a) for t, a in page.attributes if any(re.match(r"(https?:)?//", str(v)) for v in a.values())]
    assert outside == []
    kinds = [attrs.get("type") for tag, attrs in page.attributes if tag == "script"]
    running = [text for text, kind in zip(page.scripts, kinds, strict=True) if kind is None]
    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in running}
    assert len(running) == 2
    assert set(re.findall(r"'(sha256-[^']+)'", policy_of(page))) == hashes
    assert policy_of(page).startswith("default-src 'none'; ")
    assert not re.search(r"\b(nan|None|null|inf|Undefined)\b", words_of(page))


@pytest.mark.parametrize("name", ["merit", "failed", "stopped", "full"])
def test_a_grade_from_its_file_gives_the_same_page(tmp_path, name):
    """What was written as grade.json and read again has the page of the record in memory."""
    grade = grades.ALL[name]()

    again = read_grade(write_grade(grade, tmp_path))

    assert render_grade(again) == render_grade(grade)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("full", ["Merit", "100 of 100 points. Merit is given from 85.", "Gate open: its 7 lines passed."]),
        ("merit", ["Merit", "92.2 of 100 points. Merit is given from 85.", "Gate open: its 7 lines passed."]),
        ("failed", ["Failed", "83.4 of 100 points. Enough to pass, which takes 70, but the gate is closed."]),
        ("failed", ["Gate closed by A.oracle: whoever fails one of its lines does not pass."]),
        ("stopped", ["Failed", "5 of 100 points. 65 short of the 70 that pass.", "This was practice"]),
    ],
)
def test_the_result_its_points_and_the_gate_stand_first(name, said):
    """In one word and in points, before anything else that the page says."""
    page = Page(render_grade(grades.ALL[name]()))

    first = page.text[: page.text.index("What to do next")]
    assert [one for one in said if one not in first] == []


def test_points_short_of_merit_are_counted():
    """Passed without merit: how many points are lacking to it."""
    grade = grades.grade(lines=grades.lines({"B.accuracy": {"points": 0.0, "state": "failed"}}))

    assert "84 of 100 points. 1 more and it is with merit." in Page(render_grade(grade)).text


def test_each_part_has_a_bar_of_its_length():
    """Widths follow the points, of the part and of the whole; what was not judged has a length of its own."""
    by_name = {bar["name"]: bar for bar in bars(grades.stopped())}
    whole = [float(bar["of_all"]) for bar in bars(grades.failed())]

    assert list(by_name) == ["A Correctness", "B Accuracy", "C Efficiency", "D Analysis"]
    assert by_name["A Correctness"]["points"] == "5 of 40"
    assert by_name["A Correctness"]["width"] == "12.50"
    assert by_name["A Correctness"]["untested"] == f"{100 * 29 / 40:.2f}"
    assert by_name["D Analysis"]["untested"] == "100.00"
    assert whole == [31, 20, 12.4, 20]


def test_what_to_do_next_has_the_gate_first_then_what_costs_most():
    """A gate line of few points goes before a line of many; passed and untested lines have no card."""
    grade = grades.failed()
    small = replace(grade.line("A.ranks"), state="failed", points=0.0)
    grade = replace(grade, lines=[small if line.id == small.id else line for line in grade.lines])

    assert [card["name"] for card in cards(grade)] == ["A.oracle", "A.ranks", "C.samples", "C.speed"]
    assert [card["name"] for card in cards(grades.stopped())] == ["A.coverage"]
    assert cards(grades.grade()) == []
    assert "Nothing: every line has all of its points." in Page(render_grade(grades.grade())).text


def test_a_card_holds_all_that_is_known_of_the_mistake():
    """What was run, expected, got, likely, where to look, where each process stood, what it printed, the message."""
    line = grades.failed().line("A.oracle")

    text = Page(render_grade(grades.failed())).text

    text = text[text.index("What to do next") : text.index("Every line")]
    said = [line.ran, line.expected, line.got, line.likely, line.look, line.printed, line.message, "0 of 9 points"]
    said += line.card.split("\n")[1:-1]
    assert [one for one in said if " ".join(one.split()) not in text] == []
    assert "the job hangs: rank 2 never came to all_reduce number 41 after 20 s" in text
    assert "-----" not in text


def test_every_line_is_in_the_table_with_points_state_time_and_evidence():
    """All lines of the rubric, in their order, evidence as words and tables; those that lack points link to a card."""
    grade = grades.merit()
    page = Page(render_grade(grade))

    text = page.text[page.text.index("Every line") : page.text.index("Trainings that the grader ran")]

    places = [text.index(f" {line.id} ") for line in grade.lines]
    assert places == sorted(places)
    assert [line.title for line in grade.lines if line.title not in text] == []
    assert "B.accuracy 10.67 of 16 partly 7.25 s" in text
    assert "A.stop gate 5 of 5 passed 7.25 s" in text
    for said in ("bytes a step 1,234,567", "per op: all reduce 2", "ratios 0.91, 0.93, 0.88, 0.92, 0.9"):
        assert said in text
    assert "variant workers batch samples difference uneven plain 3 96 1,003 2.2e-16" in text
    linked = [attrs["href"] for tag, attrs in page.attributes if tag == "a" and attrs["href"].startswith("#do-")]
    assert len(linked) == 2


def test_lines_that_were_not_reached_say_so():
    """Each has its state, each part the reason and what to do about it; a complete grading says none of it."""
    text = Page(render_grade(grades.stopped())).text
    complete = Page(render_grade(replace(grades.stopped(), complete=True))).text

    reason = "not reached: stopped at the first gate line that failed; --all judges every line"
    assert "19 lines with 89 points " + reason in text
    assert text.count(reason) == 1 + 4
    assert text.count("– of ") == 19
    assert "paceline learn assess --practice --all" in text
    assert "not reached: stopped" not in complete
    assert "paceline learn assess --practice --all" not in complete


def test_figures_hold_every_training_with_the_chosen_one_first():
    """One colour a configuration, whatever the seed; samples to the target as they follow from the accuracies."""
    curves = drawn(grades.grade())
    data = json.loads(Page(render_grade(grades.grade())).scripts[0])

    assert data["target"] == 0.78
    names = [run["name"] for run in data["curves"]]
    assert names == ["large-warm"] * 3 + ["one-device"] + ["large"] * 2
    assert [run["colour"] for run in data["curves"]] == [0, 0, 0, 1, 2, 2]
    assert [run["chosen"] for run in data["curves"]] == [True] * 3 + [False] * 3
    for run, one in zip(data["curves"], curves, strict=True):
        good = [value >= 0.78 for value in one.own.accuracy]
        both = [at for at in range(1, 16) if good[at] and good[at - 1]]
        assert run["reached"] == (8192 * (both[0] + 1) if both else None)
        assert run["accuracy"] == one.own.accuracy
    assert [row[7] for row in target_table(curves).rows][-2:] == ["not reached"] * 2
    rows = accuracy_table(curves).rows
    assert len(rows) == 3 * 16
    assert rows[0][:3] == ["large-warm", "11 · 12 · 13", "8,192"]
    assert rows[0][3].count("%") == 3


def test_without_trainings_there_are_no_figures():
    """A grading that stopped in part A says that there were none, and the script draws nothing."""
    page = Page(render_grade(grades.stopped()))

    assert "There are none: parts B to D were not reached" in page.text
    assert "plot-accuracy" not in page.ids
    assert json.loads(page.scripts[0]) == {"target": None, "curves": []}


def test_what_it_rests_on_is_said():
    """Digests short, the number that was drawn, seeds, machine, gaps; practice says that it proves nothing."""
    final, practice = grades.grade(), grades.stopped()

    text = Page(render_grade(final)).text

    assert "5d41402abc4b…1017c592" in text
    assert final.submission not in text
    assert "9e107d9d372b…42a419d6" in text
    for said in ("order 182345", "kill 71", "AMD EPYC 7B13", final.gaps[0], "then a number was drawn"):
        assert said in text
    assert "--seed" not in text
    text = Page(render_grade(practice)).text
    assert "number practice-7" in text
    assert "paceline learn assess --practice --seed 7" in text
    assert "this grading proves nothing to others" in text
    assert "The grader knows of none" in text


def test_foreign_text_is_text_wherever_it_stands():
    """Markup in any field is shown, never obeyed: the page has the elements that a harmless one has, and no others."""
    html = render_grade(grades.hostile())
    page = Page(html)

    assert "img" not in [tag for tag, _ in page.attributes]
    assert {tag for tag, _ in page.attributes} <= {tag for tag, _ in Page(render_grade(grades.failed())).attributes}
    assert len(page.scripts) == 3
    assert grades.EVIL in page.text
    assert "onerror=alert(2)>49" not in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page.text)
    # Plotly's script is most of the page; of the 10 000 characters that many fields hold, few are shown.
    assert len(html) - len(page.scripts[1]) < 250_000


def test_evidence_of_any_shape_is_shown_short():
    """Numbers as people read them, long lists, wide and tall tables cut, and how much is left out is said."""
    evidence = {
        "steps": 12_345,
        "share": 0.123456789,
        "sure": True,
        "none": None,
        "odd": math.nan,
        "list": list(range(100)),
        "per_rank": {"0": [1, 2], "1": 3.5},
        "tall": [{"a": at, "b_c": -at} for at in range(100)],
        "wide": [{f"c{at}": at for at in range(12)}],
    }

    found = shown(evidence)

    facts = dict(found.facts)
    assert facts["steps"] == "12,345"
    assert facts["share"] == "0.123457"
    assert (facts["sure"], facts["none"], facts["odd"]) == ("yes", "none", "not a finite number")
    assert facts["list"].endswith(", 23 … and 76 more")
    assert (facts["per rank: 0"], facts["per rank: 1"]) == ("1, 2", "3.5")
    tall, wide = found.tables
    assert tall.caption == "tall (60 more rows in grade.json)"
    assert tall.columns == ["a", "b c"]
    assert tall.rows[39] == ["39", "-39"]
    assert len(tall.rows) == 40
    assert wide.caption == "wide (2 more columns in grade.json)"
    many = shown({f"value {at}": at for at in range(50)})
    assert many.facts[-1] == ("and", "10 more values in grade.json")
    assert len(many.facts) == 41


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    """Also with half a character in it; where it cannot be written, one clear error and nothing half-written."""
    write_page(grades.hostile(), tmp_path / "page.html")
    (tmp_path / "file").write_text("")

    with pytest.raises(PacelineError) as caught:
        write_page(grades.grade(), tmp_path / "file" / "page.html")

    assert (tmp_path / "page.html").read_bytes().decode().rstrip().endswith("</html>")
    assert "paceline report" not in str(caught.value.hint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "page.html"]


@pytest.mark.skipif(browser_module.chromium() is None, reason="no chromium on PATH")
def test_a_browser_shows_every_page_quietly(tmp_path):
    """No console message, no request, nothing too wide with all details open, figures drawn; both widths and themes."""
    views = [("failed", 1280, False), ("stopped", 390, False), ("hostile", 390, True), ("hostile", 1280, True)]
    with browser_module.Browser() as browser:
        for name, width, dark in views:
            grade = grades.ALL[name]()
            write_page(grade, tmp_path / f"{name}.html")
            browser.open(tmp_path / f"{name}.html", width=width, dark=dark)
            browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            wide = browser.value("document.scrollingElement.scrollWidth")
            plots = browser.value("document.querySelectorAll('.plot > .plot-container').length")

            assert (name, width, wide <= width) == (name, width, True)
            assert plots == (2 if grade.curves else 0)
        pages = {(tmp_path / f"{name}.html").resolve().as_uri() for name, _, _ in views}
        assert browser.problems == []
        assert set(browser.requests) <= pages | {"about:blank"}
        assert browser.value("document.querySelectorAll('img').length") == 0
