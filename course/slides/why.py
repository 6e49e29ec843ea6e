"""What decks D1, why several devices, and D2, real networks, name: published numbers, and values of our records.

Points of published trainings, machines and devices are those of the sources that the slides cite. Figures without a
record are computed from them, or drawings of an example; neither is a measurement of ours.
"""

from __future__ import annotations

from typing import Any

from paceline.plan.compute import Device, transformer_flop
from paceline_course.slides.registry import Record, value

CURVES = "2026-11-28_learning_curves"
SURFACE = "2026-11-28_landscape"

# ---------------------------------------------------------------------------------------------------------------------
# Published numbers. Peaks in TFLOP/s without sparsity; 64 bits without, and where named with, matrix units.

DEVICES = (("P100", 2016.3, 5.3, 10.6, 21.2), ("V100", 2017.4, 7.8, 15.7, 125.0), ("A100", 2020.4, 9.7, 19.5, 312.0),
           ("H100", 2022.2, 33.5, 66.9, 989.4))  # fmt: skip
H100_16_BIT, H100_8_BIT, H100_64_BIT_MATRIX = 989.4e12, 1978.9e12, 66.9e12
JAGUAR_PEAK, JAGUAR_LINPACK = 2.3, 1.76
LANGUAGE = (
    ("GPT-3", 175e9, 300e9),
    ("Gopher", 280e9, 300e9),
    ("Chinchilla", 70e9, 1.4e12),
    ("Llama 3", 405e9, 15.6e12),
)
LLAMA_HOURS = 30.84e6
RESNETS = (("34", 3.6, 24.52), ("50", 3.8, 22.85), ("101", 7.6, 21.75), ("152", 11.3, 21.43))
UTILISATION = 0.4


def _h100(peak: float = H100_16_BIT, utilisation: float = UTILISATION) -> Device:
    return Device("H100", peak, "bf16", utilisation)


def _llama() -> float:
    _, parameters, tokens = LANGUAGE[-1]
    return transformer_flop(parameters, tokens)


# ---------------------------------------------------------------------------------------------------------------------
# Values: error against data


def _case(record: Record) -> dict[str, Any]:
    """Fashion-MNIST's error, predicted for all images from a quarter of them."""
    return next(one for one in record.result["cases"] if one["case"].startswith("fashion-mnist, error, 60,000"))


def _loss_case(record: Record) -> dict[str, Any]:
    return next(one for one in record.result["cases"] if one["case"].startswith("fashion-mnist, loss"))


@value("why.data.exponent", CURVES)
def data_exponent(record: Record) -> str:
    """Of the fitted law."""
    return f"{_case(record)['law']['exponent']:.2f}"


@value("why.data.doubled", CURVES)
def data_doubled(record: Record) -> str:
    """By how much twice the data lower the error, by the law."""
    law = _case(record)["law"]
    if law["floor"]:
        raise ValueError("the law has a floor")
    return f"{100 * (1 - 2 ** -law['exponent']):.0f} %"


@value("why.data.halved", CURVES)
def data_halved(record: Record) -> str:
    """How many times the data half the error takes, by the law."""
    return f"{2 ** (1 / _case(record)['law']['exponent']):.0f} times"


@value("why.data.predicted", CURVES)
def data_predicted(record: Record) -> str:
    """Error and interval."""
    case = _case(record)
    return f"{100 * case['predicted']:.1f} % ({100 * case['low']:.1f} to {100 * case['high']:.1f} %)"


@value("why.data.measured", CURVES)
def data_measured(record: Record) -> str:
    """Mean of the runs."""
    return f"{100 * _case(record)['measured']:.1f} %"


@value("why.data.runs", CURVES)
def data_runs(record: Record) -> str:
    """At all images."""
    return str(len(_case(record)["runs"]))


@value("why.data.most", CURVES)
def data_most(record: Record) -> str:
    """Samples at most that the law was fitted to."""
    return f"{max(n for n, _ in _case(record)['points']):,}"


@value("why.data.beyond", CURVES)
def data_beyond(record: Record) -> str:
    """Samples that it predicted."""
    return f"{_case(record)['beyond']:,}"


@value("why.data.inside", CURVES)
def data_inside(record: Record) -> str:
    """How many of all predictions had the measurement in their interval."""
    cases = record.result["cases"]
    return f"{sum(one['inside'] for one in cases)} of {len(cases)}"


@value("why.data.loss-predicted", CURVES)
def data_loss_predicted(record: Record) -> str:
    """The one that failed."""
    case = _loss_case(record)
    if case["inside"]:
        raise ValueError("it did not fail")
    return f"{case['predicted']:.2f} ({case['low']:.2f} to {case['high']:.2f})"


@value("why.data.loss-measured", CURVES)
def data_loss_measured(record: Record) -> str:
    """Mean of the runs."""
    return f"{_loss_case(record)['measured']:.2f}"


# ---------------------------------------------------------------------------------------------------------------------
# Values: a real network


def _cell(record: Record, setting: str) -> dict[str, Any]:
    return next(cell for cell in record.cells if cell["setting"] == setting and cell["seed"] == 0)


@value("why.net.parameters", "minima")
def net_parameters(record: Record) -> str:
    """Of the CNN."""
    return f"{_cell(record, 'small-sharpness')['result']['parameters']:,}"


@value("why.net.accuracy", "minima")
def net_accuracy(record: Record) -> str:
    """Of the run at the small batch, on the test images."""
    return f"{100 * _cell(record, 'small')['training']['evaluations'][-1]['metrics']['accuracy']:.1f} %"


@value("why.net.steps", "minima")
def net_steps(record: Record) -> str:
    """Of that run."""
    return f"{_cell(record, 'small')['training']['steps']:,}"


@value("why.net.batch", "minima")
def net_batch(record: Record) -> str:
    """Of that run."""
    return str(_cell(record, "small")["training"]["global_batch"])


@value("why.net.images", "minima")
def net_images(record: Record) -> str:
    """In its training set."""
    return f"{_cell(record, 'small')['training']['train_samples']:,}"


@value("why.net.barrier", "minima")
def net_barrier(record: Record) -> str:
    """Between the two minima."""
    return f"{_between(record)['barrier']:.2f}"


@value("why.net.gradient", "minima")
def net_gradient(record: Record) -> str:
    """Length of the gradient at the end of the run at the small batch."""
    return f"{_cell(record, 'small-sharpness')['result']['gradient_norm']:.2f}"


@value("why.surface.points", SURFACE)
def surface_points(record: Record) -> str:
    """Of the grid."""
    points = record.result["environment"]["size"]["points"]
    return f"{points} × {points}"


@value("why.surface.samples", SURFACE)
def surface_samples(record: Record) -> str:
    """On which the loss is measured at each point."""
    return f"{record.result['environment']['size']['samples']:,}"


@value("why.surface.minutes", SURFACE)
def surface_minutes(record: Record) -> str:
    """That the surface took with two workers."""
    return f"{record.result['seconds']['paceline-2']['surface_s'][0] / 60:.0f} minutes"


def _between(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = _cell(record, "small-to-large")["result"]["interpolation"]
    return found


def _box(x: float, y: float, width: float, height: float, colour: str, **kwargs: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", **kwargs)
