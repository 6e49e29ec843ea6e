"""The settings of `paceline plan speed`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.parallel.placement import parse_workers
from paceline.plan.choices import check_format, positive, whole_numbers
from paceline.plan.collectives import Link, Network
from paceline.records.errors import PacelineError


def _option(default: Any, group: str, text: str, value: str = "", *, share: bool = False) -> Any:
    return field(default=default, metadata={"help": text, "group": group, "value": value, "share": share})


QUESTION = "Question"
PROBE = "Network, measured here"
NETWORK = "Network, given"
OUTPUT = "Output"


@dataclass(frozen=True)
class SpeedConfig:
    """All settings."""

    runs: list[str] = field(metadata={"help": "Runs of paceline train at different batches and numbers of workers."})

    workers: str = _option("1,2,4,8,16,32,64", QUESTION, "Numbers of workers to predict.", "N,N,...")
    batch: int | None = _option(None, QUESTION, "Global batch for strong scaling. [default: the first run's]", "N")
    micro: int | None = _option(None, QUESTION, "Batch per worker for weak scaling. [default: the first run's]", "N")
    at: int | None = _option(
        None,
        QUESTION,
        "Number of workers at which possible improvements are predicted. [default: the most measured]",
        "N",
    )
    noise_scale: float | None = _option(
        None,
        QUESTION,
        "Gradient noise scale in samples, from paceline plan batch; adds efficiency towards a target.",
        "X",
    )

    probe: bool = _option(False, PROBE, "Time all-reduces on this machine first.")
    probe_seconds: float = _option(10.0, PROBE, "Measuring time, without starting the workers.", "SECONDS")
    probe_workers: str = _option(
        "auto",
        PROBE,
        "Largest number of workers to probe: a number, or auto for one per GPU, else one per CPU core.",
        "N",
    )

    bandwidth: float | None = _option(None, NETWORK, "Bandwidth of a link in GB/s; with --latency.", "X")
    latency: float | None = _option(None, NETWORK, "Latency of a message in microseconds; with --bandwidth.", "X")
    per_node: int | None = _option(
        None, NETWORK, "Workers per machine; with --outer-bandwidth and --outer-latency.", "N"
    )
    outer_bandwidth: float | None = _option(None, NETWORK, "Bandwidth between machines in GB/s.", "X")
    outer_latency: float | None = _option(None, NETWORK, "Latency between machines in microseconds.", "X")
    tree: bool = _option(False, NETWORK, "Assume tree and hierarchical all-reduces, as in NCCL. gloo has none.")

    run_dir: str | None = _option(
        None, OUTPUT, "Use exactly this directory instead of runs/<date>_<time>_plan-speed-<task>.", "DIR"
    )
    format: str = _option("text", OUTPUT, "text, or json for one JSON object at the end.", "NAME")

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
