"""Parts B and C on trainings that were noted: what no program trains here is put in the place of the grader's runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline_course.assess import efficiency
from paceline_course.assess.accuracy import Trained, Trainings, judge_accuracy, judge_again, judge_samples
from paceline_course.assess.box import Block, Box, Ran, RankSeen
from paceline_course.assess.efficiency import judge_evaluation, judge_traffic
from paceline_course.assess.grade import Curve
from paceline_course.assess.kit import signals
from paceline_course.assess.rubric import load_rubric
from paceline_course.assess.submission import Configuration, Submission
from paceline_course.assess.submission_process import EVALUATE
from paceline_course.checking import Wrong

RUBRIC = load_rubric()
RUN = Configuration("large", 2, 512, 4, {})
GOOD = [0.5, 0.7, 0.83, 0.84]
PAIRS = [(11, 21), (12, 22), (13, 23)]
Judge = Callable[[Trainings, Configuration, Any], Any]


def noted(folder: Path, ranks: list[RankSeen] | None = None, epochs: int = 4) -> Ran:
    """A run that came to its end, with the weights of each epoch."""
    (folder / "out").mkdir(parents=True)
    for epoch in range(epochs):
        torch.save(signals().make_model("plain", 0).state_dict(), folder / "out" / f"epoch-{epoch}.pt")
    return Ran(folder, "torchrun train.py", 2, 1.0, ranks or [RankSeen(), RankSeen()], [{}, {}])


def trainings(folder: Path, accuracy: list[float], ran: Ran | None = None) -> Trainings:
    """All three trainings of part B, with this curve."""
    submission = Submission(folder, "", (), "", RUN.name, (RUN,))
    held = Trainings(Box(submission, folder / "runs", RUBRIC.limits), RUBRIC, 3_000_000)
    ran = ran or noted(folder / "ran")
    samples = [RUBRIC.task.samples * (epoch + 1) for epoch in range(len(accuracy))]
    for seed, data_seed in PAIRS:
        curve = Curve(name=RUN.name, seed=seed, workers=2, batch=512, samples=samples, accuracy=accuracy)
        held._trained[RUN.name, seed, data_seed] = Trained(ran, curve)
    return held


def test_a_held_target_has_all_points_and_its_passes_are_counted(tmp_path: Path) -> None:
    """Epoch 3 is the second one running that had it, which is the fourth pass over the data."""
    held = trainings(tmp_path, GOOD)

    assert judge_accuracy(held, RUN, PAIRS).share == 1.0
    assert judge_samples(held, RUN, PAIRS).got == "4 passes"


@pytest.mark.parametrize("judge", [judge_accuracy, judge_samples])
def test_weights_that_were_brought_along_give_no_points(judge: Judge, tmp_path: Path) -> None:
    """Neither for their accuracy nor for the few samples that they took."""
    with pytest.raises(Wrong) as wrong:
        judge(trainings(tmp_path, [0.85, 0.85]), RUN, PAIRS)

    assert wrong.value.message == "weights-from-elsewhere"


@pytest.mark.parametrize("change", [{"batch": 64}, {"workers": 1}, {"epochs": 21}])
@pytest.mark.parametrize("judge", [judge_accuracy, judge_samples, judge_traffic, judge_evaluation])
def test_another_choice_than_the_task_asks_for_gives_no_points(
    judge: Judge, change: dict[str, int], tmp_path: Path
) -> None:
    """With a small batch few samples do, and one process sends nothing and shares nothing."""
    seeds = PAIRS if judge in (judge_accuracy, judge_samples) else PAIRS[0]
    with pytest.raises(Wrong) as wrong:
        judge(trainings(tmp_path, GOOD), dataclasses.replace(RUN, **change), seeds)

    assert wrong.value.message == "not-large"


def parts(*numbers: list[int]) -> list[RankSeen]:
    """What each rank read of the evaluation samples, in each of four epochs."""
    return [RankSeen([Block(EVALUATE, np.array(each * 4, np.int64))]) for each in numbers]


def halves() -> tuple[list[int], list[int]]:
    """Of the evaluation samples."""
    samples = list(range(RUBRIC.task.eval_samples))
    return samples[:1000], samples[1000:]


def test_an_evaluation_in_halves_is_shared(tmp_path: Path) -> None:
    """Each sample once an epoch."""
    ran = noted(tmp_path / "ran", parts(*halves()))

    assert judge_evaluation(trainings(tmp_path, GOOD, ran), RUN, PAIRS[0]) == {"read by rank, each epoch": [1000, 1003]}


@pytest.mark.parametrize("spoil", ["all", "missing", "mostly one", "a number that is no sample's", "a negative one"])
def test_an_evaluation_that_is_not_shared_is_told(spoil: str, tmp_path: Path) -> None:
    """Also where a forged number would ask for gigabytes to count it."""
    first, second = halves()
    whole = [*first, *second]
    read = {
        "all": (whole, whole),
        "missing": (first, second[:-1]),
        "mostly one": (whole[:-1], whole[-1:]),
        "a number that is no sample's": (first, [*second, 2**31 - 1]),
        "a negative one": (first, [*second, -5]),
    }[spoil]
    ran = noted(tmp_path / "ran", parts(*read))

    with pytest.raises(Wrong) as wrong:
        judge_evaluation(trainings(tmp_path, GOOD, ran), RUN, PAIRS[0])

    assert wrong.value.message == "not-shared"


def test_a_torch_that_does_not_tell_of_collectives_is_not_the_learners_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told that no gradients were sent."""
    held = trainings(tmp_path, GOOD)
    monkeypatch.setattr(efficiency.GroupCollectives, "missing", lambda: ["register_pre_hook"])
    with pytest.raises(Wrong) as wrong:
        judge_traffic(held, RUN, PAIRS[0])
    assert wrong.value.message == "untold"
    monkeypatch.setattr(efficiency.GroupCollectives, "missing", list)
    with pytest.raises(Wrong) as wrong:
        judge_traffic(held, RUN, PAIRS[0])
    assert wrong.value.message == "no-traffic"


