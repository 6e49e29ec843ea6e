"""Which glibc malloc settings keep big tensors' memory, and what that is worth to a training step on a CPU.

Each setting runs in processes of its own (malloc reads its environment once), all settings in turn, several rounds, so
that drift of the machine hits all alike. A step is measured in processor time, the kernel's work for it included: there
is one thread, and a neighbour on the machine does not count. Wall time is recorded beside it. Prints a table of medians
and writes bench/records/<date>_allocator/result.json.

    python bench/allocator.py [--rounds 5] [--batches 64 128 512] [--steps 30]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MAX_MMAP = 32 * 1024 * 1024
"""The most that mallopt(3) documents for M_MMAP_THRESHOLD on 64 bits. glibc 2.36 takes more; others may not."""
BIG = 1 << 36

SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "trim": {"MALLOC_TRIM_THRESHOLD_": str(BIG)},
    "mmap max 0": {"MALLOC_MMAP_MAX_": "0"},
    "mmap threshold 32 MiB": {"MALLOC_MMAP_THRESHOLD_": str(MAX_MMAP)},
    "mmap threshold 64 GiB": {"MALLOC_MMAP_THRESHOLD_": str(BIG)},
    "trim + threshold 32 MiB": {"MALLOC_TRIM_THRESHOLD_": str(BIG), "MALLOC_MMAP_THRESHOLD_": str(MAX_MMAP)},
    "trim + mmap max 0": {"MALLOC_TRIM_THRESHOLD_": str(BIG), "MALLOC_MMAP_MAX_": "0"},
    "arena 1": {"MALLOC_ARENA_MAX": "1"},
    "trim + mmap max 0 + arena 1": {
        "MALLOC_TRIM_THRESHOLD_": str(BIG),
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_ARENA_MAX": "1",
    },
    "trim + threshold 32 MiB + arena 1": {
        "MALLOC_TRIM_THRESHOLD_": str(BIG),
        "MALLOC_MMAP_THRESHOLD_": str(MAX_MMAP),
        "MALLOC_ARENA_MAX": "1",
    },
    "trim + mmap max 0 + top pad": {
        "MALLOC_TRIM_THRESHOLD_": str(BIG),
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TOP_PAD_": str(64 * 1024 * 1024),
    },
    "tunables: trim + mmap max 0": {"GLIBC_TUNABLES": f"glibc.malloc.trim_threshold={BIG}:glibc.malloc.mmap_max=0"},
    "tunables + hugetlb 1": {
        "GLIBC_TUNABLES": f"glibc.malloc.trim_threshold={BIG}:glibc.malloc.mmap_max=0:glibc.malloc.hugetlb=1"
    },
}


def measure(batches: list[int], steps: int) -> dict[str, dict[str, float]]:
    """In a worker: the median step time and page faults a step, for each batch size."""
    import torch
    from torch.nn import functional as F

    from paceline.tasks.models.cnn import FashionCNN

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    for batch in batches:
        model = FashionCNN().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        images = torch.randn(batch, 1, 28, 28).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(10, (batch,))
        times, cpus, before = [], [], 0
        for step in range(steps + 5):
            if step == 5:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            start, cpu = time.perf_counter(), time.process_time()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(images).float(), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - start)
            cpus.append(time.process_time() - cpu)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found[str(batch)] = {
            "step_s": statistics.median(times[5:]),
            "cpu_s": statistics.median(cpus[5:]),
            "faults": (usage.ru_minflt - before) / steps,
            "max_rss_bytes": usage.ru_maxrss * 1024,
        }
    return found


def clean_environment() -> dict[str, str]:
    """Ours, without any allocator setting."""
    drop = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
    return {name: value for name, value in os.environ.items() if not name.startswith(drop)} | {"OMP_NUM_THREADS": "1"}


def run_worker(env: dict[str, str], batches: list[int], steps: int) -> dict[str, dict[str, float]]:
    """One process under one setting."""
    command = [sys.executable, __file__, "--worker", "--steps", str(steps), "--batches", *map(str, batches)]
    out = subprocess.run(command, env=clean_environment() | env, check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def environment() -> dict[str, object]:
    """On what this was measured."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": f"{datetime.datetime.now():%Y-%m-%d}",
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_average": os.getloadavg(),
    }


def summarise(samples: dict[str, list[dict[str, dict[str, float]]]], batches: list[int]) -> dict[str, object]:
    """Medians over the rounds, and the gain against the default as the median of the ratios within a round."""
    table: dict[str, object] = {}
    for name, rounds in samples.items():
        table[name] = {
            str(batch): {
                "step_s": statistics.median(each[str(batch)]["step_s"] for each in rounds),
                "cpu_s": statistics.median(each[str(batch)]["cpu_s"] for each in rounds),
                "faults": statistics.median(each[str(batch)]["faults"] for each in rounds),
                "max_rss_bytes": max(each[str(batch)]["max_rss_bytes"] for each in rounds),
                "speed_ratios": [
                    base[str(batch)]["cpu_s"] / each[str(batch)]["cpu_s"]
                    for base, each in zip(samples["default"], rounds, strict=True)
                ],
            }
            for batch in batches
        }
    return table


def show(table: dict[str, object], batches: list[int]) -> None:
    """The table on the terminal: step time, speed against the default (least to most), page faults a step."""
    for batch in batches:
        print(f"\nbatch {batch}: {'setting':34}{'CPU ms':>10}{'speed':>8}{'(least-most)':>15}{'faults':>10}{'MiB':>7}")
        for name, row in table.items():
            cell = row[str(batch)]
            ratios = cell["speed_ratios"]
            spread = f"({min(ratios):.2f}-{max(ratios):.2f})"
            print(
                f"{'':11}{name:34}{cell['cpu_s'] * 1e3:>10.2f}{statistics.median(ratios):>8.2f}{spread:>15}"
                f"{cell['faults']:>10.0f}{cell['max_rss_bytes'] / 2**20:>7.0f}"
            )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 512])
    parser.add_argument("--only", nargs="*", help="settings to measure besides the default")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.batches, options.steps)))
        return
    chosen = {name: env for name, env in SETTINGS.items() if not options.only or name in {"default", *options.only}}
    samples: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in chosen}
    for _ in range(options.rounds):
        for name, env in chosen.items():
            samples[name].append(run_worker(env, options.batches, options.steps))
    table = summarise(samples, options.batches)
    show(table, options.batches)
    folder = Path(__file__).parent / "records" / f"{datetime.date.today()}_allocator"
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "command": ["bench/allocator.py", *sys.argv[1:]],
        "environment": environment(),
        "settings": chosen,
        "rounds": options.rounds,
        "steps": options.steps,
        "table": table,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten: {folder / 'result.json'}")


if __name__ == "__main__":
    main()
