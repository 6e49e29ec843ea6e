"""Kill a training run at random points and see whether it comes back as if nothing had happened.

    python bench/interruptions.py [--count 30] [--seed 0]
    python bench/interruptions.py --stops 300 [--at-once 2] [--seed 0]

Each case starts `paceline train`, waits for a random step, and then kills one rank, the fork server, the launcher, or
all of them with SIGKILL, or sends SIGTERM to the launcher. It then looks for processes that are left, resumes with
`--resume auto`, and compares the final weights, buffers and optimizer state with those of an undisturbed run, bit
for bit. Cases go round over digits (fp32) and fashion-mnist (bf16), at 2 and 3 workers.

With --stops it sends SIGTERM to the launcher at random moments of a run with two loader workers a rank: during
start-up, while steps, evaluations, and loader workers come and go, and in a save. It measures how long the run takes
to end, and takes the stacks of every process that is still there after half of the grace time (with py-spy, where it
is on the PATH).

Cost: 15 to 25 s a case on 2 cores. Writes bench/records/<date>_interruptions/ or <date>_stops/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch

from harness import command_line, environment, record_folder, write_record

ACTIONS = ("kill a rank", "kill the launcher", "kill all", "SIGTERM", "kill the server")
MOMENTS = ("start-up", "training", "evaluation", "save")
PATIENCE_S = 180.0
GRACE_S = 30.0
LOADER_TASK = Path(__file__).resolve().parents[1] / "tests" / "files" / "dataset_task.py"


@dataclass(frozen=True)
class Setting:
    """One training that is interrupted."""

    task: str
    workers: int
    flags: tuple[str, ...]
    steps: int

    @property
    def name(self) -> str:
        """For people and file names."""
        return f"{Path(self.task).stem}-{self.workers}"


def settings() -> list[Setting]:
    """digits and fashion-mnist in bf16, 2 and 3 workers; batches that divide evenly and that do not."""
    made = []
    for workers in (2, 3):
        digits = ("--steps", "700", "--global-batch", "64", "--checkpoint-every", "37", "--eval-every", "90")
        images = (
            *("--steps", "60", "--global-batch", "100", "--checkpoint-every", "9", "--eval-every", "25"),
            *("--precision", "bf16", "--augment", "crop,flip", "--warmup", "10"),
        )
        made.append(Setting("digits", workers, digits, 700))
        made.append(Setting("fashion-mnist", workers, images, 60))
    return made


@dataclass(frozen=True)
class Case:
    """What happened in one case."""

    setting: str
    action: str
    at_step: int
    exit_code: int
    left_over: int
    resumed_from: str
    identical: bool
    seconds: float


def command(setting: Setting, run: Path, *more: str) -> list[str]:
    """The training as a user would type it."""
    flags = [*setting.flags, "--workers", str(setting.workers), "--run-dir", str(run), *more]
    return [sys.executable, "-m", "paceline", "train", setting.task, *flags]


def undisturbed(setting: Setting, root: Path) -> Path:
    """Train to the end and return the run directory."""
    run = root / f"{setting.name}-undisturbed"
    subprocess.run(command(setting, run), check=True, capture_output=True, timeout=PATIENCE_S)
    return run


def final_state(run: Path, steps: int) -> dict[str, torch.Tensor]:
    """Weights, every rank's buffers and the optimizer's tensors at the last step."""
    from safetensors.torch import load_file

    path = run / "checkpoints" / f"step-{steps:08d}"
    tensors = dict(load_file(path / "model.safetensors"))
    state = torch.load(path / "state.pt", weights_only=True)
    for rank, own in enumerate(state["ranks"]):
        tensors |= {f"rank {rank} {name}": buffer for name, buffer in own["buffers"].items()}
    for index, slots in state["optimizer"]["state"].items():
        tensors |= {f"optimizer {index} {k}": v for k, v in slots.items() if isinstance(v, torch.Tensor)}
    return tensors


def identical(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """The same tensors, bit for bit."""
    if a.keys() != b.keys():
        return False
    return all(torch.equal(a[n].reshape(-1).view(torch.uint8), b[n].reshape(-1).view(torch.uint8)) for n in a)


def processes_of(run: Path) -> list[psutil.Process]:
    """Every live process that works for the run: its launcher, and its ranks, which write to its logs."""
    mark = str(run)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if mark in " ".join(process.cmdline()) or mark in str(Path(f"/proc/{process.pid}/fd/2").readlink()):
                found.append(process)
    return found


def below(launcher: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All processes that the launcher and its processes have started: the fork server first, then its children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(launcher.pid).children(recursive=True)
    return []


def steps_written(run: Path) -> int:
    """The last step that rank 0 has written down, 0 before."""
    events = run / "events" / "rank-00000.jsonl"
    if not events.exists():
        return 0
    last = 0
    for line in events.read_bytes().splitlines()[-20:]:
        with contextlib.suppress(ValueError):
            last = max(last, json.loads(line).get("step", 0))
    return last


def wait_for_step(run: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    """Until rank 0 has written `step`, or the process ended."""
    deadline = time.monotonic() + PATIENCE_S
    while steps_written(run) < step and process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{run} did not reach step {step}")
        time.sleep(0.02)


def act(action: str, run: Path, launcher: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Do to the run what the case says."""
    if action == "SIGTERM":
        launcher.send_signal(signal.SIGTERM)
        return
    ranks = [p for p in processes_of(run) if p.pid != launcher.pid]
    victims = {
        "kill a rank": [chance.choice(ranks)] if ranks else [],
        "kill the launcher": [],
        "kill all": ranks,
        "kill the server": below(launcher)[:1],
    }[action]
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
    if action in ("kill the launcher", "kill all"):
        launcher.kill()


