"""`paceline landscape` from the command line: what people see, what is left, and what an interruption costs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import Paceline

QUICK = ("--points", "5", "--top", "2", "--probes", "8", "--steps", "30", "--samples", "200")
CNN = str(Path(__file__).parents[1] / "files" / "cnn_task.py")
SMALL = ("--curvature-samples", "200", "--chunk", "50")


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of digits with all its checkpoints."""
    run = tmp_path_factory.mktemp("trained") / "A"
    flags = ["train", "digits", "--epochs", "3", "--workers", "1", "--keep", "100", "--run-dir", str(run)]
    done = subprocess.run([sys.executable, "-m", "paceline", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture
def trained(tmp_path: Path, trained_once: Path) -> Path:
    """That run, in `A`."""
    return Path(shutil.copytree(trained_once, tmp_path / "A"))


@pytest.fixture(scope="module")
def undisturbed(trained_once: Path) -> tuple[list[str], Path]:
    """Flags of a measurement, and its run directory."""
    flags = ["--measure", "surface,eigenvalues", "--points", "25", "--precision", "fp64", "--workers", "2"]
    whole = trained_once.parent / "whole"
    command = [sys.executable, "-m", "paceline", "landscape", str(trained_once), *flags, "--run-dir", str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return flags, whole


def test_a_measurement_says_what_it_costs_and_what_it_found(tmp_path: Path, trained: Path, paceline: Paceline) -> None:
    """The cost first, a line a measure, a card with errors and the warning; files as documented."""
    measures = "surface,line,eigenvalues,trace,trajectory"

    done = paceline("landscape", "A", *QUICK, *SMALL, "--measure", measures, "--workers", "2", "--run-dir", "L")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "2 × cpu, gloo · fp32"
    assert "note: trajectory: 3 passes over 200 samples, about 1 s" in lines
    cost = next(index for index, line in enumerate(lines) if line.startswith("note: cost: about"))
    taken = [lines.index(next(line for line in lines if line.startswith(f"{name}: "))) for name in measures.split(",")]
    assert cost < min(taken)
    for part in ("the model has no batch norm", "residual", "95 % interval", "Dinh", "L/report.html", "L/surface.png"):
        assert part in " ".join(done.stdout.split())
    assert {path.name for path in (tmp_path / "L").iterdir()} >= {
        "run.json", "result.json", "landscape.npz", "report.html", "surface.png", "line.png", "events",
    }  # fmt: skip
    info = json.loads((tmp_path / "L" / "run.json").read_text())
    assert (info["verb"], info["facts"]["batch_norm"]) == ("landscape", "the model has no batch norm")


def test_arrays_have_the_names_that_are_documented(tmp_path: Path, trained: Path, paceline: Paceline) -> None:
    """Each stands in the table of names, with the shape that it states."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "landscape.md").read_text()
    flags = ["--measure", "surface,line,density,eigenvalues,trace,trajectory", "--run-dir", "L", "--workers", "1"]

    done = paceline("landscape", "A", *QUICK, *SMALL, *flags)

    assert done.returncode == 0, done.stderr
    arrays = np.load(tmp_path / "L" / "landscape.npz")
    for name in arrays.files:
        assert f"`{name.replace('accuracy', '<metric>')}`" in page
    assert arrays["surface_loss"].shape == arrays["surface_accuracy"].shape == (5, 5)
    assert arrays["trajectory_xy"].shape == (3, 2)
    assert arrays["trajectory_loss"][-1] == arrays["line_loss"][2] == arrays["surface_loss"][2, 2]


@pytest.mark.slow
def test_json_is_one_object_and_the_same_for_every_number_of_workers(trained: Path, paceline: Paceline) -> None:
    """Nothing else on stdout; in float64, one and two workers agree to 1e-10."""
    flags = [*QUICK, *SMALL, "--precision", "fp64", "--format", "json", "--measure", "line,eigenvalues,trace,sam"]

    found = []
    for workers in ("1", "2"):
        done = paceline("landscape", "A", *flags, "--workers", workers)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        found.append(json.loads(done.stdout))

    one, two = found
    assert two["line"]["loss"] == one["line"]["loss"]
    assert two["eigenvalues"]["values"] == pytest.approx(one["eigenvalues"]["values"], rel=1e-10)
    assert two["trace"]["weighted_value"] == pytest.approx(one["trace"]["weighted_value"], rel=1e-10)
    assert two["sam"]["adaptive_value"] == pytest.approx(one["sam"]["adaptive_value"], rel=1e-10)
    assert any("not a property of what a network computes" in warning for warning in one["warnings"])


def test_fresh_weights_are_those_that_a_training_starts_from(tmp_path: Path, paceline: Paceline) -> None:
    """A task in place of a run; its loss is that of a training with rate 0 and the same seed."""
    still = ["--lr", "0", "--steps", "1", "--seed", "4", "--workers", "1", "--weight-decay", "0", "--run-dir", "still"]
    trained = paceline("train", "digits", *still, "--format", "json")
    assert trained.returncode == 0, trained.stderr

    flags = ["--measure", "line", "--points", "3", "--on", "eval", "--seed", "4", "--format", "json"]
    done = paceline("landscape", "digits", *flags, "--workers", "1")

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    wanted = next(metric for metric in json.loads(trained.stdout)["metrics"] if metric["name"] == "loss")
    assert result["checkpoint"] is None
    assert result["loss"] == pytest.approx(wanted["final"]["value"], rel=1e-5)
    assert result["samples"] == 360


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_measurement_goes_on_where_it_was(
    tmp_path: Path, trained: Path, undisturbed: tuple[list[str], Path], paceline: Paceline, number: int, code: int
) -> None:
    """What was computed is kept and is not computed again; the numbers are those of an undisturbed one."""
    flags, whole = undisturbed
    command = [sys.executable, "-m", "paceline", "landscape", "A", *flags, "--run-dir", "L"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    points = tmp_path / "L" / "parts" / "surface" / "rank-00001.jsonl"
    deadline = time.monotonic() + 60
    while not (points.exists() and points.stat().st_size > 200) and time.monotonic() < deadline:
        time.sleep(0.01)

    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    kept = points.read_text().count("\n")
    resumed = paceline("landscape", "--resume", "L", "--workers", "1", "--format", "json")

    assert process.returncode == code, said
    assert "paceline landscape --resume L" in said
    assert 0 < kept < 312
    assert points.read_text().count("\n") == kept
    assert resumed.returncode == 0, resumed.stderr
    one, other = (np.load(run / "landscape.npz") for run in (whole, tmp_path / "L"))
    assert np.array_equal(one["surface_loss"], other["surface_loss"])
    assert json.loads(resumed.stdout)["eigenvalues"]["values"] == pytest.approx(
        json.loads((whole / "result.json").read_text())["eigenvalues"]["values"], rel=1e-10
    )


def test_a_directory_called_like_a_task_does_not_hide_it(tmp_path: Path, paceline: Paceline) -> None:
    """Data often lie in one."""
    (tmp_path / "digits").mkdir()

    flags = ["--measure", "line", "--points", "3", "--samples", "50", "--workers", "1", "--format", "json"]
    done = paceline("landscape", "digits", *flags)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"] is None


@pytest.mark.slow
def test_a_task_that_was_edited_meanwhile_is_noticed(tmp_path: Path, paceline: Paceline) -> None:
    """What was kept belongs to the loss as it was."""
    task = Path(shutil.copy(CNN, tmp_path / "task.py"))
    flags = ["--measure", "line", "--points", "3", "--samples", "50", "--workers", "1", "--run-dir", "L"]
    done = paceline("landscape", "task.py", *flags)
    assert done.returncode == 0, done.stderr
    task.write_text(task.read_text().replace("default_rng(0)", "default_rng(1)"))

    resumed = paceline("landscape", "--resume", "L")

    assert resumed.returncode == 2, resumed.stdout
    assert "task.py has another loss than when this measurement was begun" in resumed.stderr
    assert "Traceback" not in resumed.stderr


REFUSED = {
    "unknown task": (["digit"], "did you mean digits"),
    "no such run": (["runs/none"], "no run directory runs/none"),
    "nothing named": ([], "a run directory; or a task"),
    "too many samples": (["A", "--samples", "5000"], "1 <= value <= 1,437"),
    "a path of a task": (["digits", "--measure", "trajectory"], "paceline train digits --keep 100"),
    "with nothing": (["A", "--measure", "interpolation"], "--with RUN2"),
    "with a task": (["A", "--with", "digits"], "not a run directory"),
    "a bad number": (["A", "--points", "1"], "2 <= value"),
    "one sample for a batch norm": ([CNN, "--samples", "1"], "more samples in a chunk"),
    "a seed beyond": (["A", "--seed", str(2**63)], "up to 9223372036854775807"),
}


def test_what_cannot_be_done_is_one_message_and_leaves_nothing(
    tmp_path: Path, trained: Path, paceline: Paceline
) -> None:
    """Exit code 2, no traceback, no directory; also where only a worker can know."""
    for name, (arguments, hint) in REFUSED.items():
        done = paceline("landscape", *arguments, "--workers", "1")

        assert (name, done.returncode) == (name, 2), done.stderr
        assert done.stderr.startswith("error: "), name
        assert hint in done.stderr, name
        assert "Traceback" not in done.stderr, name
        assert not (tmp_path / "runs").exists(), name


@pytest.mark.slow
def test_a_resumed_measurement_must_be_the_same(tmp_path: Path, trained: Path, paceline: Paceline) -> None:
    """Other settings, another verb's run, other weights of either run: each is refused."""

    def digest_of(run: str, step: int) -> str:
        manifest = json.loads((tmp_path / run / "checkpoints" / f"step-{step:08d}" / "manifest.json").read_text())
        return manifest["files"]["model.safetensors"]["sha256"]

    flags = ["--with", "A", "--with-checkpoint", "46", "--measure", "interpolation", "--points", "3", "--workers", "1"]
    done = paceline("landscape", "A", *flags, "--run-dir", "L")
    assert done.returncode == 0, done.stderr

    other = paceline("landscape", "--resume", "L", "--points", "5")
    verb = paceline("landscape", "--resume", "A")
    again = paceline("landscape", "A", "--run-dir", "L")
    info = json.loads((tmp_path / "L" / "run.json").read_text())
    facts = dict(info["facts"])
    result = json.loads((tmp_path / "L" / "result.json").read_text())
    info["facts"]["weights"] = "others"
    (tmp_path / "L" / "run.json").write_text(json.dumps(info))
    weights = paceline("landscape", "--resume", "L")
    info["facts"] |= {"weights": facts["weights"], "other_weights": "others"}
    (tmp_path / "L" / "run.json").write_text(json.dumps(info))
    end = paceline("landscape", "--resume", "L")

    assert (facts["weights"], facts["other_weights"]) == (digest_of("A", 69), digest_of("A", 46))
    assert (result["weights"], result["interpolation"]["other_weights"]) == (facts["weights"], facts["other_weights"])
    assert [each.returncode for each in (other, verb, again, weights, end)] == [2, 2, 2, 2, 2]
    assert "--points 3, not --points 5" in other.stderr
    assert "a run of paceline train" in verb.stderr
    assert "already holds a run" in again.stderr
    assert "A has other weights" in weights.stderr
    assert "A has other weights" in end.stderr
