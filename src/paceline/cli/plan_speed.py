"""`paceline plan speed`: how fast other numbers of workers would be, from a few short runs and a network probe."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.options import command_from
from paceline.plan.speed_config import SpeedConfig, check
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline.plan.collectives import Network
    from paceline.plan.rows import Timing
    from paceline.records.plan import NetworkFacts

HELP = """How fast would other numbers of workers be? From short runs at a few settings, and a probe of the network.

\b
    for n in 1 2; do for b in 32 64 128; do
      paceline train fashion-mnist --workers $n --global-batch $((n * b)) --steps 60 --run-dir runs/speed-$n-$b
    done; done
    paceline plan speed runs/speed-* --probe --workers 1,2,4,8,16
    paceline plan speed runs/speed-* --bandwidth 12.5 --latency 20 --workers 64,256
"""


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("speed", help=HELP)(command_from(SpeedConfig, "runs", run_speed, HELP))


def run_speed(given: dict[str, Any]) -> None:
    """Carry out `paceline plan speed` with what the user gave."""
    config = SpeedConfig(**{"runs": [], **given})
    check(config)
    from paceline.cli.plan_frame import open_plan, progress_bar, show_plan
    from paceline.plan.rows import require_alike, timing_of
    from paceline.plan.speed import Question, predict
    from paceline.records.plan import write_plan

    paths = [Path(run) for run in config.runs]
    info = require_alike(paths)
    timings = [timing_of(path) for path in paths]
    _require_sizes(timings)
    network, facts = _network(config, timings)
    first = timings[0].observed.setting
    most = max(timing.observed.setting.workers for timing in timings)
    question = Question(
        task=info.name,
        workers=config.worker_counts,
        batch=config.batch or first.batch,
        micro=config.micro or first.micro,
        at=config.at or (most if most > 1 else max(config.worker_counts)),
        noise_scale=config.noise_scale,
    )
    with progress_bar("fit") as tell:
        result = predict(timings, network, facts, question, tell)
    run = open_plan("speed", info.name, dataclasses.asdict(config), config.run_dir, None)
    write_plan(run, result)
    show_plan(run, config.format)


def _require_sizes(timings: list[Timing]) -> None:
    if len({timing.observed.setting.micro for timing in timings}) < 2:
        raise PacelineError(
            "all runs have the same batch a worker",
            why="work and overhead of a step can only be told apart where the batch differs",
            hint="one more short run with another --global-batch",
        )


def _network(config: SpeedConfig, timings: list[Timing]) -> tuple[Network, NetworkFacts]:
    from paceline.plan.network import fit_link
    from paceline.plan.speed import network_facts

    given = config.given_network
    if given is not None:
        return given, network_facts(given, "given")
    if not config.probe:
        raise PacelineError(
            "what sums of gradients cost is not known",
            why="runs alone cannot tell how a network's cost grows with workers and bytes",
            hint="--probe times it here in 10 s; or --bandwidth (GB/s) and --latency (microseconds) of another network",
        )
    from paceline.cli.job import worker_environment
    from paceline.cli.plan_frame import progress_bar
    from paceline.plan.collectives import Network
    from paceline.studies.probe import probe

    env, most = worker_environment(config.probe_workers)
    counts = sorted({2, 3, most} if most > 2 else {most})
    with progress_bar("network probe") as tell:
        rows = probe(counts, env, seconds=config.probe_seconds, tell=tell)
    fitted = fit_link(rows, one_machine=True)
    network = Network(fitted.link, tree=config.tree)
    return network, network_facts(network, "probe", fitted, rows)
