"""Devices, backend and number of workers, for machines that are only pretended."""

from __future__ import annotations

import pytest

from paceline.parallel.placement import (
    Machine,
    Placement,
    RankEnv,
    parse_workers,
    place,
    place_rank,
    require_memory,
    usable_cores,
)
from paceline.records.errors import PacelineError


@pytest.mark.parametrize(
    ("devices", "cores", "workers", "expected"),
    [
        (0, 2, "auto", Placement("cpu", "gloo", 2)),
        (0, 2, "1", Placement("cpu", "gloo", 1)),
        (1, 16, "auto", Placement("cuda", "nccl", 1)),
        (8, 16, "auto", Placement("cuda", "nccl", 8)),
        (8, 16, "3", Placement("cuda", "nccl", 3)),
        (8, 4, "8", Placement("cuda", "nccl", 8)),
    ],
)
def test_workers_go_to_devices_where_there_are_some_and_else_to_cores(devices, cores, workers, expected) -> None:
    """One worker a CUDA device with NCCL, else one a core with gloo, or the number that was asked for."""
    assert place(Machine(devices, cores), workers) == expected


def test_more_workers_than_cores_are_allowed_with_a_note() -> None:
    """Results are right, only slower, and that is said."""
    placement = place(Machine(0, 2), "5")

    assert placement.workers == 5
    assert len(placement.notes) == 1
    assert "5 workers share 2 core(s)" in placement.notes[0]


@pytest.mark.parametrize("devices", [1, 8])
def test_more_workers_than_cuda_devices_are_refused(devices: int) -> None:
    """NCCL cannot share a device; the message says how many there are."""
    with pytest.raises(PacelineError) as caught:
        place(Machine(devices, 64), str(devices + 1))

    assert f"{devices} CUDA device(s)" in caught.value.what
    assert f"--workers {devices}," in caught.value.hint


@pytest.mark.parametrize("workers", ["0", "-3", "two", "", "1.5"])
@pytest.mark.parametrize("devices", [0, 1, 8])
def test_what_is_no_number_of_workers_is_refused(devices: int, workers: str) -> None:
    """On any machine, naming the flag and what was typed."""
    with pytest.raises(PacelineError, match=f"--workers {workers} ") as caught:
        place(Machine(devices, 4), workers)

    assert caught.value.exit_code == 2


def test_a_rank_knows_its_place_from_torchruns_environment() -> None:
    """Rank 9 of 16, on the second of two machines."""
    env = {
        "RANK": "9",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_WORLD_SIZE": "2",
    }

    assert RankEnv.read(env) == RankEnv(rank=9, local_rank=1, world=16, local_world=8, nodes=2)


def test_the_number_of_machines_is_worked_out_where_it_is_not_told() -> None:
    """16 ranks, 8 on each; without LOCAL_WORLD_SIZE all are here."""
    told = {"RANK": "9", "WORLD_SIZE": "16"}

    assert RankEnv.read(told | {"LOCAL_WORLD_SIZE": "8"}).nodes == 2
    assert RankEnv.read(told) == RankEnv(rank=9, local_rank=9, world=16, local_world=16, nodes=1)


@pytest.mark.parametrize("env", [{}, {"RANK": "0"}, {"WORLD_SIZE": "2"}])
def test_without_torchruns_environment_there_is_no_place(env: dict[str, str]) -> None:
    """Both variables are needed."""
    assert RankEnv.read(env) is None


def test_ranks_of_torchrun_are_placed_as_many_as_stand_on_the_machine() -> None:
    """Eight devices serve eight of sixteen ranks; one device does not serve two."""
    sixteen = RankEnv(rank=9, local_rank=1, world=16, local_world=8, nodes=2)

    assert place_rank(Machine(8, 4), sixteen) == Placement("cuda", "nccl", 8)
    assert place_rank(Machine(0, 8), sixteen) == Placement("cpu", "gloo", 8)
    with pytest.raises(PacelineError, match="8 ranks were started on a machine with 1 CUDA device") as caught:
        place_rank(Machine(1, 64), sixteen)
    assert caught.value.hint == "torchrun --nproc-per-node 1"  # --workers has no part in it


def test_usable_cores_are_those_of_this_process_not_of_the_machine(monkeypatch) -> None:
    """A container or taskset may allow fewer."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5, 6})

    assert usable_cores() == 3


def test_messages_name_the_flag_that_the_number_was_given_with() -> None:
    """--workers where nothing else is said."""
    for workers in ("many", "0", "9"):
        with pytest.raises(PacelineError) as caught:
            place(Machine(8, 4), workers, "--probe-workers")

        assert caught.value.what.startswith(f"--probe-workers {workers} ")
        assert caught.value.hint.startswith("--probe-workers ")
    assert parse_workers("auto", "--train-workers") is None
    with pytest.raises(PacelineError, match="--workers many is not a number"):
        parse_workers("many")


def test_more_workers_than_memory_are_refused_with_what_that_rests_on() -> None:
    """A process needs memory for torch alone, whatever its model."""
    require_memory(82, 300_000_000, 25_000_000_000)

    with pytest.raises(PacelineError, match="--workers 500 needs 150 GB of memory, and there are 25 GB") as caught:
        require_memory(500, 300_000_000, 25_000_000_000)

    assert "at most --workers 83" in caught.value.hint


def test_a_rank_of_a_restarted_job_knows_how_often() -> None:
    """As torch elastic counts: 0 for the first start."""
    told = {"RANK": "0", "WORLD_SIZE": "1"}

    assert [RankEnv.read(told | more).restarts for more in ({}, {"TORCHELASTIC_RESTART_COUNT": "2"})] == [0, 2]
