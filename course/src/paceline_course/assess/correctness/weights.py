"""A.ranks and A.oracle: the weights of all processes, and those of one process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from paceline.verify.compare import TOLERANCE, Comparison, compare
from paceline.verify.oracle import State
from paceline_course.assess.box import Ran
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.files import weights_of
from paceline_course.assess.correctness.runs import Trials
from paceline_course.assess.oracle import truth
from paceline_course.assess.submission_process import noted
from paceline_course.checking import Wrong

_SAME = 1e-6
"""Two wrong ways are the same one when they agree so far."""
_ROUNDED = 1e-5
"""So far off in the first epoch are numbers that were rounded on their way; faults are further."""
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")


def judge_ranks(trials: Trials) -> dict[str, Any]:
    """After every step of the first run, and of the one with batch norms."""
    evidence: dict[str, Any] = {}
    for trial in (trials.drawn.first, trials.drawn.variants[-1]):
        ran = trials.run(trial)
        steps = [seen.steps for seen in ran.ranks]
        if not any(steps):
            evidence[ran.command] = "steps were not seen (no optimizer of torch's family); the weights tell"
            continue
        if not all(steps):
            # One process may make all steps and send the weights; where it does not, they are wrong.
            idle = [rank for rank, each in enumerate(steps) if not each]
            evidence[ran.command] = f"no optimizer was seen on ranks {idle}; the weights tell"
            continue
        lengths = [len(each) for each in steps]
        if len(set(lengths)) > 1:
            raise Wrong(
                "steps-differ", ran=ran.command, expected="equally many steps on all processes", got=f"{lengths}"
            )
        # A sharded optimizer holds a part of the weights on each rank: its digests differ from the first step on, and
        # always will; the state that is saved is judged by A.oracle.
        apart = [number for number, digests in enumerate(zip(*steps, strict=True)) if len(set(digests)) > 1]
        if apart and not _sharded(ran):
            raise _apart(ran, steps, apart[0], trial)
        evidence[ran.command] = f"{lengths[0]} steps on each of {trial.world} processes"
    return evidence


def _sharded(ran: Ran) -> bool:
    """Each rank's optimizer holds other weights, none holds all."""
    firsts = [tuple(end.get("first") or ()) for end in ran.ends or []]
    return len(set(firsts)) > 1 and not any(set(a) & set(b) for a in firsts for b in firsts if a is not b and a != b)


def _apart(ran: Ran, steps: list[list[str]], step: int, trial: Trial) -> Wrong:
    groups = [rank for rank, _ in Counter(digests[step] for digests in steps).most_common()]
    which = [[rank for rank, digests in enumerate(steps) if digests[step] == group] for group in groups]
    at_end = (step + 1) % trial.setting.steps == 0
    return Wrong(
        "ranks-differ-at-the-end" if at_end and step > 0 else "ranks-differ",
        ran=ran.command,
        expected="the same bits on all processes after every step",
        got=f"after step {step + 1} the groups of ranks {which} differ",
    )


def judge_oracle(trials: Trials) -> dict[str, Any]:
    """Every variant, other numbers of processes, uneven last batches."""
    evidence: dict[str, Any] = {}
    for trial in (trials.drawn.first, trials.drawn.alone, *trials.drawn.variants):
        ran = trials.run(trial, alone=trial is trials.drawn.alone)
        known = trials.truth(trial)
        worst = 0.0
        for epoch in range(trial.setting.epochs):
            ours = weights_of(ran, epoch)
            found = compare(ours, known.states[epoch], known.start)
            if not found.equal():
                raise _unequal(trials, trial, ran, _Off(ours, found, epoch))
            worst = max(worst, found.worst[1])
        what = f"{trial.setting.variant}, {_processes(trial.world)}, {trial.setting.samples} samples"
        evidence[f"{what}, batch {trial.setting.batch}"] = f"within {worst:.1e}"
    return evidence


def _processes(world: int) -> str:
    return f"{world} process{'es' if world > 1 else ''}"


@dataclass(frozen=True)
class _Off:
    """Weights that are not what they should be, how far, and after which epoch for the first time."""

    ours: State
    found: Comparison
    epoch: int


