"""Files that several ranks write."""

from __future__ import annotations

import pytest

from paceline.audits.dp151_same_file import SameFile
from tests.audits.loader_events import SAVE, judged, touched

CHECKPOINT = "/job/model.pt"


@pytest.mark.parametrize("world", [2, 3])
def test_a_checkpoint_that_every_rank_writes_is_an_error(world):
    """No rank guard."""
    write = touched(CHECKPOINT, by="torch.save", step=10, collectives=40)

    (found,) = judged(SameFile, [[write]] * world)

    assert (found.severity, found.faults, found.line) == ("error", ["F93"], SAVE.line)
    assert (found.evidence["file"], found.evidence["ranks"]) == (CHECKPOINT, list(range(world)))
    assert found.rank == 1


def test_two_of_three_ranks_are_named():
    """One rank may have written nothing at all."""
    write = touched(CHECKPOINT, by="torch.save", step=10)

    (found,) = judged(SameFile, [[write], [], [write]])

    assert found.message.startswith("ranks 0 and 2 write /job/model.pt at step 10")


def test_any_file_of_the_training_counts():
    """A result, written with open."""
    (found,) = judged(SameFile, [[touched("/job/result.json", step=10)]] * 2)

    assert found.severity == "error"


@pytest.mark.parametrize(
    ("path", "by", "fault"),
    [
        ("/job/vocabulary.json", "open", "F104"),
        ("/job/data/raw/train.bin", "open", "F103"),
        ("/x", "urlretrieve", "F103"),
    ],
)
def test_what_is_prepared_before_training_is_a_warning(path, by, fault):
    """A cache, or a download."""
    (found,) = judged(SameFile, [[touched(path, by=by)]] * 2)

    assert (found.severity, found.faults) == ("warning", [fault])


def test_many_files_of_one_cause_are_one_finding():
    """Every checkpoint of the run."""
    writes = [touched(f"/job/step{step}.pt", by="torch.save", step=step, collectives=step) for step in (10, 20, 30)]

    (found,) = judged(SameFile, [writes] * 2)

    assert "/job/step10.pt and 2 other files" in found.message


def test_one_writer_or_a_file_for_each_rank_is_right():
    """Rank 0 saves the model, every rank its own state."""
    ranks = [
        [
            touched(f"/job/rng{rank}.pt", by="torch.save", step=10),
            *([touched(CHECKPOINT, by="torch.save", step=10)] if rank == 0 else []),
        ]
        for rank in range(2)
    ]

    assert judged(SameFile, ranks) == []


def test_ranks_that_take_turns_are_right():
    """A collective lies between the writes, or between the writers of two checkpoints."""
    ranks = [[touched(CHECKPOINT, by="torch.save", step=10, collectives=4 + rank)] for rank in range(2)]

    assert judged(SameFile, ranks) == []


@pytest.mark.parametrize(
    "path",
    [
        "/dev/null",
        "/proc/self/oom_adj",
        "/job/__pycache__/a.pyc",
        "/c/x.lock",
        "/tmp/torchinductor_u/x.py",
        "/u/.cache/matplotlib/f.json",
    ],
)
def test_files_of_the_system_and_of_compilers_are_passed_over(path):
    """They are made for it."""
    assert judged(SameFile, [[touched(path, step=10)]] * 2) == []


@pytest.mark.parametrize("mode", ["read", "append", "directory", "rename"])
def test_other_modes_are_passed_over(mode):
    """Files that are renamed into place are whole; logs have an audit of their own."""
    assert judged(SameFile, [[touched("/job/x", mode, step=10)]] * 2) == []


def test_files_that_a_library_writes_by_itself_are_passed_over():
    """No line of the script led to it."""
    assert judged(SameFile, [[touched("/job/x", step=10, place=None)]] * 2) == []


def test_logs_are_another_audit_s():
    """Of text, and of TensorBoard."""
    logs = [touched("/job/train.log"), touched("/job/metrics.csv"), touched("/job/events.out.tfevents.1.h.1.0")]

    assert judged(SameFile, [logs] * 2) == []


def test_the_same_path_on_two_machines_may_be_two_files():
    """/tmp is not shared."""
    write = touched(CHECKPOINT, by="torch.save", step=10)

    assert judged(SameFile, [[write], [write]], hosts=["a", "b"]) == []
    assert len(judged(SameFile, [[write]] * 4, hosts=["a", "a", "b", "b"])) == 1
