"""The studies' harness: one record a cell, what is done is skipped, and every stop leaves it usable."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench.studies import minima, trial
from bench.studies.cell import Cell, final, interleaved
from bench.studies.cells import OutOfBudget, Study, carry_out, finished, read_all
from bench.studies.command import table
from bench.studies.pace import cost_lines, estimate_s, pace_of

from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir

STAND_IN = Path(__file__).with_name("stand_in_trainer.py")
REPOSITORY = STAND_IN.parents[2]


def cell(setting="a", seed=0, epochs=2, lr="0.01", **more):
    """A cell that the stand-in can run."""
    flags = {"--global-batch": "128", "--epochs": str(epochs), "--lr": lr}
    return Cell(setting, seed, flags, most_epochs=epochs, usual_epochs=epochs, **more)


@pytest.fixture
def told():
    """The lines that a study showed."""
    return []


@pytest.fixture
def study(tmp_path, told):
    """A study in a folder of its own, carried out by the stand-in."""
    return Study("trial", root=tmp_path, program=(sys.executable, str(STAND_IN)), tell=told.append)


def test_a_record_holds_the_command_and_every_evaluation_of_the_run(study):
    """What the run's events say is in the record, with command, versions and machine, and no path of this machine."""
    carry_out(study, [cell(epochs=3, lr="0.02", seed=5)])

    path = study.folder / "cells" / "a_seed5.json"
    record = json.loads(path.read_text())
    points = [(e["step"], e["samples"], e["elapsed_s"], e["metrics"]) for e in record["training"]["evaluations"]]
    assert points == [
        (469, 60_000, 4.69, {"accuracy": pytest.approx(0.8205), "loss": 1.0}),
        (938, 120_000, 9.38, {"accuracy": pytest.approx(0.8405), "loss": 0.5}),
        (1407, 180_000, 14.07, {"accuracy": pytest.approx(0.8605), "loss": pytest.approx(1 / 3)}),
    ]
    assert " ".join(record["command"]) == (
        "paceline train fashion-mnist --global-batch 128 --epochs 3 --lr 0.02 --seed 5 --workers 2 --format json"
    )
    assert (record["training"]["end"], record["training"]["used"]["lr"]) == ("finished", 0.02)
    assert record["versions"] == {"paceline": "0.0", "torch": "2.x"}
    assert record["machine"]["cores"] >= 1
    assert record["duration_s"] > 0
    assert final(record) == pytest.approx(0.8605)
    assert str(REPOSITORY) not in path.read_text()


def test_the_runs_directory_is_gone_when_the_record_is_made(study, monkeypatch, tmp_path):
    """Scratch runs leave nothing behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    carry_out(study, [cell()])

    assert list(scratch.iterdir()) == []


def test_a_second_call_runs_only_what_is_missing(study, told):
    """Finished cells are read; a missing one is measured."""
    cells = [cell(seed=0), cell(seed=1)]
    carry_out(study, cells)
    first, second = (study.file(one) for one in cells)
    first.unlink()
    stamp = second.stat().st_mtime_ns

    done = carry_out(study, cells)

    assert set(done) == {"a_seed0", "a_seed1"}
    assert first.exists()
    assert second.stat().st_mtime_ns == stamp
    assert "kept" in told[-1]


def test_a_cell_whose_command_changed_is_refused(study):
    """The table never holds two commands under one name, and the message shows both and the way on."""
    carry_out(study, [cell(lr="0.01")])

    with pytest.raises(PacelineError, match="another command") as caught:
        carry_out(study, [cell(lr="0.02")])

    assert "--lr 0.01" in str(caught.value)
    assert "--lr 0.02" in str(caught.value)
    assert "--redo" in caught.value.hint


def test_redo_measures_only_cells_whose_command_changed(study):
    """With redo, the changed cell is measured anew and the other one stays as it was."""
    carry_out(study, [cell("a", lr="0.01"), cell("b", lr="0.01")])
    stamp = study.file(cell("b")).stat().st_mtime_ns

    done = carry_out(replace(study, redo=True), [cell("a", lr="0.02"), cell("b", lr="0.01")])

    assert final(done["a_seed0"]) == pytest.approx(0.84)
    assert study.file(cell("b")).stat().st_mtime_ns == stamp


def test_a_cell_that_fails_stops_with_its_message_and_keeps_what_is_done(study):
    """The command's own words are in the error, no record is written for it, the one before it stays."""
    with pytest.raises(PacelineError, match="b_seed0 ended with exit code 1") as caught:
        carry_out(study, [cell("a"), cell("b", lr="66"), cell("c")])

    assert "told to fail" in caught.value.why
    assert [path.name for path in (study.folder / "cells").iterdir()] == ["a_seed0.json"]


def test_a_run_that_diverges_is_a_result(study, told):
    """It is recorded as diverged, with no accuracy, and the study goes on."""
    done = carry_out(study, [cell("a", lr="99"), cell("b")])

    assert done["a_seed0"]["training"]["end"] == "diverged"
    assert final(done["a_seed0"]) is None
    assert "b_seed0" in done
    assert any("diverged at step" in line for line in told)