def _unequal(trials: Trials, trial: Trial, ran: Ran, off: _Off) -> Wrong:
    """Say what kind of difference it is."""
    setting, found = trial.setting, off.found
    expected = (
        f"the weights of one process to {TOLERANCE:g}: {setting.variant}, {_processes(trial.world)}, "
        f"{setting.samples} samples, batch {setting.batch}, the last one {setting.samples % setting.batch}"
    )
    if found.missing or found.extra:
        got = f"missing: {', '.join(found.missing[:4]) or 'none'}; more: {', '.join(found.extra[:4]) or 'none'}"
        return Wrong("other-names", ran=ran.command, expected=expected, got=got)
    name, far = found.worst
    got = f"{name} is off by {far:.1e}, relative, after epoch {off.epoch}"
    return Wrong(_cause(trials, trial, off), ran=ran.command, expected=expected, got=got)


def _cause(trials: Trials, trial: Trial, off: _Off) -> str:
    """Message id; what can be found out by computing wrong answers, and one more run."""
    known, ours = trials.truth(trial), off.ours
    if any(value.dtype == np.float32 for value in ours.values()):
        return "precision"
    if not all(np.isfinite(value).all() for value in ours.values()):
        return "not-finite"
    if off.found.worst[1] < _ROUNDED:
        return "precision"
    if _other_start(trials.run(trial), known.start):
        return "other-start"
    moved = {name for name in ours if not np.array_equal(ours[name], known.start[name])}
    trained = {name for name in known.start if not np.array_equal(known.start[name], known.states[0][name])}
    if not moved:
        return "nothing-moves"
    if trial.setting.variant == "frozen" and moved - trained:
        return "frozen-moved"
    wrong = {name for name, far in off.found.relative.items() if far > TOLERANCE}
    if wrong and all(name.endswith(_RUNNING) for name in wrong):
        return "buffers"
    steps = [len(seen.steps) for seen in trials.run(trial).ranks]
    if any(steps) and not all(steps):
        return "steps-differ"
    return _computed(trial, ours, off.epoch) or _by_comparison(trials, trial)


def _other_start(ran: Ran, start: State) -> bool:
    """Most of the weights that an optimizer held before its first step, of the network's sizes, are not the seed's."""
    first = next((end.get("first") for end in ran.ends or [] if end.get("first")), None) or []
    sizes = {str(value.size) for value in start.values()}
    own = {text for text in first if isinstance(text, str) and text.partition(":")[0] in sizes}
    return len(own - {noted(torch.from_numpy(value)) for value in start.values()}) > len(own) / 2


def _computed(trial: Trial, ours: State, epoch: int) -> str:
    """A wrong way that gives just these weights after that epoch; empty when none does."""
    setting, world = trial.setting, trial.world
    ways = {
        "times-world": [replace(setting, rate=setting.rate * world)],
        "divided-twice": [replace(setting, rate=setting.rate / world)],
        "batch-per-process": [replace(setting, batch=setting.batch * world)],
        "no-momentum": [replace(setting, momentum=0.0)],
        "summed-loss": [
            replace(setting, rate=setting.rate * setting.batch),
            replace(setting, rate=setting.rate * setting.batch / world),
        ],
    }
    # Of times-world, the first one, those with as many pieces as processes are already told.
    ways["times-pieces"] = [replace(setting, rate=setting.rate * pieces) for pieces in (2, 3, 4)]
    if world == 1:
        ways = {"no-momentum": ways["no-momentum"]}
    for message, tried in ways.items():
        for way in tried:
            if compare(ours, truth(replace(way, epochs=epoch + 1)).states[epoch]).worst[1] < _SAME:
                return message
    return ""


def _by_comparison(trials: Trials, trial: Trial) -> str:
    """Which other trials does it get right?"""
    if trial.setting.variant == "norm" and trial.world > 1:
        return "local-norm"
    if trial is trials.drawn.first:
        return _of_first(trials)
    first = trials.drawn.first
    if _right(trials, first):
        return "unequal-variant" if trial.setting.variant != "plain" else "unequal-world"
    return "unequal"


def _of_first(trials: Trials) -> str:
    even = trials.drawn.even
    try:
        ran = trials.run(even)
    except Wrong:
        return "unequal"
    known = trials.truth(even)
    state = ran.weights(0)
    if isinstance(state, str):
        return "unequal"
    found = compare(state, known.states[0])
    if found.equal():
        return "uneven-last"
    return _computed(even, state, 0) or "unequal"


def _right(trials: Trials, trial: Trial) -> bool:
    try:
        state = trials.run(trial).weights(0)
    except Wrong:
        return False
    return not isinstance(state, str) and compare(state, trials.truth(trial).states[0]).equal()
