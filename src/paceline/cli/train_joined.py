"""`paceline train` as one rank of a job that torchrun started, on one machine or on many."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import ExitStack
from typing import Any, NoReturn

from paceline.cli.follow import Follower, console_for
from paceline.cli.job import tidy
from paceline.cli.result import show_result
from paceline.cli.train_request import settle_request, tensorboard_export
from paceline.cli.validate_task import validate_task
from paceline.parallel import agree
from paceline.parallel.exit import leave
from paceline.parallel.placement import RankEnv
from paceline.parallel.rank_context import StopRequest, init_rank_context, report_failure
from paceline.parallel.rank_context import join as join_group
from paceline.pool.processes import fork_server_of_this
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, run_lock
from paceline.records.validation import Validation
from paceline.train.choices import SAVE_SIGNALS
from paceline.train.config import TrainConfig
from paceline.train.setup import build
from paceline.train.worker import PATIENCE_S, finish


def join(given: dict[str, Any]) -> NoReturn:
    """Train as this rank; never returns. Rank 0 chooses the run directory, holds its lock and draws."""
    stop = StopRequest()
    stop.end_at_once()
    try:
        code = _run(given, stop)
    except PacelineError as error:
        report_failure(error)
        if os.environ.get("RANK") == "0":  # the others would only repeat it
            sys.stderr.write(f"{error}\n")
        leave(error.exit_code)
    except BaseException as error:  # noqa: BLE001  # whatever it is, torchrun must hear of it
        report_failure(error)
        traceback.print_exc()
        leave(Exit.FAILED)
    leave(code)


def _run(given: dict[str, Any], stop: StopRequest) -> int:
    # Before this rank has a process group, threads or CUDA: the task is tried in a fork of it.
    outcome = _settled(given) if os.environ.get("RANK") == "0" else None
    context = init_rank_context(["paceline", *sys.argv[1:]])
    join_group(context, max(PATIENCE_S, given.get("grace", TrainConfig.grace)))
    config, run, validation = agree.from_rank_zero(lambda: _said(outcome))
    with ExitStack() as stack:
        agree.all_or_none(lambda: stack.enter_context(run_lock(run)) if context.env.rank == 0 else None)
        with ExitStack() as drawing:
            if context.env.rank == 0:
                extra = drawing.enter_context(tensorboard_export(config, run))
                drawing.enter_context(Follower(run, console_for(config.format), extra))
            code = finish(build(config, context, run, stop, validation), SAVE_SIGNALS[config.save_signal])
        if context.env.rank == 0 and code == Exit.OK:
            show_result(run, config.format)
    return code


Settled = tuple[TrainConfig, RunDir, Validation]


def _settled(given: dict[str, Any]) -> Settled | PacelineError:
    """On rank 0: the request, with its task tried; or why it is refused, which is said once the others can hear it."""
    try:
        env = RankEnv.read(os.environ)
        assert env is not None
        config, run = settle_request(given)
        with tidy(run):
            server = fork_server_of_this()
            try:
                return config, run, validate_task(config, env, run, server=server, environment=os.environ)
            finally:
                server.close()
    except PacelineError as error:
        return error


def _said(outcome: Settled | PacelineError | None) -> Settled:
    assert outcome is not None
    if isinstance(outcome, PacelineError):
        raise outcome
    return outcome