def test_a_landscape_cell_keeps_the_result_that_its_run_wrote(study, monkeypatch, tmp_path):
    """Every number of result.json is in the record; the cell is refused when the run that it needs is missing."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    kept = cell("t", keep="runs/t")
    look = Cell("look", 0, {}, verb="landscape", target="runs/t", needs=("runs/t",), kind="sharpness")

    with pytest.raises(PacelineError, match="needs the run runs/t"):
        carry_out(study, [look])
    done = carry_out(study, [kept, look])

    result = done["look_seed0"]["result"]
    assert (result["target"], result["curvature_loss"], result["sam"]["value"]) == ("runs/t", 0.5, 0.125)
    assert result["sam"]["adaptive_value"] is None
    assert RunDir(tmp_path / "runs/t").exists()


def test_a_measurement_of_a_run_that_was_trained_anew_is_measured_anew(study, monkeypatch, tmp_path):
    """Another command of the run that it looks at counts like another command of its own: old numbers never stand
    beside new weights."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    look = Cell("look", 0, {}, verb="landscape", target="runs/t", needs=("runs/t",), kind="sharpness")
    carry_out(study, [cell("t", lr="0.01", keep="runs/t"), look])
    after = cell("t", lr="0.02", keep="runs/t")

    with pytest.raises(PacelineError, match="t_seed0 was made by another command"):
        carry_out(study, [after, look])
    with pytest.raises(PacelineError, match="look_seed0 was made by another command"):
        finished(study, [look, after])
    carry_out(replace(study, redo=True), [after, look])

    assert read_all(study.folder)["look_seed0"]["needs"] == {"runs/t": after.command}


def test_a_measurement_of_a_run_that_diverged_is_left_out(study, monkeypatch, tmp_path, told):
    """There are no weights of its end to look at: the study says so and goes on with the others."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    runs = [minima.trained(setting, 0) for setting in ("small", "large")]
    runs[1] = replace(runs[1], flags={**runs[1].flags, "--lr": "99"})
    looks = [minima.sharpness("large", 0), minima.sharpness("small", 0), minima.joined(("small", "large"), 0)]

    done = carry_out(study, [*runs, *looks], minima.unmeasurable)

    assert sorted(done) == ["large_seed0", "small-sharpness_seed0", "small_seed0"]
    assert sum("left out  large_seed0 diverged" in line for line in told) == 2


def test_a_kept_run_that_was_lost_is_trained_again_while_it_is_needed(study, monkeypatch, tmp_path):
    """A finished cell whose run is gone counts as open as long as an open cell needs that run, and only then."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    monkeypatch.setattr("bench.studies.cells.ROOT", tmp_path)
    kept = cell("t", keep="runs/t")
    look = Cell("look", 0, {}, verb="landscape", target="runs/t", needs=("runs/t",))
    carry_out(study, [kept])
    RunDir(tmp_path / "runs/t").info.unlink()

    assert list(finished(study, [kept])) == ["t_seed0"]
    assert list(finished(study, [kept, look])) == []


def test_a_kept_run_begins_in_an_empty_directory(study, monkeypatch, tmp_path):
    """What a call that was stopped left behind is gone, since the trainer refuses a directory that holds a run."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    left_behind = tmp_path / "runs/t/events/rank-00001.jsonl"
    left_behind.parent.mkdir(parents=True)
    left_behind.touch()

    carry_out(study, [cell("t", keep="runs/t")])

    assert RunDir(tmp_path / "runs/t").exists()
    assert not left_behind.exists()


def test_a_kept_run_that_failed_is_not_kept(study, monkeypatch, tmp_path):
    """Only a run that ended well stays for others to measure."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)

    with pytest.raises(PacelineError, match="exit code 1"):
        carry_out(study, [cell("t", lr="66", keep="runs/t")])

    assert not (tmp_path / "runs/t").exists()


def test_a_run_that_diverged_late_has_no_final_accuracy(study):
    """What it reached before its loss was no number any more is not what it ended with."""
    done = carry_out(study, [cell("a")])
    record = done["a_seed0"]
    record["training"]["end"] = "diverged"

    assert record["training"]["evaluations"]
    assert final(record) is None


def test_settings_take_turns_over_seeds():
    """Each block of as many cells as there are settings holds every setting once, all with one seed."""
    cells = interleaved([cell("a"), cell("b"), cell("c")], [7, 8, 9])

    blocks = [cells[start : start + 3] for start in (0, 3, 6)]
    assert [{one.seed for one in block} for block in blocks] == [{7}, {8}, {9}]
    assert all({one.setting for one in block} == {"a", "b", "c"} for block in blocks)


def test_two_settings_of_one_name_are_refused():
    """A name is a file; two cells cannot share it."""
    with pytest.raises(ValueError, match="one name"):
        interleaved([cell("a"), cell("a", lr="0.5")], [0])


