"""`--diff` and `--fix`."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path

import pytest

from paceline.check.catalog import RULES
from paceline.check.edits import Edit, add_keyword, apply
from paceline.check.rule import PRELUDE
from paceline.cli.main import call
from tests.check.rule_cases import violations

BROKEN = (
    PRELUDE
    + """
dist.init_process_group("gloo")
data = Numbers()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=True)
second = DataLoader(data, shuffle=True, sampler=sampler)
model = DDP(nn.Linear(2, 1))
"""
)
WORDS = ("--select", "DP003", "train.py")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a folder and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    return tmp_path


def test_diff_shows_the_repair_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code is that of the repaired file."""
    (folder / "train.py").write_text(BROKEN)

    code = call(["check", "--diff", *WORDS])

    out = capsys.readouterr().out
    assert code == 0
    assert "-loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=True)\n" in out
    assert "+loader = DataLoader(data, batch_size=8, sampler=sampler)\n" in out
    assert (folder / "train.py").read_text() == BROKEN


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fix_repairs_all_files_and_leaves_everything_else_as_it_was(folder: Path, newline: str):
    """Line ends, other characters and permissions stay, and a second run changes nothing."""
    before = "# é\n" + BROKEN.replace("\n", newline)
    (folder / "train.py").write_bytes(before.encode())
    (folder / "train.py").chmod(0o755)

    code = call(["check", "--fix", *WORDS])

    after = (folder / "train.py").read_bytes().decode()
    expected = before.replace(", shuffle=True", "")
    assert code == 0
    assert after == expected
    assert (folder / "train.py").stat().st_mode & 0o777 == 0o755
    assert call(["check", "--diff", *WORDS]) == 0
    assert (folder / "train.py").read_bytes().decode() == after


def test_what_a_comment_accepts_is_not_repaired(folder: Path):
    """Other findings of the file are."""
    text = BROKEN.replace("shuffle=True)\n", "shuffle=True)  # paceline: ignore[DP003] on purpose\n")
    (folder / "train.py").write_text(text)

    call(["check", "--fix", *WORDS])

    assert "shuffle=True)  # paceline" in (folder / "train.py").read_text()
    assert "second = DataLoader(data, sampler=sampler)" in (folder / "train.py").read_text()


def test_an_encoding_of_the_file_stays(folder: Path):
    """The file is written in its own encoding."""
    before = "# -*- coding: latin-1 -*-\n# é\n" + BROKEN
    (folder / "train.py").write_bytes(before.encode("latin-1"))

    call(["check", "--fix", *WORDS])

    assert "# é\n" in (folder / "train.py").read_bytes().decode("latin-1")
    assert "shuffle=True" not in (folder / "train.py").read_bytes().decode("latin-1")


def test_notebooks_are_not_repaired_and_a_line_says_so(folder: Path, capsys: pytest.CaptureFixture[str]):
    """The finding stays, and with it exit code 1."""
    text = json.dumps({"cells": [{"cell_type": "code", "source": BROKEN}], "nbformat": 4})
    (folder / "train.ipynb").write_text(text)

    code = call(["check", "--fix", "--select", "DP003", "train.ipynb"])

    assert code == 1
    assert "train.ipynb: repairs of notebooks are not made" in capsys.readouterr().err
    assert (folder / "train.ipynb").read_text() == text


def test_edits_are_placed_by_the_lines_that_python_counts():
    """Form feeds and line separators end no line."""
    source = "x = 1  # a form feed \x0c and a line separator \u2028 end no line\n\x0cf(é, 2)\n"
    call_node = ast.parse(source).body[1].value  # type: ignore[attr-defined]

    assert apply(source, [add_keyword(call_node, "k=3", source)]).endswith("f(é, 2, k=3)\n")
    assert apply("a\rb\r\nc", [Edit((3, 0), (3, 1), "d")]) == "a\rb\r\nd"


@pytest.mark.parametrize(
    ("code", "name", "before", "after"),
    [
        ("DP035", "the inner model", "F.mse_loss(model.module(x), y)", "F.mse_loss(model(x), y)"),
        ("DP036", "two names", "F.mse_loss(net(x), y)", "F.mse_loss(ddp(x), y)"),
        ("DP079", "not strict", "torch.save(model.state_dict(),", "torch.save(model.module.state_dict(),"),
        ("DP048", "in one expression", "DDP(torch.compile(nn.Linear(2, 1)))", "torch.compile(DDP(nn.Linear(2, 1)))"),
        (
            "DP011",
            "the global generator",
            "random_split(Numbers(), [800, 200])",
            "random_split(Numbers(), [800, 200], generator=torch.Generator().manual_seed(0))",
        ),
        (
            "DP086",
            "a progress bar",
            "sampler=DistributedSampler(Numbers()))):",
            "sampler=DistributedSampler(Numbers())), disable=dist.get_rank() != 0):",
        ),
    ],
)
def test_a_repair_changes_the_call_and_nothing_else(code: str, name: str, before: str, after: str):
    """The rest of the script keeps its text."""
    rule = next(each for each in RULES if each.code == code)
    source = PRELUDE + textwrap.dedent(rule.invalid[name])

    fixed = apply(source, [edit for each in violations(rule, rule.invalid[name]) for edit in each.edits])

    assert source.count(before) == 1
    assert fixed == source.replace(before, after)
