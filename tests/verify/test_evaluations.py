"""Evaluations of the same weights are compared by what is printed about all samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.observe.parity import evaluations as observed
from paceline.observe.parity.evaluations import EvaluationLog
from paceline.records.parity import Evaluation, rank_folder
from paceline.verify.evaluations import compare_evaluations, evaluation_change


class Script:
    """A rank that evaluates: its stdout and its log."""

    def __init__(self, folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        self.log = EvaluationLog(rank_folder(folder, rank))
        self._stdout = folder / str(rank) / "stdout.log"
        self._monkeypatch = monkeypatch

    def evaluate(self, batches: Sequence[int], *, progress: str = "", result: str = "", step: int = 1) -> None:
        """Print progress after each batch, and a result after the pass."""
        self._monkeypatch.setattr(observed, "_printed", lambda: len(self.text))
        loader = object()
        for samples in batches:
            self.log.batch(step, samples, loader)
            self.text += progress
        self.log.pass_ends()
        self.text += result

    def end(self) -> None:
        """Keep what was printed."""
        self._monkeypatch.setattr(observed, "_printed", lambda: len(self.text))
        self.log.close()
        self._stdout.parent.mkdir(parents=True)
        self._stdout.write_text(self.text)


def compared(ranks: Path, one: Path) -> Evaluation:
    """As `compare_evaluations`, of two ranks."""
    found = compare_evaluations(ranks, 2, one)
    assert found is not None
    return found


def test_progress_of_a_rank_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A meter that is printed within the pass knows the rank's own samples alone."""
    for folder, rank, batches, progress in (
        ("ranks", 0, [5], "test acc 0.8\n"),
        ("ranks", 1, [5], ""),
        ("one", 0, [5, 5], "test acc 0.6\n"),
    ):
        script = Script(tmp_path / folder, rank, monkeypatch)
        script.evaluate(batches, progress=progress, result="test acc 0.7\n" if rank == 0 else "")
        script.end()

    found = compared(tmp_path / "ranks", tmp_path / "one")
    assert (found.equal_numbers, found.differing) == (1, [])
    assert evaluation_change(found, "one process") is None


def test_results_between_two_passes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation and test data, each with its line."""
    for folder, rank in (("ranks", 0), ("ranks", 1), ("one", 0)):
        script = Script(tmp_path / folder, rank, monkeypatch)
        script.evaluate([4], result="val acc 0.50\n" if folder == "one" else "val acc 0.75\n")
        script.evaluate([4], result="test acc 0.25\n")
        script.end()

    found = compared(tmp_path / "ranks", tmp_path / "one")
    assert [each.line for each in found.differing] == ["val acc 0.75"]
    assert found.equal_numbers == 1


def test_an_average_of_weights_that_moves_on_one_rank_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks evaluate theirs, so that the result is of neither."""
    average = nn.Linear(2, 1)
    monkeypatch.setattr(observed.snapshots, "all_models", lambda: {"Linear [(1, 2)] 1: weight": average.weight})
    for folder, rank, weight in (("ranks", 0, 2.0), ("ranks", 1, 1.0), ("one", 0, 2.0)):
        script = Script(tmp_path / folder, rank, monkeypatch)
        own = rank_folder(tmp_path / folder, rank)
        observed.snapshots.write_tensors(own / "start.safetensors", {"Linear [(1, 2)] 1: weight": torch.ones(1, 2)})
        nn.init.constant_(average.weight, weight)
        script.evaluate([4], result="accuracy 0.50\n" if folder == "one" else "accuracy 0.40\n")
        script.end()

    change = evaluation_change(compared(tmp_path / "ranks", tmp_path / "one"), "one process")
    assert change is not None
    assert change.faults == ["F61"]
    assert change.text.endswith("weight of a Linear differs between ranks")


@pytest.mark.parametrize(
    ("line", "differs"),
    [
        ("epoch 1: accuracy {} loss 0.5", True),
        ("epoch 1: accuracy 0.5 loss {}", False),
        ("epoch 1: accuracy 0.5, train loss {}", False),
        ("epoch 1: accuracy 0.5, val_loss {}", True),
        ("Test: Acc@1 0.5 loss {}", True),
        ("epoch 1: test {} samples/s", False),
        ("epoch 1: test 0.5 took {} s", False),
    ],
)
def test_a_loss_that_may_be_of_the_training_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, differs: bool
) -> None:
    """Rank 0 prints that of its own batches, as right scripts do."""
    for folder, rank in (("ranks", 0), ("ranks", 1), ("one", 0)):
        script = Script(tmp_path / folder, rank, monkeypatch)
        script.evaluate([4], result=line.format(0.25 if folder == "one" else 0.75) + "\n")
        script.end()

    assert bool(compared(tmp_path / "ranks", tmp_path / "one").differing) is differs


@pytest.mark.parametrize(("samples", "faults"), [((6, 6), ["F70"]), ((5, 5), ["F71", "F72"])], ids=["padded", "whole"])
def test_a_padded_evaluation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: tuple[int, int], faults: list[str]
) -> None:
    """Where ranks take more samples than there are, and results differ."""
    for folder, rank, count in (("ranks", 0, samples[0]), ("ranks", 1, samples[1]), ("one", 0, 10)):
        script = Script(tmp_path / folder, rank, monkeypatch)
        script.evaluate([count], result=f"accuracy {count / 16:.4f}\n")
        script.end()

    change = evaluation_change(compared(tmp_path / "ranks", tmp_path / "one"), "OLD")
    assert change is not None
    assert (change.verdict, change.faults) == ("fail", faults)
