from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.syntax.notebook_cells import cell_of
from paceline.syntax.source_files import MAX_BYTES, Source, Unreadable, parse, python_files, read_bytes

UNREADABLE = {
    "Python 2": (b"print 'hello'\n", "Python 2"),
    "a syntax error": (b"def f(:\n", "line 1: "),
    "binary data": (b"\0\1\2torch", "binary"),
    "an unknown encoding": (b"# -*- coding: klingon -*-\n", "klingon"),
    "bytes of another encoding": (b"x = '\xff'\n", "encoding"),
    "deep nesting": (b"x = " + b"(" * 500 + b")" * 500, ""),
}


@pytest.mark.parametrize(("content", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_parsed_is_reported_with_the_reason(content: bytes, reason: str):
    """The reason is one that a user can act on."""
    found = parse(Path("a.py"), content)

    assert isinstance(found, Unreadable)
    assert reason in found.reason


def test_a_huge_file_is_not_read(tmp_path: Path):
    """A file of generated data does not fill the memory."""
    path = tmp_path / "huge.py"
    path.write_bytes(b"#" * (MAX_BYTES + 1))

    assert isinstance(read_bytes(path), Unreadable)


def test_folders_are_searched_in_order_without_hidden_and_installed_ones(tmp_path: Path):
    """Files come in order of name; notebooks count."""
    for name in ("b.py", "a.py", "n.ipynb", ".git/x.py", "venv/y.py", "sub/c.py", "sub/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()

    found = [str(each.relative_to(tmp_path)) for each in python_files([tmp_path])]

    assert found == ["a.py", "b.py", "n.ipynb", "sub/c.py"]


def notebook(*cells: tuple[str, str]) -> bytes:
    """A notebook of cells, each with its type and text."""
    return json.dumps({"cells": [{"cell_type": kind, "source": text} for kind, text in cells], "nbformat": 4}).encode()


def test_code_cells_of_a_notebook_become_one_text_without_magics():
    """Line numbers lead back to the cell."""
    content = notebook(
        ("markdown", "# Title"),
        ("code", "%matplotlib inline\nimport torch\n!ls\nfiles = !ls\nhelp?"),
        ("code", "%%bash\nls -l"),
        ("code", "x = torch.ones(3)"),
    )

    found = parse(Path("n.ipynb"), content)

    assert isinstance(found, Source)
    assert found.text.splitlines() == [
        "pass",
        "import torch",
        "pass",
        "files = None",
        "pass",
        "pass",
        "pass",
        "x = torch.ones(3)",
    ]
    assert cell_of(found.cells, 2) == (2, 2)
    assert cell_of(found.cells, 8) == (4, 1)


def test_a_damaged_notebook_is_reported():
    """A notebook that is no JSON, or has no cells, is reported as unreadable."""
    assert isinstance(parse(Path("n.ipynb"), b"{"), Unreadable)
    assert isinstance(parse(Path("n.ipynb"), b'{"cells": 3}'), Unreadable)
