"""How long a short training takes from the command to its end: `paceline train` beside torchrun with a plain script.

    python bench/start_up.py [--rounds 12] [--workers 1 2 4] [--images] [--plan REVISION]

The script is DDP as tutorials write it and trains next to nothing, so that what is left is starting and ending.
`--images` adds the time to the first step on Fashion-MNIST. `--plan` adds `paceline plan batch digits` (six trainings),
of this checkout and of an earlier revision.

Commands run in turn, in an order shuffled anew in each round. Processor time is that of a command and all its
processes. Results are medians, and ratios of medians with a 95 % bootstrap interval over rounds. Writes
bench/records/<date>_start_up/.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import (
    command_line,
    environment,
    environment_lines,
    interleave,
    ratio_of_medians,
    record_folder,
    write_record,
)

HERE = Path(__file__).resolve().parents[1]
PLAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(23):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,))).backward()
    optimizer.step()
dist.destroy_process_group()
"""
IMAGES = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms
dist.init_process_group("gloo")
data = datasets.FashionMNIST("data", transform=transforms.ToTensor())
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LazyLinear(10)
)
model(torch.zeros(1, 1, 28, 28))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    open("first-step", "w").close()
"""
_ABORTS = 20
PLAN = ("plan", "batch", "digits", "--target", "accuracy=0.9", "--run-dir", "plan")


def torchrun(script: str, workers: int) -> list[str]:
    """The command that runs a script with so many processes."""
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(workers), script]


def paceline(*arguments: str) -> list[str]:
    """A command of Paceline."""
    return [sys.executable, "-m", "paceline", *arguments]


class Runs:
    """Runs commands, each in a folder of its own below `scratch`.

    Attributes:
        wall_s, cpu_s: seconds by name, in the order of rounds.
        aborted: how often the plain script was aborted by gloo at its exit, after its work; it is run again then.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.aborted = 0
        self.wall_s: dict[str, list[float]] = {}
        self.cpu_s: dict[str, list[float]] = {}

    def whole(self, name: str, command: Sequence[str], tree: Path = HERE) -> float:
        """Run a command to its end; seconds of wall time."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder, tempfile.TemporaryFile() as output:
            began = time.perf_counter()
            process = self._start(command, Path(folder), output, tree)
            _, status, used = os.wait4(process.pid, 0)
            took = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            printed = output.read().decode()
        if process.returncode and "terminate called without an active exception" in printed and self.aborted < _ABORTS:
            self.aborted += 1
            return self.whole(name, command, tree)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: {process.returncode}\n{printed[-3000:]}")
        self.wall_s.setdefault(name, []).append(took)
        self.cpu_s.setdefault(name, []).append(used.ru_utime + used.ru_stime)
        return took

    def first_step(self, name: str, command: Sequence[str], mark: str, text: bytes) -> float:
        """Seconds until a file that matches `mark` holds `text`; the command is stopped then."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder, tempfile.TemporaryFile() as output:
            began = time.perf_counter()
            process = self._start(command, Path(folder), output, HERE)
            while process.poll() is None and not any(text in path.read_bytes() for path in Path(folder).glob(mark)):
                time.sleep(0.005)
            took = time.perf_counter() - began
            if process.poll() is not None:
                output.seek(0)
                raise SystemExit(f"{' '.join(command)} took no step:\n{output.read().decode()[-3000:]}")
            process.terminate()
            process.wait()
        self.wall_s.setdefault(name, []).append(took)
        return took

    def _images(self) -> Path:
        """Fashion-MNIST as torchvision wants it, from Debian's package; empty where that is not installed."""
        folder = self.scratch / "images"
        if not folder.exists():
            folder.mkdir()
            for path in Path("/usr/share/datasets/fashion-mnist").glob("*.gz"):
                (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        return folder

    def _start(self, command: Sequence[str], folder: Path, output: Any, tree: Path) -> subprocess.Popen[bytes]:
        (folder / "plain.py").write_text(PLAIN)
        (folder / "images.py").write_text(IMAGES)
        raw = folder / "data" / "FashionMNIST"
        raw.mkdir(parents=True)
        (raw / "raw").symlink_to(self._images())
        env = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT)


