"""The judges of part A on written-down runs: each fault has its own message, and right runs have none."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from paceline.pool.warm_ranks import RankFailure
from paceline_course.assess.box import Block, Ran, RankSeen
from paceline_course.assess.correctness.coverage import epochs_of, judge_epochs
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.numbers import _judge_training, read_log
from paceline_course.assess.correctness.resuming import _was_killed
from paceline_course.assess.correctness.runs import ended
from paceline_course.assess.correctness.stopping import _deceiving, _new_level, _parts_differ, _stops_after
from paceline_course.assess.kit import signals
from paceline_course.assess.oracle import Setting, Truth
from paceline_course.assess.submission_process import EVALUATE, TRAIN
from paceline_course.checking import Wrong

SAMPLES, BATCH, WORLD, EPOCHS = 101, 16, 3, 3
TRIAL = Trial(Setting(SAMPLES, 31, BATCH, EPOCHS, "plain", seed=4, data_seed=9), WORLD)


def order(epoch: int) -> np.ndarray:
    """That of the task."""
    return np.asarray(signals().order(SAMPLES, 4, epoch))


def contiguous(batch: np.ndarray, rank: int) -> np.ndarray:
    """A piece of each batch."""
    return np.array_split(batch, WORLD)[rank]


def strided(batch: np.ndarray, rank: int) -> np.ndarray:
    """Every third sample of each batch."""
    return batch[rank::WORLD]


def run(read, *, evaluates: bool = True, world: int = WORLD) -> Ran:
    """A run in which rank r reads read(epoch, r) in each epoch."""
    ranks = []
    for rank in range(world):
        blocks = []
        for epoch in range(EPOCHS):
            blocks.append(Block(TRAIN, np.asarray(read(epoch, rank), np.int64)))
            if evaluates:
                blocks.append(Block(EVALUATE, np.arange(rank, 31, WORLD)))
        ranks.append(RankSeen(blocks=blocks))
    return Ran(Path("/nowhere"), "torchrun train.py", world, 1.0, ranks, [{}] * world)


def batches(epoch_order: np.ndarray) -> list[np.ndarray]:
    """Of one epoch."""
    return [epoch_order[at : at + BATCH] for at in range(0, len(epoch_order), BATCH)]


@pytest.mark.parametrize("share", [contiguous, strided])
@pytest.mark.parametrize("evaluates", [True, False])
def test_every_way_to_share_a_batch_is_right(share, evaluates: bool) -> None:
    """Also where not every rank evaluates."""
    ran = run(lambda epoch, rank: np.concatenate([share(b, rank) for b in batches(order(epoch))]), evaluates=evaluates)
    shares = judge_epochs(ran, TRIAL, epochs_of(ran, TRIAL))
    assert [sum(each) for each in shares] == [SAMPLES] * EPOCHS


def share_of(epoch_order: np.ndarray, rank: int) -> np.ndarray:
    """Right, for that order."""
    return np.concatenate([strided(batch, rank) for batch in batches(epoch_order)])


def padded(epoch: int, rank: int) -> np.ndarray:
    """As DistributedSampler fills up."""
    return np.concatenate([order(epoch), order(epoch)[:1]])[rank::WORLD]


FAULTS = {
    "everybody-sees-all": lambda epoch, rank: order(epoch),
    "padded": padded,
    "dropped": lambda epoch, rank: share_of(order(epoch)[: SAMPLES - SAMPLES % BATCH], rank),
    "overlap": lambda epoch, rank: np.random.default_rng(10 * epoch + rank).permutation(SAMPLES)[:34],
    "not-shuffled": lambda epoch, rank: share_of(np.arange(SAMPLES), rank),
    "same-order": lambda epoch, rank: share_of(order(0), rank),
    "other-order": lambda epoch, rank: share_of(np.random.default_rng(epoch + 50).permutation(SAMPLES), rank),
    "unequal-parts": lambda epoch, rank: order(epoch) if rank == 1 else [],
    "evaluates-on-training": lambda epoch, rank: [*share_of(order(epoch), rank), *range(rank, 30, WORLD)],
    "not-read": lambda epoch, rank: order(0) if epoch == 0 and rank == 0 else [],
}


@pytest.mark.parametrize("message", FAULTS)
def test_each_fault_of_reading_has_its_own_message(message: str) -> None:
    """What was read says what is wrong with it."""
    ran = run(FAULTS[message], evaluates=message not in ("not-read", "evaluates-on-training"))
    with pytest.raises(Wrong) as wrong:
        judge_epochs(ran, TRIAL, epochs_of(ran, TRIAL))
    assert wrong.value.message == message
    assert wrong.value.expected
    assert wrong.value.got


@pytest.mark.parametrize("number", [SAMPLES, SAMPLES + 7, 2**31 - 1])
def test_a_sample_that_there_is_not_is_one_too_many(number: int) -> None:
    """However large its number, the judge needs no more memory for it."""
    ran = run(lambda epoch, rank: [*share_of(order(epoch), rank), *([number] if rank == 0 else [])])
    with pytest.raises(Wrong) as wrong:
        judge_epochs(ran, TRIAL, epochs_of(ran, TRIAL))
    assert wrong.value.message == "padded"


@pytest.mark.parametrize(
    ("message", "due", "ours"),
    [
        ("it was killed by SIGKILL before it answered", False, True),
        ("RuntimeError: writev: Broken pipe", True, True),
        ("RuntimeError: writev: Broken pipe", False, False),
    ],
)
def test_our_kill_is_told_from_a_failure_before_it(message: str, due: bool, ours: bool) -> None:
    """A process may complain of the broken connection before word comes of the kill that broke it."""
    with contextlib.nullcontext() if ours else pytest.raises(Wrong):
        _was_killed(failed(message), "killed", due)


def failed(message: str, traceback: str = "", printed: str = "") -> Ran:
    """A run that did not end."""
    failure = RankFailure(1, message, traceback)
    return Ran(Path("/box/run-1"), "torchrun train.py", 2, 1.0, [], None, failure=failure, printed=printed)


@pytest.mark.parametrize(
    ("message", "traceback", "printed", "id"),
    [
        ("SyntaxError: invalid syntax", "x", "", "syntax"),
        ("SystemExit: 1", "x", "", "exit"),
        ("ValueError: no", '  File "/box/run-1/train.py", line 7, in main', "", "raised"),
        ("it was killed by SIGSEGV before it answered", "", "", "died"),
        ("RuntimeError: Connection closed by peer [127.0.0.1]", "x", "", "left"),
        ("it was killed by SIGABRT before it answered", "", "op.preamble.length <= op.nbytes. 8 vs 4", "mismatch"),
        ("OSError: [Errno 101] Network is unreachable", "x", "", "network"),
        ("MemoryError: ", "x", "", "memory"),
        ("OSError: [Errno 27] File too large", "x", "", "too-much"),
    ],
)
def test_a_run_that_fails_says_how(message: str, traceback: str, printed: str, id: str) -> None:
    """And where, if a line of the submission is known."""
    with pytest.raises(Wrong) as wrong:
        ended(failed(message, traceback, printed))
    assert wrong.value.message == id
    assert wrong.value.where == ("train.py:7, in main" if id == "raised" else "")
    assert "rank 1" in wrong.value.got


HEAD = "epoch,samples,steps,lr,loss,right,counted,seconds\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no-log"),
        ("epoch,loss\n0,1\n", "columns"),
        (HEAD + "0,1,1,1,nothing,1,1,1\n", "lines"),
        (HEAD + "0,1,1,1,1,1,1\n", "lines"),
        (HEAD + "0,1,1,1,1,1,1,1\n", "lines"),
        (HEAD + "0,1,1,1,1,1,1,1\n" * 2, "lines"),
        (HEAD + "1,1,1,1,1,1,1,1\n0,1,1,1,1,1,1,1\n", "lines"),
    ],
)
def test_a_log_that_cannot_be_read_says_why(text: str, message: str, tmp_path: Path) -> None:
    """Two epochs are wanted, in their order."""
    (tmp_path / "out").mkdir()
    if text:
        (tmp_path / "out" / "log.csv").write_text(text)
    with pytest.raises(Wrong) as wrong:
        read_log(Ran(tmp_path, "train.py", 1, 1.0, [], [{}]), 2)
    assert wrong.value.message == message


@pytest.mark.parametrize("seed", range(30))
def test_an_accuracy_that_ends_a_training_ends_it_before_the_last_epoch_can(seed: int) -> None:
    """Counted by hand, for any course of the accuracy; a deceiving one is had by one epoch alone before."""
    right = np.random.default_rng(seed).integers(10, 40, size=8).tolist()

    def ends(least: int) -> int | None:
        pairs = [epoch for epoch in range(1, 8) if right[epoch] >= least and right[epoch - 1] >= least]
        return pairs[0] + 1 if pairs else None

    level, alone = _new_level(right), _deceiving(right)
    assert _stops_after(right, level) == ends(level)
    assert ends(level) is not None
    if alone:
        end = _stops_after(right, alone)
        assert end == ends(alone)
        assert end < len(right)
        assert any(value >= alone for value in right[: end - 2])


def hits(*epochs: str) -> list[np.ndarray]:
    """Which evaluation samples are right, an epoch each: 1 and 0."""
    return [np.array([each == "1" for each in epoch]) for epoch in epochs]


@pytest.mark.parametrize(
    ("epochs", "shows"),
    [
        # Two right of four twice, from the epochs 1 and 2 on; then better, so that it is not what all have.
        (["0000", "1010", "1010", "1111", "1111"], False),  # blocks agree with all, so that fault would not show
        (["0000", "1100", "1100", "1111", "1111"], False),  # every second one agrees
        (["0000", "1000", "1000", "1111", "1111"], True),
    ],
)
def test_it_is_known_whether_a_decision_by_the_own_part_would_show(epochs: list[str], shows: bool) -> None:
    """A process that looks at its own part may come to the same end by chance; such a trial tells nothing."""
    trial = Trial(Setting(SAMPLES, 4, BATCH, len(epochs), "plain", seed=4, data_seed=9), 2)
    assert _parts_differ(trial, hits(*epochs)) is shows


def test_a_loss_of_nothing_is_told_as_such() -> None:
    """And not as a mean that is a little off."""
    row = {"loss": float("nan"), "samples": 0.0, "steps": 0.0, "lr": 0.0}
    ran = run(lambda epoch, rank: share_of(order(epoch), rank))
    with pytest.raises(Wrong) as wrong:
        _judge_training(Known(), ran, TRIAL, 0, row)
    assert wrong.value.message == "nan-loss"


class Known:
    """Truths of one trial."""

    def truth(self, trial: Trial) -> Truth:
        """Nothing is compared with it."""
        return Truth({}, [], [1.0] * EPOCHS, [0] * EPOCHS)
