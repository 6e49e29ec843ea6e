"""Task validation: everything of a training that can be tried by one process alone, before any worker starts.

    request     the settings fit the task: batch, workers, target, parts of the data
    model       it is built, and has something to train
    train_data  samples can be read and made into a batch
    loss        it keeps its contract, and adds up over halves of the batch (see `additivity`)
    eval_data   likewise a batch of it
    metrics     each is called on that batch and on its halves

It costs about two forward passes over one micro-batch, in eval mode. The caller runs it in a short-lived process, since
a task is anybody's code; the result is plain data.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import torch

from paceline.checkpoint.find import initialize
from paceline.parallel.placement import Machine, RankEnv, place_rank, usable_cores
from paceline.records.errors import Exit, PacelineError
from paceline.records.target import Target, parse_target
from paceline.records.validation import Refusal, Validation
from paceline.tasks.contract import (
    Problem,
    TaskSource,
    describe_batch,
    gradient_problem,
    loss_problem,
    model_problem,
    words,
)
from paceline.tasks.description import describe
from paceline.tasks.holdout import narrow
from paceline.tasks.table import BUILT_IN, Defaults, Part
from paceline.tasks.targets import FRACTION, require_reachable
from paceline.tasks.task import Loss, Task, accuracy
from paceline.tasks.task_loader import load_task
from paceline.train.additivity import Additivity, MetricTrial, Piece, Trial, judge
from paceline.train.batch_plan import Plan
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.feed import Feed, make_feed
from paceline.train.loader_processes import check_loadable
from paceline.train.model import build_model, placed, seed_everything
from paceline.train.resolve import TrainingPlan, plan_training

MOST_SAMPLES = 64
"""In the batch that is tried, at most."""


def load_part(config: TrainConfig) -> Task:
    """The task, with the part of its data that the run has.

    Raises:
        PacelineError: it cannot be loaded, or has no such part.
    """
    part = Part(config.holdout, config.train_samples, config.seed)
    return narrow(load_task(config.task, config.task_options), part)


def check_defaults(task: Task, source: TaskSource) -> None:
    """Refuse a default of the task that no flag would be allowed to have.

    Raises:
        PacelineError: naming the field, not the flag that nobody typed.
    """
    for field in fields(Defaults):
        try:
            check(TrainConfig("", **{field.name: getattr(task.defaults, field.name)}))
        except PacelineError as error:
            what = error.what.removeprefix(f"{TrainConfig.flag(field.name)} ")
            raise Problem(f"defaults.{field.name}", what, error.hint, error.why).error(source) from None


def target_of(config: TrainConfig, task: Task) -> Target | None:
    """The target; None if there is none.

    Raises:
        PacelineError: the task does not measure it, or it can never be reached.
    """
    if not config.target:
        return None
    target = parse_target(config.target, config.patience)
    measured = {name: FRACTION if metric is accuracy else None for name, metric in task.metrics.items()}
    require_reachable(task.name, target, {"loss": None, **measured})
    return target


def validate(config: TrainConfig, env: RankEnv, stage: Callable[[str], None] = lambda _: None) -> Validation:
    """Try a training's task.

    Args:
        config: as the user gave it.
        env: the place of rank 0 in the job.
        stage: is told what is tried next, so that somebody outside can say where this process ended or hangs.
    """
    began = time.perf_counter()
    source = TaskSource(None if config.task in BUILT_IN else Path(config.task))
    try:
        attempt = _Attempt(config, env, source, stage)
        attempt.run()
    except PacelineError as error:
        return Validation(refusal=Refusal.of(error))
    facts = {**attempt.facts, "duration_s": round(time.perf_counter() - began, 4)}
    return Validation(notes=attempt.notes, facts=facts, task=attempt.task)


def validate_request(request: bytes, stage: Callable[[str], None]) -> bytes:
    """`validate` for a process of its own: settings and place come, and the result goes, as JSON."""
    settings, env = msgspec.json.decode(request, type=tuple[dict[str, Any], RankEnv])
    return msgspec.json.encode(validate(TrainConfig.from_dict(settings), env, stage))


class _Attempt:
    """One validation: its steps in order, and what they find out."""

    def __init__(self, config: TrainConfig, env: RankEnv, source: TaskSource, stage: Callable[[str], None]) -> None:
        self.config, self.env, self.source, self.stage = config, env, source, stage
        self.notes: list[str] = []
        self.facts: dict[str, Any] = {}
        self.task: dict[str, Any] = {}
        self.shown = ""  # the batch at hand, for messages

    def run(self) -> None:
        self.stage("task()")
        task = load_part(self.config)
        check_defaults(task, self.source)
        self.task = dataclasses.asdict(describe(task))
        planned = plan_training(self.config, task.defaults, len(task.train_data), self.env)
        target_of(self.config, task)
        if self.config.deterministic:
            torch.use_deterministic_algorithms(True)
        trial, feed, eval_feed = self._prepare(task, planned)

        indices = _spread(len(task.train_data), min(MOST_SAMPLES, max(2, planned.batches.usual_micro_batch)))
        trial = dataclasses.replace(trial, rows=self._reader("train_data", task.train_data, feed, indices))
        self.stage("loss")
        with self._guard("loss", task.loss):
            self._try_loss(task, trial, indices)
        found = self._judge(task, trial, indices, planned.batches)
        self.stage("eval_data")
        self._try_evaluation(task, trial, eval_feed, halves=found is not None and trial.precision != "bf16")

    def _prepare(self, task: Task, planned: TrainingPlan) -> tuple[Trial, Feed, Feed]:
        """The model as rank 0 would have it, and feeds of both data sets."""
        self.stage("model")
        config, plan = planned.config, planned.batches
        placement = place_rank(Machine(torch.cuda.device_count(), usable_cores()), self.env)
        device = torch.device("cuda", self.env.local_rank) if placement.device == "cuda" else torch.device("cpu")
        if placement.device == "cpu":
            torch.set_num_threads(1)  # as the ranks have it; and a forked process must not use its parent's pool
        seed_everything(config.seed)
        with self._guard("model", task.model):
            module = task.model()
        if (problem := model_problem(module)) is not None:
            self._refuse(problem, task.model)
        model = build_model(dataclasses.replace(task, model=lambda: module), planned, device)
        if config.init_from is not None and config.resume is None:
            initialize(model, Path(config.init_from))
        model, precision, like = placed(model, config.precision, device)
        model.eval()
        for field in ("train_data", "eval_data"):
            check_loadable(field, getattr(task, field), config.loader_workers)
        feeds = [
            make_feed(data, dataclasses.replace(plan, samples=len(data)), like, 0)
            for data in (task.train_data, task.eval_data)
        ]
        nothing: Callable[[Sequence[int]], Any] = feeds[0].rows
        return Trial(model, task.loss, precision.autocast, nothing, precision.name), feeds[0], feeds[1]

    def _reader(self, field: str, data: Any, feed: Feed, indices: Sequence[int]) -> Callable[[Sequence[int]], Any]:
        """Makes batches of indices of a data set; what fails names the field, the sample and the line."""
        self.stage(field)
        with self._guard(field, None):
            first = feed.rows(indices)
        self.shown = describe_batch(first)
        made = {tuple(indices): first}

        def rows(chosen: Sequence[int]) -> Any:
            if tuple(chosen) in made:
                return made[tuple(chosen)]
            with self._guard(field, None):
                return feed.rows(chosen)

        return rows

    def _try_loss(self, task: Task, trial: Trial, indices: Sequence[int]) -> None:
        """On the first half, with gradients."""
        half = indices[: (len(indices) + 1) // 2]
        batch = trial.rows(half)
        with trial.autocast():
            loss = task.loss(trial.model, batch)
        samples = len(half) if task.count == "samples" else None
        if (problem := loss_problem(loss, samples)) is not None:
            self._refuse(problem, task.loss)
        if not loss.sum.requires_grad:
            # A loss may leave gradients out where the model is not training.
            trial.model.train()
            try:
                with trial.autocast():
                    loss = task.loss(trial.model, batch)
            finally:
                trial.model.eval()
            if (problem := gradient_problem(loss)) is not None:
                self._refuse(problem, task.loss)
        self._refuse_values(loss, task)

    def _refuse_values(self, loss: Loss, task: Task) -> None:
        value, count = float(loss.sum.detach()), float(loss.count)
        if not np.isfinite(value):
            at = self.source.at(self.source.of_function(task.loss, "loss"))
            raise PacelineError(
                f"{at}loss is {value} on the first batch, with the initial weights",
                why="the data hold values that are not finite, or the model's outputs overflow",
                hint="look for NaN in the data and for log(0) or a division by 0; no step was made, so there is no "
                "checkpoint yet",
                exit_code=Exit.DIVERGED,
            )
        if not count and value:
            self._refuse(
                Problem(
                    "loss", f"returned the count 0 for a sum of {value:g}", "how many are summed over: len(labels)"
                ),
                task.loss,
            )

    def _judge(self, task: Task, trial: Trial, indices: Sequence[int], plan: Plan) -> Additivity | None:
        """Additivity of the loss; None where it was not judged."""
        self.facts |= {"samples": len(indices), "loss_scope": task.loss_scope}
        if task.loss_scope == "per_rank" or len(indices) < 2:
            return None
        with self._guard("loss", task.loss):
            found = judge(trial, indices)
        self.facts |= {
            "additivity": found.verdict,
            "deviation": float(f"{found.deviation:.3g}"),
            "loss": found.whole.sum / found.whole.count if found.whole.count else None,
        }
        pieces = plan.world * max(stage.accumulation for stage in plan.stages)
        if found.verdict in ("mean", "count", "coupled") and (found.verdict != "coupled" or pieces > 1):
            self._refuse(_not_additive(found, len(indices), pieces), task.loss)
        if found.verdict == "coupled":
            self.notes.append(
                "the loss of a batch is not the sum of its halves' losses: its samples see each other. With one worker "
                'that is well defined; several workers are refused, unless the Task says loss_scope="per_rank"'
            )
        elif found.why:
            self.facts["additivity_note"] = found.why
            self.notes.append(
                "the loss changes with the padding of a batch, and so with the number of workers"
                if found.verdict == "additive"
                else f"it could not be judged whether the loss adds up over workers: {found.why}"
            )
        return None if found.verdict == "not judged" else found

    def _try_evaluation(self, task: Task, trial: Trial, feed: Feed, *, halves: bool) -> None:
        indices = _spread(len(task.eval_data), min(MOST_SAMPLES, task.eval_batch))
        rows = self._reader("eval_data", task.eval_data, feed, indices)
        middle = len(indices) // 2
        parts = [indices[:middle], indices[middle:]] if halves and middle and task.metrics else []
        pieces = []
        for part in (indices, *parts):
            batch = rows(part)
            with self._guard("loss", task.loss), torch.no_grad(), trial.autocast():
                loss = task.loss(trial.model, batch)
            if (problem := loss_problem(loss, None)) is not None:
                self._refuse(problem, task.loss)
            pieces.append(Piece(len(part), loss.outputs, batch))
        self.stage("metrics")
        tried = MetricTrial(pieces[0], pieces[1:], self._guard, self._refuse, self.notes)
        self.facts["metrics"] = {name: tried.value(name, metric) for name, metric in task.metrics.items()}

    def _refuse(self, problem: Problem, function: Any = None) -> NoReturn:
        raise problem.error(self.source, self.source.of_function(function, problem.field) if function else None)

    @contextmanager
    def _guard(self, field: str, function: Any) -> Iterator[None]:
        """What their code raises becomes a message about the field."""
        try:
            yield
        except PacelineError:
            raise
        except (Exception, SystemExit) as error:
            traceback.print_exc()  # the whole of it goes where the launcher keeps what this process wrote
            line = self.source.of_error(error)
            if line is None and function is not None:
                line = self.source.of_function(function, field)
            why = words(error)
            if field == "loss" or field.startswith("metrics"):
                why += f"; the batch was {self.shown}"
            failed = Problem(field, "fails", _HINTS[field.split("[")[0]], why)
            raise failed.error(self.source, line) from error


_HINTS = {
    "model": "model() takes no arguments and returns a fresh nn.Module: model=lambda: Net(...)",
    "loss": "it is called as loss(model, batch), and returns Loss(sum=..., count=..., outputs=...)",
    "train_data": "data[i] returns one sample; a method collate(samples) of the data set makes batches that torch's "
    "default_collate cannot make",
    "eval_data": "data[i] returns one sample; a method collate(samples) of the data set makes batches that torch's "
    "default_collate cannot make",
    "metrics": "it is called as metric(outputs, batch) with the outputs of the loss, and returns (sum, count)",
}


def _spread(total: int, samples: int) -> list[int]:
    """Indices over the whole data set, the first and the last among them; an even number where there are two."""
    samples = min(samples, total)
    samples -= samples % 2 if samples > 1 else 0
    return [int(index) for index in np.linspace(0, total - 1, samples).round()]


def _not_additive(found: Additivity, samples: int, pieces: int) -> Problem:
    """The message for a loss that does not add up."""
    whole, (first, second) = found.whole, found.halves
    sums = f"{whole.sum:.6g} for {samples} samples, {first.sum:.6g} and {second.sum:.6g} for their halves"
    if found.verdict == "mean":
        return Problem(
            "loss",
            "looks like a mean where a sum is asked for",
            "reduction='sum', or times the count: Loss(sum=loss.sum(), count=len(labels))",
            f"Loss.sum is {sums}",
        )
    if found.verdict == "count":
        counts = f"{whole.count:g} for {samples} samples, {first.count:g} and {second.count:g} for their halves"
        return Problem(
            "loss",
            "has a count that does not add up",
            "count what the sum is taken over: len(labels), or the tokens that are not masked",
            f"Loss.count is {counts}",
        )
    if found.per_batch:
        return Problem(
            "loss",
            f"adds {found.per_batch:.6g} once a batch, whatever its samples",
            "multiply that term by the count, so that it is a mean over samples like the rest (or --weight-decay)",
            f"Loss.sum is {sums}; with {pieces} parts of a batch the term would count {pieces} times",
        )
    return Problem(
        "loss",
        "of a batch is not the sum over its samples: they see each other",
        '--workers 1 without --accumulate; or say in the Task that it is meant so: loss_scope="per_rank"',
        f"Loss.sum is {sums}; a batch is cut into {pieces} parts here, and the result would depend on that",
    )
