"""Paths that every rank makes from the time or its process id."""

from __future__ import annotations

import pytest

from paceline.audits.dp153_path_per_rank import PathPerRank
from tests.audits.loader_events import SAVE, judged, touched


@pytest.mark.parametrize(
    "name",
    [
        "runs/2026-11-30_15-30-{:02}/model.pt",
        "runs/20261130-1530{:02}/model.pt",
        "runs/Nov30_15-30-{:02}_node/model.pt",
        "runs/17960520{:02}/model.pt",
        "runs/17960520{:02}.53/model.pt",
        "runs/run-10{:02}/model.pt",
    ],
)
@pytest.mark.parametrize("world", [2, 3])
def test_a_folder_named_after_time_or_process_is_a_warning(name, world):
    """Process ids are 1000, 1001, ... here."""
    (found,) = judged(PathPerRank, [[touched(f"/job/{name.format(rank)}", step=5)] for rank in range(world)])

    assert (found.severity, found.faults, found.line) == ("warning", ["F100"], SAVE.line)
    assert len(found.evidence["paths"]) == world


def test_a_folder_counts_when_it_is_made():
    """os.makedirs, before anything is written into it."""
    (found,) = judged(PathPerRank, [[touched(f"/job/runs/20261130-1530{r:02}", "directory")] for r in range(2)])

    assert found.severity == "warning"


def test_folders_of_tensorboard_are_compared_without_their_files():
    """The file's own name has a time and a process id, rightly."""

    def writer(folder, rank):
        return [touched(f"/job/{folder}/events.out.tfevents.179605201{rank}.node.100{rank}.0")]

    (found,) = judged(PathPerRank, [writer(f"runs/Nov30_15-30-1{rank}_node", rank) for rank in range(2)])

    assert found.severity == "warning"
    assert judged(PathPerRank, [writer("runs", rank) for rank in range(2)]) == []


def test_files_of_one_folder_are_an_info():
    """Logs and traces of each process may be named so on purpose."""
    (found,) = judged(PathPerRank, [[touched(f"/job/traces/node_100{r}.179605201{r}.json")] for r in range(2)])

    assert found.severity == "info"


@pytest.mark.parametrize(
    "name", ["rank{0}.pt", "rank{0}/20261130-153000.pt", "rank{0}_1796052{0}00.pt", "seed{1}/m.pt"]
)
def test_the_rank_in_the_name_is_right(name):
    """Each rank has files of its own on purpose."""
    ranks = [[touched(f"/job/{name.format(rank, 42 + rank)}", step=5)] for rank in range(2)]

    assert judged(PathPerRank, ranks) == []


def test_one_name_for_all_ranks_is_right():
    """Rank 0 made it, and broadcast it."""
    ranks = [[touched(f"/job/runs/20261130-153000/rank{rank}.pt")] for rank in range(2)]

    assert judged(PathPerRank, ranks) == []


def test_one_writer_may_name_its_files_as_it_likes():
    """A checkpoint with a time, several times."""
    writes = [touched(f"/job/20261130-15300{n}.pt", step=n) for n in range(3)]

    assert judged(PathPerRank, [writes, []]) == []
    assert judged(PathPerRank, [writes, [touched("/job/x")]]) == []


def test_scratch_folders_of_a_process_are_right():
    """Unless the job itself runs below /tmp."""
    ranks = [[touched(f"/tmp/scratch_100{rank}/a", step=5)] for rank in range(2)]

    assert judged(PathPerRank, ranks) == []
    assert len(judged(PathPerRank, ranks, directory="/tmp")) == 1


def test_reads_and_files_of_libraries_are_passed_over():
    """They name no output of the script."""
    ranks = [
        [touched(f"/job/20261130-15300{r}/a", "read"), touched(f"/a/20261130-15300{r}/b", place=None)] for r in (0, 1)
    ]

    assert judged(PathPerRank, ranks) == []
