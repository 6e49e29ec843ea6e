"""The training loop, to be read from top to bottom.

One step is one global batch:

    data      this rank's micro-batches of it
    forward   loss sums, each micro-batch
    backward  gradients add up; those of the last micro-batch carry the all-reduce with them
    sync      loss, count and the requests to stop or save of all ranks came with the gradients (see `objective`)
    step      gradients are a mean over the global batch; the optimizer takes them
    record    an event
    then, when due: checkpoint, evaluate, decide

A checkpoint comes before the evaluation of its step, so that an evaluation that fails or is killed costs no training; a
run that is resumed from it begins with that evaluation.

Every decision is made on numbers that are equal on all ranks, so all take it at the same step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from paceline.parallel.buffers import copy_counters
from paceline.parallel.reduce import sum_over_ranks
from paceline.records.errors import Exit, PacelineError
from paceline.records.event import CheckpointReason
from paceline.records.schema import Measure, Step
from paceline.train.evaluate import evaluate
from paceline.train.gradients import clip_gradients, scale_gradients
from paceline.train.job import Job
from paceline.train.objective import Counts, LedgerReader, Totals, total_count
from paceline.train.recorder import Recorder


@dataclass(frozen=True)
class Outcome:
    """How the loop ended."""

    reason: Literal["finished", "target", "interrupted"]
    exit_code: int


def train(job: Job) -> Outcome:
    """Train until the last step, the target, or a request to stop.

    Raises:
        PacelineError: the loss is not finite; weights are those before the step that would have spoiled them
            (on CUDA, two steps after it). Or the weights are not, or the loss at the end; they are not saved.
    """
    replica, data, timetable = job.replica, job.data, job.timetable
    plan, progress, recorder = data.plan, job.progress, job.recorder
    counts_samples = data.task.count == "samples"
    parameters = [p for group in replica.optimizer.param_groups for p in group["params"]]
    reader = LedgerReader(replica.objective.ledger.device)
    unread: deque[dict[str, Any]] = deque()
    counts = Counts(data.task, progress.samples)
    replica.model.train()
    if progress.evaluation_due and make_up_evaluation(job):
        return Outcome("target" if progress.target_step is not None else "finished", Exit.OK)

    while progress.step < timetable.schedule.total_steps:
        epoch, first = plan.locate(progress.step)
        batches = data.train_feed.epoch(epoch, first)
        for index in range(first, plan.steps_in(epoch)):
            # data
            began = perf_counter()
            micro_batches = next(batches)
            loaded = perf_counter()

            # forward, backward
            batch_size = plan.batch_size(epoch, index)
            # DDP divides by the world size; a mean divides by the count, so the world size is put back here.
            scale = plan.world / batch_size if counts_samples else 1.0
            wishes = (*job.stop.wishes(), job.stop.take_save())
            watched = replica.norms.begin(progress.step + 1)
            forward_s = backward_s = 0.0
            for position, batch in enumerate(micro_batches):
                last = position == len(micro_batches) - 1
                if batch is None and replica.objective.empty is None and not last:
                    continue
                with nullcontext() if last else replica.ddp.no_sync():
                    started = perf_counter()
                    loss = replica.ddp(batch, scale, wishes)
                    turned = perf_counter()
                    loss.backward()
                    ended = perf_counter()
                if watched:
                    size = len(plan.micro_batches(epoch, index)[position])
                    replica.norms.micro_batch(size, size * scale if counts_samples else replica.objective.counted)
                forward_s += turned - started
                backward_s += ended - turned

            # sync
            ledger = replica.objective.totals(plan.world)
            totals = reader.push(ledger)
            require_finite(totals, unread, progress.step + 1)
            replica.objective.complete_gradients(plan.world)

            # step
            lr = timetable.schedule.at(progress.step)
            for group in replica.optimizer.param_groups:
                group["lr"] = lr
            if not counts_samples:
                count = total_count(ledger)
                factor = torch.where(count > 0, plan.world / count, torch.zeros_like(count))
                scale_gradients(parameters, factor)
            if watched:
                replica.norms.end(progress.step + 1, batch_size)
            if replica.clip_norm is not None:
                clip_gradients(parameters, replica.clip_norm)  # of the whole batch's gradient: equal on all ranks
            replica.optimizer.step()
            if plan.leaves_ranks_idle(epoch, index):
                copy_counters(replica.model)
            for parameter in (*parameters, replica.objective.ledger):
                parameter.grad = None
            progress.step += 1
            progress.samples += batch_size
            if replica.average is not None:
                replica.average.update(replica.model, progress.step)
            stepped = perf_counter()

            # record
            unread.append(
                {
                    "step": progress.step,
                    "epoch": epoch,
                    "samples": progress.samples,
                    "lr": lr,
                    "elapsed_s": recorder.elapsed_s(stepped),
                    "data_s": loaded - began,
                    "forward_s": forward_s,
                    "backward_s": backward_s,
                    "update_s": stepped - loaded - forward_s - backward_s,
                }
            )
            record_steps(recorder, unread, totals, counts)

            # checkpoint, evaluate, decide
            done = progress.step >= timetable.schedule.total_steps
            evaluating = done or timetable.eval_every.due(progress.step)
            stopping = any(t.terminate or t.interrupt for t in totals)
            periodic = timetable.checkpoint_every.due(progress.step)
            saving = periodic or any(t.save for t in totals)
            if evaluating or stopping or saving:
                replica.norms.flush()
                late = reader.drain()
                require_finite(late, unread, progress.step)
                record_steps(recorder, unread, late, counts)
                totals += late
                stopping = any(t.terminate or t.interrupt for t in totals)
                saving = periodic or any(t.save for t in totals)
                require_finite_weights([p for p in parameters if p.requires_grad], progress.step)
            saving = saving or done or stopping
            if saving:
                progress.evaluation_due = evaluating
                reason: CheckpointReason
                reason = "final" if done else "interrupted" if stopping else "periodic" if periodic else "requested"
                job.keeper.save(replica.model, replica.average, replica.optimizer, progress, reason)
                job.stop.save = False  # asked for since this step began: this is that checkpoint
            if evaluating:
                metrics = measure(job)
                progress.evaluation_due = False
                if done and not finite_loss(metrics):
                    job.keeper.discard(progress.step)
                    require_finite_end(metrics, progress.step)
            reached = progress.target_step is not None
            if reached and not saving:
                job.keeper.save(replica.model, replica.average, replica.optimizer, progress, "final")
            if saving or reached:
                job.keeper.prune(progress.step)
            if done or reached:
                return Outcome("target" if reached else "finished", Exit.OK)
            if stopping:
                terminated = any(t.terminate for t in totals)
                return Outcome("interrupted", Exit.TERMINATED if terminated else Exit.INTERRUPTED)
    return Outcome("finished", Exit.OK)


def require_finite(totals: list[Totals], unread: Iterable[Mapping[str, Any]], step: int) -> None:
    """Stop a run whose loss is not a number; all ranks see the same, so all stop here.

    Args:
        totals: of consecutive steps, oldest first.
        unread: what is known of these steps; of the last one perhaps nothing yet.
        step: that one's number, 1 for the first.
    """
    for row, number in zip(totals, chain((facts["step"] for facts in unread), (step,)), strict=False):
        if not math.isfinite(row.loss):
            raise _diverged(
                f"the loss is {row.loss} at step {number}",
                "the training diverged, or the data hold values that are not finite",
            )


def require_finite_weights(parameters: Sequence[Tensor], step: int) -> None:
    """Stop a run whose weights are no numbers after `step` steps, before they are evaluated or saved.

    A gradient can be infinite where the loss is not. Every rank calls this together.
    """
    spoiled = torch.stack([torch.isfinite(parameter).all() for parameter in parameters]).logical_not().any()
    if float(sum_over_ranks(spoiled.to(torch.float64).reshape(1))):
        raise _diverged(f"weights are not finite after step {step}", "a step was not, although the loss before it was")


def require_finite_end(metrics: Mapping[str, Measure], step: int) -> None:
    """Stop a run that its last update has spoiled: no further step would show it."""
    if not finite_loss(metrics):
        loss = metrics.get("raw_loss", metrics["loss"]).value
        raise _diverged(
            f"the loss of the evaluation is {loss} after step {step}, the last one",
            "the training diverged, or the evaluation data hold values that are not finite",
        )


def finite_loss(metrics: Mapping[str, Measure]) -> bool:
    """Whether the loss of the trained weights is a number."""
    return math.isfinite(metrics.get("raw_loss", metrics["loss"]).value)


def _diverged(what: str, why: str) -> PacelineError:
    return PacelineError(what, why=why, hint="a smaller --lr or a longer --warmup", exit_code=Exit.DIVERGED)


def record_steps(recorder: Recorder, unread: deque[dict[str, Any]], totals: list[Totals], counts: Counts) -> None:
    """Write the oldest steps whose ledger is known now, after a look at what they count."""
    for row in totals:
        facts = unread.popleft()
        if remark := counts.check(row.count, facts["step"], facts["samples"]):
            recorder.note(remark, "warning")
        recorder.write(Step(count=row.count, loss=row.loss / row.count if row.count else math.nan, **facts))


def make_up_evaluation(job: Job) -> bool:
    """The evaluation that comes after the checkpoint from which the run was resumed; returns whether the run is over.

    It is done again also where the record has it, since it is a part of the state: merged buffers, random numbers,
    and how often the target was reached.
    """
    progress = job.progress
    recorded = job.recorder.has_evaluation(progress.step)
    metrics = measure(job, record=not recorded)
    progress.evaluation_due = False
    over = progress.step >= job.timetable.schedule.total_steps
    if over:
        require_finite_end(metrics, progress.step)
    over = over or progress.target_step is not None
    if over and recorded:
        job.recorder.note(ALREADY_OVER)
    return over


ALREADY_OVER = "this run had already reached its end: nothing was left to do"


def measure(job: Job, *, record: bool = True) -> dict[str, Measure]:
    """Evaluate, record, and decide whether the target is met: on reduced values, so equally on all ranks."""
    progress = job.progress
    began = perf_counter()
    metrics = evaluate(job.replica.objective, job.data.task, job.data.eval_feed, job.recorder.note_once)
    if job.replica.average is not None and job.replica.average.begun:
        averaged = job.replica.average.evaluate(job.data.task, job.data.eval_feed)
        metrics = averaged | {f"raw_{name}": measure for name, measure in metrics.items()}
    if job.monitor is not None:
        measured, doubt = job.monitor.measure(job.timetable.schedule.at(progress.step - 1))
        metrics |= measured
        if doubt:
            job.recorder.note(f"step {progress.step}: {doubt}", "warning")
    epochs = job.data.plan.epochs_done(progress.step)
    if record:
        job.recorder.evaluation(progress.step, epochs, progress.samples, began, metrics)
    if job.timetable.target is not None:
        progress.reached = (
            progress.reached + 1 if job.timetable.target.reached(metrics[job.timetable.target.metric].value) else 0
        )
        if progress.reached >= job.timetable.target.patience:
            progress.target_step = progress.step
    return metrics
