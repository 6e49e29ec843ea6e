"""`paceline plan speed`: how fast other numbers of workers would be, from a few short runs and a network probe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli import signals
from paceline.cli.job import refuse_torchrun, worker_environment
from paceline.cli.options import command_from
from paceline.cli.plan_frame import make_plan, progress_bar
from paceline.plan.speed_config import SpeedConfig, check
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline.plan.collectives import Network
    from paceline.plan.network import FittedLink

HELP = """Predict the speed of other numbers of workers from a few short runs.

The runs are of the same task at different batches and numbers of workers, for example:

    for n in 1 2; do for b in 32 64 128; do
      paceline train fashion-mnist --workers $n --global-batch $((n * b)) \\
        --steps 60 --run-dir runs/speed-$n-$b
    done; done
"""


def run_speed(given: dict[str, Any]) -> int:
    """Carry out `paceline plan speed` with what the user gave, and return the exit code."""
    config = SpeedConfig(**{"runs": [], **given})
    check(config)
    from paceline.plan.rows import require_alike, timing_of
    from paceline.plan.speed import Question, predict, processors_of
    from paceline.plan.step_fit import require_sizes

    if config.probe:
        refuse_torchrun("paceline plan speed --probe")
    paths = [Path(run) for run in config.runs]
    info = require_alike(paths)
    observed = [timing_of(path) for path in paths]
    require_sizes(observed)  # before a probe takes its time
    processors = processors_of(info)
    network, link = _network(config, processors)
    first = observed[0].setting
    most = max(each.setting.workers for each in observed)
    question = Question(
        task=info.name,
        workers=config.worker_counts,
        batch=config.batch or first.batch,
        micro=config.micro or first.micro,
        at=config.at or (most if most > 1 else max(config.worker_counts)),
        noise_scale=config.noise_scale,
        processors=processors,
        compressed=info.config.get("compress", "none") != "none",
    )
    with progress_bar("fit") as tell:
        result = predict(observed, network, question, tell, link=link)
    return make_plan("speed", info.name, config, lambda run: result)


COMMAND = command_from(SpeedConfig, run_speed, HELP)


def _network(config: SpeedConfig, processors: float | None) -> tuple[Network, FittedLink | None]:
    """The network, and how the probe found its link; None where it was given."""
    if config.given_network is not None:
        return config.given_network, None
    if not config.probe:
        raise PacelineError(
            "what sums of gradients cost is not known",
            why="runs alone cannot tell how a network's cost grows with workers and bytes",
            hint="--probe times it here in 10 s; or --bandwidth (GB/s) and --latency (microseconds) of another network",
        )
    fitted = _probed(config, processors)
    return config.network_over(fitted.link), fitted


def _probed(config: SpeedConfig, processors: float | None) -> FittedLink:
    """The link between workers of this machine.

    Raises:
        typer.Exit: stopped, with the exit code of a stopped job.
    """
    from paceline.plan.network import fit_link
    from paceline.studies.probe import probe

    env, most = worker_environment(config.probe_workers, "--probe-workers")
    counts = sorted({2, 3, most} if most > 2 else {most})
    try:
        with progress_bar("network probe") as tell:
            rows = probe(counts, env, seconds=config.probe_seconds, tell=tell)
    except KeyboardInterrupt as stop:
        sys.stderr.write("\nstopped: nothing was written\n")
        raise typer.Exit(signals.exit_code(stop)) from None
    return fit_link(rows, processors)
