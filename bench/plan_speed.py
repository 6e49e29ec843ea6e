"""Are predictions of `paceline plan speed` right? Settings that no fit has seen, against measured step times.

    python bench/plan_speed.py measure calibration unseen    # some 20 minutes a set on 2 cores; resumes
    python bench/plan_speed.py judge                         # writes the tables; measures nothing

Scenes are in speed_scenes.py: computing is emulated by sleeping, so that 8 ranks can be timed on 2 cores; processes,
DDP, gloo and loopback are real. `measure` writes what was timed, a file a scene; `judge` fits what `plan speed` fits to
it, and predicts the rest, so that a change of the model is judged on the same measurements. `--realtime` (root) lets
other processes wait while steps are timed, for a machine that others use.

The error term of the intervals was made from the set `calibration`. Of `unseen`, nothing was looked at before that.
Beside the predictions stand two simpler ones from the same runs: perfect scaling (the step of one worker), and Pollux's
form, fitted likewise.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from harness import RECORDS, command_line, environment, record_folder, write_record
from paceline.records.rundir import write_atomic
from ranks import ALLOCATOR
from speed_coverage import judged, tables
from speed_scenes import SETS, measure, scenes, step_ahead


def newest_record() -> Path:
    """The record that measurements go on in: the newest with scenes, or a new one."""
    found = sorted(path.parent for path in RECORDS.glob("*_plan_speed/cells"))
    return found[-1] if found else record_folder("plan_speed")


def measure_set(kind: str, record: Path) -> None:
    """Measure the scenes of a set that have no file yet."""
    for number, scene in enumerate(scenes(kind)):
        path = record / "cells" / f"{scene.name}.json"
        if path.exists():
            continue
        facts = {"command": command_line(), "environment": environment()}
        cell = {**facts, **measure(scene, number)}
        write_atomic(path, json.dumps(cell).encode() + b"\n")
        print(f"{scene.name}: {cell['took_s']:.0f} s, {cell['load']}", flush=True)


def judge(record: Path) -> None:
    """Predict every unseen setting of every scene, and write the tables."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((record / "cells").glob("*.json"))]
    if not cells:
        raise SystemExit(f"no scene was measured in {record}")
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        rows = judged(cell)
        found.setdefault(cell["scene"]["name"].rpartition("-")[0], []).extend(rows)
        print(f"{cell['scene']['name']}: {sum(row['inside'] for row in rows)} of {len(rows)} inside", flush=True)
    facts = {"command": command_line(), "environment": cells[-1]["environment"]}
    text = "\n".join(["# Predicted step times", "", *tables(found, cells)])
    write_record(record, {**facts, "sets": found}, text)
    print(text)


def main() -> None:
    """Measure, or judge what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="DIR", help="of measurements [default: the newest]")
    parser.add_argument("what", choices=["measure", "judge"])
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help=f"of measure: {', '.join(SETS)}; all by default")
    parser.add_argument("--realtime", action="store_true", help="let other processes wait; takes root")
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.record or newest_record())
        return
    os.environ.update(ALLOCATOR, OMP_NUM_THREADS="1")  # as paceline train sets them, before any rank starts
    if options.realtime:
        step_ahead()
    for kind in options.sets or SETS:
        measure_set(kind, options.record or newest_record())


if __name__ == "__main__":
    main()
