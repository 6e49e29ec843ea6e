"""How long does `paceline check` take over 1,000 files, and to start?

    python bench/check_speed.py DIR|LIST [--files 1000] [--lines 430] [--runs 3]

LIST is a text file with a path a line. Of the files there (tests left out), the files whose average length is nearest
to `--lines` are chosen with a fixed seed: longer ones are drawn as often as it takes. Each run checks them twice, first
with an empty cache and then with the one that this has filled. Start-up is timed with an empty working folder.

Times are those of the whole command: wall time, and CPU time of it and its processes. Paceline's own modules are
compiled before, as pip does when it installs.

Cost: 2 minutes on 2 cores. Writes bench/records/<date>_check_speed/.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import command_line, environment, environment_lines, record_folder, write_record
from paceline.syntax.source_files import python_files

CHECK = (sys.executable, "-m", "paceline", "check")
IMPORTS_TORCH = re.compile(rb"^\s*(import|from) torch\b", re.MULTILINE)
TESTS = re.compile(r"(^|/)(tests?|test_[^/]*)(/|\.py$)|_test\.py$")
SCRIPT = "import torch.distributed as dist\n\ndist.init_process_group('gloo')\nprint(dist.get_rank())\n"
LIMITS_S = {"without cache": 20.0, "from the cache": 2.0, "--help": 0.3, "one file": 0.3}


@dataclass(frozen=True)
class Timing:
    """Times of one command.

    Attributes:
        what: a key of `LIMITS_S`.
        load: average number of busy processes in the minute before.
    """

    what: str
    wall_s: float
    cpu_s: float
    load: float


def files_of(place: Path) -> list[Path]:
    """Files of a folder, or of a list."""
    if place.is_dir():
        found = [path for path in python_files([place]) if path.suffix == ".py"]
    else:
        found = [Path(line) for line in place.read_text().splitlines() if line]
    return sorted(path for path in found if not TESTS.search(str(path)))


def chosen(files: Sequence[Path], count: int, lines: float, seed: int = 0) -> dict[Path, int]:
    """Files with about this many lines on average, and the lines of each.

    Files are drawn in random order; one is kept if it brings the average no further away from `lines`, while it is off.
    """
    order = list(files)
    random.Random(seed).shuffle(order)
    kept: dict[Path, int] = {}
    total = 0
    for path in order:
        if len(kept) == count:
            break
        length = path.read_bytes().count(b"\n")
        off = total - lines * len(kept)
        if not kept or (off <= 0) == (length >= lines):
            kept[path] = length
            total += length
    return kept


def timed(what: str, command: Sequence[str], folder: Path, cache: Path) -> Timing:
    """Run a command in a folder; findings are no failure."""
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command[:5])} failed: {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(what, round(wall, 3), round(cpu, 3), round(load, 2))


def measure(paths: Sequence[Path], runs: int) -> list[Timing]:
    """All commands, in turn."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        cache = folder / "cache"
        timed("one file", (*CHECK, "--no-cache", "train.py"), folder, cache)  # compiles Paceline's modules
        for _ in range(runs):
            shutil.rmtree(cache, ignore_errors=True)
            many = (*CHECK, *map(str, paths))
            found += [timed(what, many, folder, cache) for what in ("without cache", "from the cache")]
            for _ in range(5):
                found.append(timed("--help", (*CHECK, "--help"), folder, cache))
                found.append(timed("one file", (*CHECK, "--no-cache", "train.py"), folder, cache))
    return found


def main() -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, metavar="DIR|LIST")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--lines", type=float, default=430.0)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    kept = chosen(files_of(arguments.place.resolve()), arguments.files, arguments.lines)
    importing = sum(bool(IMPORTS_TORCH.search(path.read_bytes())) for path in kept)
    facts = {"files": len(kept), "lines on average": round(statistics.fmean(kept.values())), "import torch": importing}
    surroundings = environment()
    timings = measure([path.resolve() for path in sorted(kept)], arguments.runs)
    table = ["| what | wall, median | wall, all | CPU, median | limit |", "|---|---|---|---|---|"]
    for what, limit in LIMITS_S.items():
        these = [each for each in timings if each.what == what]
        walls = [each.wall_s for each in these]
        each_run = " ".join(f"{wall:.2f}" for wall in walls)
        cpu = statistics.median(each.cpu_s for each in these)
        table.append(f"| {what} | {statistics.median(walls):.2f} s | {each_run} | {cpu:.2f} s | {limit} s |")
    described = ", ".join(f"{name}: {value}" for name, value in facts.items())
    lines = ["# Speed of `paceline check`", "", f"{described}.", "", *table, "", *environment_lines(surroundings), ""]
    result = {
        "command": command_line(),
        **facts,
        "timings": [asdict(each) for each in timings],
        "environment": surroundings,
    }
    write_record(record_folder("check_speed"), result, "\n".join(lines))
    print("\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
