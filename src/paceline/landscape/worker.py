"""One rank of a measurement, started by the launcher.

The launcher hands over in the environment: PACELINE_LANDSCAPE (settings, command, run directory, as JSON). Nothing is
drawn here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np

from paceline.checkpoint.find import find_checkpoint
from paceline.landscape.choices import HANDOVER, NOT_INVARIANT, STALE
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.cost import cost_lines, measure_pace
from paceline.landscape.measures import TAKE
from paceline.landscape.preflight import make_losses, preflight, require_same_loss
from paceline.landscape.ranks import Ranks, Recorder, Stopped
from paceline.landscape.run_info import batch_norm_words, chunk_words, first_note, run_info
from paceline.landscape.session import Outcome, Session
from paceline.landscape.subject import load_subject
from paceline.parallel import agree
from paceline.parallel.rank_context import RankContext, StopRequest, init_rank_context, join, last_line, run_as_rank
from paceline.records.errors import Exit, PacelineError
from paceline.records.landscape import LandscapeResult, arrays_path, finite, write_result
from paceline.records.rundir import RunDir, read_info, write_atomic, write_info
from paceline.records.schema import Measured
from paceline.tasks.names import is_run

PATIENCE_S = 86_400.0
"""Ranks may finish their points at very different times; a dead one is noticed at once all the same."""
_FLAT = 0.1
"""A longer gradient gets a warning: the weights are not at a minimum, which most measures of sharpness assume."""


@dataclass(frozen=True)
class Handover:
    """What the launcher tells its ranks."""

    config: dict[str, Any]
    run_dir: str
    command: list[str]


def run_rank(stop: StopRequest) -> int:
    """Join the process group, build what is needed, measure; return the exit code."""
    handover = msgspec.json.decode(os.environ[HANDOVER], type=Handover)
    config, run = LandscapeConfig.from_dict(handover.config), RunDir(handover.run_dir)
    context = init_rank_context(handover.command)
    join(context, PATIENCE_S)
    session, recorder = build(config, context, run, stop)
    stop.install()
    try:
        measure(session, recorder, run)
    except Stopped as stopped:
        recorder.end("interrupted", stopped.exit_code)
        return int(stopped.exit_code)
    except BaseException as error:
        code, message = int(Exit.FAILED), last_line(error)
        if isinstance(error, PacelineError):
            code, message = error.exit_code, error.what
        with contextlib.suppress(PacelineError):  # a disk that refuses the event is not what ended the measurement
            recorder.end("failed", code, message)
        raise
    recorder.end("finished", Exit.OK)
    return int(Exit.OK)


def build(config: LandscapeConfig, context: RankContext, run: RunDir, stop: StopRequest) -> tuple[Session, Recorder]:
    """Everything that is made once; every rank calls this together.

    Raises:
        PacelineError: on all ranks when it happens on one.
    """
    config = agree.from_rank_zero(lambda: settle(config))
    subject = agree.all_or_none(lambda: load_subject(config, context))
    agree.require_equal("model", subject.fingerprint)
    session = Session(config, subject, Ranks(run.path / "parts", stop, None, context.device))
    agree.all_or_none(lambda: make_losses(session))
    session.checkpoints, session.other_weights = agree.from_rank_zero(lambda: preflight(session))
    number = agree.from_rank_zero(lambda: _begin(session, context, run))
    recorder = session.ranks.recorder = Recorder(run, context.env.rank, context.env.world, number)
    for note in context.placement.notes:
        session.ranks.note(note)
    return session, recorder


def settle(config: LandscapeConfig) -> LandscapeConfig:
    """Fill in which checkpoints are meant, so that a resumed measurement looks at the same."""
    if config.checkpoint is None and is_run(config.target):
        config = dataclasses.replace(config, checkpoint=find_checkpoint(Path(config.target), None)[0])
    if config.other is not None and config.other_checkpoint is None:
        config = dataclasses.replace(config, other_checkpoint=find_checkpoint(Path(config.other), None)[0])
    return config


def _begin(session: Session, context: RankContext, run: RunDir) -> int:
    """Write run.json, or compare with the one that is there; return the number of the session."""
    info = run_info(session, context)
    if not run.exists():
        write_info(run, msgspec.structs.replace(info, facts={**info.facts, "sessions": 1}))
        return 1
    first = read_info(run.path)
    for whose, fact in ((session.config.target, "weights"), (session.config.other, "other_weights")):
        if first.facts.get(fact) != info.facts[fact]:
            raise PacelineError(
                f"{whose} has other weights than when {run.path} was begun",
                why="the checkpoint was written again, or another version of torch draws other fresh weights",
                hint="start a new measurement",
            )
    number = int(first.facts.get("sessions", 1)) + 1
    write_info(run, msgspec.structs.replace(first, facts={**first.facts, "sessions": number}))
    return number


def measure(session: Session, recorder: Recorder, run: RunDir) -> None:
    """Take every measure in turn and write the result."""
    session.ranks.note(first_note(session))
    for line in cost_lines(session, measure_pace(session)):
        session.ranks.note(line)
    require_same_loss(session)
    outcomes: dict[str, Outcome] = {}
    seconds: dict[str, float] = {}
    for name in session.config.measures:
        began = time.perf_counter()
        outcome = outcomes[name] = TAKE[name](session)
        seconds[name] = time.perf_counter() - began
        recorder.write(
            Measured(
                measure=name,
                elapsed_s=recorder.elapsed_s(),
                duration_s=seconds[name],
                summary=outcome.summary,
                level="warning" if outcome.warnings else "info",
            )
        )
    result = _result(session, outcomes, seconds)
    agree.from_rank_zero(lambda: _write(run, result, outcomes))


def _result(session: Session, outcomes: dict[str, Outcome], seconds: dict[str, float]) -> LandscapeResult:
    config, samples, curved = session.config, session.samples, session.curvature_samples
    curvature, slope = session.centre_gradient if session.curved else (None, None)
    return LandscapeResult(
        target=config.target,
        task=session.subject.task.name,
        checkpoint=session.subject.step,
        weights=session.subject.fingerprint,
        parameters=session.slices.size,
        data=config.on,
        samples=samples,
        curvature_samples=curved,
        chunk=config.chunk,
        chunks={"slices": chunk_words(samples, config.chunk), "curvature": chunk_words(curved, config.chunk)},
        batch_norm=batch_norm_words(config, session.subject),
        precision=config.precision,
        loss=finite(session.centre.loss),
        metrics={name: finite(value) for name, value in session.centre.metrics.items()},
        curvature_loss=finite(curvature),
        gradient_norm=finite(slope),
        warnings=_warnings(session, outcomes, slope),
        seconds=seconds,
        world=session.ranks.world,
        **{name: outcome.result for name, outcome in outcomes.items()},
    )


_AWAY = {"surface", "line", "trajectory"}


def _warnings(session: Session, outcomes: dict[str, Outcome], slope: float | None) -> list[str]:
    found = [warning for outcome in outcomes.values() for warning in outcome.warnings]
    if slope is not None and slope > _FLAT:
        found.append(
            f"the gradient at these weights has length {slope:.3g}: they are no minimum of this loss, so curvature and "
            "sharpness describe a slope"
        )
    if session.config.batch_norm == "saved" and session.subject.batch_norm and _AWAY & set(outcomes):
        found.append(STALE)
    if session.curved:
        found.append(NOT_INVARIANT)
    return found


def _write(run: RunDir, result: LandscapeResult, outcomes: dict[str, Outcome]) -> None:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: array for outcome in outcomes.values() for name, array in outcome.arrays.items()}
    np.savez_compressed(buffer, **arrays)
    write_atomic(arrays_path(run), buffer.getvalue())
    write_result(run, result)


def main(given: bytes) -> NoReturn:
    """The whole life of a rank."""
    del given
    run_as_rank(run_rank)
