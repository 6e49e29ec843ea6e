"""The settings of `paceline plan cost` and `paceline plan trends`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.plan.compute import Device, training_flop, transformer_flop
from paceline.records.errors import PacelineError
from paceline.settings.declare import FORMATS, VerbSettings, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO


@dataclass(frozen=True)
class TrendsConfig(VerbSettings):
    """All settings of `paceline plan trends`."""

    run_dir: str | None = run_dir_setting("plan-trends-resnet-50")
    format: str = format_setting()


@dataclass(frozen=True)
class CostConfig(VerbSettings):
    """All settings."""

    parameters: float | None = setting(
        None,
        "Parameters of a dense transformer, for example 70B or 7e10; with --tokens.",
        ABOVE_ZERO,
        value="N",
        group="Training",
    )
    tokens: float | None = setting(None, "Tokens to train on, for example 1.4T.", ABOVE_ZERO, value="N")
    forward: float | None = setting(
        None,
        "For any other model: GFLOP of the forward pass of one sample, where a multiply-add is 2 FLOP; with --samples.",
        ABOVE_ZERO,
    )
    samples: float | None = setting(None, "Samples to train on, all epochs counted.", ABOVE_ZERO, value="N")

    precision: str | None = setting(
        None, "Precision of the training and of --peak: bf16, fp16, fp32 ...", value="NAME", group="Devices"
    )
    peak: float | None = setting(None, "Peak TFLOP/s of one device in --precision.", ABOVE_ZERO)
    utilisation: float | None = setting(
        None, "Fraction of the peak that the training reaches, measured by you: 0.4 or 40%.", share=True
    )
    devices: int = setting(1, "Number of devices.", ABOVE_ZERO)
    efficiency: float | None = setting(
        None,
        "Throughput of all devices, relative to that of one times their number: 0.9 or 90%, from paceline plan speed. "
        "[default: 1, perfect scaling]",
        share=True,
    )
    price: float | None = setting(None, "Price of one device for an hour.", ABOVE_ZERO)

    format: str = control("text", "text, or json for one JSON object.", FORMATS, group="Output")

    @property
    def flop(self) -> float:
        """Of the whole training."""
        if self.parameters is not None and self.tokens is not None:
            return transformer_flop(self.parameters, self.tokens)
        return training_flop(1e9 * (self.forward or 0.0), self.samples or 0.0)

    @property
    def assumptions(self) -> list[str]:
        """What the numbers rest on besides those that were given; they have no interval."""
        found = ["6 FLOP a parameter and token: a dense transformer, without what attention adds to long sequences"]
        if self.forward is not None:
            found = ["three times the FLOP of the forward pass: backward is about twice forward"]
        if self.device is None:
            return found
        found.append(
            f"each device reaches {_percent(self.device.utilisation)} of its peak all the time, as given, not measured"
        )
        if self.efficiency is not None:
            found.append(f"scaling efficiency {_percent(self.efficiency)}, as given; what is lost is paid for")
        elif self.devices > 1:
            found.append(
                f"100 % scaling: {self.devices:,} devices are {self.devices:,} times as fast as one, which is the best "
                "case; --efficiency takes what paceline plan speed predicts"
            )
        found.append("no restarts, evaluations or waiting in queues")
        return found

    @property
    def scaling(self) -> str:
        """What the time assumes of several devices, for people; empty with one."""
        if self.efficiency is not None:
            return f" at {_percent(self.efficiency)} scaling (given)"
        return " at 100 % scaling (assumed)" if self.devices > 1 else ""

    @property
    def device(self) -> Device | None:
        """What it is computed on; None without a peak."""
        if self.peak is None or self.precision is None or self.utilisation is None:
            return None
        return Device("device", 1e12 * self.peak, self.precision, self.utilisation, self.price)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def check(config: CostConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag.
    """
    config.check_fields()
    transformer = (config.parameters is not None, config.tokens is not None)
    other = (config.forward is not None, config.samples is not None)
    if (all(transformer) and not any(other)) or (all(other) and not any(transformer)):
        _check_device(config)
        return
    raise PacelineError(
        "what is trained is not known",
        hint="--parameters with --tokens for a transformer, --forward with --samples for any other model",
    )


def _check_device(config: CostConfig) -> None:
    for name in ("price", "efficiency"):
        if getattr(config, name) is not None and config.peak is None:
            raise PacelineError(
                f"--{name} needs to know how fast a device is", hint="--peak, --precision and --utilisation"
            )
    given = [config.peak is not None, config.precision is not None, config.utilisation is not None]
    if any(given) and not all(given):
        raise PacelineError(
            "--peak, --precision and --utilisation belong together",
            why="a peak is that of one precision, and hardly any training reaches it",
            hint="the utilisation that you have measured in the same precision; 0.3 to 0.5 is usual for large models",
        )
