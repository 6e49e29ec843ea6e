"""How long a step takes, with how many workers, at which batch: a model with few numbers (step_fit.py fits them).

A worker computes s micro-batches of b samples; the gradients of the last one are summed over k workers meanwhile.

    m(b) = max(h, a + c b) (1 + i (1 - 1 / g) + u (d - 1))     d = max(1, g / n)
    C    = x A(S, k)
    T    = r d + (s - 1) m + F + (W^p + ((1 - q) C)^p)^(1/p) + q C + s m J(k)        F = m / 3, W = 2 m / 3, p = 3

**m** is forward and backward of a micro-batch: work, or the floor h of launching it. Workers of a machine, g of them,
slow both down: by up to i for what they share in any number (memory, caches, power), and, where the processor computes,
by taking turns. If its cores compute n workers at once, more than those need d times as long for the part u of m that
the processor is busy with (the rest sleeps or waits for a device), and for **r**, what a step takes besides: loading,
update. On GPUs, which are not shared, d is 1.

**C** is the sum over workers: A from a probe, x what the job makes of it. A part q of it comes too late to hide behind
the backward W; the rest hides as far as W reaches, with a smooth corner. **J(k)** is jitter, see jitter.py.

The form extrapolates because each part is bounded by what it stands for; a fit of Pollux's form (Qiao et al. 2021) to
the same data, whose network term grows linearly in k without bound, does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.plan.collectives import Network
from paceline.plan.jitter import Jitter
from paceline.records.plan_results import StepParts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FAR = 16.0
"""Workers over the most that were measured, beyond which a prediction says more of the formula than of the machine."""
SHARE_BACKWARD = 2 / 3
_CORNER = 3.0


@dataclass(frozen=True)
class Setting:
    """How a step is cut.

    Attributes:
        workers: k.
        micro: b, samples of a worker in one micro-batch.
        accumulation: s.
        per_node: workers on one machine; None when all are on one.
    """

    workers: int
    micro: float
    accumulation: int = 1
    per_node: int | None = None

    @property
    def batch(self) -> float:
        """Samples a step."""
        return self.workers * self.micro * self.accumulation

    @property
    def crowd(self) -> int:
        """Workers that share a machine."""
        return self.workers if self.per_node is None else min(self.workers, self.per_node)

    def __str__(self) -> str:
        workers = f"{self.workers} worker{'s' if self.workers != 1 else ''}"
        more = f" x {self.accumulation}" if self.accumulation != 1 else ""
        micro = f"{self.micro:,.0f}" if float(self.micro).is_integer() else f"{self.micro:.4g}"
        return f"{workers}, {micro}{more} samples each"


@dataclass(frozen=True)
class Observed:
    """Steps that were measured at one setting.

    Attributes:
        setting: how they were cut.
        step_s: their median time.
        times: (steps,) single times; those of one worker, which waits for nobody, show jitter. None: not known.
        spread: half the range of the middle half of the times, over their median.
        size_bytes: of the gradients that a step sums.
        run: its directory.
    """

    setting: Setting
    step_s: float
    times: Floats | None = None
    spread: float = 0.0
    size_bytes: int = 0
    run: str = ""


@dataclass(frozen=True)
class Coefficients:
    """The numbers of the model; see the module.

    Attributes:
        fixed: a.
        slope: c, seconds a sample.
        floor: h.
        rest: r.
        late: q, 0 to 1.
        slower: x, above 0.
        crowding: i, 0 and more.
        bound: u, 0 to 1.
    """

    fixed: float
    slope: float
    floor: float
    rest: float
    late: float
    slower: float
    crowding: float
    bound: float = 1.0


@dataclass(frozen=True)
class StepTime:
    """The fitted model.

    Attributes:
        coefficients: of the formula.
        network: of the probe.
        size_bytes: S, of the gradients.
        jitter: of one worker.
        most_workers: that were measured.
        processors: n, workers that the cores of a machine compute at once; None where devices compute, or it is not
            known: workers then take no turns.
    """

    coefficients: Coefficients
    network: Network
    size_bytes: float
    jitter: Jitter
    most_workers: int
    processors: float | None = None

    def parts(self, setting: Setting) -> StepParts:
        """What a step at `setting` consists of."""
        reduce_s = self.network.all_reduce(setting.workers, self.size_bytes)
        return parts_of(self.coefficients, setting, reduce_s, self.jitter(setting.workers), self.processors)

    def step_s(self, setting: Setting) -> float:
        """Seconds."""
        return self.parts(setting).total_s

    def samples_per_s(self, setting: Setting) -> float:
        """Throughput."""
        return setting.batch / self.step_s(setting)

    def cut(self, workers: int, batch: float) -> Setting:
        """A batch shared out among workers, on machines as the network has them."""
        return Setting(workers, batch / workers, 1, self.network.per_node)

    def farther(self, workers: Iterable[int]) -> list[int]:
        """Of these numbers of workers those that are too far from what was measured to be relied on."""
        return [count for count in workers if count > FAR * self.most_workers]


def turns_of(setting: Setting, processors: float | None) -> float:
    """d: workers that take turns on a core, 1 where each has one of its own.

    Args:
        setting: its workers on a machine.
        processors: n, or None.
    """
    return 1.0 if processors is None else max(1.0, setting.crowd / processors)


def parts_of(
    of: Coefficients, setting: Setting, reduce_s: float, jitter: float, processors: float | None = None
) -> StepParts:
    """The formula.

    Args:
        of: its numbers.
        setting: k, b, s and g.
        reduce_s: A(S, k).
        jitter: J(k).
        processors: n, or None.
    """
    turns = turns_of(setting, processors)
    work = of.fixed + of.slope * setting.micro
    alone = max(of.floor, work)
    micro = alone * (1 + of.crowding * (1 - 1 / setting.crowd) + of.bound * (turns - 1))
    backward = SHARE_BACKWARD * micro
    sum_s = of.slower * reduce_s
    hidden = (1 - of.late) * sum_s
    exposed = 0.0
    if sum_s:
        exposed = (backward**_CORNER + hidden**_CORNER) ** (1 / _CORNER) - backward + of.late * sum_s
    return StepParts(
        work_s=setting.accumulation * work,
        floor_s=setting.accumulation * (alone - work),
        sharing_s=setting.accumulation * (micro - alone) + of.rest * (turns - 1),
        network_s=exposed,
        jitter_s=jitter * micro * setting.accumulation,
        rest_s=of.rest,
    )
