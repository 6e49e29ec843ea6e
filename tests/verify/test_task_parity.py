"""Ranks of our own trainer are compared with the oracle, on tasks that are right and on tasks that are not."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from paceline.cli.verify import verify_command
from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.errors import Exit, PacelineError
from paceline.records.parity import ParityResult
from paceline.verify.script_parity import Question, verify_script

TASK = """
    import torch
    from torch import nn
    from paceline.tasks.task import Arrays, Loss, Task

    def loss(model, batch):
        x, y = batch
        each = nn.functional.cross_entropy(model(x), y, reduction="{reduction}")
        return Loss(each, len(y))

    def task():
        generator = torch.Generator().manual_seed(0)
        x, y = torch.randn(90, 6, generator=generator), torch.randint(0, 3, (90,), generator=generator)
        model = lambda: nn.Sequential(nn.Linear(6, 8), {layer}, nn.Linear(8, 3))
        return Task("small", model, loss, Arrays(x, y), Arrays(x[:9], y[:9]))
"""


def verify(tmp_path: Path, *, reduction: str = "sum", layer: str = "nn.Tanh()") -> ParityResult:
    """Verify the task on two ranks; 90 samples in batches of 32 leave a smaller last batch."""
    path = tmp_path / "task.py"
    path.write_text(textwrap.dedent(TASK.format(reduction=reduction, layer=layer)))
    job = ScriptJob(script=str(path), arguments=[], directory=str(tmp_path), is_task=True)
    return verify_script(Question(job, 2, 5, tmp_path / "runs", patience_s=120))


def test_a_right_task_passes(tmp_path: Path) -> None:
    """Over the end of an epoch, whose last batch is smaller."""
    result = verify(tmp_path)

    assert result.verdict == "pass", result.reason
    assert result.compared is not None
    assert (result.compared.steps, result.compared.dtype) == (5, "float64")
    assert result.compared.worst < 1e-12
    assert result.command == ["--task", str(tmp_path / "task.py")]
    assert result.learning_rates == result.learning_rates_of_one
    assert result.not_compared == ["the evaluation"]


def test_a_loss_that_is_a_mean_fails_by_the_world_size(tmp_path: Path) -> None:
    """The trainer adds what ranks return, so it takes a sum."""
    result = verify(tmp_path, reduction="mean")

    assert result.verdict == "fail"
    assert result.first_divergence is not None
    assert result.first_divergence.step == 1
    assert "2 times those of one process" in result.reason


def test_a_model_that_draws_random_numbers_is_inconclusive(tmp_path: Path) -> None:
    """One process cannot draw what each of two ranks draws."""
    result = verify(tmp_path, layer="nn.Dropout(0.5)")

    assert result.verdict == "inconclusive"
    assert "draws random numbers" in result.reason


def test_batch_normalization_is_over_all_ranks(tmp_path: Path) -> None:
    """The result says so: it is not what the trainer does without a flag."""
    result = verify(tmp_path, layer="nn.BatchNorm1d(8)")

    assert result.verdict == "pass", result.reason
    assert result.adjusted == ["batch normalization uses the samples of all ranks (--batch-norm sync)"]


@pytest.mark.parametrize("words", [["--task", "digits", "train.py"], ["--task", "digit"]], ids=["both", "unknown"])
def test_a_task_and_a_script_or_an_unknown_task_are_refused(words: list[str]) -> None:
    """Before torch is loaded."""
    with pytest.raises(PacelineError):
        verify_command(words)


def test_the_command_writes_the_result_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """parity.json, and the same on stdout with --format json."""
    monkeypatch.chdir(tmp_path)
    code = verify_command(["--task", "linear", "--steps", "2", "--format", "json"])

    assert code == Exit.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] == "pass"
    assert shown["command"] == ["--task", "linear"]
    assert json.loads(Path("parity.json").read_text()) == shown