def row(what: str, top: Sequence[float], bottom: Sequence[float]) -> str:
    """A line of the table."""
    ratio = ratio_of_medians(top, bottom)
    line = f"| {what} | {statistics.median(bottom):.2f} | {statistics.median(top):.2f} | {ratio} |"
    print(line, flush=True)
    return line


def compared(runs: Runs, what: str, ours: str, theirs: str) -> list[str]:
    """Lines of the table for wall and processor time of whole commands."""
    measured = (("wall", runs.wall_s), ("processor", runs.cpu_s))
    return [row(f"{which} time, {what}", found[ours], found[theirs]) for which, found in measured]


def short_training(runs: Runs, rounds: int, workers: int) -> list[str]:
    """Digits for an epoch, beside the plain script."""
    ours, theirs = f"paceline train, {workers}", f"torchrun, {workers}"
    training = ("train", "digits", "--epochs", "1", "--workers", str(workers), "--run-dir", "run")
    commands = {theirs: torchrun("plain.py", workers), ours: paceline(*training)}
    interleave(list(commands), rounds, lambda name: runs.whole(name, commands[name]))
    return compared(runs, f"{workers} worker(s), against torchrun", ours, theirs)


def first_step(runs: Runs, rounds: int) -> list[str]:
    """Fashion-MNIST with two workers, beside a plain script with torchvision's data set."""
    ours, theirs = "paceline train, first step", "torchrun, first step"
    training = ("train", "fashion-mnist", "--steps", "200", "--workers", "2", "--run-dir", "run")
    seen = {
        theirs: (torchrun("images.py", 2), "first-step", b""),
        ours: (paceline(*training), "run/events/rank-00000.jsonl", b'"type":"step"'),
    }
    interleave(list(seen), rounds, lambda name: runs.first_step(name, *seen[name]))
    return [row("first step on Fashion-MNIST, 2 workers, against torchrun", runs.wall_s[ours], runs.wall_s[theirs])]


def plans(runs: Runs, rounds: int, revision: str) -> list[str]:
    """Six trainings of `paceline plan batch`, beside an earlier revision."""
    trees = {"plan, before": runs.scratch / "before", "plan": HERE}
    git = ["git", "-C", str(HERE), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(trees["plan, before"]), revision], check=True)
    try:
        interleave(list(trees), rounds, lambda name: runs.whole(name, paceline(*PLAN), trees[name]))
    finally:
        subprocess.run([*git, "remove", "--force", str(trees["plan, before"])], check=True)
    return compared(runs, f"plan batch, against {revision}", "plan", "plan, before")


def measure(arguments: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], list[str]]:
    """Every figure, and the rows of the table."""
    runs, rows = Runs(scratch), ["| what | before (s) | paceline (s) | ratio |", "|---|---|---|---|"]
    for count in arguments.workers:
        rows += short_training(runs, arguments.rounds, count)
    if arguments.images:
        rows += first_step(runs, arguments.rounds)
    if arguments.plan:
        rows += plans(runs, max(4, arguments.rounds // 3), arguments.plan)
    rows += ["", f"gloo aborted the plain script at its exit {runs.aborted} times; those runs were repeated."]
    return {"wall_s": runs.wall_s, "cpu_s": runs.cpu_s, "aborted": runs.aborted}, rows


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--images", action="store_true", help="also the time to the first step on Fashion-MNIST")
    parser.add_argument("--plan", metavar="REVISION", help="also paceline plan batch, beside that of a revision")
    arguments = parser.parse_args()
    facts = environment(threads_per_rank=1, backend="gloo")
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
        found, rows = measure(arguments, Path(scratch))
    text = ["# Start-up", "", f"`{' '.join(command_line())}`", "", *rows, "", *environment_lines(facts), ""]
    folder = record_folder("start_up")
    write_record(folder, {"command": command_line(), "environment": facts, "found": found}, "\n".join(text))
    print(f"written: {folder.name}")


if __name__ == "__main__":
    main()
