"""Does NEW on N ranks train what OLD does on one device? Compares a recorded run of NEW with two runs of OLD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.records.parity import (
    Before,
    Change,
    Compared,
    Divergence,
    ParityResult,
    ParityStep,
    SavedFile,
    TrainingLoader,
    rank_folder,
    read_steps,
)
from paceline.records.place import Place
from paceline.verify.divergence import Found, look
from paceline.verify.evaluations import compare_evaluations, evaluation_change
from paceline.verify.states import differences

_EXACT = 1e-6
"""Relative difference of equal learning rates."""


@dataclass(frozen=True)
class Training:
    """A recorded run, as far as two scripts are compared by it.

    Attributes:
        folder: of the run.
        world: its ranks.
    """

    folder: Path
    world: int

    @property
    def steps(self) -> list[ParityStep]:
        """Steps of rank 0."""
        return read_steps(self.folder, 0)

    def samples_per_step(self) -> int | None:
        """All ranks together, as most steps have them; None where batches come from no loader."""
        found = [
            [each.samples for each in read_steps(self.folder, rank) if each.optimizer == 0]
            for rank in range(self.world)
        ]
        if not all(found) or any(each is None for rank in found for each in rank):
            return None
        totals = [sum(each or 0 for each in step) for step in zip(*found, strict=False)]
        return max(totals, key=totals.count, default=None)

    def loader(self, rank: int = 0) -> TrainingLoader | None:
        """The loader that it trains on first."""
        files = sorted((rank_folder(self.folder, rank) / "loaders").glob("*.json"), key=lambda path: int(path.stem))
        return msgspec.json.decode(files[0].read_bytes(), type=TrainingLoader) if files else None

    def samples_per_pass(self) -> int | None:
        """All ranks together."""
        found = [loader.samples if (loader := self.loader(rank)) else None for rank in range(self.world)]
        return None if any(each is None for each in found) else sum(each or 0 for each in found)

    def rates(self) -> list[tuple[float, Place | None]]:
        """Learning rates of the first parameter group of the first optimizer, with the lines of the steps."""
        return [(each.lr[0], each.place) for each in self.steps if each.optimizer == 0 and each.lr]

    def saved(self) -> list[SavedFile]:
        """Files that rank 0 wrote, or the first rank that wrote any."""
        for rank in range(self.world):
            path = rank_folder(self.folder, rank) / "saved.jsonl"
            if path.exists():
                return [msgspec.json.decode(line, type=SavedFile) for line in path.read_bytes().splitlines()]
        return []


def compare_scripts(
    before: Before, new: Training, old: Training, replay: Training, precision: Compared | None
) -> Before:
    """Compare NEW with OLD, and say what NEW does in another way.

    Args:
        before: the commands.
        new: recorded run of NEW.
        old: recorded run of OLD on its own batches.
        replay: run of OLD on NEW's batches.
        precision: of the comparison of NEW with itself.
    """
    evaluation = compare_evaluations(new.folder, new.world, replay.folder)
    changes = [*_global_batch(new, old), *_rates(new, old, replay), *_data(new, old), *_saved(new, replay)]
    if evaluation is not None and (change := evaluation_change(evaluation, "OLD")):
        changes.append(change)
    compared = None
    if precision is not None:
        compared, found = _states(new, replay, precision)
        if not found.any_parameter:
            text = "no parameter of NEW was found in OLD: their models have other tensors"
            changes.insert(0, Change(verdict="inconclusive", text=text))
        elif first := found.first:
            changes.insert(0, _step_difference(first, found.gradients))
    return msgspec.structs.replace(
        before,
        compared=compared,
        samples_per_step=[each for run in (old, new) if (each := run.samples_per_step()) is not None],
        learning_rates=[rate for rate, _ in old.rates()],
        evaluation=evaluation,
        changes=changes,
    )


def judge_before(result: ParityResult, before: Before, notes: Sequence[str] = ()) -> ParityResult:
    """The verdict about NEW, with regard to OLD.

    Args:
        result: whether NEW on N ranks computes what it does in one process.
        before: how it compares with OLD.
        notes: why OLD's replay is not comparable; a difference of states then proves nothing.
    """
    result = msgspec.structs.replace(result, before=before)
    certain = [each for each in before.changes if each.verdict == "fail" and not (notes and each.what == "states")]
    open_ = [each for each in before.changes if each not in certain]
    if result.verdict == "fail":
        return result
    faults = list(dict.fromkeys([*(fault for each in certain for fault in each.faults), *result.faults]))
    if certain:
        more = f" (and {len(certain) - 1} more)" if len(certain) > 1 else ""
        return msgspec.structs.replace(result, verdict="fail", reason=f"{certain[0].text}{more}", faults=faults[:4])
    if result.verdict == "inconclusive":
        return result
    if open_:
        reason = notes[0] if open_[0].what == "states" and notes else open_[0].text
        return msgspec.structs.replace(result, verdict="inconclusive", reason=reason, faults=open_[0].faults)
    steps = before.compared.steps if before.compared else 0
    reason = f"NEW on {result.world} ranks computes what OLD does on one device, for {steps} steps"
    return msgspec.structs.replace(result, reason=reason)


def _states(new: Training, replay: Training, precision: Compared) -> tuple[Compared, Found]:
    """Compare each rank of NEW with OLD, which was given the batches of all ranks."""
    steps = min(max((each.step for each in run.steps), default=0) for run in (new, replay))
    pairs = [
        (rank, "OLD", list(differences((new.folder, rank), (replay.folder, 0), steps))) for rank in range(new.world)
    ]
    found = look(pairs, precision.tolerance)
    compared = msgspec.structs.replace(precision, steps=steps, tensors=len(found.tensors), worst=found.worst)
    return compared, found


def _step_difference(first: Divergence, gradients: Divergence | None) -> Change:
    text = f"at step {first.step} {first.tensor} of rank {first.rank} differs from OLD by {first.relative:.1e}"
    if gradients is not None and gradients.step <= first.step:
        text += "; gradients differ"
        if gradients.factor is not None:
            text += f", they are {gradients.factor:.3f} times those of OLD"
    return Change(verdict="fail", what="states", text=text)


def _global_batch(new: Training, old: Training) -> Iterator[Change]:
    ours, theirs = new.samples_per_step(), old.samples_per_step()
    if ours is None or theirs is None or ours == theirs:
        return
    place = loader.place if (loader := new.loader()) else None
    text = (
        f"a step of NEW takes {ours} samples on {new.world} ranks, one of OLD {theirs}: another training, whose "
        "accuracy has to be measured"
    )
    yield Change(verdict="inconclusive", text=text, faults=["F16"], place=place)


def _rates(new: Training, old: Training, replay: Training) -> Iterator[Change]:
    """Step by step: with equal batches the same steps have the same learning rates.

    A rate may depend on results, and those on the order of samples: then OLD has it where it is given NEW's batches.
    """
    if new.samples_per_step() != old.samples_per_step():
        return
    steps = zip(new.rates(), old.rates(), replay.rates(), strict=False)
    for step, ((ours, place), (theirs, _), (given, _)) in enumerate(steps, 1):
        if any(abs(ours - each) <= _EXACT * max(abs(ours), abs(each)) for each in (theirs, given)):
            continue
        factor = f": {ours / theirs:.4g} times as large" if theirs else ""
        text = f"at step {step} the learning rate of NEW is {ours:.6g}, that of OLD {theirs:.6g}{factor}"
        yield Change(verdict="fail", text=text, faults=["F32"] if step == 1 else ["F33"], place=place)
        return


def _data(new: Training, old: Training) -> Iterator[Change]:
    ours, theirs = new.samples_per_pass(), old.samples_per_pass()
    loader, reference = new.loader(), old.loader()
    place = loader.place if loader is not None else None
    if ours is not None and theirs is not None and abs(ours - theirs) >= _padding(new, old):
        dropped = reference is not None and reference.drops_last and ours - theirs < (old.samples_per_step() or 0)
        what = "drops samples" if ours < theirs else "keeps the last batch" if dropped else "repeats samples"
        text = f"an epoch of NEW has {ours} samples on {new.world} ranks, one of OLD {theirs}: NEW {what}"
        faults = ["F15"] if ours < theirs else [] if dropped else ["F01"]
        yield Change(verdict="fail", text=text, faults=faults, place=place)
    if loader is None or reference is None or None in (loader.shuffles, reference.shuffles):
        return
    if reference.shuffles and not loader.shuffles:
        yield Change(verdict="fail", text="OLD shuffles its training data, NEW does not", faults=["F05"], place=place)
    elif loader.shuffles and not reference.shuffles:
        text = "NEW shuffles its training data, OLD does not"
        yield Change(verdict="inconclusive", text=text, faults=["F05"], place=place)


def _padding(new: Training, old: Training) -> int:
    """Fewer samples than so many may be more or less on ranks: padding, which can fill a batch that OLD drops."""
    loader, reference = new.loader(), old.loader()
    both_drop = loader is not None and reference is not None and loader.drops_last and reference.drops_last
    return max(new.world, (old.samples_per_step() or 0) + 1 if both_drop else 0)


def _saved(new: Training, old: Training) -> Iterator[Change]:
    """Files with the same name hold all tensors of OLD's, or OLD's readers cannot load them."""
    reference = {Path(each.path).name: each for each in old.saved()}
    for each in {Path(each.path).name: each for each in new.saved()}.values():
        other = reference.get(Path(each.path).name)
        if other is None or set(each.names) == set(other.names):
            continue
        added, lacking = sorted(set(each.names) - set(other.names)), sorted(set(other.names) - set(each.names))
        wrapped = {name.replace("module.", "") for name in added} >= set(lacking) and any(
            "module." in name for name in added
        )
        text = f"{Path(each.path).name} of NEW " + (
            f'holds "{added[0]}" where OLD has "{lacking[0]}": it was saved from the wrapped model'
            if wrapped and lacking
            else f"holds other tensors than OLD's: {', '.join([*(f'no {name}' for name in lacking), *added][:3])}"
        )
        verdict = "fail" if lacking else "inconclusive"
        yield Change(verdict=verdict, text=text, faults=["F96"] if wrapped else [], place=each.place)
