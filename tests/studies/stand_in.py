"""Stands in for `paceline train`: writes the run directory of a training that never was.

Called as `python stand_in.py train TASK --flags...` or `... train --resume RUN`. Every call is a line in the file that
STAND_IN_LOG names. `--lr` decides what happens: 99 diverges, 66 is refused, 55 dies, 77 hangs until it is told to stop
and is finished by `--resume`, 88 is stopped by somebody else; STAND_IN_TROUBLE gives the same to runs by the names of
their directories (`batch-64-seed-1=88 batch-16-seed-0=99`). Else it finishes: with a --target after the steps of a
hyperbola, with --init-from at a loss that grows with the batch above 128, and otherwise with an error that is a power
law of --train-samples.
"""

import dataclasses
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from paceline.records.errors import REFUSAL_FILE
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info, write_info
from paceline.records.schema import SCHEMA, Batch, End, Evaluation, Measure, RunInfo, Start, TaskFacts, Topology
from paceline.records.validation import Refusal
from paceline.records.writer import EventWriter
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve


def error_of(samples, seed):
    """3 m^-0.35 + 0.06, with one per cent of noise."""
    noise = np.random.default_rng((samples, seed)).standard_normal()
    return (3 * samples**-0.35 + 0.06) * (1 + 0.01 * noise)


def steps_to_target(batch, seed):
    """50 steps and 3,200 samples at least, so that 64 is the critical batch; one per cent between seeds."""
    return round((50 + 3200 / batch) * (1.01 if seed else 0.99))


def loss_of_branch(batch, seed):
    """The same up to a batch of 128, then a tenth more with each doubling; seeds differ by a thousandth."""
    return 0.5 * (1 + 0.1 * max(0.0, math.log2(batch / 128))) * (1 + 0.001 * seed)


def note(text):
    """A line in the log."""
    with Path(os.environ["STAND_IN_LOG"]).open("a") as file:
        file.write(f"{text}\n")


def flags_of(arguments):
    """`--name value` pairs."""
    return {name: value for name, value in zip(arguments, [*arguments[1:], ""], strict=True) if name.startswith("--")}


def lr_of(flags):
    """The rate, as a number, or what stands for it in STAND_IN_TROUBLE; it decides what happens."""
    trouble = dict(each.split("=") for each in os.environ.get("STAND_IN_TROUBLE", "").split())
    return float(trouble.get(Path(flags["--run-dir"]).name, flags.get("--lr", 0.1)))


def fail(flags):
    """The ends that leave no run."""
    if lr_of(flags) == 66:
        sys.stderr.write("a warning of a library\nerror: in other words\n")
        Refusal(what="the batch is wrong", why="it is odd\nand long", hint="--more").write(os.environ[REFUSAL_FILE])
        sys.exit(2)
    if lr_of(flags) == 55:
        sys.stderr.write("Traceback (most recent call last)\nBoom: no message\n")
        sys.exit(7)


def config_of(flags, task):
    """As paceline train resolves it; flags without a value are not known here."""
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()}
    return resolve(msgspec.convert({**given, "task": task}, TrainConfig, strict=False), BUILT_IN["digits"].defaults)


def info_of(flags, arguments):
    """run.json."""
    config = config_of(flags, arguments[1])
    samples, batch = config.train_samples or 1437, config.global_batch
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name="digits",
        command=["paceline", *arguments],
        started_at="2026-03-01T09:30:00+00:00",
        versions={},
        config=dataclasses.asdict(config),
        topology=Topology(
            world=1,
            nodes=1,
            backend="gloo",
            device="cpu",
            device_name="a CPU",
            threads_per_rank=1,
            hostname="here",
        ),
        batch=Batch(per_rank=batch, accumulation=1, world=1, global_batch=batch),
        task=TaskFacts(
            name="digits", parameters=10, train_samples=samples, eval_samples=9, steps_per_epoch=1, total_steps=1
        ),
        precision="fp32",
        facts={"lr": recipe(config).optimizer.lr},
    )


def outcome(flags):
    """(step, accuracy, loss) of each evaluation, and the reason of the end."""
    batch, seed, step = int(flags.get("--global-batch", 64)), int(flags["--seed"]), int(flags.get("--steps", 10))
    if "--target" in flags:
        value, step = float(flags["--target"].partition("=")[2]), steps_to_target(batch, seed)
        return [(step // 2, value - 0.1, 1.0), (step, value, 0.5)], "target"
    if "--init-from" in flags:
        return [(step, 0.9, loss_of_branch(batch, seed))], "finished"
    error = error_of(int(flags["--train-samples"]), seed)
    return [(step, 1 - error, 2 * error)], "finished"


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
        evaluations, reason = outcome(flags)
        batch = int(flags.get("--global-batch", 64))
        for step, accuracy, loss in evaluations:
            metrics = {"accuracy": Measure(value=accuracy, count=9.0), "loss": Measure(value=loss, count=9.0)}
            writer.write(
                Evaluation(step=step, epoch=1.0, samples=step * batch, elapsed_s=1.0, duration_s=0.1, metrics=metrics)
            )
        writer.write(End(step=step, reason=reason, exit_code=0, elapsed_s=1.0))
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
