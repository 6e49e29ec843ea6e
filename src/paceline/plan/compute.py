"""How much computing a training is, and what it costs.

    FLOP      3 x those of the forward pass for each sample: backward is about twice forward
              6 N a token for a dense transformer of N parameters (Kaplan et al. 2020, arXiv 2001.08361)
    hours     FLOP / (peak x utilisation) / 3600
    PF/s-day  8.64e19 FLOP: a petaFLOP a second for a day

**One precision on both sides.** A peak belongs to a precision, and utilisation to a measurement in it: dividing FLOP by
the peak in 8 bits that were computed in 16 halves the bill on paper only.
"""

from __future__ import annotations

from dataclasses import dataclass

PFS_DAY = 8.64e19
BACKWARD = 3.0
"""FLOP of forward and backward, in units of forward."""


@dataclass(frozen=True)
class Device:
    """A kind of device.

    Attributes:
        name: for people.
        peak: FLOP a second in `precision`.
        precision: that both the peak and the training are in.
        utilisation: the part of the peak that the training reaches, above 0 and at most 1.
        price: of an hour of one device, in any currency; None where it is not known.
    """

    name: str
    peak: float
    precision: str
    utilisation: float
    price: float | None = None


def training_flop(forward_flop: float, samples: float) -> float:
    """FLOP of a training.

    Args:
        forward_flop: of the forward pass of one sample.
        samples: that are used, those of all epochs counted.
    """
    return BACKWARD * forward_flop * samples


def transformer_flop(parameters: float, tokens: float) -> float:
    """FLOP of a training of a dense transformer: 6 a parameter and token."""
    return 6.0 * parameters * tokens


def pfs_days(flop: float) -> float:
    """PF/s-days."""
    return flop / PFS_DAY


@dataclass(frozen=True)
class Bill:
    """What an amount of computing comes to.

    Attributes:
        flop: the amount.
        device_hours: of all devices together.
        hours: from beginning to end.
        cost: in the price's currency; None without a price.
    """

    flop: float
    device_hours: float
    hours: float
    cost: float | None


def bill(flop: float, device: Device, devices: int, efficiency: float = 1.0) -> Bill:
    """The bill for `flop` on `devices`.

    Args:
        flop: of the whole training.
        device: of which kind.
        devices: how many.
        efficiency: of scaling from one device to so many, above 0 and at most 1; what is lost is paid for.
    """
    device_hours = flop / (device.peak * device.utilisation) / efficiency / 3600
    cost = None if device.price is None else device.price * device_hours
    return Bill(flop, device_hours, device_hours / devices, cost)
