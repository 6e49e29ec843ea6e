"""How fast ImageNet has been learnt: published trainings of ResNet-50, with what they say of scaling.

Times and accuracies are the sources' own. Computed here are the time of a step, where batch and epochs are published,

    step = minutes x 60 / (epochs x 1,281,167 / batch)

and strong scaling within a series: the time on the fewest devices, over the time on more and how many times as many
they are. Within a series too, machines, software, batch and epochs differ, so this mixes what computing and what
statistics cost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from paceline.records.plan_results import Record, TrendsResult
from paceline.stats.goodput import strong_efficiency

IMAGES = 1_281_167
"""Training images of ImageNet-1k."""


@dataclass(frozen=True)
class Published:
    """A training time as its source has it.

    Attributes:
        series: trainings that are compared with each other.
        batch, epochs: None where the source at hand does not say.
    """

    who: str
    year: int
    hardware: str
    devices: int
    minutes: float
    accuracy: str
    source: str
    series: str = ""
    batch: int | None = None
    epochs: int | None = None


_MLPERF = "MLPerf Training 3.0, closed division"
PUBLISHED: tuple[Published, ...] = (
    Published("He et al.", 2016, "P100", 8, 29 * 60, "75.3 %", "as timed by Goyal et al. 2017", batch=256, epochs=90),
    Published("Goyal et al.", 2017, "P100", 256, 60, "76.3 %", "arXiv 1706.02677", batch=8192, epochs=90),
    Published("Akiba et al.", 2017, "P100", 1024, 15, "74.9 %", "arXiv 1711.04325", batch=32768, epochs=90),
    Published("Jia et al.", 2018, "P40", 2048, 6.6, "75.8 %", "arXiv 1807.11205", batch=65536),
    Published("Mikami et al.", 2018, "V100", 2176, 224 / 60, "75.03 %", "arXiv 1811.05233"),
    Published("Yamazaki et al.", 2019, "V100", 2048, 74.7 / 60, "75.08 %", "arXiv 1903.12650"),
    Published("MLPerf", 2023, "H100", 8, 13.466, "75.9 %", _MLPERF, "MLPerf 3.0"),
    Published("MLPerf", 2023, "H100", 64, 2.664, "75.9 %", _MLPERF, "MLPerf 3.0"),
    Published("MLPerf", 2023, "H100", 512, 0.509, "75.9 %", _MLPERF, "MLPerf 3.0"),
    Published("MLPerf", 2023, "H100", 768, 0.369, "75.9 %", _MLPERF, "MLPerf 3.0"),
    Published("MLPerf", 2023, "H100", 3584, 0.183, "75.9 %", _MLPERF, "MLPerf 3.0"),
)
NOTES = (
    "times and accuracies are the sources' own; efficiency and time of a step are computed from them",
    "MLPerf's row of 8 devices is one vendor's machine, those of 64 to 768 another's, that of 3,584 a cloud's; batch "
    "and epochs differ too, so its efficiency mixes machine and statistics",
)


def trends() -> TrendsResult:
    """The published trainings, with what can be computed of them."""
    return TrendsResult(records=[_record(one) for one in PUBLISHED], notes=list(NOTES))


def _record(one: Published) -> Record:
    own = {name: value for name, value in asdict(one).items() if name in Record.__struct_fields__}
    return Record(**own, efficiency=_efficiency(one), iteration_ms=_step_ms(one))


def _efficiency(one: Published) -> float | None:
    series = [other for other in PUBLISHED if one.series and other.series == one.series]
    if len(series) < 2:
        return None
    fewest = min(series, key=lambda other: other.devices)
    return strong_efficiency(fewest.minutes, one.minutes, one.devices / fewest.devices)


def _step_ms(one: Published) -> float | None:
    if one.batch is None or one.epochs is None:
        return None
    return one.minutes * 60e3 / (one.epochs * IMAGES / one.batch)
