"""Tests of the zoo's catalog: every header parses, and the zoo keeps its size and its marks."""

import re
import textwrap

import pytest

from tests.zoo.catalog import ZOO, HeaderError, parse, scripts

SCRIPTS = scripts()
FAULTY = [s for s in SCRIPTS if s.faulty]
CORRECT = [s for s in SCRIPTS if not s.faulty]


def write(tmp_path, text, kind="faulty"):
    """Write a script below a directory of its kind."""
    path = tmp_path / kind / "example.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(text).lstrip())
    return path


def test_every_script_is_in_the_catalog():
    """Each Python file below faulty/ and correct/ has a header and appears once."""
    files = {p for kind in ("faulty", "correct") for p in (ZOO / kind).rglob("*.py")}

    assert {s.path for s in SCRIPTS} == files
    assert len(SCRIPTS) == len(files)


def test_slugs_are_unique():
    """No two scripts share a file name, also not across the two directories."""
    slugs = [s.slug for s in SCRIPTS]

    assert len(slugs) == len(set(slugs))


def test_the_zoo_is_large_enough():
    """There are at least 40 faulty and 30 correct scripts."""
    assert len(FAULTY) >= 40
    assert len(CORRECT) >= 30


@pytest.mark.parametrize("script", FAULTY, ids=lambda s: s.slug)
def test_faulty_scripts_name_their_fault_and_mark_its_lines(script):
    """A faulty script has one to three fault ids and one to three lines with `# fault`."""
    assert 1 <= len(script.faults) <= 3
    assert len(set(script.faults)) == len(script.faults)
    assert all(re.fullmatch(r"F\d{2,3}", fault) for fault in script.faults)
    assert 1 <= len(script.fault_lines) <= 3


@pytest.mark.parametrize("script", CORRECT, ids=lambda s: s.slug)
def test_correct_scripts_name_no_fault_and_mark_no_line(script):
    """A correct script has neither fault ids nor `# fault` comments."""
    assert script.faults == ()
    assert script.fault_lines == ()
    assert not script.silent


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.slug)
def test_scripts_have_the_size_of_a_small_script(script):
    """Scripts stay readable on a few screens and use a process group, except correct ones of a single process."""
    source = script.path.read_text(encoding="utf-8")
    alone = script.world == 1 and not script.faulty

    assert len(source.splitlines()) <= 150
    assert "init_process_group" in source or alone or script.needs in ("accelerate", "lightning", "transformers")


def test_a_header_is_read_with_its_defaults(tmp_path):
    """Keys that are left out get their documented defaults, and fault lines count from 1."""
    path = write(
        tmp_path,
        '''
        """Train nothing.

        zoo: faulty
        faults: F37, F38
        silent: yes
        args: --epochs 2 --name "a b"
        """

        x = 1  # fault
        y = "# fault"
        ''',
    )

    script = parse(path)

    assert script.faults == ("F37", "F38")
    assert script.silent
    assert script.args == ("--epochs", "2", "--name", "a b")
    assert (script.world, script.launcher, script.needs, script.observable) == (2, "any", None, True)
    assert script.ends == "done"
    assert script.fault_lines == (9,)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("zoo: maybe", "legal values: faulty, correct"),
        ("zoo: correct", "the directory is 'faulty'"),
        ("zoo: faulty\nsilent: yes", "missing key 'faults'"),
        ("zoo: faulty\nfaults: 37\nsilent: yes", "'37' is not a fault id"),
        ("zoo: faulty\nfaults: F37\nsilent: perhaps", "legal values: yes, no"),
        ("zoo: faulty\nfaults: F37\nsilent: yes\nworld: zero", "not a positive integer"),
        ("zoo: faulty\nfaults: F37\nsilent: yes\nobservable: no", "observable: no, <reason>"),
        ("zoo: faulty\nfaults: F37\nsilent: yes\nends: well", "legal values: done, crash, hang"),
        ("zoo: faulty\nfaults: F37\nsilent: yes\ncolor: red", "unknown key 'color'; legal keys: zoo"),
        ("zoo: faulty\nzoo: faulty", "given twice"),
        ("a sentence without a key", "is not a 'key: value' line"),
    ],
)
def test_a_malformed_header_is_refused_with_its_reason(tmp_path, header, message):
    """The error names the file, the wrong value and the legal ones."""
    path = write(tmp_path, f'"""Train nothing.\n\n{header}\n"""\n')

    with pytest.raises(HeaderError, match=re.escape(message)) as error:
        parse(path)

    assert str(path) in str(error.value)


def test_a_script_without_a_docstring_is_refused(tmp_path):
    """A file without a header cannot slip into the zoo."""
    with pytest.raises(HeaderError, match="no docstring"):
        parse(write(tmp_path, "x = 1\n"))
