"""What each setting of the hand-written loop is worth: each variant changes one thing of the tuned loop.

    python bench/tune_hand_loop.py --workers 2 --batch 64          # about 4 minutes

The ratio is variant over tuned: below 1 the setting helps, above 1 the variant would be the better choice.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets_here import synthetic_root
from harness import (
    RECORDS,
    command_line,
    environment,
    environment_lines,
    interleave,
    ratio_of_medians,
    record_folder,
    steps_for,
    write_record,
)
from ranks import ALLOCATOR, RankError, Ranks

PLAIN_DDP = {"gradient_as_bucket_view": False, "sync_buffers": True}

VARIANTS: dict[str, dict[str, Any]] = {
    "tuned": {},
    "nothing tuned (fp32, defaults)": {"bf16": False, "channels_last": False, "optimizer": "loop", "ddp": PLAIN_DDP},
    "fp32 instead of bf16 autocast": {"bf16": False},
    "fp32, oneDNN may compute in bf16": {"bf16": False, "numerics": {"fp32_conv": "bf16"}},
    "channels first": {"channels_last": False},
    "SGD foreach": {"optimizer": "foreach"},
    "SGD one tensor at a time": {"optimizer": "loop"},
    "gradients not views of buckets": {"ddp": {"gradient_as_bucket_view": False}},
    "buffers broadcast at each forward": {"ddp": {"sync_buffers": True}},
    "static graph": {"ddp": {"static_graph": True}},
    "one bucket": {"ddp": {"bucket_cap_mb": 100}},
    "buckets of 1 MiB": {"ddp": {"bucket_cap_mb": 1}},
    "buckets of 0.1 MiB": {"ddp": {"bucket_cap_mb": 0.1}},
    "no DDP, one flat all-reduce": {"sync": "flat"},
    "ReLU before pooling": {"form": {"relu_first": True}},
    "flattening in channels-first order": {"form": {"flatten_copy": True}},
    "both of these": {"form": {"relu_first": True, "flatten_copy": True}},
    "ReLU not in place": {"form": {"inplace": False}},
    "denormals flushed to zero": {"numerics": {"denormals": False}},
}


def measure(arguments: argparse.Namespace, root: Path) -> dict[str, list[float]]:
    """Milliseconds a step: variant -> (rounds,)."""
    names = arguments.only or list(VARIANTS)
    with Ranks(arguments.workers, dict(ALLOCATOR) if arguments.allocator else {}) as ranks:
        steps = {}
        for name in names:
            ranks.ask(
                op="setup",
                key=name,
                name="hand",
                batch=arguments.batch,
                root=str(root),
                bf16=True,
                overrides=VARIANTS[name],
            )
            steps[name] = steps_for(arguments.block_s, ranks.ask(op="block", key=name, steps=3)["seconds"] / 3)

        def block(name: str) -> float:
            seconds: float = ranks.ask(op="block", key=name, steps=steps[name])["seconds"]
            return 1e3 * seconds / steps[name]

        return interleave(names, arguments.rounds, block)


def table(found: dict[str, list[float]]) -> list[str]:
    """Lines for people."""
    lines = [f"{'':36}{'ms/step':>9}  speed over tuned"]
    for name, step_ms in found.items():
        ratio = ratio_of_medians(found["tuned"], step_ms) if "tuned" in found else ""
        lines.append(f"{name:36}{statistics.median(step_ms):>9.2f}  {ratio}")
    return lines


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block-s", type=float, default=0.8)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS))
    parser.add_argument("--no-allocator", dest="allocator", action="store_false", help="glibc's defaults")
    parser.add_argument("--records", type=Path, default=RECORDS)
    arguments = parser.parse_args()
    before = environment(allocator=ALLOCATOR if arguments.allocator else {}, threads_per_rank=1, backend="gloo")
    try:
        with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
            found = measure(arguments, synthetic_root(Path(scratch), 20_000, 500))
    except RankError as error:
        sys.exit(str(error))
    lines = table(found)
    print("\n".join(lines))
    folder = record_folder(f"tuning_{arguments.workers}x{arguments.batch}", arguments.records)
    before["load_average_after"] = list(os.getloadavg())
    text = [f"# What each setting is worth: {arguments.workers} worker(s), {arguments.batch} samples a rank", ""]
    text += [f"Command: `{' '.join(command_line())}`", "", "```", *lines, "```", "", *environment_lines(before), ""]
    result = {"command": command_line(), "environment": before, "variants": VARIANTS, "step_ms": found}
    write_record(folder, result, "\n".join(text))


if __name__ == "__main__":
    main()
