"""The settings of `paceline plan speed`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.parallel.placement import parse_workers
from paceline.plan.choices import check_format, positive, whole_numbers
from paceline.plan.collectives import Link, Network
from paceline.records.errors import PacelineError


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class SpeedConfig:
    """All settings."""

    runs: list[str] = field(metadata={"help": "Runs of paceline train at different batches and numbers of workers."})
    workers: str = _option("1,2,4,8,16,32,64", "Numbers of workers to predict.")
    batch: int | None = _option(None, "Global batch of strong scaling. [default: of the first run]")
    micro: int | None = _option(None, "Batch a worker of weak scaling. [default: of the first run]")
    at: int | None = _option(None, "Workers at which to say what mending would give. [default: the most measured]")
    noise_scale: float | None = _option(None, "In samples (paceline plan batch): adds efficiency towards a target.")
    probe: bool = _option(False, "Time all-reduces on this machine first, for --probe-seconds.")
    probe_seconds: float = _option(10.0, "Of measuring, starting the ranks not counted.")
    probe_workers: str = _option("auto", "Most ranks of the probe: auto (one a device or core) or a number.")
    bandwidth: float | None = _option(None, "Of a link, in GB/s, instead of a probe; with --latency.")
    latency: float | None = _option(None, "Of a message, in microseconds.")
    per_node: int | None = _option(None, "Workers on one machine; with --outer-bandwidth and --outer-latency.")
    outer_bandwidth: float | None = _option(None, "Between machines, in GB/s.")
    outer_latency: float | None = _option(None, "Between machines, in microseconds.")
    tree: bool = _option(False, "The library goes in trees and layers, as NCCL does; gloo does not.")
    run_dir: str | None = _option(None, "Exactly this directory, instead of runs/<date>_<time>_plan-speed-<task>.")
    format: str = _option("text", "text, or json: one object at the end.")

    @property
    def worker_counts(self) -> list[int]:
        """To predict, ascending."""
        return whole_numbers("--workers", self.workers)

    @property
    def outer(self) -> Link | None:
        """What the flags say of the network between machines; None without them."""
        if self.outer_bandwidth is None or self.outer_latency is None:
            return None
        return Link(self.outer_latency * 1e-6, self.outer_bandwidth * 1e9)

    @property
    def given_network(self) -> Network | None:
        """What the flags say of a network; None without them."""
        if self.bandwidth is None or self.latency is None:
            return None
        return self.network_over(Link(self.latency * 1e-6, self.bandwidth * 1e9))

    def network_over(self, link: Link) -> Network:
        """The network whose machines are connected inside by `link`, with all else that the flags say."""
        return Network(link, self.per_node, self.outer, self.tree)


def check(config: SpeedConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag.
    """
    if not config.runs:
        raise PacelineError(
            "no run was named",
            hint="paceline train TASK --steps 60 makes a short one; it takes two batch sizes, better three",
        )
    check_format(config.format)
    _ = config.worker_counts
    for name in ("batch", "micro", "at", "per_node", "noise_scale", "probe_seconds"):
        positive("--" + name.replace("_", "-"), getattr(config, name))
    for name in ("bandwidth", "latency", "outer_bandwidth", "outer_latency"):
        positive("--" + name.replace("_", "-"), getattr(config, name))
    parse_workers(config.probe_workers, "--probe-workers")
    _together(config, "bandwidth", "latency")
    _together(config, "outer_bandwidth", "outer_latency", "per_node")
    if config.probe and config.given_network is not None:
        raise PacelineError("--probe and --bandwidth are two networks", hint="leave one of them out")


def _together(config: SpeedConfig, *names: str) -> None:
    flags = ["--" + name.replace("_", "-") for name in names]
    given = [getattr(config, name) is not None for name in names]
    if any(given) and not all(given):
        missing = ", ".join(flag for flag, there in zip(flags, given, strict=True) if not there)
        raise PacelineError(f"{flags[given.index(True)]} needs {missing}", hint="paceline plan speed --help")