def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The first training once more, with other weights."""
    held, second = trainings(tmp_path, GOOD), noted(tmp_path / "second")
    state = {name: change(value) for name, value in signals().make_model("plain", 0).state_dict().items()}
    torch.save(state, second.folder / "out" / "epoch-3.pt")
    monkeypatch.setattr(held, "once", lambda *_: Trained(second, held.curves[0]))
    return judge_again(held, RUN, PAIRS[0])


def test_the_same_weights_again_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to a few last digits."""
    assert again(tmp_path, monkeypatch, lambda value: value * (1 + 1e-6))["apart, relative"] < 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value * 1.01, "not-again"),
        (lambda value: value * torch.nan, "not-finite"),
        (lambda value: value / 0, "not-finite"),
        (lambda value: value > 0, "not-again"),
    ],
    ids=["other", "nan", "infinite", "of another type"],
)
def test_other_weights_again_are_told(
    change: Callable[[torch.Tensor], torch.Tensor], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no number is like nothing, itself included."""
    with pytest.raises(Wrong) as wrong:
        again(tmp_path, monkeypatch, change)

    assert wrong.value.message == message


def test_the_reference_has_the_patience_that_the_submission_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine its own time limit must not become the learner's mistake."""
    patience: list[float] = []

    class Fake:
        def __init__(self, *given: Any) -> None:
            patience.append(given[3])

        def run(self, *_: Any) -> Ran:
            return Ran(tmp_path, "torchrun train.py", 2, 2.0, [], [{}, {}])

        def forget(self, ran: Ran) -> None:
            """Nothing was left."""

    monkeypatch.setattr(efficiency, "Box", Fake)
    scored = efficiency.judge_speed(Fake(0, 0, 0, 1.0), RUBRIC, tmp_path, 4.0)  # type: ignore[arg-type]

    assert patience == [1.0, 4.0]
    assert (scored.share, scored.evidence["ratio"]) == (1.0, 1.0)
