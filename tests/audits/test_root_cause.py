"""From what ranks left behind to one cause and one card."""

import json
import os
import signal
import subprocess
import sys

import pytest
from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

from paceline.audits.process_ends import advice, ending
from paceline.audits.root_cause import diagnose
from paceline.audits.tracebacks import Raised, parse_trace
from paceline.records.place import Place
from tests.audits.ends import attempt, card, ended

LOST_PEER = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234"


def trace_of(program, folder):
    """What Python really writes to stderr for a program, and its exit code."""
    script = folder / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.stderr, done.returncode


def place(path, line, function):
    """A line of code."""
    return Place(path=path, line=line, function=function)


def leave(logs, rank, stderr=None, error=None, attempt=0):
    """Write a rank's logs as torch elastic lays them out."""
    folder = logs / "job_x1y2" / f"attempt_{attempt}" / str(rank)
    folder.mkdir(parents=True)
    if stderr is not None:
        (folder / "stderr.log").write_text(stderr)
    if error is not None:
        (folder / "error.json").write_text(error)
    return folder


def trace(summary, path="train.py", line=12):
    """A traceback as Python writes it."""
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in main\n    work()\n{summary}\n'


def recorded(summary, at=1_700_000_000):
    """error.json as `@record` writes it."""
    extra = {"py_callstack": trace(summary, "recorded.py", 3), "timestamp": str(at)}
    return json.dumps({"message": {"message": summary, "extraInfo": extra}})


def test_an_exception_is_found_behind_the_prefix_that_torch_puts_before_it(tmp_path):
    """With a process group, torch writes `[rank0]: ` before each line of a trace: file and line are still found."""
    program = """import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def load(index):
    return [1, 2][index]
load(7)
"""

    stderr, code = trace_of(program, tmp_path)

    assert code == 1
    assert "[rank0]: IndexError" in stderr
    assert parse_trace(stderr) == Raised(
        "IndexError: list index out of range", place(str(tmp_path / "program.py"), 4, "load")
    )


def test_an_exception_is_found_with_the_users_own_line(tmp_path):
    """The innermost frame of the user's file counts, not the library's below it."""
    program = "import json\ndef main():\n    json.loads('{')\nprint('x')\nmain()\n"

    found = parse_trace(trace_of(program, tmp_path)[0])

    assert found.summary.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert found.at == place(str(tmp_path / "program.py"), 3, "main")


def test_of_a_chain_the_exception_that_ended_the_program_counts(tmp_path):
    """The last one, as Python prints it last."""
    program = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e\n"

    found = parse_trace(trace_of(program, tmp_path)[0])

    assert (found.summary, found.at.line) == ("KeyError: 'k'", 4)


def test_a_syntax_error_is_found_although_it_has_no_header(tmp_path):
    """Python prints no traceback line for an error in the script itself."""
    found = parse_trace(trace_of("x = 1\ny = (\n", tmp_path)[0])

    assert found.summary == "SyntaxError: '(' was never closed"
    assert found.at.line == 2


def test_output_after_the_traceback_does_not_hide_it():
    """Libraries warn at exit."""
    text = trace("ValueError: boom") + "[W socket.cpp] destroy_process_group() was not called\n"

    assert parse_trace(text) == Raised("ValueError: boom", place("train.py", 12, "main"))


@pytest.mark.parametrize("text", ["", "all is well\n", "Traceback (most recent call last):\n", "Error: no\n"])
def test_a_text_without_an_exception_gives_none(text):
    """No guess is made."""
    assert parse_trace(text) is None


def test_a_long_message_is_shortened():
    """A card stays a card."""
    assert len(parse_trace(trace(f"ValueError: {'x' * 5000}")).summary) == 300


def test_the_exception_is_read_from_the_stderr_log(tmp_path):
    """Without `@record` the log is all there is."""
    folder = leave(tmp_path, 1, trace("ValueError: boom"))

    cause = diagnose(attempt(ended(1, 1)), tmp_path)

    assert cause.first.raised == Raised("ValueError: boom", place("train.py", 12, "main"))
    assert cause.first.log == folder / "stderr.log"


def test_error_json_is_believed_before_the_log(tmp_path):
    """The script's own record is whole; a log may be cut."""
    leave(tmp_path, 0, trace("OSError: from the log"), recorded("ValueError: from the record"))

    cause = diagnose(attempt(ended(0, 1)), tmp_path)

    assert cause.first.raised == Raised("ValueError: from the record", place("recorded.py", 3, "main"))


def test_what_torchs_own_record_writes_is_understood(tmp_path, monkeypatch):
    """The file is written here by torch elastic's handler itself."""
    folder = leave(tmp_path, 0)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(folder / "error.json"))
    try:
        int("x")
    except ValueError as error:
        ErrorHandler().record_exception(error)

    cause = diagnose(attempt(ended(0, 1)), tmp_path)

    assert cause.first.raised.summary == "ValueError: invalid literal for int() with base 10: 'x'"
    assert cause.first.raised.at.path == __file__
    assert cause.first.log == folder


