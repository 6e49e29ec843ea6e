"""Plain answers: a rank that is not believed can send values and words, and nothing that runs or waits."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import pickle
import signal
import socket
import struct
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from paceline.pool.answers import MOST_BYTES, Answer, RankUse, plain_bytes, plain_result
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks

UNREADABLE = "it sent no answer that can be read"
VALUES: list[Any] = [None, True, 0, -(2**63), 2**70, 1.5, 1e-300, "ü\U0001f600\0", [], {}, [1, [2.0, {"a": None}], "b"]]


class Bomb(Exception):  # noqa: N818
    """Writes a file wherever it is read as a pickle."""

    def __init__(self, path: str) -> None:
        super().__init__("boom")
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (_explode, (self.path, os.getpid()))


def _explode(path: str, maker: int) -> ValueError:
    if os.getpid() != maker:  # the rank itself tries whether it can be read
        Path(path).touch()
    return ValueError("exploded")


def give_back(value: Any) -> Any:
    """Return the argument."""
    return value


def explode(path: str) -> None:
    """Raise what runs code where it is read."""
    raise Bomb(path)


def return_of_kind(kind: str) -> Any:
    """A result that is no JSON value."""
    import numpy as np

    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    return {
        "tuple": {"a": [1, (2, 3)]},
        "array": np.ones(2),
        "number of numpy": [np.float64(1.0)],
        "key": {1: 2},
        "nan": [0.0, math.nan],
        "infinity": -math.inf,
        "deep": deep,
        "long": "x" * (MOST_BYTES + 1),
        "half a character": "\udcff",
        "word": type("Word", (str,), {})("x"),
    }[kind]


def raise_words(size: int) -> None:
    """With half a character in it."""
    raise ValueError("\udcff" + "x" * size)


def _channel() -> int:
    return next(each.fileno() for each in gc.get_objects() if isinstance(each, Connection))


def _framed(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


FORGED = {
    "a pickle": _framed(pickle.dumps([1, 2])),
    "another form": _framed(b"[1, 2]"),
    "a word for a time": _framed(b'{"result": 1, "error": 5}'),
    "half a JSON value": _framed(b'{"result": [1, 2'),
    "no text": _framed(b'{"result": "\xff\xfe"}'),
    "nesting without end": _framed(b'{"result": ' + b"[" * 1_000_000),
    "a length of two gigabytes": struct.pack("!i", 2**31 - 1),
    "a length below zero": struct.pack("!iQ", -1, 10),
    "one byte too many": struct.pack("!i", MOST_BYTES + 1),
    "nothing in it": _framed(b""),
}


def forge(name: str) -> None:
    """Write to the channel itself, then wait."""
    os.write(_channel(), FORGED[name])
    time.sleep(600)


def forge_result() -> None:
    """An answer of the right form, long before the function is through."""
    os.write(_channel(), _framed(b'{"result": "forged", "error": "", "traceback": ""}'))
    time.sleep(600)


def stop_in_the_middle(how: str) -> None:
    """Half of an answer, and then?"""
    channel = _channel()
    os.write(channel, struct.pack("!i", 1000) + b"half")
    if how == "exit":
        os._exit(0)
    if how == "trickle":
        for _ in range(1500):
            os.write(channel, b" ")
            time.sleep(0.02)
    time.sleep(600)


def close_the_channel() -> None:
    """And live on."""
    os.close(_channel())
    time.sleep(600)


def kill_itself(rank: int) -> None:
    """One rank, while the others wait for it."""
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def sockets_held() -> list[int]:
    """Numbers of its connections within the machine's kernel; gloo and the store use TCP."""
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        # No socket, or the descriptor of the list itself.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as one:
            if one.family == socket.AF_UNIX:
                found.append(int(entry.name))
    return found


def session() -> list[int]:
    """Its own session and process number."""
    return [os.getsid(0), os.getpid()]


def spin(rank: int, seconds: float) -> None:
    """Keep one processor busy."""
    end = time.process_time() + seconds
    while dist.get_rank() == rank and time.process_time() < end:
        pass


def spin_and_fail(seconds: float) -> None:
    """As above, and raise."""
    spin(dist.get_rank(), seconds)
    raise ValueError("boom")


def test_plain_values_come_back_as_they_went() -> None:
    """JSON values keep their types, rank by rank."""
    results = run_ranks(give_back, 2, VALUES, plain=True)

    assert results == [VALUES, VALUES]
    assert [type(each) for each in results[0]] == [type(each) for each in VALUES]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("tuple", r"TypeError: the result\['a'\]\[1\] is of type tuple"),
        ("array", "TypeError: the result is of type ndarray"),
        ("number of numpy", r"TypeError: the result\[0\] is of type float64"),
        ("key", "key of type int"),
        ("nan", r"ValueError: the result\[1\] is nan"),
        ("infinity", "is -inf"),
        ("deep", "nested more than"),
        ("long", "a plain answer has at most"),
        ("half a character", "UnicodeEncodeError"),
        ("word", "is of type Word"),
    ],
)
def test_what_is_no_json_value_is_refused_in_words(kind: str, words: str) -> None:
    """On the rank, which names the place; nothing is changed on its way."""
    with pytest.raises(RankFailure, match=words):
        run_ranks(return_of_kind, 1, kind, plain=True)


