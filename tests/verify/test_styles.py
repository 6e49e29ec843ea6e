"""Scripts in the styles that people start from pass on 2, 3 and 4 ranks, and the result says what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.parity import ParityResult
from paceline.verify.script_parity import Question, verify_script

SCRIPTS = Path(__file__).parent / "scripts"
FIXED_STATISTICS = "batch normalization uses its running statistics in both runs"
EAGER = "torch.compile has no effect: both runs compute eagerly"
slow = pytest.mark.slow


def verify(tmp_path: Path, name: str, *arguments: str, world: int, steps: int = 6) -> ParityResult:
    """Verify a script in an empty directory."""
    directory = tmp_path / "cwd"
    directory.mkdir()
    job = ScriptJob(script=str(SCRIPTS / name), arguments=list(arguments), directory=str(directory))
    result = verify_script(Question(job, world, steps, tmp_path / "runs", patience_s=120, audit=False))
    assert list(directory.iterdir()) == []
    return result


@pytest.mark.parametrize(
    ("name", "world", "adjusted"),
    [
        ("accumulate.py", 3, []),
        ("imagenet.py", 2, [FIXED_STATISTICS]),
        *(pytest.param("accumulate.py", world, [], marks=slow) for world in (2, 4)),
        *(pytest.param("imagenet.py", world, [FIXED_STATISTICS], marks=slow) for world in (3, 4)),
        *(pytest.param("references/train.py", world, [FIXED_STATISTICS], marks=slow) for world in (2, 3, 4)),
        *(pytest.param("nanogpt.py", world, [], marks=slow) for world in (2, 3, 4)),
        *(pytest.param("tokens.py", world, [], marks=slow) for world in (2, 3, 4)),
        *(pytest.param("autocast.py", world, ["autocast has no effect on float64"], marks=slow) for world in (2, 3)),
    ],
)
def test_a_right_script_passes(tmp_path: Path, name: str, world: int, adjusted: list[str]) -> None:
    """In float64, with all that both runs do in another way than the script."""
    result = verify(tmp_path, name, world=world)

    assert result.verdict == "pass", result.reason
    assert result.compared is not None
    assert (result.compared.steps, result.compared.dtype) == (6, "float64")
    assert result.compared.worst < 1e-9
    assert result.adjusted == adjusted


@slow
@pytest.mark.parametrize("world", [2, 3])
def test_a_mean_over_the_tokens_of_each_rank_fails(tmp_path: Path, world: int) -> None:
    """Ranks have different numbers of tokens, so the mean of their means is another number."""
    result = verify(tmp_path, "tokens.py", "--mean", "local", world=world)

    assert result.verdict == "fail"
    assert result.first_divergence is not None
    assert result.first_divergence.step == 1
    assert "the mean over ranks is not the mean over all samples" in result.reason


@slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model_is_compared_without_compilation(tmp_path: Path, when: str) -> None:
    """Compiled before or after it is wrapped."""
    result = verify(tmp_path, "compiled.py", when, world=2)

    assert result.verdict == "pass", result.reason
    assert result.adjusted == [EAGER]


@slow
def test_checkpoints_of_a_script_leave_no_file(tmp_path: Path) -> None:
    """The references write one after each epoch."""
    result = verify(tmp_path, "references/train.py", "--output-dir", ".", world=2, steps=40)

    assert result.verdict == "pass", result.reason
