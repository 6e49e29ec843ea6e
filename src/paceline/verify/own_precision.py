"""A short run in the precision that a script asks for, beside the one in float64.

Rounding errors of half precision are as large as many faults, and grow with each step. So two things only are compared:
ranks among themselves, which hold the same bits, and all gradients of the first step with those of one process.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from paceline.records.parity import OwnPrecision, ParityResult, step_folder
from paceline.verify.divergence import look
from paceline.verify.script_runs import ScriptRun
from paceline.verify.states import differences, read_state, steps_of

HALF = ("float16", "bfloat16")
_EPSILONS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_ROUNDINGS = 32
"""Rounding errors that two sums of the same gradients are apart at most."""
_SAME = 1e-4
"""Ranks agree; DDP leaves the same bits on each."""


def wanted_precision(ranks: ScriptRun) -> str:
    """The shortest type that a script asks for; empty where float64 shows all."""
    asked = {name for end in ranks.ends if end is not None for name in end.precision}
    return max(asked & _EPSILONS.keys(), key=_EPSILONS.__getitem__, default="")


def with_own_precision(
    result: ParityResult, dtype: str, in_double: list[int], ranks: ScriptRun, one: ScriptRun
) -> ParityResult:
    """A result that passed in float64, with what a run in another precision says.

    Args:
        result: of the runs in float64.
        dtype: the precision.
        in_double: steps that each rank took in float64.
        ranks, one: the runs in that precision.
    """
    each = steps_of(ranks.folder, ranks.world)
    steps = min(*each[:1], *steps_of(one.folder, 1))
    if len(set(each)) > 1 and len(set(in_double)) == 1:
        reason = f"in {dtype} ranks take {', '.join(map(str, each))} steps, though they take as many in float64"
        return msgspec.structs.replace(result, verdict="fail", reason=reason)
    if not (ranks.whole and one.whole and steps):
        why = ranks.error or one.error or "the runs do not come to their end"
        return msgspec.structs.replace(result, not_compared=[*result.not_compared, f"a run in {dtype}: {why}"])
    among = look(
        [
            (rank, "rank 0", list(differences((ranks.folder, rank), (ranks.folder, 0), steps)))
            for rank in range(1, ranks.world)
        ],
        _SAME,
    )
    tolerance = _ROUNDINGS * _EPSILONS[dtype]
    apart = _first_gradients(ranks, one)
    own = OwnPrecision(dtype=dtype, steps=steps, ranks=among.worst, gradients=apart, tolerance=tolerance)
    result = msgspec.structs.replace(result, own_precision=own)
    if among.first is not None:
        text = f"{among.first.tensor} of rank {among.first.rank} differs from rank 0 by {among.first.relative:.1e}"
        reason = f"in {dtype} ranks are not synchronized, though they are in float64: at step {among.first.step} {text}"
        return msgspec.structs.replace(result, verdict="fail", reason=reason, first_divergence=among.first)
    if apart > tolerance:
        reason = f"in {dtype} the gradients of the first step differ from those of one process by {apart:.1e}"
        return msgspec.structs.replace(result, verdict="fail", reason=f"{reason}, though they agree in float64")
    reason = f"{result.reason}, and {steps} steps in {dtype} show no other fault"
    return msgspec.structs.replace(result, reason=reason)


def _first_gradients(ranks: ScriptRun, one: ScriptRun) -> float:
    """Relative difference of all gradients of all optimizers; 0 where one process has none that are finite."""
    apart = size = 0.0
    for path in step_folder(one.folder, 0, 1).glob("gradients-*.safetensors"):
        theirs = step_folder(ranks.folder, 0, 1) / path.name
        if not theirs.exists():
            return 0.0
        ours, reference = read_state(theirs), read_state(path)
        for name in ours.keys() & reference.keys():
            if ours[name].shape == reference[name].shape:
                apart += float(np.sum((ours[name] - reference[name]) ** 2))
                size += float(np.sum(reference[name] ** 2))
    return math.sqrt(apart / size) if size and math.isfinite(apart + size) else 0.0
