"""A survey without a server: what is filled in is read, and no more is said than is known."""

from __future__ import annotations

import base64
import html
import itertools
import os
import random
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.errors import PacelineError
from paceline_course.browser import chromium
from paceline_course.instructor.survey import RATINGS, SKILLS, TEXTS, form_page, form_text, read_answers, write_form
from paceline_course.instructor.survey_summary import as_page, as_text, change, covered, summarise


def answer(folder: Path, name: str, before: int, after: int, code: str = "", text: str = "") -> None:
    """A filled form."""
    lines = [f'code = "{code}"']
    for half, value in (("before", before), ("after", after)):
        lines += [f"[{half}]", *(f"{skill} = {value}" for skill in SKILLS)] if value else []
    lines += ["[texts]", f"best = '''{text}'''"]
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text("\n".join(lines))


def test_the_text_form_is_read_back_as_it_was_filled_in(tmp_path: Path) -> None:
    """An empty one holds no answers, and is named."""
    text = (
        form_text().replace("batch = 0", "batch = 2", 1).replace("unclear = '''\n", "unclear = '''\nWhat is\na rank?\n")
    )
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text(form_text())
    found = read_answers(tmp_path)

    assert len(found.answers) == 1
    assert found.answers[0].before == {"batch": 2}
    assert found.answers[0].texts == {"unclear": "What is a rank?"}
    assert found.refused == [("b.toml", "it holds no answers")]


def test_each_of_a_class_gets_a_file_and_none_is_overwritten(tmp_path: Path) -> None:
    """The page is made anew; answers are not."""
    made = write_form(tmp_path / "s", ["p01", "p02"])

    assert [path.name for path in made] == ["survey.html", "survey-p01.toml", "survey-p02.toml"]
    with pytest.raises(PacelineError, match="is there already"):
        write_form(tmp_path / "s", ["p02"])


