"""Victims are told from culprits, in the wordings of torch 2.1 to 2.14; and the cause is found behind them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from paceline.audits.consequences import consequence_of
from paceline.audits.process_ends import ending
from paceline.audits.root_cause import diagnose
from paceline.audits.tracebacks import parse_trace
from paceline.launch.rank_ends import RunningRanks
from tests.audits.ends import attempt, card, ended

LOST = [
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.1.1]:31513",
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[127.0.0.1]:9394. This is typically caused by a remote worker crashing.",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [10.0.0.2]:1234: "
    "Connection reset by peer",
    "RuntimeError: [../gloo/transport/tcp/pair.cc:446] writev [127.0.0.1]:4071: Broken pipe",
    "RuntimeError: Application timeout caused pair closure",
    "torch.distributed.DistNetworkError: Broken pipe",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "torch.distributed.DistNetworkError: Connection reset by peer",
    "torch.distributed.DistStoreError: sendBytes failed on SocketImpl(fd=4, addr=[localhost]:5): Broken pipe",
    "RuntimeError: Connection reset by peer. This may indicate a possible application crash on rank 0.",
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1331, remote process "
    "exited or there was a "
    "network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
    "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
    "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    "rank 1. Please check rank 1 logs for faulty rank.",
]
WAITED = [
    "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
    "operation to complete",
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to complete",
    "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/1",
    "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
    "connect to (a, 1).",
    "RuntimeError: Socket Timeout",
    "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 5000 ms",
    "torch.distributed.DistBackendError: [PG ID 0 Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7)",
]
OWN = [
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection "
    "reset by peer'))",
    "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.cpp:94, invalid usage\nDuplicate GPU detected",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
    "address. port: 29500, "
    "code: -98, name: EADDRINUSE, message: address already in use",
    "RuntimeError: Detected mismatch between collectives on ranks.",
    "RuntimeError: CUDA error: device-side assert triggered",
    "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
    "ValueError: connection closed by peer review",
    "torch.OutOfMemoryError: CUDA out of memory.",
]


def trace(summary):
    """A traceback as Python writes it."""
    return f'Traceback (most recent call last):\n  File "train.py", line 12, in main\n    work()\n{summary}\n'


@pytest.fixture
def logs(tmp_path):
    """Write what ranks leave on stderr, at a time after their ends; gives the directory of their attempt."""

    def write(*texts, written=5e9):
        for rank, text in enumerate(texts):
            folder = tmp_path / "attempt_0" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(text)
            os.utime(folder / "stderr.log", (written, written))
        return tmp_path / "attempt_0"

    return write


@pytest.mark.parametrize("summary", LOST)
def test_a_lost_connection_is_a_consequence(summary):
    """Of somebody else's end."""
    assert consequence_of(parse_trace(trace(summary))) == "lost"


@pytest.mark.parametrize("summary", WAITED)
def test_a_wait_in_vain_is_a_consequence(summary):
    """Of somebody else's absence."""
    assert consequence_of(parse_trace(trace(summary))) == "waited"


@pytest.mark.parametrize("summary", OWN)
def test_a_failure_of_the_ranks_own_is_none(summary):
    """Also errors of the script's own sockets and pipes, and NCCL's complaints about how it is used."""
    assert consequence_of(parse_trace(trace(summary))) is None


def test_an_exception_raised_while_handling_a_consequence_is_one():
    """The script wraps it in its own exception, or fails in its handler."""
    second = trace("ValueError: training broke")
    for words in (
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ):
        assert consequence_of(parse_trace(f"{trace(LOST[0])}\n{words}\n\n{second}")) == "lost"
    assert consequence_of(parse_trace(f"{trace(LOST[0])}gave up that epoch\n{second}")) is None


def test_a_traceback_behind_a_progress_bar_is_found():
    """tqdm leaves the cursor at the end of its line."""
    raised = parse_trace(
        " 29%|###  | 3/10\r 30%|###  | 4/10[rank1]: " + trace("KeyError: 'a'").replace("\n", "\n[rank1]: ")
    )

    assert (raised.summary, raised.uncaught) == ("KeyError: 'a'", True)


@pytest.mark.parametrize("how", ["sys.exit(0)", "return", "fewer steps"])
def test_a_rank_that_left_with_code_0_is_named_instead_of_its_victim(logs, how):
    """However it left: the launcher sees the same."""
    text = card(diagnose(attempt(ended(0, 1, 5.4), ended(1, 0, 5.0), started=4e9), logs(trace(LOST[0]), "")))

    assert "-- rank 1 left early, while others waited for it --" in text
    assert "process 71 exited with code 0, 0.4 s before the others" in text
    assert "rank 0: RuntimeError: [../third_party/gloo" in text


