"""Stands in for the `paceline` command: writes the run directory of a run that never was, and prints its summary.

It is called as `python stand_in_trainer.py train TASK --flags...`. What it does is decided by flags, so that a study's
cells decide it: `--lr 99` diverges, `--lr 66` fails, `--lr 77` hangs until it is stopped.
"""

import json
import os
import sys
import time
from pathlib import Path

from paceline.records.landscape import LandscapeResult, Sam, write_result
from paceline.records.rundir import RunDir, make_dirs, write_atomic, write_info
from paceline.records.schema import SCHEMA, Batch, End, Evaluation, Measure, RunInfo, Start, TaskFacts
from paceline.records.writer import EventWriter

STEP_S = 0.01


def flags_of(arguments):
    """`--name value` pairs."""
    return {name: value for name, value in zip(arguments, [*arguments[1:], ""], strict=True) if name.startswith("--")}


def accuracy_of(flags, epoch):
    """Rises with every epoch, by an amount that depends on the rate and a little on the seed."""
    return min(0.99, 0.80 + float(flags.get("--lr", 0.05)) * epoch + 0.0001 * int(flags["--seed"]))


def train(flags):
    """A run of as many evaluations as epochs."""
    if flags.get("--lr") == "66":
        make_dirs(RunDir(flags["--run-dir"]).path)
        sys.stderr.write("error: the stand-in was told to fail\n")
        sys.exit(1)
    run = RunDir(flags["--run-dir"])
    batch, epochs = int(flags["--global-batch"]), int(flags["--epochs"])
    samples = 60_000 - int(flags.get("--holdout", 0))
    per_epoch = -(-samples // batch)
    write_info(run, info_of(flags, batch, samples, per_epoch, epochs))
    with EventWriter(run.events()) as writer:
        writer.write(Start(session=0, time_unix_s=0.0, world=2, step=0))
        if flags.get("--lr") == "77":
            write_atomic(Path(os.environ["STAND_IN_STARTED"]), str(os.getpid()).encode())
            time.sleep(120)
        if flags.get("--lr") == "99":
            writer.write(End(step=3, reason="diverged", exit_code=3, elapsed_s=0.3, message="the loss is nan"))
            sys.stderr.write("error: diverged\n")
            sys.exit(3)
        for epoch in range(1, epochs + 1):
            writer.write(evaluation(flags, epoch, per_epoch, samples))
        step = epochs * per_epoch
        writer.write(End(step=step, reason="finished", exit_code=0, elapsed_s=step * STEP_S))
    sys.stdout.write(json.dumps({"status": "finished"}) + "\n")


def evaluation(flags, epoch, per_epoch, samples):
    """One event."""
    measures = {"accuracy": accuracy_of(flags, epoch), "loss": 1.0 / epoch}
    return Evaluation(
        step=epoch * per_epoch,
        epoch=float(epoch),
        samples=epoch * samples,
        elapsed_s=epoch * per_epoch * STEP_S,
        duration_s=0.1,
        metrics={name: Measure(value=value, count=10_000) for name, value in measures.items()},
    )


def info_of(flags, batch, samples, per_epoch, epochs):
    """run.json."""
    return RunInfo(
        schema=SCHEMA,
        verb="train",
        name="fashion-mnist",
        command=sys.argv,
        started_at="2026-01-01T00:00:00+00:00",
        versions={"paceline": "0.0", "torch": "2.x"},
        config={},
        batch=Batch(per_rank=batch // 2, accumulation=1, world=2, global_batch=batch),
        task=TaskFacts(
            name="fashion-mnist",
            parameters=10,
            train_samples=samples,
            eval_samples=10_000,
            steps_per_epoch=per_epoch,
            total_steps=epochs * per_epoch,
        ),
        precision="fp32",
        facts={"lr": float(flags.get("--lr", 0.05)), "warmup_steps": 3},
    )


def measure(target, flags):
    """The result of a measurement that never was."""
    result = LandscapeResult(
        target=target,
        task="fashion-mnist",
        checkpoint=10,
        parameters=10,
        data="train",
        samples=2000,
        curvature_samples=2000,
        chunk=250,
        batch_norm="of each chunk",
        precision="fp32",
        loss=0.5,
        metrics={"accuracy": 0.9},
        curvature_loss=0.5,
        gradient_norm=0.01,
        warnings=[],
        seconds={},
        world=2,
        sam=Sam(rho=0.05, value=0.125, starts=[0.125], adaptive_value=None, adaptive_starts=[None]),
    )
    write_result(RunDir(flags["--run-dir"]), result)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(flags_of(sys.argv[3:]))
    else:
        measure(sys.argv[2], flags_of(sys.argv[3:]))
