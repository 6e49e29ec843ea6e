"""Is the noise scale that `paceline train` records the true one? A regression at fixed weights, for which it is 21.

    python bench/noise_scale.py           # 2 and 4 workers, 20,000 steps of 8 fresh samples each: some 4 minutes

Reported are the value over all 160,000 samples, and, of 40 pieces of 500 steps each, how many 90 % intervals hold 21.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import BENCH, command_line, environment, record_folder, write_record
from paceline.records.gradients import read_gradient_norms
from paceline.records.rundir import RunDir
from paceline.stats.noise_scale import estimates, noise_scale

TRUTH, PIECE, PIECES = 21.0, 500, 40
WORKERS = (2, 4)


def measured(workers: int, seed: int, folder: Path) -> dict[str, Any]:
    """Train, and estimate from what was recorded."""
    run = folder / f"{workers}"
    command = [sys.executable, "-m", "paceline", "train", str(BENCH / "tasks" / "regression.py")]
    command += ["--workers", str(workers), "--global-batch", "8", "--epochs", "1", "--lr", "0", "--noise-every", "1"]
    command += ["--eval-every", "1000000", "--checkpoint-every", "1000000", "--run-dir", str(run), "--format", "json"]
    env = os.environ | {"PACELINE_REGRESSION_SEED": str(seed)}
    subprocess.run(command, env=env, check=True, capture_output=True)
    steps, noise, signal = estimates(read_gradient_norms(RunDir(run)))
    whole = noise_scale(noise, signal)
    pieces = [
        noise_scale(noise[start : start + PIECE], signal[start : start + PIECE])
        for start in range(0, PIECE * PIECES, PIECE)
    ]
    inside = sum(piece.low <= TRUTH <= piece.high for piece in pieces)
    return {"steps": len(steps), "whole": asdict(whole), "error": whole.value / TRUTH - 1, "pieces_inside": inside}


def main() -> None:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    options = parser.parse_args()
    facts = {"command": command_line(), "environment": environment()}  # before our own load is on the machine
    lines = ["# Noise scale of a regression (truth: 21)", ""]
    lines += ["| workers | steps | noise scale [90 %] | error | of 40 pieces of 500 steps, intervals with 21 |"]
    lines += ["|---|---|---|---|---|"]
    found = {}
    with tempfile.TemporaryDirectory(prefix="paceline-noise-") as scratch:
        for workers in WORKERS:
            row = found[str(workers)] = measured(workers, options.seed, Path(scratch))
            whole = row["whole"]
            shown = f"{whole['value']:.2f} [{whole['low']:.2f}, {whole['high']:.2f}]"
            lines.append(f"| {workers} | {row['steps']:,} | {shown} | {row['error']:+.1%} | {row['pieces_inside']} |")
            print(lines[-1], flush=True)
    print("\n".join(lines))
    folder = record_folder("noise_scale")
    write_record(folder, {**facts, "found": found}, "\n".join(lines))
    print(f"written: {folder}")


if __name__ == "__main__":
    main()
