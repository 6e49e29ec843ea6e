"""From a grade to a page that hangs on a wall, by command; and what the page may not do."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import segno
from course.tests.test_certificate import LEARNER, grade, made, put, raw, resigned

from paceline.cli.main import call
from paceline_course import browser
from paceline_course.assess.grade import write_grade
from paceline_course.certificate import page
from paceline_course.certificate.keys import base58, config_folder, read_private
from paceline_course.certificate.verify import opened

VERIFY_ALONE = """
import sys
from paceline.cli.main import call
code = call(["learn", "certificate", "verify", *sys.argv[1:]])
heavy = sorted({"torch", "numpy", "matplotlib", "jupytext", "nbformat", "IPython", "jinja2"} & set(sys.modules))
sys.exit(f"loaded: {heavy}" if heavy else code)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a grade, and no Chromium, which takes seconds."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(browser, "chromium", lambda: None)
    monkeypatch.chdir(tmp_path)
    write_grade(grade(), tmp_path)
    return tmp_path


def certificate(*words: str) -> int:
    """The exit code of a command."""
    return call(["learn", "certificate", *words])


def test_a_learner_makes_a_self_checked_certificate(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and HTML by the learner's name; verifying says that it is self-checked, by exit code 10."""
    assert certificate("issue", "grade.json") == 0
    assert "no PDF was made" in capsys.readouterr().out
    assert sorted(path.name for path in Path("certificate").iterdir()) == ["Ada-Lovelace.html", "Ada-Lovelace.json"]

    assert certificate("verify", "certificate/Ada-Lovelace.json") == 10

    said = capsys.readouterr().out
    assert said.startswith("self-checked: ")
    assert "not proved" in said
    assert (config_folder() / "learner.key").exists()


def test_an_instructor_attests_and_revokes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Key, certificate, check with the key, without it, with a list, and revoked."""
    assert certificate("key", "Institute of Parallel Things", "--out", "keys") == 0
    keys = ["keys/Institute-of-Parallel-Things.key", "keys/Institute-of-Parallel-Things.pub"]
    assert certificate("issue", ".", "--key", keys[0], "--name", "Grace Hopper", "--out", "made") == 0
    file = "made/Grace-Hopper.json"
    name = json.loads(Path(file).read_text())["id"]
    other = "urn:uuid:00000000-0000-4000-8000-000000000000"
    check = ["verify", file, "--key", keys[1]]

    assert certificate(*check) == 0
    assert certificate("verify", file) == 16
    assert certificate("revoke", "list.json", "--id", other, "--reason", "another's", "--key", keys[0]) == 0
    assert certificate(*check, "--revoked", "list.json") == 0
    assert certificate("revoke", "list.json", "--id", name, "--reason", "graded twice", "--key", keys[0]) == 0
    capsys.readouterr()
    assert certificate(*check, "--revoked", "list.json", "--format", "json") == 17

    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["exit_code"], found["level"], found["id"]) == ("revoked", 17, "attested", name)
    assert "graded twice" in found["said"]
    assert not config_folder().exists()


def test_the_text_of_the_code_is_checked_too(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, and from what a scanner writes into a pipe."""
    certificate("key", "Institute", "--out", "keys")
    certificate("issue", ".", "--key", "keys/Institute.key")
    code = json.loads(Path("certificate/Ada-Lovelace.json").read_text())["paceline"]["code"]
    Path("code.txt").write_text(code + "\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(code.replace("87.5", "97.5").encode())))
    capsys.readouterr()

    codes = [certificate("verify", "code.txt", "--key", "keys/Institute.pub"), certificate("verify", "code.txt")]
    changed = certificate("verify", "-", "--key", "keys/Institute.pub")

    assert codes == [0, 16]
    assert changed == 15
    assert "87.5 of 100 points, merit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["verify", "missing.json"], 2, "cannot be read"),
        (["verify", "."], 2, "cannot be read"),
        (["verify", "grade.json"], 11, "unreadable"),
        (["verify", "grade.json", "--key", "missing.pub"], 2, "missing.pub"),
        (["verify", "grade.json", "--revoked", "missing.json"], 2, "missing.json"),
        (["issue", "missing.json"], 2, "cannot be read"),
        (["issue", "practice"], 2, "practice"),
        (["issue", ".", "--issuer", "Institute"], 2, "--key"),
        (["issue", ".", "--key", "grade.json"], 2, "no private key"),
        (["issue", ".", "--name", "A\u202eB"], 2, "U+202E"),
        (["show", "grade.json"], 11, "unreadable"),
        (["show", "missing.json"], 2, "cannot be read"),
        (["key", " "], 2, "no name"),
        (["revoke", "grade.json", "--id", "x", "--reason", "y", "--key", "missing.key"], 2, "missing.key"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    words: list[str], code: int, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, a documented code, no file more."""
    write_grade(grade(kind="practice"), place / "practice")
    before = sorted(place.rglob("*"))

    assert certificate(*words) == code

    output = capsys.readouterr()
    assert said in output.err + output.out
    assert "Traceback" not in output.err
    left = [path for path in sorted(place.rglob("*")) if path not in before]
    assert [path for path in left if "config" not in path.relative_to(place).parts] == []


def test_a_certificate_is_not_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second of the same name wants another folder."""
    certificate("issue", ".")
    before = Path("certificate/Ada-Lovelace.json").read_bytes()

    assert certificate("issue", ".") == 2
    assert "exists" in capsys.readouterr().err
    assert Path("certificate/Ada-Lovelace.json").read_bytes() == before


@pytest.mark.parametrize("ending", ["html", "pdf"])
def test_what_has_the_name_of_its_page_is_not_overwritten_either(
    ending: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whosever file it is, and a link to nowhere too; and no key is made for nothing."""
    file = place / f"Ada-Lovelace.{ending}"
    file.symlink_to("nowhere")

    assert certificate("issue", ".", "--out", ".") == 2

    assert f"Ada-Lovelace.{ending} exists" in capsys.readouterr().err
    assert file.is_symlink()
    assert not Path("Ada-Lovelace.json").exists()
    assert not config_folder().exists()


def test_the_page_never_replaces_the_certificate(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that was saved with the ending of a page."""
    file = place / "saved.html"
    file.write_bytes(raw(made()))

    assert certificate("show", "saved.html") == 2
    assert "would replace the certificate" in capsys.readouterr().err
    assert file.read_bytes() == raw(made())
    assert certificate("show", "saved.html", "--out", "pages") == 0
    assert (place / "pages" / "saved.html").is_file()


def test_a_folder_that_cannot_be_is_an_error_with_its_code(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too long a name: as whatever cannot be written."""
    assert certificate("issue", ".", "--out", "a" * 300) == 4
    assert "a" * 300 in capsys.readouterr().err


def test_the_private_key_stands_in_nothing_but_its_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in what is printed nor in what is written, in any spelling."""
    certificate("key", "Institute", "--out", "keys")
    certificate("issue", ".", "--key", "keys/Institute.key")
    certificate("revoke", "list.json", "--id", made()["id"], "--reason", "x", "--key", "keys/Institute.key")
    certificate("verify", "certificate/Ada-Lovelace.json", "--key", "keys/Institute.key")
    printed = "".join(capsys.readouterr())
    secret = read_private(Path("keys/Institute.key")).key.private_bytes_raw()
    pem = Path("keys/Institute.key").read_text().split("\n")[2]
    files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".key"]

    assert {path.suffix for path in files} == {".json", ".html", ".pub"}
    for text in (printed, *(path.read_text() for path in files)):
        for spelling in (pem, secret.hex(), base58(secret), base64.b64encode(secret).decode()[:42]):
            assert spelling not in text
    assert "list.json: 1 revoked" in printed


def test_the_page_is_shown_again_from_the_file_alone(place: Path) -> None:
    """The same page, without a key; of a changed certificate there is none."""
    certificate("issue", ".", "--name", "李 Ada")
    changed = json.loads(Path("certificate/李-Ada.json").read_text())
    changed["credentialSubject"]["name"] = "Eve"
    Path("Eve.json").write_text(json.dumps(changed))

    assert certificate("show", "certificate/李-Ada.json", "--out", "again") == 0
    assert certificate("show", "Eve.json") == 15

    assert Path("again/李-Ada.html").read_text() == Path("certificate/李-Ada.html").read_text()
    assert not Path("Eve.html").exists()


def test_checking_loads_neither_torch_nor_what_draws(tmp_path: Path) -> None:
    """So it is quick, and works where only the command and cryptography are installed."""
    file = tmp_path / "one.json"
    file.write_bytes(raw(made("self-checked", LEARNER)))

    done = subprocess.run([sys.executable, "-c", VERIFY_ALONE, str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 10, done.stderr
    assert done.stdout.startswith("self-checked")


def html(document: dict[str, Any]) -> str:
    """The page of a certificate."""
    return page.as_html(*opened(raw(document)))


def test_the_page_needs_nothing_and_may_do_nothing() -> None:
    """No script, no address to load from; its one style is the one that the policy names by digest."""
    text = html(made())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)

    assert policy is not None
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")
    assert f"sha256-{digest}" in policy[1].replace("&#43;", "+").replace("&#34;", '"')
    assert not re.search(r"<script|<link|<img|<iframe|\bsrc=|\bhref=|url\(|@import|\bstyle=|\bon\w+=", text)
    assert text.startswith("<!doctype html>")


def test_what_stands_in_a_certificate_cannot_become_part_of_the_page() -> None:
    """A name with signs of HTML is text; so is every other text."""
    document = put("credentialSubject/name", '<script>"x"&', made())
    document["credentialSubject"]["identifier"][0]["identityHash"] = '<script>"x"&'
    document["issuer"]["name"] = "<b>bold</b>"
    document["paceline"]["date"] = "<i>1</i>"

    text = html(resigned(document))

    assert "&lt;script&gt;&#34;x&#34;&amp;" in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    assert not re.search(r"<script|<b>|<i>", text)


def test_the_page_says_level_points_and_what_is_not_proved() -> None:
    """Both levels in plain words, and a person without a name."""
    attested, own = html(made()), html(made("self-checked", LEARNER, ""))

    for each in ("Ada Lovelace", "87.5 of 100 points", "with merit", "22.5 / 25", "2 March 2026", "Attested by"):
        assert each in attested
    assert "It does not prove the result or the name" in own
    assert "whoever handed in this work" in own
    assert "Attested" not in own


def test_the_code_on_the_page_is_the_one_of_the_certificate_and_small_enough() -> None:
    """Only signs of the alphanumeric set, at most 53 squares a side; the picture is segno's of the same text."""
    document = made()
    code = segno.make_qr(document["paceline"]["code"], error="m", boost_error=False)
    drawn = re.search(r'<path[^>]* d="([^"]+)"', code.svg_inline(border=0))

    assert code.mode == "alphanumeric"
    assert len(code.matrix) <= 53
    assert drawn is not None
    assert drawn[1] in html(document)


@pytest.mark.skipif(browser.chromium() is None or not shutil.which("zbarimg"), reason="no Chromium, or no zbar")
def test_a_scanner_reads_the_code_from_a_picture_of_the_page(tmp_path: Path) -> None:
    """An independent reader of QR codes, on what a screen shows."""
    file = tmp_path / "page.html"
    file.write_text(html(made()))
    browser._run(["--window-size=1180,860", f"--screenshot={tmp_path / 'page.png'}", file.as_uri()])

    done = subprocess.run(
        ["zbarimg", "-q", "--raw", str(tmp_path / "page.png")], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == made()["paceline"]["code"]


@pytest.mark.skipif(browser.chromium() is None, reason="no Chromium")
def test_the_pdf_is_one_page_across(tmp_path: Path) -> None:
    """A4: 842 by 595 points, for a short name and for the longest."""
    for name in ("Ada", "Ada Lovelace-" * 7):
        file = tmp_path / "page.html"
        file.write_text(html(made(name=name)))

        page.write_pdf(file, tmp_path / "page.pdf")

        content = (tmp_path / "page.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
        assert len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) == 1
        assert box is not None
        assert [round(float(each)) for each in box.groups()] == [842, 595]