def test_a_torn_error_json_is_passed_over(tmp_path):
    """The rank was killed while it wrote; the log still says something."""
    leave(tmp_path, 0, trace("ValueError: boom"), recorded("ValueError: torn")[:40])

    assert diagnose(attempt(ended(0, 1)), tmp_path).first.raised.summary == "ValueError: boom"


def test_the_rank_that_failed_by_itself_is_the_cause_not_the_one_that_was_stopped(tmp_path):
    """The launcher's SIGTERM is a consequence, whatever the times say."""
    leave(tmp_path, 0, "")
    leave(tmp_path, 1, trace("ValueError: boom"))

    cause = diagnose(attempt(ended(0, -15, 1.0, stopped=None), ended(1, 1, 2.0, stopped=None)), tmp_path)

    assert cause.first.end.rank == 1
    assert "rank 1 failed first" in card(cause)
    assert "rank 0 was stopped by the launcher" in card(cause)


def test_a_rank_that_lost_its_peer_is_not_the_cause(tmp_path):
    """It noticed first that rank 1 had been killed."""
    leave(tmp_path, 0, trace(LOST_PEER))
    leave(tmp_path, 1, "")

    cause = diagnose(attempt(ended(0, 1, 1.0, stopped=None), ended(1, -9, 2.0, stopped=None)), tmp_path)

    assert cause.first.end.rank == 1


def test_among_equals_the_first_to_write_its_traceback_is_the_cause(tmp_path):
    """An interpreter may take seconds to go down; the logs' times decide."""
    for rank, written in ((0, 1000.9), (1, 1000.2), (2, 1000.5)):
        folder = leave(tmp_path, rank, trace(f"ValueError: on {rank}"))
        os.utime(folder / "stderr.log", (written, written))

    cause = diagnose(attempt(*(ended(rank, 1, 1002.0, stopped=None) for rank in range(3))), tmp_path)

    assert cause.first.raised.summary == "ValueError: on 1"
    assert [each.end.rank for each in cause.others] == [0, 2]


def test_the_earlier_failure_is_the_cause():
    """Without logs the launcher's times are what there is."""
    cause = diagnose(attempt(ended(0, 1, 20.0, stopped=None), ended(1, 1, 10.0, stopped=None)), None)

    assert cause.first.end.rank == 1
    assert cause.first.log is None


def test_the_newest_attempt_is_read(tmp_path):
    """After restarts the last attempt says why the job ended."""
    leave(tmp_path, 0, trace("ValueError: old"), attempt=2)
    leave(tmp_path, 0, trace("ValueError: new"), attempt=10)

    assert diagnose(attempt(ended(0, 1)), tmp_path).first.raised.summary == "ValueError: new"


def test_the_directory_of_one_attempt_will_do_as_well(tmp_path):
    """A launcher that knows the attempt names it."""
    folder = leave(tmp_path, 0, trace("ValueError: first"), attempt=0)
    leave(tmp_path, 0, trace("ValueError: second"), attempt=1)

    cause = diagnose(attempt(ended(0, 1), ended(1, -15)), folder.parent)

    assert cause.first.raised.summary == "ValueError: first"


def test_an_abort_after_success_is_called_that(tmp_path):
    """gloo's abort at interpreter exit is no failure of the training, and the card says so."""
    leave(tmp_path, 0, "epoch 3 done\nterminate called without an active exception\n")

    cause = diagnose(attempt(ended(0, -signal.SIGABRT)), tmp_path)

    assert cause.first.aborted_after_success
    assert "after its work was done" in card(cause)
    assert "destroy_process_group" in card(cause)


def test_an_abort_after_an_exception_is_no_success(tmp_path):
    """The exception came first, and the abort is how the process went down."""
    text = trace("ValueError: boom") + "terminate called without an active exception\n"
    leave(tmp_path, 0, text)

    cause = diagnose(attempt(ended(0, -signal.SIGABRT)), tmp_path)

    assert not cause.first.aborted_after_success
    assert cause.first.raised.summary == "ValueError: boom"


def test_a_handled_exception_is_not_blamed_for_a_kill(tmp_path):
    """A script may print tracebacks and go on; what ended it was the signal."""
    leave(tmp_path, 0, trace("OSError: retried") + "going on\n")

    cause = diagnose(attempt(ended(0, -signal.SIGKILL)), tmp_path)

    assert cause.first.raised is None
    assert "killed by SIGKILL" in card(cause)
    assert "dmesg" in card(cause)


