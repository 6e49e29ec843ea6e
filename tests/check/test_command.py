"""`paceline check` from its arguments to its output and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.check.rule import PRELUDE
from paceline.cli.main import call

FAULTY = (
    PRELUDE
    + """
dist.init_process_group("gloo")
loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
model = DDP(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
)
LINE = PRELUDE.count("\n") + 3
RIGHT = FAULTY.replace("batch_size=8, shuffle=True", "batch_size=8, sampler=DistributedSampler(Numbers())")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a folder and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    return tmp_path


def checked(*words: str) -> dict[str, object]:
    """The JSON document of a check."""
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "check", "--format", "json", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def places(document: dict[str, object]) -> list[tuple[str, str, int]]:
    """Code, path and line of each finding."""
    return [(each["code"], each["path"], each["line"]) for each in document["findings"]]  # type: ignore[attr-defined]


def test_a_fault_is_printed_with_place_code_faults_and_repair(folder: Path, capsys: pytest.CaptureFixture[str]):
    """The two lines of a finding, the summary, and exit code 1."""
    (folder / "train.py").write_text(FAULTY)

    code = call(["check", "--select", "DP001", "train.py"])

    out = capsys.readouterr().out.splitlines()
    assert code == 1
    assert out[0].startswith(f"train.py:{LINE}:10: error DP001 no-sampler (F01")
    assert out[1].startswith("  next: pass sampler=DistributedSampler")
    assert out[2] == "1 error in 1 file of distributed training"


def test_no_findings_come_with_what_was_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]):
    """The summary counts what was left out, and unreadable files are named."""
    (folder / "train.py").write_text(RIGHT)
    (folder / "plain.py").write_text("import torch\n")
    (folder / "other.py").write_text("import os\n")
    (folder / "old.py").write_text("import torch\nprint 'no'\n")

    code = call(["check", "--select", "DP001"])

    out = capsys.readouterr().out.splitlines()
    assert code == 0
    assert out[0].startswith("old.py: not read: line 2: Python 2")
    assert out[1] == "no findings in 1 of 4 files (1 is without torch, 1 is not distributed, 1 could not be read)"


def test_a_folder_without_distributed_scripts_is_not_called_right(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Scripts of one process are counted and not judged."""
    (folder / "plain.py").write_text("import torch\n")

    code = call(["check"])

    assert code == 0
    assert capsys.readouterr().out == (
        "nothing was judged: none of 1 file is a distributed script (1 is not distributed)\n"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"import torch\nprint 'x'\n", "Python 2"),
        (b"import torch\ndef f(:\n", "invalid syntax"),
        (b"torch\0\1\2", "binary"),
        (b"# torch \xff\xfe\n", "encoding"),
        (b"# torch\n" * 300_000, "larger than"),
        (b"import torch\nx = " + b"(" * 5000 + b"1" + b")" * 5000, "nested"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_and_the_rest_goes_on(folder: Path, content: bytes, reason: str):
    """The reason is named, and findings in other files are reported."""
    (folder / "bad.py").write_bytes(content)
    (folder / "train.py").write_text(FAULTY)

    found = checked("--select", "DP001")

    files = found["files"]
    assert places(found) == [("DP001", "train.py", LINE)]
    assert files["unreadable"][0]["path"] == "bad.py"  # type: ignore[index]
    assert reason in files["unreadable"][0]["reason"]  # type: ignore[index]


def test_invalid_requests_exit_with_2_and_list_what_is_legal(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Missing paths, unknown rules, and nothing that could be read."""
    (folder / "bad.py").write_text("import torch\ndef f(:\n")

    assert call(["check", "nothing"]) == 2
    assert call(["check", "--select", "DP9"]) == 2
    assert "codes (DP001), prefixes (DP0), names (no-sampler)" in capsys.readouterr().err
    assert call(["check", "bad.py"]) == 2
    assert call(["check", "--explain", "DP9"]) == 2


def test_a_finding_in_a_module_that_two_scripts_use_is_one_finding(folder: Path):
    """It is reported in the module, and left out where only a script was named."""
    body, _, loop = FAULTY.partition("loader = DataLoader(Numbers(), batch_size=8, shuffle=True)\n")
    (folder / "loading.py").write_text(
        PRELUDE + "\ndef make_loader():\n    return DataLoader(Numbers(), batch_size=8, shuffle=True)\n"
    )
    for name in ("a.py", "b.py"):
        (folder / name).write_text(f"{body}from loading import make_loader\nloader = make_loader()\n{loop}")

    found = checked("--select", "DP001")

    assert places(found) == [("DP001", "loading.py", PRELUDE.count("\n") + 3)]
    assert places(checked("--select", "DP001", "a.py")) == []


def test_the_result_does_not_depend_on_processes_and_the_second_run_comes_from_the_cache(folder: Path):
    """One, two and three processes, and a cache, give equal results."""
    for number in range(40):
        (folder / f"train_{number:02}.py").write_text(FAULTY if number % 3 else RIGHT)

    from paceline.check.catalog import RULES
    from paceline.check.check_files import check_all, files_below, joined
    from paceline.check.result_cache import ResultCache
    from paceline.check.selection import Selection, Settings

    selection = Selection(Settings())
    shown = files_below([Path()])

    def run(workers: int | None, cache: ResultCache | None = None) -> object:
        return joined(check_all(list(shown), RULES, workers=workers, cache=cache), shown, selection)

    assert run(1) == run(2) == run(3, ResultCache(folder, RULES))
    cache = ResultCache(folder, RULES)
    assert len(cache.known(shown)) == 40
    assert run(1, cache) == run(1)


def test_a_cached_result_is_dropped_when_the_file_or_what_it_imports_changes(folder: Path):
    """Also when a module appears that an import did not find before."""
    body, _, loop = FAULTY.partition("loader = DataLoader(Numbers(), batch_size=8, shuffle=True)\n")
    maker = "\ndef make_loader():\n    return DataLoader(Numbers(), batch_size=8, {})\n"
    (folder / "train.py").write_text(f"{body}from loading import make_loader\nloader = make_loader()\n{loop}")
    words = ("--select", "DP001", ".")

    assert places(checked(*words)) == []  # there is no such module yet
    (folder / "loading.py").write_text(PRELUDE + maker.format("shuffle=True"))
    assert [path for _, path, _ in places(checked(*words))] == ["loading.py"]
    assert [path for _, path, _ in places(checked(*words))] == ["loading.py"]
    (folder / "loading.py").write_text(PRELUDE + maker.format("sampler=DistributedSampler(Numbers())"))
    assert places(checked(*words)) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"paths": ["a"], "signatures": [], "entries": {}}', b"\xff\0"])
