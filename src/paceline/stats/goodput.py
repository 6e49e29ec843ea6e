"""What a larger batch is worth: a step's progress, statistical efficiency, and goodput.

Notation: B0 the base batch, B the batch, phi the noise scale in samples.

    gain        r(B)  = (phi / B0 + 1) / (phi / B + 1)       progress of one step, in steps of the base batch
    efficiency  E(B)  = r(B) B0 / B = (phi + B0) / (phi + B) progress of one sample, in samples of the base batch
    goodput           = samples a second x E(B)

(Johnson et al. 2020, arXiv 2007.05105; Qiao et al. 2021, Pollux, arXiv 2008.12260.) r is at most B / B0, which is
reached where the noise scale is far above the batch, and tends to phi / B0 + 1, however large the batch.
"""

from __future__ import annotations

import math


def gain(noise_scale: float, base: float, batch: float) -> float:
    """Progress of one step at `batch`, in steps at `base`: between 1 and batch / base for a batch above the base.

    Args:
        noise_scale: samples, 0 or more; infinite means that only noise limits.
        base, batch: samples, above 0.
    """
    if math.isinf(noise_scale):
        return batch / base
    return (noise_scale / base + 1) / (noise_scale / batch + 1)


def efficiency(noise_scale: float, base: float, batch: float) -> float:
    """Progress of one sample at `batch`, in samples at `base`: at most 1 for a batch above the base."""
    return gain(noise_scale, base, batch) * base / batch


def strong_efficiency(one_s: float, many_s: float, times: float) -> float:
    """Strong scaling: the same work on `times` as many devices. 1 where the time falls as the devices grow.

    Args:
        one_s, many_s: the time of the work on few and on many devices; a training to a given accuracy is such a work.
        times: how many times as many.
    """
    return one_s / (many_s * times)