def test_a_rank_that_left_long_before_a_lost_connection_is_only_probably_the_cause(logs):
    """It may have been meant to end first."""
    text = card(diagnose(attempt(ended(0, 1, 500.0), ended(1, 0, 5.0), started=4e9), logs(trace(LOST[0]), "")))

    assert "rank 1 probably left early" in text


def test_a_rank_that_left_may_end_after_the_others_noticed(logs):
    """Its connections are closed first, then its interpreter goes down."""
    folder = logs(trace(LOST[0]), "")
    found = diagnose(attempt(ended(0, 1, 5.0), ended(1, 0, 7.0), started=4e9), folder)
    handled = diagnose(attempt(ended(0, 1, 5.0), ended(1, 0, 7.0, stopped=True), started=4e9), folder)
    elsewhere = diagnose(attempt(ended(0, 1, 5.0), ended(1, 0, 7.0), world=3, started=4e9), folder)

    assert "rank 1 left early" in card(found)
    assert "2.0 s after the others noticed" in card(found)
    assert "rank 1 probably left early" in card(handled)  # by a handler of SIGTERM, perhaps
    assert "rank 1 probably left early" in card(elsewhere)  # a rank of another machine, perhaps


def test_a_wait_that_timed_out_names_who_left_however_long_ago(logs):
    """Timeouts are half an hour."""
    text = card(
        diagnose(
            attempt(ended(0, 1, 1800.0), ended(1, 0, 5.0), ended(2, 1, 1801.0), started=4e9),
            logs(trace(WAITED[0]), "", trace(LOST[0])),
        )
    )

    assert "-- rank 1 left early" in text


def test_a_swallowed_error_of_the_rank_that_left_is_shown_as_what_it_printed(logs):
    """logging.exception and sys.exit(0): the last words are the reason."""
    swallowed = trace("FileNotFoundError: shard-00017.tar")

    text = card(diagnose(attempt(ended(0, 1, 5.4), ended(1, 0, 5.0), started=4e9), logs(trace(LOST[0]), swallowed)))

    assert "printed FileNotFoundError: shard-00017.tar" in text


def test_an_error_of_its_own_outweighs_a_rank_that_left(logs):
    """A rank may end with code 0 in peace."""
    cause = diagnose(attempt(ended(0, 1, 9.0), ended(1, 0, 5.0), started=4e9), logs(trace("ValueError: boom"), ""))

    assert (cause.kind, cause.first.end.rank) == ("failed", 0)


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGSEGV, 3, 7])
def test_in_a_chain_of_victims_the_first_end_is_the_cause(logs, code):
    """Three ranks: one ends without a word, the others complain, in whatever order the launcher lists them."""
    cause = diagnose(
        attempt(ended(0, 1, 5.2), ended(1, 1, 5.1), ended(2, code, 5.0), started=4e9),
        logs(trace(LOST[3]), trace(LOST[0]), "step 20\n"),
    )

    assert (cause.kind, cause.first.end.rank) == ("failed", 2)


def test_a_culprit_that_goes_down_slowly_is_named_although_victims_end_first(logs):
    """Its traceback was written before; the launcher's SIGTERM met it while it went down."""
    folder = logs(trace(LOST[0]), "[rank1]: " + trace("KeyError: 'shard'").replace("\n", "\n[rank1]: "))
    for stopped in (ended(1, 1, 8.0, stopped=True), ended(1, -15, 8.0, stopped=True)):
        cause = diagnose(attempt(ended(0, 1, 5.0), stopped, started=4e9), folder)

        assert (cause.kind, cause.first.raised.summary) == ("failed", "KeyError: 'shard'")
    assert "killed by SIGTERM (the launcher stopped it)" in card(cause)
    assert "somebody" not in card(cause)


def test_a_rank_that_somebody_else_asked_to_stop_is_not_taken_for_one_that_the_launcher_stopped(logs):
    """Its SIGTERM came before the launcher stopped anything."""
    cause = diagnose(attempt(ended(0, -15, 5.0), ended(1, 1, 6.0), started=4e9), logs("", trace(LOST[0])))

    assert cause.first.end.rank == 0
    assert "killed by SIGTERM (somebody asked it to stop: a scheduler or a user)" in card(cause)
    unknown = diagnose(attempt(ended(0, -15, 5.0, stopped=None), world=2, started=4e9), None)
    assert "a scheduler or a user, or the launcher)" in card(unknown)


def test_a_job_whose_ranks_were_all_stopped_by_the_launcher_says_so(logs):
    """Ranks of another machine failed, and this launcher was told."""
    ends = [ended(rank, -15, 5.0, stopped=True) for rank in range(2)]

    text = card(diagnose(attempt(*ends, world=4, started=4e9), logs("", "")))

    assert "the launcher stopped all ranks of this machine" in text
    assert "killed by SIGTERM (the launcher stopped it)" in text
    assert "nothing can catch it" in ending(-signal.SIGKILL, stopped=True)  # the kernel's, perhaps