def fake_record(setting="a", epochs=4.0, elapsed_s=80.0, duration_s=90.0, batch=128):
    """What the cost is estimated from."""
    training = {"epochs": epochs, "elapsed_s": elapsed_s, "global_batch": batch, "train_samples": 60_000}
    return {"setting": setting, "kind": "train", "duration_s": duration_s, "training": training}


def test_the_cost_comes_from_a_stated_default_until_cells_are_done():
    """10 epochs at 10 s and 5 s around them, and the line says that this is a default."""
    ten = cell(epochs=10)

    seconds = estimate_s(ten, pace_of([]))
    lines = cost_lines([ten], [ten], [], budget_s=3600)

    assert seconds == 105.0
    assert "1 of 1 cell(s) to run, about 1.8 min; estimated from a default of 10 s an epoch" in lines[0]
    assert "60 min in all" in lines[1]


def test_the_cost_follows_the_cells_that_are_done():
    """20 s an epoch were measured at this batch and 10 s around it; another batch keeps its default."""
    pace = pace_of([fake_record("other")])

    assert estimate_s(cell(epochs=10), pace) == pytest.approx(210.0)
    assert estimate_s(Cell("b", 0, {"--global-batch": "32"}, 10, 10, slowness=2.0), pace) == pytest.approx(210.0)
    assert estimate_s(Cell("c", 0, {"--global-batch": "64"}, 10, 10), pace) == pytest.approx(110.0)


def test_a_setting_that_stopped_early_before_is_expected_to_do_so_again():
    """Usual cost takes the epochs that other seeds needed; the most it can cost does not."""
    pace = pace_of([fake_record("a", epochs=4.0)])
    target = Cell("a", 1, {"--global-batch": "128"}, most_epochs=60, usual_epochs=30)

    assert estimate_s(target, pace) == pytest.approx(4 * 20 + 10)
    assert estimate_s(target, pace, most=True) == pytest.approx(60 * 20 + 10)


def test_no_cell_is_begun_that_would_pass_the_budget(study):
    """What fits is run, then the study stops with the budget that would go on; nothing else was started."""
    short = replace(study, budget_s=20.0)

    with pytest.raises(OutOfBudget, match=r"limit of 0\.3 min") as caught:
        carry_out(short, [cell("a", epochs=1), cell("b", epochs=50)])

    assert list(read_all(study.folder)) == ["a_seed0"]
    assert "--budget-minutes" in caught.value.hint


def test_a_study_that_may_fill_its_budget_leaves_out_only_what_does_not_fit(study, told):
    """A long cell is passed over, the short one after it is run, and the line says why."""
    short = replace(study, budget_s=20.0)

    done = carry_out(short, [cell("long", epochs=50), cell("b", epochs=1)], fit=True)

    assert list(done) == ["b_seed0"]
    assert "left out" in told[0]
    assert "0.0 min are spent" in told[0]


def test_the_table_shows_what_is_done_and_runs_nothing(study):
    """A dry run lists every cell with its command and state."""
    carry_out(study, [cell("a")])

    lines = table(study, [cell("a"), cell("b")])

    assert [line.split()[:2] for line in lines[1:]] == [["a_seed0", "done"], ["b_seed0", "to"]]
    assert "paceline train fashion-mnist --global-batch 128" in lines[2]
    assert list(read_all(study.folder)) == ["a_seed0"]


@pytest.mark.parametrize("content", ["{", '{"schema": 2}', "[]"], ids=["torn", "later schema", "no object"])
def test_a_record_that_cannot_be_read_is_named(study, content):
    """A damaged record stops the study with the file's name instead of a traceback."""
    path = study.file(cell())
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(PacelineError, match=r"a_seed0\.json"):
        carry_out(study, [cell()])


def is_alive(pid):
    """Whether a process of that id runs; one that ended but was not waited for does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_leaves_the_finished_cells_and_nothing_half_done(tmp_path, number, code):
    """Ctrl-C or SIGTERM ends the running cell and its process; the record before it stays, no other file is left."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from bench.studies.cell import Cell\n"
        "from bench.studies.cells import Study, carry_out\n"
        "from bench.studies.command import finish\n"
        "def cell(name, lr):\n"
        "    return Cell(name, 0, {'--global-batch': '128', '--epochs': '1', '--lr': lr}, 1, 1)\n"
        f"root, program = Path({str(tmp_path / 'records')!r}), (sys.executable, {str(STAND_IN)!r})\n"
        "study = Study('trial', root=root, program=program)\n"
        "finish(lambda: carry_out(study, [cell('a', '0.01'), cell('hangs', '77')]))\n"
    )
    scratch, started = tmp_path / "scratch", tmp_path / "started"
    scratch.mkdir()
    env = {**os.environ, "TMPDIR": str(scratch), "STAND_IN_STARTED": str(started), "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    process.send_signal(number)
    _, err = process.communicate(timeout=60)

    assert not is_alive(int(started.read_text()))
    assert process.returncode == code
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert [path.name for path in (tmp_path / "records/trial/cells").iterdir()] == ["a_seed0.json"]
    assert list(scratch.iterdir()) == []