def test_a_damaged_cache_is_ignored(folder: Path, content: bytes):
    """Empty, cut, inconsistent and binary files are computed again."""
    (folder / "train.py").write_text(FAULTY)
    before = checked("--select", "DP001")

    (file,) = (folder / ".cache" / "paceline" / "check").glob("*.json")
    file.write_bytes(content)

    assert checked("--select", "DP001") == before


def test_a_cache_that_cannot_be_written_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The result is printed all the same."""
    (folder / "train.py").write_text(FAULTY)
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))

    assert places(checked("--select", "DP001")) == [("DP001", "train.py", LINE)]


def test_settings_of_pyproject_are_taken_and_flags_replace_them(folder: Path):
    """select, exclude and per-file-ignores."""
    for path in ("train.py", "old/train.py", "made/train.py"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(FAULTY)
    (folder / "pyproject.toml").write_text(
        "[tool.paceline.check]\n"
        'select = ["no-sampler"]\nexclude = ["made"]\nper-file-ignores = { "old/*" = ["DP001"] }\n'
    )

    assert places(checked()) == [("DP001", "train.py", LINE)]
    assert [path for _, path, _ in places(checked("--exclude", "old"))] == ["made/train.py", "train.py"]
    assert places(checked("--ignore", "data")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("selects = []", "legal keys: select, ignore, exclude, per-file-ignores"),
        ('select = ["DP999"]', "codes:"),
        ('select = "DP001"', "no list of strings"),
        ("per-file-ignores = []", "no table"),
        ("select = [", "cannot read"),
    ],
)
def test_wrong_settings_exit_with_2(folder: Path, capsys: pytest.CaptureFixture[str], text: str, says: str):
    """The message lists what is legal."""
    (folder / "train.py").write_text(FAULTY)
    (folder / "pyproject.toml").write_text(f"[tool.paceline.check]\n{text}\n")

    assert call(["check", "train.py"]) == 2
    assert says in capsys.readouterr().err


def test_a_rule_that_fails_is_a_finding_about_the_rule(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """An info that names the rule and the exception; the exit code stays 0."""
    from paceline.check.catalog import RULES

    (folder / "train.py").write_text(FAULTY)

    def fails(self: object, script: object) -> object:
        raise RecursionError("too deep")

    monkeypatch.setattr(RULES[0], "check", fails)

    code = call(["check", "--select", "DP001", "--no-cache", "train.py"])

    assert code == 0
    assert (
        "train.py: info DP000 rule-failed: rule DP001 failed with RecursionError: too deep" in capsys.readouterr().out
    )


def test_notebooks_show_the_cell_and_the_line_within_it(folder: Path, capsys: pytest.CaptureFixture[str]):
    """In text and in JSON."""
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": PRELUDE},
        {"cell_type": "code", "source": "%matplotlib inline\n" + FAULTY.removeprefix(PRELUDE)},
    ]
    (folder / "train.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))

    call(["check", "--select", "DP001", "train.ipynb"])
    found = checked("--select", "DP001", "train.ipynb")

    assert "train.ipynb:cell 3:4:10: error DP001" in capsys.readouterr().out
    assert found["findings"][0]["line"] == 4  # type: ignore[index]
    assert found["findings"][0]["evidence"] == {"source": "read", "cell": 3}  # type: ignore[index]


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]):
    """A rule is found by its code and by its name."""
    assert call(["check", "--list-rules"]) == 0
    assert "DP001  error" in capsys.readouterr().out
    assert call(["check", "--explain", "no-sampler"]) == 0
    explained = capsys.readouterr().out
    assert "Why is this bad" in explained
    assert "# reported" in explained
    assert call(["check", "--explain", "DP001"]) == 0
    assert capsys.readouterr().out == explained


def test_statistics_count_findings_by_rule(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Instead of the findings."""
    for name in ("a.py", "b.py"):
        (folder / name).write_text(FAULTY)

    call(["check", "--select", "DP001", "--statistics"])

    assert capsys.readouterr().out.splitlines()[0].split() == ["2", "DP001", "error", "no-sampler"]


def test_torch_is_not_imported(folder: Path):
    """Nor libcst, nor numpy, in a whole check."""
    (folder / "train.py").write_text(FAULTY)
    code = (
        "import sys; from paceline.cli.main import call; call(['check', 'train.py']); "
        "print(sorted({'torch', 'libcst', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )

    assert done.stderr.strip() == "[]"
