"""Tests of the repaired twins: each faulty script has one, and it shows neither its fault nor what it is."""

import ast
import io
import re
import tokenize

import pytest

from tests.zoo.catalog import scripts
from tests.zoo.repairs import REPAIRS, bare, repaired

FAULTY = [each for each in scripts() if each.faulty]
EACH = pytest.mark.parametrize("script", FAULTY, ids=lambda each: each.slug)


def test_each_faulty_script_has_a_repair():
    """The table names every faulty script and nothing else."""
    assert set(REPAIRS) == {each.slug for each in FAULTY}


@EACH
def test_a_twin_is_a_script_that_differs(script):
    """Every edit is found once, and the code changes."""
    twin = repaired(script)

    compile(twin, script.slug, "exec")
    assert ast.dump(ast.parse(twin)) != ast.dump(ast.parse(bare(script.path.read_text(encoding="utf-8"))))


@EACH
def test_a_twin_says_nothing_about_the_zoo(script):
    """Neither the header nor a comment gives away that the script once had a fault."""
    twin = repaired(script)
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(twin).readline) if t.type == tokenize.COMMENT]

    assert ast.get_docstring(ast.parse(twin))
    assert not re.search(r"^(zoo|faults|silent|observable|ends):", twin, re.MULTILINE)
    assert not any("fault" in comment for comment in comments)


def test_the_bare_source_keeps_its_code(tmp_path):
    """Only the header and the marks go; text that looks like a mark stays."""
    source = '"""Train nothing.\n\nzoo: faulty\nfaults: F01\nsilent: yes\n"""\n\nx = "# fault"\ny = 1  # fault\n'

    assert bare(source) == '"""Train nothing."""\n\nx = "# fault"\ny = 1\n'
