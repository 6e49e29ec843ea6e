"""Stands in for `paceline train`: writes the run directory of a training that never was.

Called as `python stand_in.py train TASK --flags...` or `... train --resume RUN`. Every call is a line in the file that
STAND_IN_LOG names. `--lr` decides what happens: 99 diverges, 66 is refused, 55 dies, 77 hangs until it is told to stop
and is finished by `--resume`, 88 is stopped by somebody else; else it finishes, and its error is a power law
of --train-samples.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info, write_info
from paceline.records.schema import SCHEMA, Batch, End, Evaluation, Measure, RunInfo, Start, TaskFacts
from paceline.records.writer import EventWriter


def error_of(samples, seed):
    """3 m^-0.35 + 0.06, with one per cent of noise."""
    noise = np.random.default_rng((samples, seed)).standard_normal()
    return (3 * samples**-0.35 + 0.06) * (1 + 0.01 * noise)


def note(text):
    """A line in the log."""
    with Path(os.environ["STAND_IN_LOG"]).open("a") as file:
        file.write(f"{text}\n")


def flags_of(arguments):
    """`--name value` pairs."""
    return {name: value for name, value in zip(arguments, [*arguments[1:], ""], strict=True) if name.startswith("--")}


def lr_of(flags):
    """The rate, as a number; it decides what happens."""
    return float(flags.get("--lr", 0.1))


def fail(flags):
    """The ends that leave no run."""
    if lr_of(flags) == 66:
        sys.stderr.write(
            "a warning of a library\nerror: the batch is wrong\n  why:  it is odd\nand long\n  next: --more\n"
        )
        sys.exit(2)
    if lr_of(flags) == 55:
        sys.stderr.write("Traceback (most recent call last)\nBoom: no message\n")
        sys.exit(7)


def info_of(flags, arguments):
    """run.json."""
    samples = int(flags["--train-samples"])
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name="digits",
        command=["paceline", *arguments],
        started_at="2026-03-01T09:30:00+00:00",
        versions={},
        config={},
        batch=Batch(per_rank=64, accumulation=1, world=1, global_batch=64),
        task=TaskFacts(
            name="digits", parameters=10, train_samples=samples, eval_samples=9, steps_per_epoch=1, total_steps=1
        ),
        precision="fp32",
    )


def train(arguments):
    """One call."""
    flags = flags_of(arguments)
    note(" ".join(arguments))
    resumed = "--resume" in flags
    run = RunDir(flags["--resume"] if resumed else flags["--run-dir"])
    if resumed:
        flags = flags_of(read_info(run.path).command)
    else:
        fail(flags)
        write_info(run, info_of(flags, arguments))
    with EventWriter(run.events()) as writer:
        writer.write(Start(session=1, time_unix_s=0.0, world=1, step=0))
        if lr_of(flags) == 99:
            writer.write(End(step=3, reason="diverged", exit_code=3, elapsed_s=0.3, message="the loss is nan"))
            sys.stderr.write("error: diverged\n")
            sys.exit(3)
        if lr_of(flags) == 88 and not resumed:
            sys.exit(143)
        if lr_of(flags) == 77 and not resumed:
            hang(writer)
        error = error_of(int(flags["--train-samples"]), int(flags["--seed"]))
        step = int(flags.get("--steps", 10))
        metrics = {"accuracy": Measure(value=1 - error, count=9.0), "loss": Measure(value=2 * error, count=9.0)}
        writer.write(Evaluation(step=step, epoch=1.0, samples=1, elapsed_s=1.0, duration_s=0.1, metrics=metrics))
        writer.write(End(step=step, reason="finished", exit_code=0, elapsed_s=1.0))
    sys.stdout.write(json.dumps({"events": sum(1 for _ in EventStream(run.events()))}) + "\n")


def hang(writer):
    """Until the first signal; it counts those that come in the moment after it, as a checkpoint would take."""
    heard = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: heard.append(number))
    note("hangs")
    while not heard:
        time.sleep(0.02)
    time.sleep(1.5)
    note(f"heard {[int(number) for number in heard]}")
    writer.write(End(step=1, reason="interrupted", exit_code=128 + heard[0], elapsed_s=0.1))
    sys.exit(128 + heard[0])


if __name__ == "__main__":
    train(sys.argv[1:])
