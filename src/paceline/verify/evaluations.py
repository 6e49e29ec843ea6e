"""Compares evaluations of the same weights by N ranks and by one process: samples, and the numbers that are printed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from paceline.records.parity import Change, Evaluation, EvaluationSeen, PrintedNumber, rank_folder
from paceline.verify.states import State, read_state

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w.]*\w)", re.IGNORECASE)
_UNIT = re.compile(r"\s*(?:s|ms|us|sec|seconds|min|[kmg]i?b|\w+/s)\b", re.IGNORECASE)
_RESULT = re.compile(
    r"val|test|eval|\bdev\b|acc|top|f1|ppl|perplex|bleu|auc|\bm?ap\b|iou|score|correct|err", re.IGNORECASE
)
_HEADER = re.compile(r"^\W*(?:val|test|eval|dev)\w*\s*:", re.IGNORECASE)
"""A line that is about an evaluation as a whole."""
_LOSS = re.compile(r"loss", re.IGNORECASE)
"""Without a further word, it may be that of the training."""
_EVALUATED = re.compile(r"val|test|eval|\bdev\b", re.IGNORECASE)
_OTHER = re.compile(
    r"time|took|elapsed|\beta\b|speed|throughput|/s\b|mem|\blr\b|rate|rank|world|train|worker", re.IGNORECASE
)
"""Words before numbers that belong to one rank or one run."""
_EXACT = 1e-6
"""Relative difference of equal numbers: some scripts sum in float32."""
_SHOWN = 5
_MOMENTS = ("start", "evaluated")


def compare_evaluations(ranks: Path, world: int, one: Path) -> Evaluation | None:
    """Compare the evaluations that both runs came to.

    Args:
        ranks: folder of the run of N ranks.
        world: its ranks.
        one: folder of the run of one process.

    Returns:
        None where one of them evaluated nothing.
    """
    theirs, ours = [read_evaluations(ranks, rank) for rank in range(world)], read_evaluations(one, 0)
    both = [key for key in ours if any(key in each for each in theirs)]
    if not both:
        return None
    equal = 0
    differing: list[PrintedNumber] = []
    for key in both:
        if key in theirs[0] and not (theirs[0][key].random or ours[key].random):
            same, apart = _compare_text(_text(ranks, theirs[0][key]), _text(one, ours[key]))
            equal, differing = equal + same, [*differing, *apart]
    last = both[-1]
    return Evaluation(
        samples_of_ranks=[rank[last].samples if last in rank else 0 for rank in theirs],
        samples_of_one=ours[last].samples,
        count=len(both),
        equal_numbers=equal,
        random=any(ours[key].random or any(rank[key].random for rank in theirs if key in rank) for key in both),
        differing=differing[:_SHOWN],
        apart=_apart(ranks, world) if differing else "",
    )


def _apart(ranks: Path, world: int) -> str:
    """A tensor in which models of ranks went different ways until the last evaluation, trained or not."""
    paths = [[rank_folder(ranks, rank) / f"{moment}.safetensors" for rank in range(world)] for moment in _MOMENTS]
    if not all(path.exists() for moment in paths for path in moment):
        return ""
    start, end = ([read_state(path) for path in moment] for moment in paths)
    for name in end[0]:
        present = all(name in each for each in [*start, *end])
        if present and _equal(start, name) and not _equal(end, name):
            kind, _, tensor = name.partition(": ")
            return f"{tensor} of a {kind.partition(' ')[0]}"
    return ""


def _equal(states: Sequence[State], name: str) -> bool:
    first = states[0][name]
    return all(first.shape == each[name].shape and np.allclose(first, each[name], rtol=_EXACT) for each in states)


def read_evaluations(folder: Path, rank: int) -> dict[tuple[int, int], EvaluationSeen]:
    """Evaluations of a rank, by the step that they follow and their number among those that follow it."""
    path, counts = rank_folder(folder, rank) / "evaluations.jsonl", Counter[int]()
    found = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        seen = msgspec.json.decode(line, type=EvaluationSeen)
        found[seen.step, counts[seen.step]] = seen
        counts[seen.step] += 1
    return found


def _text(folder: Path, seen: EvaluationSeen) -> str:
    """Output of rank 0 during an evaluation. Progress lines, which are about its own samples, are left out."""
    printed, at = b"", seen.printed_from
    log = (folder / "0" / "stdout.log").read_bytes()
    for start, end in [*seen.progress, (seen.printed_to, seen.printed_to)]:
        printed, at = printed + log[at:start], end
    return printed.decode(errors="replace")


def _compare_text(theirs: str, ours: str) -> tuple[int, list[PrintedNumber]]:
    """How many numbers are equal, and those that are not, of lines that both print."""
    found, reference = _by_pattern(theirs), _by_pattern(ours)
    equal, differing = 0, []
    for pattern in found.keys() & reference.keys():
        if len(found[pattern]) != len(reference[pattern]):
            continue
        for line, other in zip(found[pattern], reference[pattern], strict=True):
            for one, two in zip(_results(line), _results(other), strict=False):
                if _same(one, two):
                    equal += 1
                else:
                    differing.append(PrintedNumber(line=line.strip()[:200], ranks=float(one), one=float(two)))
    return equal, differing


def _by_pattern(text: str) -> dict[str, list[str]]:
    """Lines that differ in numbers only."""
    found = defaultdict(list)
    for line in text.splitlines():
        if _NUMBER.search(line):
            found[_NUMBER.sub("#", line)].append(line)
    return found


def _results(line: str) -> list[str]:
    """Numbers of a line that are named as results of an evaluation."""
    found, numbers = [], list(_NUMBER.finditer(line))
    for number, match in enumerate(numbers):
        before = line[numbers[number - 1].end() if number else 0 : match.start()]
        after = line[match.end() : numbers[number + 1].start() if number + 1 < len(numbers) else None]
        named = _RESULT.search(line[: match.start()]) or _RESULT.match(after.strip())
        if _LOSS.search(before):
            named = _EVALUATED.search(before) or _HEADER.match(line)
        if named and not _OTHER.search(before) and not _UNIT.match(after):
            found.append(match.group())
    return found


def _same(one: str, two: str) -> bool:
    """Equal but for the last digit that is printed, which rounding decides."""
    first, second = float(one), float(two)
    if first == second or (first != first and second != second):
        return True
    digits = max(len(each.partition(".")[2].lower().partition("e")[0]) for each in (one, two))
    unit = 0.0 if "e" in f"{one}{two}".lower() or not digits else 10.0**-digits
    return abs(first - second) <= max(1.001 * unit, _EXACT * abs(second))


def evaluation_change(evaluation: Evaluation, against: str) -> Change | None:
    """The difference of two evaluations of the same weights, if there is one.

    Numbers of samples alone prove nothing: some scripts drop what a sampler has padded before they compute a result.

    Args:
        evaluation: how they compare.
        against: "one process", or "OLD".

    Returns:
        None where printed results agree, or all samples are taken once.
    """
    counts, reference = evaluation.samples_of_ranks, evaluation.samples_of_one
    seen = f"{sum(counts)} samples on {len(counts)} ranks and {reference} in {against}"
    if evaluation.differing:
        first = evaluation.differing[0]
        text = f'evaluations of the same weights, of {seen}, differ: "{first.line}", but {first.one:g} in {against}'
        if evaluation.apart:
            return Change(verdict="fail", text=f"{text}; {evaluation.apart} differs between ranks", faults=["F61"])
        padded = reference < sum(counts) and max(counts) < reference
        return Change(verdict="fail", text=text, faults=["F70"] if padded else ["F71", "F72"])
    whole = all(each in (0, reference) for each in counts)
    if evaluation.equal_numbers or evaluation.random or whole or sum(counts) == reference:
        return None
    return Change(verdict="inconclusive", text=f"an evaluation takes {seen}, and prints no result that can be compared")
