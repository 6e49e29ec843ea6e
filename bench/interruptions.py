"""Kill a training run at random points and see whether it comes back as if nothing had happened.

    python bench/interruptions.py [--count 30] [--seed 0]

Each case starts `paceline train`, waits for a random step, and then kills one rank, the launcher, or all of them
with SIGKILL, or sends SIGTERM to the launcher. It then looks for processes that are left, resumes with
`--resume auto`, and compares the final weights, buffers and optimizer state with those of an undisturbed run, bit
for bit. Cases go round over digits (fp32) and fashion-mnist (bf16), at 2 and 3 workers.

Cost: 15 to 25 s a case on 2 cores. Writes bench/records/<date>_interruptions/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch

from harness import command_line, environment, record_folder, write_record

ACTIONS = ("kill a rank", "kill the launcher", "kill all", "SIGTERM")
PATIENCE_S = 180.0


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
    """Every live process that works for the run: its launcher and ranks."""
    mark = str(run)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if mark in " ".join(process.cmdline()) or mark in process.environ().get("PACELINE_TRAIN", ""):
                found.append(process)
    return found


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
    victims = {"kill a rank": [chance.choice(ranks)] if ranks else [], "kill the launcher": [], "kill all": ranks}[
        action
    ]
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
    if action != "kill a rank":
        launcher.kill()


def left_over(run: Path, patience_s: float = 5.0) -> list[psutil.Process]:
    """Processes that are still there after a fair time."""
    deadline = time.monotonic() + patience_s
    while (found := processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def run_case(setting: Setting, action: str, root: Path, reference: Path, chance: random.Random) -> Case:
    """One interruption, one resumption, one comparison."""
    began = time.monotonic()
    run = root / f"{setting.name}-{time.time_ns()}"
    at_step = chance.randint(1, setting.steps - 5)
    process = subprocess.Popen(command(setting, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_step(run, at_step, process)
    time.sleep(chance.uniform(0.0, 0.1))
    act(action, run, process, chance)
    code = process.wait(PATIENCE_S)
    left = left_over(run)
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


def main() -> int:
    """Run the cases, print a line each, write the record."""
    parser = argparse.ArgumentParser(description="interrupt training runs and compare what comes back")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
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