def test_a_victim_that_swallowed_its_error_and_chose_a_code_is_no_cause(logs):
    """It says what it lost in its last lines; the other was killed."""
    words = "giving up: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1\n"

    cause = diagnose(attempt(ended(0, 5, 5.0), ended(1, 0, 4.9), started=4e9), logs(words, ""))

    assert (cause.kind, cause.first.end.rank) == ("left", 1)


def test_an_abort_by_a_thread_of_torch_is_a_consequence(logs):
    """NCCL's watchdog and gloo's threads end the process by SIGABRT."""
    words = (
        "terminate called after throwing an instance of 'gloo::IoException'\n"
        "  what():  [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1\n"
    )

    cause = diagnose(attempt(ended(0, -signal.SIGABRT, 5.1), ended(1, 0, 5.0), started=4e9), logs(words, ""))

    assert (cause.kind, cause.first.end.rank) == ("left", 1)


def test_where_all_ranks_only_lost_each_other_no_rank_is_blamed(logs):
    """False blame costs most."""
    cause = diagnose(
        attempt(ended(0, 1, 5.0), ended(1, -15, 5.2, stopped=True), started=4e9), logs(trace(LOST[0]), "step 20\n")
    )
    text = card(cause)

    assert cause.kind == "unknown"
    assert "rank 0 lost another rank; the first cause is not known" in text
    assert "rank 1 was still running when the launcher stopped the job" in text


def test_a_rank_that_never_came_leaves_a_timeout_without_a_culprit(logs):
    """An endless loop on rank 1: rank 0 waited, rank 1 still ran."""
    text = card(
        diagnose(
            attempt(ended(0, 1, 1800.0), ended(1, -15, 1801.0, stopped=True), started=4e9), logs(trace(WAITED[0]), "")
        )
    )

    assert "rank 0 waited for another rank in vain; the first cause is not known" in text


def test_too_few_processes_ask_for_the_world_size(logs):
    """The store counts who came."""
    text = card(
        diagnose(attempt(ended(0, 1, 60.0), ended(1, 1, 60.3), started=4e9), logs(trace(WAITED[3]), trace(WAITED[3])))
    )

    assert "1 of 2 processes came: does the script set world_size itself?" in text


def test_the_same_exception_on_all_ranks_blames_none_of_them(logs):
    """A missing file is missing everywhere; who noticed first does not matter."""
    folder = logs(trace("OSError: no data"), trace("OSError: no data"))

    assert "ranks 0 and 1 failed with the same exception" in card(
        diagnose(attempt(ended(0, 1, 5.0), ended(1, 1, 5.01), started=4e9), folder)
    )


def test_different_failures_at_the_same_time_are_not_put_in_order():
    """Two ranks that were killed within a few milliseconds."""
    text = card(diagnose(attempt(ended(0, -9, 5.0), ended(1, -9, 5.01), started=4e9), None))

    assert "ranks 0 and 1 failed at the same time; which was first is not known" in text


def test_sigterm_before_the_launcher_stopped_anybody_came_from_outside():
    """Then it is the cause."""
    cause = diagnose(attempt(ended(0, -15, 5.0), ended(1, -15, 5.4, stopped=True), started=4e9), None)

    assert (cause.kind, cause.first.end.rank) == ("failed", 0)


def test_a_taken_port_leads_to_scripts_that_start_their_own_processes(logs):
    """mp.spawn with a fixed port, once in each rank."""
    assert "start it with python instead" in card(diagnose(attempt(ended(0, 1, 5.0), started=4e9), logs(trace(OWN[4]))))


def test_a_narrow_card_is_name_and_value_and_breaks_no_word(logs):
    """Below 60 columns; no line is longer than the terminal, but for words that are."""
    cause = diagnose(attempt(ended(0, 1, 5.4), ended(1, 0, 5.0), started=4e9), logs(trace(LOST[0]), ""))

    lines = card(cause, width=40).splitlines()

    assert any(line.startswith("ended: process 71 exited") for line in lines)
    assert all(len(line) <= 40 or " " not in line.strip() for line in lines)


def test_ends_are_seen_in_order_and_left_for_the_agent_to_collect():
    """Also ends with code 0, and by a signal, 0.2 s apart."""
    programs = ["import time; time.sleep(0.6)", "import sys; sys.exit(3)", "import time; time.sleep(60)"]
    ranks = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    running = RunningRanks(time.time(), {0: 0, 1: 1, 2: 2}, {rank: process.pid for rank, process in enumerate(ranks)})

    deadline = time.monotonic() + 30
    while len(running.ends()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    ranks[2].kill()
    while len(running.ends()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    exits = running.exits({})

    assert [(rank, code) for rank, (_, code) in running.ends().items()] == [(1, 3), (0, 0), (2, -9)]
    assert [each.exit_code for each in exits] == [0, 3, -9]
    assert [process.wait() for process in ranks] == [0, 3, -9]
