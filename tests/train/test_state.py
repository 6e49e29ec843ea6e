"""What a run carries is put down and taken up to the bit, on each rank its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.checkpoint import manifest
from paceline.checkpoint.state import STATE_FILE, load_state
from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.train import training_state
from tests.train import ranks


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of two ranks, and what each rank said about it."""
    folder = tmp_path_factory.mktemp("run")
    return folder, run_ranks(ranks.saved_and_loaded, 2, str(folder))


def test_a_restored_run_is_the_one_that_was_saved(saved) -> None:
    """Weights, optimizer, progress, each rank's own buffers and random numbers; no note is needed."""
    _, results = saved

    for result in results:
        assert result["notes"] == []
        assert all(result[name] for name in ("weights", "momentum", "buffers", "random", "average"))
        assert result["rate"] == 0.1
        progress = result["progress"]
        assert (progress.step, progress.samples, progress.reached, progress.session) == (12, 99, 1, 3)
        assert progress.elapsed_s > 0
    own = [result["own"]["1.running_mean"] for result in results]
    assert not np.array_equal(own[0], own[1])


def test_the_model_file_holds_the_mean_statistics_that_anyone_would_evaluate_with(saved) -> None:
    """numpy takes the mean over ranks; both ranks read the same file."""
    _, results = saved

    for name in ("1.running_mean", "1.running_var"):
        every = np.stack([result["own"][name] for result in results])
        np.testing.assert_allclose(results[0]["file"][name], every.mean(axis=0), rtol=1e-14)
    assert all(np.array_equal(a, results[1]["file"][n]) for n, a in results[0]["file"].items())


def test_rank_zero_writes_one_checkpoint_and_says_so(saved) -> None:
    """An event after it is complete."""
    folder, results = saved

    assert results[0]["checkpoints"] == [12]
    assert manifest.damage(folder / "checkpoints" / "step-00000012") is None
    assert manifest.read_manifest(folder / "checkpoints" / "step-00000012").world == 2


@pytest.mark.parametrize("world", [1, 3])
def test_on_another_number_of_ranks_the_mean_statistics_are_taken_and_that_is_said(saved, world: int) -> None:
    """Random numbers are each rank's new ones."""
    folder, results = saved

    again = run_ranks(ranks.restored, world, str(folder), "same")

    for result in again:
        assert len(result["notes"]) == 1
        assert f"resumed on {world} rank(s) what 2 had begun" in result["notes"][0]
        assert result["random untouched"]
        np.testing.assert_array_equal(result["buffers"]["1.running_mean"], results[0]["file"]["1.running_mean"])


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_beside_an_average_the_trained_weights_have_their_mean_statistics_too(kind: str, tmp_path: Path) -> None:
    """On another number of ranks; on the same number each rank has its own of both, to the bit."""
    results = run_ranks(ranks.saved_and_loaded, 2, str(tmp_path), kind)

    again = run_ranks(ranks.restored, 3, str(tmp_path), kind)

    assert all(result["buffers"] and result["average"] for result in results)
    for name in ("1.running_mean", "1.running_var"):
        for saved, restored in (("own", "buffers"), ("averaged", "averaged")):
            every = [result[saved][name] for result in results]
            assert not np.array_equal(*every)
            for found in again:
                np.testing.assert_allclose(found[restored][name], np.mean(every, axis=0), rtol=1e-14)
        np.testing.assert_array_equal(results[0]["file"][name], again[0]["averaged"][name])


def test_a_checkpoint_of_another_task_or_model_is_refused(saved) -> None:
    """With what it is of, on every rank alike."""
    folder, _ = saved

    other_task = run_ranks(ranks.restored, 2, str(folder), "other task")
    other_model = run_ranks(ranks.restored, 2, str(folder), "other model")

    assert [what for what, _, _ in other_task] == [
        f"the checkpoint {folder}/checkpoints/step-00000012 is of the task t, not other"
    ] * 2
    for what, why, code in other_model:
        assert what.endswith("does not fit the model")
        assert "size mismatch" in why
        assert code == 2


def test_a_checkpoint_of_a_newer_format_is_refused(saved, tmp_path: Path) -> None:
    """Its meaning may have changed."""
    folder, _ = saved
    path = folder / "checkpoints" / "step-00000012"
    content = load_state(path) | {"format": training_state.FORMAT + 1}
    torch.save(content, tmp_path / STATE_FILE)
    manifest.write(tmp_path / "c", 1, 2, "t", {STATE_FILE: (tmp_path / STATE_FILE).read_bytes()})

    with pytest.raises(PacelineError, match="has format 2, and this version reads 1"):
        training_state.load(tmp_path / "c" / "step-00000001", "t")