def left_over(run: Path, patience_s: float = 5.0, known: Sequence[psutil.Process] = ()) -> list[psutil.Process]:
    """Processes of the run, or of those that were known, that are still there after a fair time."""
    deadline = time.monotonic() + patience_s
    while (found := [*processes_of(run), *filter(_lives, known)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_case(setting: Setting, action: str, root: Path, reference: Path, chance: random.Random) -> Case:
    """One interruption, one resumption, one comparison."""
    began = time.monotonic()
    run = root / f"{setting.name}-{time.time_ns()}"
    at_step = chance.randint(1, setting.steps - 5)
    process = subprocess.Popen(command(setting, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_step(run, at_step, process)
    time.sleep(chance.uniform(0.0, 0.1))
    known = below(process)
    act(action, run, process, chance)
    code = process.wait(PATIENCE_S)
    left = left_over(run, known=known)
    resumed = subprocess.run(
        command(setting, run, "--resume", "auto"), capture_output=True, text=True, timeout=PATIENCE_S
    )
    if resumed.returncode != 0:
        raise RuntimeError(f"{setting.name} after {action}: {resumed.stderr}")
    notes = [line for line in resumed.stdout.splitlines() if "resumed from" in line]
    same = identical(final_state(run, setting.steps), final_state(reference, setting.steps))
    return Case(
        setting=setting.name,
        action=action,
        at_step=at_step,
        exit_code=code,
        left_over=len(left),
        resumed_from=notes[0].rsplit(" ", 1)[-1] if notes else "the beginning",
        identical=same,
        seconds=time.monotonic() - began,
    )


def cases(count: int, seed: int, root: Path) -> Iterator[Case]:
    """`count` cases, going round over settings and actions."""
    chance = random.Random(seed)
    chosen = settings()
    references = {setting.name: undisturbed(setting, root) for setting in chosen[: min(count, len(chosen))]}
    for number in range(count):
        setting = chosen[number % len(chosen)]
        action = ACTIONS[(number // len(chosen)) % len(ACTIONS)]
        yield run_case(setting, action, root, references[setting.name], chance)


@dataclass(frozen=True)
class Stop:
    """How a run ended after SIGTERM.

    Attributes:
        moment: one of MOMENTS.
        after_s: from the start of the launcher to the signal.
        end_s: from the signal to the end of the launcher.
        exit_code: of the launcher; None when it had to be killed.
        last: the last words on its standard error.
        left_over: processes that outlived it.
        stacks: Python stacks of the processes still alive after half of the grace time.
    """

    moment: str
    after_s: float
    end_s: float
    exit_code: int | None
    last: str
    left_over: int
    stacks: str


def wait_for_moment(moment: str, run: Path, launcher: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Until the run is where the signal shall meet it."""
    if moment == "start-up":
        time.sleep(chance.uniform(0.0, 8.0))
        return
    wait_for_step(run, chance.randint(1, 60), launcher)
    if moment == "training":
        time.sleep(chance.uniform(0.0, 3.0))
        return
    deadline = time.monotonic() + 20.0
    checkpoints = run / "checkpoints"
    began = steps_written(run)
    while launcher.poll() is None and time.monotonic() < deadline:
        if moment == "save" and any("step" not in path.name[:4] for path in checkpoints.glob("*step*")):
            return
        if moment == "evaluation" and steps_written(run) > began:  # steps are written out before an evaluation
            time.sleep(chance.uniform(0.0, 0.2))
            return
        time.sleep(0.001)


def stacks_of(processes: list[psutil.Process]) -> str:
    """The stack of each process."""
    spy = shutil.which("py-spy")
    parts = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            parts.append(
                f"== {process.pid} of {process.ppid()}: {process.status()} {' '.join(process.cmdline())[:200]}"
            )
            if spy is not None:
                dump = [spy, "dump", "--pid", str(process.pid)]
                parts.append(subprocess.run(dump, capture_output=True, text=True, check=False).stdout)
    return "\n".join(parts)


def stop_case(moment: str, root: Path, seed: int) -> Stop:
    """One SIGTERM."""
    chance = random.Random(seed)
    run = root / f"stop-{seed}-{time.time_ns()}"
    flags = ["--epochs", "4000", "--global-batch", "32", "--workers", "2", "--checkpoint-every", "11"]
    command = [sys.executable, "-m", "paceline", "train", str(LOADER_TASK), *flags, "--run-dir", str(run)]
    began = time.monotonic()
    with (root / f"{run.name}.stderr").open("w+b") as words:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        stacks = ""
        try:
            wait_for_moment(moment, run, process, chance)
        except TimeoutError as error:  # stuck without a signal, or a very busy machine
            stacks = f"{error}\n{stacks_of(processes_of(run))}\n"
        known = below(process)
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code: int | None = None
        for patience, looks in ((GRACE_S / 2, True), (GRACE_S, True), (3 * GRACE_S, False)):
            try:
                code = process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                stacks += stacks_of(processes_of(run)) if looks else ""
        end_s = time.monotonic() - sent
        left = left_over(run, known=known)
        for survivor in [*left, *([psutil.Process(process.pid)] if code is None else [])]:
            with contextlib.suppress(psutil.Error):
                survivor.kill()
        words.seek(0)
        last = words.read().decode(errors="replace").strip().splitlines()
    return Stop(moment, sent - began, end_s, code, last[0] if last else "", len(left), stacks)


def soak(count: int, at_once: int, seed: int) -> int:
    """Stop `count` runs, `at_once` side by side; write the record."""
    facts = environment()
    done: list[Stop] = []
    with (
        tempfile.TemporaryDirectory(prefix="stops-", ignore_cleanup_errors=True) as root,
        ThreadPoolExecutor(at_once) as pool,
    ):
        moments = [MOMENTS[number % len(MOMENTS)] for number in range(count)]
        numbers = range(seed * 1_000_000, seed * 1_000_000 + count)
        for stop in pool.map(stop_case, moments, [Path(root)] * count, numbers):
            done.append(stop)
            print(f"{len(done):3} {stop}", flush=True)
    times = sorted(stop.end_s for stop in done)
    good = sum(stop.exit_code in (143, -signal.SIGTERM) and not stop.left_over for stop in done)
    slow = sum(stop.end_s > GRACE_S / 2 for stop in done)
    words = (
        f"{good} of {count} ended with SIGTERM's exit code and left no process; "
        f"median {statistics.median(times):.1f} s, slowest {times[-1]:.1f} s; "
        f"{slow} took more than half of the grace time of {GRACE_S:g} s"
    )
    print(words)
    result = {"command": command_line(), "environment": facts, "stops": [asdict(stop) for stop in done], "seed": seed}
    write_record(record_folder("stops"), result, f"# Runs stopped by SIGTERM\n\n{words}.\n")
    return 0 if good == count and not slow else 1


def main() -> int:
    """Run the cases, print a line each, write the record."""
    parser = argparse.ArgumentParser(description="interrupt training runs and compare what comes back")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0, help="send SIGTERM so often instead")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    if options.stops:
        return soak(options.stops, options.at_once, options.seed)
    facts = environment()
    done: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="interruptions-") as root:
        for case in cases(options.count, options.seed, Path(root)):
            done.append(case)
            print(f"{len(done):3} {case}", flush=True)
    good = sum(case.identical and not case.left_over for case in done)
    result = {
        "command": command_line(),
        "environment": facts,
        "identical": good,
        "cases": [asdict(case) for case in done],
        "seed": options.seed,
    }
    words = f"{good} of {len(done)} identical with no process left"
    print(words)
    write_record(record_folder("interruptions"), result, f"# Interrupted runs\n\n{words}.\n")
    return 0 if good == len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
