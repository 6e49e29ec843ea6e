"""The settings of `paceline plan speed`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.parallel.placement import parse_workers
from paceline.plan.collectives import Link, Network
from paceline.records.errors import PacelineError
from paceline.settings.declare import VerbSettings, argument, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO, PER_DEVICE
from paceline.settings.typed_number import whole_numbers


@dataclass(frozen=True)
class SpeedConfig(VerbSettings):
    """All settings."""

    noun = "plan"

    runs: list[str] = argument(  # noqa: RUF009  # a field
        "Runs of paceline train at different batches and numbers of workers."
    )

    workers: str = setting(
        "1,2,4,8,16,32,64", "Numbers of workers to predict.", whole_numbers, value="N,N,...", group="Question"
    )
    batch: int | None = setting(None, "Global batch for strong scaling. [default: the first run's]", ABOVE_ZERO)
    micro: int | None = setting(None, "Batch per worker for weak scaling. [default: the first run's]", ABOVE_ZERO)
    at: int | None = setting(
        None, "Number of workers at which possible improvements are predicted. [default: the most measured]", ABOVE_ZERO
    )
    noise_scale: float | None = setting(
        None, "Gradient noise scale in samples, from paceline plan batch; adds efficiency towards a target.", ABOVE_ZERO
    )

    probe: bool = setting(False, "Time all-reduces on this machine first.", group="Network, measured here")
    probe_seconds: float = setting(10.0, "Measuring time, without starting the workers.", ABOVE_ZERO, value="SECONDS")
    probe_workers: str = setting("auto", f"Largest number of workers to probe: {PER_DEVICE}", parse_workers, value="N")

    bandwidth: float | None = setting(
        None, "Bandwidth of a link in GB/s; with --latency.", ABOVE_ZERO, group="Network, given"
    )
    latency: float | None = setting(None, "Latency of a message in microseconds; with --bandwidth.", ABOVE_ZERO)
    per_node: int | None = setting(None, "Workers per machine; with --outer-bandwidth and --outer-latency.", ABOVE_ZERO)
    outer_bandwidth: float | None = setting(None, "Bandwidth between machines in GB/s.", ABOVE_ZERO)
    outer_latency: float | None = setting(None, "Latency between machines in microseconds.", ABOVE_ZERO)
    tree: bool = setting(False, "Assume tree and hierarchical all-reduces, as in NCCL. gloo has none.")

    run_dir: str | None = run_dir_setting("plan-speed-<task>", group="Output")
    format: str = format_setting()

    @property
    def worker_counts(self) -> list[int]:
        """To predict, ascending."""
        return whole_numbers(self.workers, "--workers")

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
    config.check_fields()
    _together(config, "bandwidth", "latency")
    _together(config, "outer_bandwidth", "outer_latency", "per_node")
    if config.probe and config.given_network is not None:
        raise PacelineError("--probe and --bandwidth are two networks", hint="leave one of them out")


def _together(config: SpeedConfig, *names: str) -> None:
    flags = [config.flag(name) for name in names]
    given = [getattr(config, name) is not None for name in names]
    if any(given) and not all(given):
        missing = ", ".join(flag for flag, there in zip(flags, given, strict=True) if not there)
        raise PacelineError(f"{flags[given.index(True)]} needs {missing}", hint="paceline plan speed --help")