def test_sys_exit_shows_the_last_words(tmp_path):
    """There is no exception to show, so the end of stderr is shown."""
    leave(tmp_path, 0, "".join(f"line {number}\n" for number in range(50)))

    text = card(diagnose(attempt(ended(0, 3)), tmp_path))

    assert "line 49" in text
    assert "line 43" not in text
    assert "exited with code 3" in text
    assert "sys.exit(3)" in text


def test_a_card_has_which_what_where_and_the_log(tmp_path):
    """All that a reader needs, in lines that stand out from the output above."""
    folder = leave(tmp_path, 1, trace("ValueError: boom"))

    lines = card(diagnose(attempt(ended(1, 1)), tmp_path)).splitlines()

    assert lines[0].startswith("-- rank 1 failed --")
    assert lines[1:5] == [
        "  raised  ValueError: boom",
        "  at      train.py:12, in main",
        "  ended   process 71 exited with code 1",
        f"  log     {folder / 'stderr.log'}",
    ]
    assert lines[5].startswith("  next    ")
    assert set(lines[-1]) == {"-"}


def test_no_failure_is_no_cause():
    """Where all ranks of this machine ended well."""
    assert diagnose(attempt(), None) is None
    assert diagnose(attempt(ended(0, 0, 1.0)), None) is None


@pytest.mark.parametrize("code", [1, 2, 3, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGUSR1, -63])
def test_every_end_has_words(code):
    """Also signals that have no entry in the table, and none at all."""
    assert ending(code)
    assert advice(code)


def test_a_crash_in_compiled_code_has_the_line_that_called_it(tmp_path):
    """From the stacks that faulthandler writes, whose lines are not shown as the last words."""
    program = """import ctypes, faulthandler, sys
faulthandler.enable()
sys.stderr.write("reading the table\\n")
def read(address):
    return ctypes.string_at(address)
read(0)
"""
    stderr, code = trace_of(program, tmp_path)
    leave(tmp_path / "logs", 1, stderr)

    cause = diagnose(attempt(ended(0, -15, 2.0, stopped=True), ended(1, code, 1.0)), tmp_path / "logs")

    assert code == -signal.SIGSEGV
    assert (cause.kind, cause.first.end.rank) == ("failed", 1)
    assert cause.first.at == place(str(tmp_path / "program.py"), 5, "read")
    assert cause.first.last_lines == ("reading the table",)
    assert f"{tmp_path / 'program.py'}:5" in card(cause)
    assert "the log has the stacks of all threads" in card(cause)


def test_an_abort_of_gloo_says_that_collectives_differ(tmp_path):
    """It got more bytes than it waited for; the line is that of the collective."""
    text = """terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at pair.cc:464] op.preamble.length <= op.nbytes. 62 vs 60. Received data size doesn't match \
expected size. Is there a distributed collective mismatch in your code?
Fatal Python error: Aborted

Thread 0x0000700000000001 (most recent call first):
  <no Python frame>

Current thread 0x0000700000000002 (most recent call first):
  File "train.py", line 47 in main
"""
    leave(tmp_path, 1, text)

    cause = diagnose(attempt(ended(0, -15, 2.0, stopped=True), ended(1, -signal.SIGABRT, 1.0)), tmp_path)

    assert cause.first.at == place("train.py", 47, "main")
    assert "ranks met in different collectives" in card(cause)


def test_an_exception_behind_a_failed_teardown_is_probably_the_cause(tmp_path):
    """`finally` called a barrier, in which all ranks waited until their time was over."""
    program = """def load():
    raise ValueError("row 17 has no label")
try:
    load()
finally:
    raise RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation")
"""
    stderr, code = trace_of(program, tmp_path)
    leave(tmp_path / "logs", 0, trace("RuntimeError: Application timeout caused pair closure"))
    leave(tmp_path / "logs", 1, stderr)

    cause = diagnose(attempt(ended(0, 1, 5.0), ended(1, code, 5.1)), tmp_path / "logs")

    assert (cause.kind, cause.first.end.rank, cause.sure) == ("failed", 1, False)
    assert cause.first.raised.summary == "ValueError: row 17 has no label"
    assert cause.first.at == place(str(tmp_path / "program.py"), 2, "load")
    assert card(cause).startswith("-- rank 1 probably failed first")


def test_a_rank_that_failed_by_itself_goes_before_one_behind_a_teardown(tmp_path):
    """What is certain is the cause, whichever was earlier."""
    chain = trace("KeyError: 'x'") + "\nDuring handling of the above exception, another exception occurred:\n\n"
    leave(tmp_path, 0, chain + trace(LOST_PEER))
    leave(tmp_path, 1, trace("ValueError: boom"))

    cause = diagnose(attempt(ended(0, 1, 1.0), ended(1, 1, 2.0)), tmp_path)

    assert (cause.first.end.rank, cause.sure) == (1, True)