def test_before_and_after_are_put_together_by_the_word(tmp_path: Path) -> None:
    """In any case of letters; files without one stand alone."""
    answer(tmp_path / "s", "1", 1, 0, "Blue")
    answer(tmp_path / "s", "2", 0, 4, "blue ")
    answer(tmp_path / "s", "3", 2, 0)
    answer(tmp_path / "s", "4", 0, 2)
    found = read_answers(tmp_path / "s").answers

    assert len(found) == 3
    assert [(each.before["batch"], each.after["batch"]) for each in found if each.before and each.after] == [(1, 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[before]\nbatch = 6\n", "before.batch is not a number from 0 to 5"),
        ("[before]\nbatch = true\n", "before.batch"),
        ("[texts]\nbest = 3\n", "texts.best is no text"),
        ("title = 'other'\n", "no answer file"),
        ("[before\n", ""),
        ("[before]\nbatch = " + "[" * 5000, "nested too deep"),
        ('code = "a b/../c"\n[before]\nbatch = 1\n', "code"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_others_count(tmp_path: Path, text: str, said: str) -> None:
    """With the reason."""
    answer(tmp_path, "good", 1, 2)
    (tmp_path / "bad.toml").write_text(text)
    found = read_answers(tmp_path)

    assert len(found.answers) == 1
    assert found.refused[0][0] == "bad.toml"
    assert said in found.refused[0][1]


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    """Pipes and links; a name can say nothing to the terminal."""
    answer(tmp_path, "good", 1, 2)
    os.mkfifo(tmp_path / "pipe\x1b[2J.toml")
    (tmp_path / "link.toml").symlink_to("good.toml")
    found = read_answers(tmp_path)

    assert len(found.answers) == 1
    assert [why for _, why in found.refused] == ["it is no ordinary file, or too large"] * 2
    assert all(name.isprintable() for name, _ in found.refused)


def test_counts_and_medians_are_those_of_the_answers(tmp_path: Path) -> None:
    """Five who said 1, 2, 2, 3, 5 before, and one more afterwards, as far as there is more."""
    for number, value in enumerate((1, 2, 2, 3, 5)):
        answer(tmp_path, str(number), value, min(5, value + 1), text=f"text {number}")
    text = as_text(summarise(read_answers(tmp_path)))

    assert "before  1: 1  2: 2  3: 1  4: 0  5: 1   median 2" in text
    assert "after   1: 0  2: 1  3: 2  4: 1  5: 1   median 3" in text
    assert "change: +1, 90 % interval +0 to +1 (5 people)" in text


def test_of_fewer_than_five_nothing_is_said(tmp_path: Path) -> None:
    """Neither median nor change, in text and page; and it is said that words may tell who wrote them."""
    for number in range(4):
        answer(tmp_path, str(number), 1, 5, text="good")
    summary = summarise(read_answers(tmp_path))
    text, page = as_text(summary), as_page(summary)

    for shown in (text, page):
        assert "too few to say" in shown
        assert "interval +" not in shown
        assert not re.search(r"median \d", shown)
        assert "may tell who wrote it" in shown


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Its coverage against all signs that differences can have, and against draws from a known distribution."""
    for count, rank in itertools.product(range(5, 11), (1, 2)):
        inside = sum(rank <= sum(signs) <= count - rank for signs in itertools.product((0, 1), repeat=count))
        assert covered(count, rank) == pytest.approx(inside / 2**count)
    draw = random.Random(1)
    hits = 0
    for _ in range(2000):
        found = change([draw.choice((-1, 0, 0, 1, 1, 1, 2, 2, 3)) for _ in range(12)])
        hits += found.low <= 1 <= found.high
    assert hits / 2000 >= 0.9
    assert (change(range(12)).low, change(range(12)).high) == (2, 9)  # 0.961; one further in it would be 0.854
    assert change([1] * 4).middle is None
    assert (change([0, 1, 2, 3, 4]).low, change([0, 1, 2, 3, 4]).high) == (0, 4)


def test_texts_are_listed_without_names_and_in_no_order_of_files(tmp_path: Path) -> None:
    """And cannot be markup."""
    answer(tmp_path, "p01", 1, 1, text="zebra <b>x</b>")
    answer(tmp_path, "p02", 1, 1, text="ant")
    summary = summarise(read_answers(tmp_path))
    page = as_page(summary)

    assert [texts for question, texts in summary.texts if question == TEXTS["best"]] == [["ant", "zebra <b>x</b>"]]
    assert "p01" not in page
    assert "<b>" not in page


def test_the_commands_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the form to the summary."""
    out = tmp_path / "s"
    assert call(["learn", "instructor", "survey", "form", "--out", str(out)]) == 0
    assert call(["learn", "instructor", "survey", "form", "--out", str(out)]) == 2
    assert call(["learn", "instructor", "survey", "summary", str(out)]) == 0
    assert call(["learn", "instructor", "survey", "summary", str(tmp_path / "none")]) == 2
    assert "0 people answered" in capsys.readouterr().out
    assert (out / "survey-summary.html").exists()


@pytest.mark.skipif(chromium() is None, reason="needs a Chromium on PATH")
def test_what_the_page_saves_is_read_like_the_text_form(tmp_path: Path) -> None:
    """Filled in by a browser, in a copy without the policy that hands over what it would have saved."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", form_page())
    fill = """<script>
      URL.createObjectURL = (blob) => { blob.text().then((text) => {
        const pre = document.createElement("pre"); pre.id = "saved-text";
        pre.textContent = btoa(unescape(encodeURIComponent(text)));
        document.body.append(pre); }); return "#"; };
      document.getElementById("code").value = "türkis-7";
      document.querySelector("input[name='before.batch'][value='2']").checked = true;
      document.querySelector("input[name='ratings.pace'][value='3']").checked = true;
      document.querySelector("textarea[name='texts.best']").value = 'a "quoted" \\\\ line\\nand 学 \\u0007 \\u007f ]]]';
      document.querySelector(".save").click();
    </script></body>"""
    (tmp_path / "form.html").write_text(page.replace("</body>", fill))
    program = chromium()
    assert program is not None
    done = subprocess.run(
        [program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--virtual-time-budget=3000", "--dump-dom", (tmp_path / "form.html").as_uri()],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found = re.search(r'id="saved-text">([^<]+)<', done.stdout)
    assert found is not None
    text = base64.b64decode(found[1]).decode()
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "a.toml").write_text(text)
    (answers,) = read_answers(tmp_path / "answers").answers

    assert tomllib.loads(text)["code"] == "türkis-7"
    assert answers.before == {"batch": 2}
    assert answers.ratings == {"pace": 3}
    assert answers.texts["best"].startswith('a "quoted" \\ line and 学')


def test_the_form_asks_for_no_name(tmp_path: Path) -> None:
    """And both forms ask the same."""
    text, page = form_text(), form_page()

    for what in [*SKILLS.values(), *(what for what, _ in RATINGS.values()), *TEXTS.values()]:
        assert what in text
        assert what in page
    assert "connect-src" not in page
    assert "form-action 'none'" in html.unescape(page)
    assert 'name="name"' not in page
