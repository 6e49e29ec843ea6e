"""A stack says where a rank stands, and for what it waits."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from paceline.records.standing import RankStanding, standing_in, standing_text, worker_place, works

LIBRARY = sysconfig.get_path("stdlib")
SITE = "/x/site-packages/torch"
STACK = f"""Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "{SITE}/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "{SITE}/distributed/c10d_logger.py", line 81 in wrapper
  File "/home/me/train.py", line 31 in evaluate
  File "/home/me/train.py", line 40 in <module>
"""


def stack(*frames: str) -> str:
    """Of one thread, innermost first; the user's line 3 is the outermost."""
    lines = [f"  File {frame}" for frame in (*frames, '"/home/me/train.py", line 3 in main')]
    return "\n".join(["Current thread 0x01 (most recent call first):", *lines, ""])


def test_a_stack_gives_the_collective_and_the_users_line() -> None:
    """The innermost frame that is no library's, and the function of torch that it calls."""
    assert standing_in(0, STACK, state="waits") == RankStanding(
        rank=0, state="waits", call="all_reduce", path="/home/me/train.py", line=31, function="evaluate"
    )


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ([f'"{SITE}/nn/parallel/distributed.py", line 1 in _sync_buffers'], "forward of DDP"),
        ([f'"{SITE}/nn/parallel/distributed.py", line 1 in __init__'], "DistributedDataParallel()"),
        ([f'"{SITE}/autograd/graph.py", line 1 in _engine_run_backward'], "backward"),
        ([f'"{SITE}/nn/modules/linear.py", line 1 in forward'], ""),
        (
            [
                f'"{SITE}/nn/modules/linear.py", line 1 in forward',
                f'"{SITE}/nn/parallel/distributed.py", line 1 in _run_ddp_forward',
            ],
            "",
        ),
    ],
)
def test_what_ddp_does_itself_has_a_name(frames: list[str], call: str) -> None:
    """Its collectives are issued in C++. The model's own forward pass within DDP waits for nobody."""
    assert standing_in(1, stack(*frames), state="waits").call == call


def test_a_wait_in_the_standard_library_is_named_by_function_and_module() -> None:
    """The line alone may call anything."""
    one = standing_in(1, stack(f'"{LIBRARY}/subprocess.py", line 1264 in wait'), state="waits")

    assert standing_text(one, Path("/home/me")) == "waits in wait of subprocess, at train.py:3, in main"


def test_a_loader_worker_is_where_its_data_set_is_and_not_where_it_was_forked() -> None:
    """Its stack goes on below the loop of the worker with the frames of its parent."""
    loop = f'"{SITE}/utils/data/_utils/worker.py", line 349 in _worker_loop'
    busy = stack(f'"{LIBRARY}/gzip.py", line 3 in read', '"/home/me/data.py", line 12 in __getitem__', loop)
    idle = stack(f'"{LIBRARY}/selectors.py", line 415 in select', loop)

    place = worker_place(busy)

    assert place is not None
    assert (place.path, place.line) == ("/home/me/data.py", 12)
    assert worker_place(idle) is None
    assert worker_place(stack()) is None


def test_computing_with_torch_and_writing_files_is_work_and_the_users_own_line_is_not() -> None:
    """A slow evaluation or checkpoint looks so; a loop without end does not."""
    assert works(stack(f'"{SITE}/nn/modules/conv.py", line 1 in forward'))
    assert works(stack(f'"{SITE}/serialization.py", line 850 in save'))
    assert not works(stack())
    assert not works(stack(f'"{LIBRARY}/re/__init__.py", line 166 in match'))


@pytest.mark.parametrize(
    ("standing", "text"),
    [
        (RankStanding(rank=0, state="waits", call="all_reduce", bytes=16, number=4), "of 16 bytes, its 4th collective"),
        (RankStanding(rank=0, state="ended", number=1), "has ended, after 1 collective"),
        (RankStanding(rank=0, state="stopped"), "is stopped, by SIGSTOP or a debugger"),
        (RankStanding(rank=0, state="runs", path="/a.py", line=2), "computes at /a.py:2"),
        (RankStanding(rank=0, state="waits", path="/a.py", line=2, worker=9), "waits for loader worker 9, at /a.py:2"),
        (RankStanding(rank=0, state="waits"), "waits at an unknown place"),
    ],
)
def test_a_standing_reads_as_a_sentence(standing: RankStanding, text: str) -> None:
    """The rank's number stands before it."""
    assert standing_text(standing).endswith(text)
