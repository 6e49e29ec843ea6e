"""Why a job stands still, from what its processes are."""

import os
import subprocess
import sys
import time

import pytest

from paceline.launch.stall import Child, RankSeen, Script, StallWatch, explain, launchers, observe, read_script

RANK = ("python", "-u", "train.py")
SPAWN = (
    "python",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4)",
    "--multiprocessing-fork",
)
SLEEPS = "hrtimer_nanosleep"


def seen(*children, joined=False, alive=True):
    """A rank with these processes below it."""
    return RankSeen(alive, 1.0, joined, RANK, tuple(children))


def child(pid, command=SPAWN, thread="python", waits_in=SLEEPS):
    """A process below a rank; by default one that waits as torch's store does between two attempts."""
    return Child(pid, command, thread, waits_in)


def why(*ranks, script=None, left=None):
    """The explanation for ranks that looked the same some seconds ago."""
    now = dict(enumerate(ranks))
    return explain(now, now, script or Script("train.py", ("--epochs", "2")), len(ranks), left or {})


@pytest.mark.parametrize("command", [SPAWN, RANK])
def test_processes_of_the_scripts_own_in_every_rank_are_named_with_the_command_that_works(command):
    """Spawned or forked; without a call to mp.spawn in the text of the script it is only probable."""
    text = why(seen(child(10, command), child(11, command)), seen(child(12, command)))

    assert "probably starts its own processes, 2 in rank 0 and 1 in rank 1" in text
    assert text.endswith("python train.py --epochs 2")


def test_a_module_is_started_as_a_module():
    """The command that is proposed works."""
    script = Script("train.own", start=("python", "-m"))

    assert why(seen(child(10)), seen(child(11)), script=script).endswith("launcher: python -m train.own")


def test_a_call_of_mp_spawn_in_the_script_makes_it_sure(tmp_path):
    """And its line is named; the children need not sleep where the text says what they are."""
    path = tmp_path / "own.py"
    path.write_text("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n")

    text = why(*(seen(child(10 + rank, waits_in="")) for rank in range(2)), script=read_script(str(path), ()))

    assert "the script starts its own processes (mp.spawn at line 2)" in text


@pytest.mark.parametrize(
    "harmless",
    [
        child(10, thread="pt_data_worker"),
        child(10, RANK, thread="pt_data_worker"),
        child(10, ("python", "-c", "from multiprocessing.resource_tracker import main;main(3)")),
        child(10, ("python", "-c", "from multiprocessing.forkserver import main; main(3)")),
        child(10, ("python", "/lib/torch/_inductor/compile_worker/__main__.py")),
        child(10, ("wandb-service", "--port", "0")),
        child(10, ("nvidia-smi", "dmon")),
        child(10, SPAWN, waits_in="do_epoll_wait"),
        child(10, SPAWN, waits_in=""),
    ],
    ids=["spawned loader", "forked loader", "tracker", "forkserver", "compiler", "service", "program", "polls", "runs"],
)
def test_other_children_are_no_ranks(harmless):
    """A job whose ranks all wait for a slow file system must not be told to start differently."""
    assert why(seen(harmless), seen(harmless)) is None


def test_ranks_that_have_met_each_other_are_no_mistake_of_starting():
    """Whatever their children do."""
    assert why(seen(child(10), joined=True), seen(child(11))) is None


def test_one_rank_with_processes_of_its_own_is_no_evidence():
    """Rank 0 may run a server."""
    assert why(seen(child(10), child(11)), seen()) is None


def test_a_world_size_in_the_text_that_is_not_the_jobs_is_named(tmp_path):
    """With its line."""
    path = tmp_path / "fixed.py"
    path.write_text("import torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=4)\n")

    text = why(seen(), seen(), script=read_script(str(path), ()))

    assert "sets world_size=4 (line 2), and this job has 2" in text
    assert why(seen(), seen(), seen(), seen(), script=read_script(str(path), ())) is None


def test_a_rank_that_ended_while_others_stand_still_is_named():
    """As a probability: nobody knows what they wait for."""
    assert why(seen(joined=True), seen(alive=False), left={1: 31.0}) == (
        "rank 1 ended with code 0 31 s ago; the others probably wait for it"
    )


def test_launchers_in_every_rank_are_named():
    """One in one rank may be on purpose."""
    inner = child(10, ("python", "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py"))

    assert "every rank started a launcher" in launchers({0: seen(inner), 1: seen(inner)})
    assert launchers({0: seen(inner), 1: seen()}) is None
    assert launchers({0: seen(inner)}) is None


@pytest.mark.parametrize(
    "text", ["psutil.Process(3)\n", "rng.spawn(4)\n", "def (\n", "\0", "init_process_group(world_size=n)\n"]
)
def test_nothing_is_read_from_what_says_nothing(tmp_path, text):
    """Other calls of the same names, and what is no program."""
    path = tmp_path / "script.py"
    path.write_text(text)

    assert read_script(str(path), ()) == Script(str(path))
    assert read_script("missing.py", ()) == Script("missing.py")


def test_a_process_that_waits_for_children_that_sleep_is_seen_and_explained():
    """Real processes: the watch reads the process table and says it once."""
    program = (
        "import subprocess, sys, time\n"
        "inner = [sys.executable, '-c', 'import time; multiprocessing.spawn if 0 else time.sleep(60)']\n"
        "subprocess.Popen(inner)\n"
        "time.sleep(60)\n"
    )
    ranks = [subprocess.Popen([sys.executable, "-c", program], start_new_session=True) for _ in range(2)]
    said = []
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not all(
            one.children for one in observe({r: p.pid for r, p in enumerate(ranks)}).values()
        ):
            time.sleep(0.05)
        watch = StallWatch({r: p.pid for r, p in enumerate(ranks)}, 2, Script("own.py"), dict, said.append, 0.5)
        while time.monotonic() < deadline and not said:
            time.sleep(0.05)
        watch.stop()
    finally:
        for each in ranks:
            os.killpg(each.pid, 9)
            each.wait()

    assert len(said) == 1
    assert "no progress" in said[0]
    assert "1 in rank 0 and 1 in rank 1" in said[0]
    assert watch.own_ranks