def test_an_exception_comes_as_words_only(tmp_path: Path) -> None:
    """Reading the exception itself would run code here, as it does without `plain`."""
    with pytest.raises(RankFailure) as caught:
        run_ranks(explode, 1, str(tmp_path / "plain"), plain=True)
    with pytest.raises(RankFailure):
        run_ranks(explode, 1, str(tmp_path / "pickled"))

    assert caught.value.__cause__ is None
    assert caught.value.message.endswith("Bomb: boom")
    assert "in explode" in caught.value.traceback
    assert [path.name for path in tmp_path.iterdir()] == ["pickled"]


def test_the_words_of_an_exception_have_a_longest_length() -> None:
    """And characters that JSON cannot carry are replaced."""
    with pytest.raises(RankFailure, match=r"ValueError: \?xxx") as caught:
        run_ranks(raise_words, 1, MOST_BYTES, plain=True)

    assert len(caught.value.message) < 100_000
    assert len(caught.value.traceback) < 300_000


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_that_cannot_be_read_is_a_failure_of_its_rank(name: str) -> None:
    """At once, though the rank lives on."""
    began = time.monotonic()

    with pytest.raises(RankFailure, match=UNREADABLE) as caught:
        run_ranks(forge, 2, name, plain=True, timeout_s=60)

    assert caught.value.rank in (0, 1)
    assert time.monotonic() - began < 20


def test_a_forged_answer_that_can_be_read_is_an_answer() -> None:
    """Nobody can tell it from a result that the function made up: who judges must not believe either."""
    assert run_ranks(forge_result, 1, plain=True, timeout_s=60) == ["forged"]


def test_half_an_answer_and_an_end() -> None:
    """Not waited for."""
    with pytest.raises(RankFailure, match=f"{UNREADABLE}: it ends in the middle"):
        run_ranks(stop_in_the_middle, 1, "exit", plain=True, timeout_s=60)


@pytest.mark.parametrize("how", ["sleep", "trickle"])
def test_half_an_answer_ends_with_the_time(how: str) -> None:
    """Also when a byte comes now and then: the reader waits for nobody beyond the limit."""
    began = time.monotonic()

    with pytest.raises(RankTimeout) as caught:
        run_ranks(stop_in_the_middle, 1, how, plain=True, timeout_s=4)

    assert time.monotonic() - began < 20
    assert "stop_in_the_middle" in caught.value.stacks[0]


def test_a_closed_channel_is_no_answer() -> None:
    """Though the process lives on."""
    with pytest.raises(RankFailure, match=f"{UNREADABLE}: it closed its channel"):
        run_ranks(close_the_channel, 1, plain=True, timeout_s=60)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_kills_itself_is_named_at_once(rank: int) -> None:
    """And the call does not wait for the others."""
    began = time.monotonic()

    with pytest.raises(RankFailure, match="was killed by SIGKILL before it answered") as caught:
        run_ranks(kill_itself, 2, rank, plain=True, timeout_s=60)

    assert caught.value.rank == rank
    assert time.monotonic() - began < 10


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are looked up in /proc")
def test_a_rank_holds_no_connection_but_its_own() -> None:
    """Whoever holds one of the fork server's can have it run what it wants."""
    for plain in (True, False):
        (sockets,) = run_ranks(sockets_held, 1, plain=plain)
        assert len(sockets) == 1


def test_a_rank_has_a_session_of_its_own() -> None:
    """So it has no terminal, into which it could type for the user."""
    for plain in (True, False):
        ((leader, own),) = run_ranks(session, 1, plain=plain)
        assert leader == own


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_what_a_rank_used_is_seen_from_outside() -> None:
    """Processor seconds of the one that worked, and when each answered."""
    usage: list[RankUse] = []
    began = time.monotonic()

    run_ranks(spin, 2, 1, 0.6, plain=True, usage=usage)

    took = time.monotonic() - began
    assert [each.rank for each in usage] == [0, 1]
    idle, busy = usage
    assert idle.cpu_s is not None
    assert busy.cpu_s is not None
    assert busy.cpu_s >= 0.5 > idle.cpu_s
    assert busy.answered_s is not None
    assert 0.5 < busy.answered_s < took


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_what_a_rank_used_is_seen_when_it_failed() -> None:
    """The call raises, the list is filled."""
    usage: list[RankUse] = []

    with pytest.raises(RankFailure):
        run_ranks(spin_and_fail, 1, 0.3, plain=True, usage=usage)

    assert usage[0].cpu_s is not None
    assert usage[0].cpu_s >= 0.25


def test_the_wire_is_json() -> None:
    """Written down, so that both sides can be checked by another reader."""
    sent = plain_bytes(Answer(1.0, plain_result([1, "a", None])))

    assert json.loads(sent) == {"result": [1, "a", None], "error": "", "traceback": ""}
