"""A job of four ranks that does not go on, written as one would see it: where each rank stands, and what it did last.

Seven causes. Each is built from the calls and the stack that every rank would have, and shown by the same card that
Paceline shows of a real hang, without its conclusion. Ranks, names, lines and numbers come from the seed. What tells
the causes apart, all of it in the text:

    slow-reading     between the two looks everybody has gone on
    exception        one rank sleeps, after it has printed an error
    own-stop         one rank is behind the loop, since a number of its own was good enough
    fewer-batches    one rank has counted fewer steps in the epoch than the others, and is in the evaluation already
    only-one-judges  one rank is in the evaluation, the others are in the next epoch and never were there
    only-one-saves   one rank is in the barrier of the saving, the others are in the next epoch
    order            all stand in one function, in the same collective by number, but one of them in another one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from paceline.audits.hang import Seen, card, diagnose
from paceline.records.observed import Collective
from paceline.records.place import Place

RANKS = 4
CAUSES: Mapping[str, str] = {
    "only-one-judges": "it alone calls the evaluation, in which there is a collective",
    "own-stop": "it has ended its loop by a number of its own",
    "fewer-batches": "it has fewer batches in an epoch than the others",
    "exception": "it met an exception, which the program caught, and has not gone on since",
    "order": "it calls two collectives in another order than the others",
    "slow-reading": "it is slow to read its data; nothing hangs",
    "only-one-saves": "it alone calls a barrier, where it saves",
    "network": "nothing: all wait in the same collective, and the connection between them is blocked",
    "memory": "it has run out of memory and was ended by the system",
}
"""What may be answered, with the words for it; the last two are never the case."""
_SHOWN = 4
"""Collectives of a rank that are shown, the last ones."""
_BETWEEN_S = 120


@dataclass(frozen=True)
class Planted:
    """One instance.

    Attributes:
        text: for the learner.
        culprit: the rank to be looked at.
        cause: a key of CAUSES.
        choices: what may be answered, with words.
        why: how the text says so; for whoever may know the solution.
    """

    text: str
    culprit: int
    cause: str
    choices: Mapping[str, str] = field(default_factory=lambda: CAUSES)
    why: str = ""


@dataclass(frozen=True)
class _Program:
    """Names and places of a program that nobody has."""

    path: str
    functions: Mapping[str, str]
    lines: Mapping[str, int]
    gradient_bytes: int
    steps: int
    epoch: int

    def place(self, what: str) -> Place:
        """The line of a call and the function around it."""
        return Place(path=self.path, line=self.lines[what], function=self.functions[_WITHIN[what]])


@dataclass
class _Rank:
    """What one rank has done and where it stands."""

    calls: list[Collective] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    waits: bool = True
    printed: str = ""


_WITHIN = {
    "gradients": "step",
    "read": "read",
    "judge": "judge",
    "save": "save",
    "first_sum": "sums",
    "second_sum": "sums",
    "end": "main",
    "caught": "main",
}
"""The function that each line stands in."""
_CALLERS = {"step": "main_step", "read": "main_read", "judge": "main_judge", "save": "main_save", "sums": "main_sums"}
_NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("train_step", "step", "update"),
    "read": ("read_batch", "next_batch", "load_batch"),
    "judge": ("evaluate", "validate", "test_accuracy"),
    "save": ("save_checkpoint", "save", "write_checkpoint"),
    "sums": ("log_epoch", "epoch_numbers", "gather_numbers"),
    "main": ("main", "train", "run"),
}
_FILES = ("train.py", "fit.py", "training.py", "job.py")
_ORDER = (
    "read", "gradients", "judge", "save", "first_sum", "second_sum",
    "main_read", "main_step", "caught", "main_sums", "main_judge", "main_save", "end", "start",
)  # fmt: skip
"""Lines in the order in which they stand in the file."""
_SOURCE = {
    "read": "block = file.read(size)",
    "gradients": "dist.all_reduce(gradients)",
    "judge": "dist.all_reduce(counts)",
    "save": "dist.barrier()",
    "first_sum": "dist.all_reduce(losses)",
    "second_sum": "dist.all_reduce(rights)",
    "main_read": "batch = {read}(epoch, number)",
    "main_step": "{step}(model, batch)",
    "caught": "time.sleep(3600)",
    "main_sums": "{sums}(epoch, model)",
    "main_judge": "{judge}(model)",
    "main_save": "{save}(model, epoch)",
    "end": "dist.barrier()",
    "start": "{main}()",
}


def planted(seed: int) -> Planted:
    """The instance that belongs to a seed; any cause is as likely as any other.

    Args:
        seed: from 0 on.
    """
    draw = np.random.default_rng((0x9A17, seed))
    cause = str(draw.choice(sorted(_BUILD)))
    culprit = int(draw.integers(RANKS))
    program = _draw_program(draw)
    looks, why = _BUILD[cause](program, culprit, draw)
    return Planted(_text(looks, program, draw), culprit, cause, CAUSES, why)


def _draw_program(draw: np.random.Generator) -> _Program:
    lines, at = {}, int(draw.integers(25, 60))
    for what in _ORDER:
        at += int(draw.integers(3, 15))
        lines[what] = at
    return _Program(
        path=str(draw.choice(_FILES)),
        functions={kind: str(draw.choice(names)) for kind, names in _NAMES.items()},
        lines=lines,
        gradient_bytes=4 * int(draw.integers(8_000, 400_000)),
        steps=int(draw.integers(20, 70)),
        epoch=int(draw.integers(1, 4)),
    )


# --- what ranks do ------------------------------------------------------------------------------------------------


def _call(rank: _Rank, program: _Program, what: str, op: str = "all_reduce", size: int = 0) -> None:
    """One more collective."""
    rank.calls.append(
        Collective(
            seq=len(rank.calls) + 1,
            op=op,
            bytes=size or program.gradient_bytes,
            dtype="float32",
            group="0",
            size=RANKS,
            place=program.place(what),
        )
    )


def _steps(rank: _Rank, program: _Program, epochs: int, steps: int) -> None:
    """Whole epochs and then some steps, a collective each; the last one printed."""
    for _ in range(epochs * program.steps + steps):
        _call(rank, program, "gradients")
    rank.printed = f"epoch {epochs}, step {steps} of {program.steps}"


def _stand(rank: _Rank, program: _Program, what: str, inner: str = "") -> None:
    """Let it stand at a line; `inner` is the frame of a library or of Python below it."""
    within = _WITHIN[what]
    frames = [(program.lines[what], program.functions[within])]
    if within != "main":
        frames.append((program.lines[_CALLERS[within]], program.functions["main"]))
    frames.append((program.lines["start"], "<module>"))
    rank.frames = [inner] * bool(inner) + [f'File "{program.path}", line {line} in {name}' for line, name in frames]


_LIBRARY = "/opt/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def _wait(rank: _Rank, program: _Program, what: str, op: str = "all_reduce", size: int = 0) -> None:
    """Let it wait in one more collective."""
    _call(rank, program, what, op, size)
    line = {"all_reduce": 3047, "barrier": 5072}[op]
    _stand(rank, program, what, f'File "{_LIBRARY}", line {line} in {op}')


def _each(culprit: int, build: Callable[[_Rank, bool], None]) -> list[_Rank]:
    ranks = [_Rank() for _ in range(RANKS)]
    for number, rank in enumerate(ranks):
        build(rank, number == culprit)
    return ranks


# --- the causes ---------------------------------------------------------------------------------------------------


def _only_one_judges(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    size = int(draw.choice([8, 16]))

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, 1, 0)
        if guilty:
            rank.printed = f"epoch 0, step {program.steps} of {program.steps}"
            _wait(rank, program, "judge", size=size)
        else:
            _wait(rank, program, "gradients")

    why = (
        f"All have done the {program.steps} steps of epoch 0. Rank {culprit} waits in {program.functions['judge']}; "
        "the others have gone on to the next epoch without it, so they never call its collective."
    )
    return [_each(culprit, build)], why


def _only_one_saves(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    del draw

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, 1, 0)
        _call(rank, program, "judge", size=16)
        if guilty:
            rank.printed = "epoch 0 evaluated"
            _wait(rank, program, "save", "barrier", size=4)
        else:
            _wait(rank, program, "gradients")

    why = (
        f"All have evaluated epoch 0. Rank {culprit} waits in the barrier in {program.functions['save']}; the others "
        "have gone on to the next epoch without saving, so they never come to it."
    )
    return [_each(culprit, build)], why


def _own_stop(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    goal = int(draw.integers(70, 90)) / 100
    low, high = goal - float(draw.uniform(0.002, 0.01)), goal + float(draw.uniform(0.002, 0.01))

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, program.epoch, 0)
        seen = high if guilty else low - float(draw.uniform(0, 0.01))
        rank.printed = f"epoch {program.epoch - 1}: accuracy of my part {seen:.4f}, wanted {goal:.2f}"
        if guilty:
            _wait(rank, program, "end", "barrier", size=4)
        else:
            _wait(rank, program, "gradients")

    why = (
        f"Rank {culprit} saw {high:.4f} on its part, more than {goal:.2f}, and has left the loop: it waits at its end. "
        "The others saw less, and have begun another epoch."
    )
    return [_each(culprit, build)], why


def _fewer_batches(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    size = int(draw.choice([8, 16]))
    fewer = program.steps - 1

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, 0, fewer)
        if guilty:
            rank.printed = f"epoch 0, step {fewer} of {fewer}"
            _wait(rank, program, "judge", size=size)
        else:
            _wait(rank, program, "gradients")

    why = (
        f"Rank {culprit} has {fewer} steps in an epoch, the others {program.steps}. It is in "
        f"{program.functions['judge']} already, while they wait for its gradient in their last step."
    )
    return [_each(culprit, build)], why


def _exception(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    step = int(draw.integers(3, program.steps - 2))
    error = str(
        draw.choice(
            [
                f"OSError: [Errno 5] Input/output error: 'part-{int(draw.integers(10, 99))}.bin'",
                f"ValueError: sample {int(draw.integers(1000, 9000))} has 63 values instead of 64",
                f"UnicodeDecodeError: 'utf-8' codec can't decode byte 0x{int(draw.integers(0x80, 0xFF)):x}",
            ]
        )
    )

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, program.epoch, step)
        if guilty:
            rank.printed = f"{error}, waiting for somebody to look at it"
            rank.waits = False
            _stand(rank, program, "caught")
        else:
            _wait(rank, program, "gradients")

    why = (
        f"Rank {culprit} has printed an error and stands at the line that caught it, one collective behind; the others "
        "wait for its gradient."
    )
    return [_each(culprit, build)], why


def _other_order(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    sizes = [int(size) for size in draw.permutation([8, 32, 64])[:2]]
    first, second = ("first_sum", "second_sum") if draw.random() < 0.5 else ("second_sum", "first_sum")

    def build(rank: _Rank, guilty: bool) -> None:
        _steps(rank, program, 1, 0)
        rank.printed = f"epoch 0, step {program.steps} of {program.steps}"
        what = first if guilty else second
        _wait(rank, program, what, size=sizes[what == "second_sum"])

    why = (
        f"All have done the same until then and stand in {program.functions['sums']}, in collective "
        f"{program.steps + 1}. Rank {culprit} waits at line {program.lines[first]}, the others at line "
        f"{program.lines[second]}: two sums, of other sizes, in another order."
    )
    return [_each(culprit, build)], why


def _slow_reading(program: _Program, culprit: int, draw: np.random.Generator) -> tuple[list[list[_Rank]], str]:
    first = int(draw.integers(2, program.steps - 12))
    more = int(draw.integers(2, 9))

    def build(step: int) -> Callable[[_Rank, bool], None]:
        def inner(rank: _Rank, guilty: bool) -> None:
            _steps(rank, program, program.epoch, step)
            if guilty:
                rank.waits = False
                _stand(rank, program, "read")
            else:
                _wait(rank, program, "gradients")

        return inner

    why = (
        f"Between the two looks each rank has done {more} more steps, so nothing hangs. Both times the others waited "
        f"for rank {culprit}, which was in {program.functions['read']}."
    )
    return [_each(culprit, build(first)), _each(culprit, build(first + more))], why


_BUILD: Mapping[str, Callable[[_Program, int, np.random.Generator], tuple[list[list[_Rank]], str]]] = {
    "only-one-judges": _only_one_judges,
    "only-one-saves": _only_one_saves,
    "own-stop": _own_stop,
    "fewer-batches": _fewer_batches,
    "exception": _exception,
    "order": _other_order,
    "slow-reading": _slow_reading,
}


# --- the text -----------------------------------------------------------------------------------------------------


def _text(looks: list[list[_Rank]], program: _Program, draw: np.random.Generator) -> str:
    waited = int(draw.integers(3, 20)) * 60
    first, second = looks[0], looks[-1]
    wide = max(len(key) for key in CAUSES)
    lines = [
        f"A job of {RANKS} processes runs {program.path}. An epoch should take {int(draw.integers(8, 25))} s, but none",
        "has ended for minutes. Somebody looked at it twice.",
        "",
        *_title(waited),
        *_standing(first),
        *_stacks(first),
        *_traces(first),
        *_title(waited + _BETWEEN_S),
        *_standing(second),
        *_excerpt(first, program),
        "Which rank has to be looked at, and what did it do? One of:",
        "",
        *(f"  {key:<{wide}}  {words}" for key, words in sorted(CAUSES.items())),
    ]
    return "\n".join(lines) + "\n"


def _title(waited: int) -> list[str]:
    return [f"-- {waited} s without an end of an epoch ".ljust(80, "-"), ""]


def _standing(ranks: list[_Rank]) -> list[str]:
    """The card without its title and its conclusion."""
    seen = {number: Seen(_stack(rank, number), rank.calls, _done(rank)) for number, rank in enumerate(ranks)}
    rows = [row for row in card(diagnose(seen)).splitlines() if row.startswith("  rank ")]
    return ["Where each rank stands:", "", *rows, ""]


def _stacks(ranks: list[_Rank]) -> list[str]:
    lines = ["Their stacks, the innermost line first:", ""]
    for number, rank in enumerate(ranks):
        lines += [f"  rank {number}", *(f"    {frame}" for frame in rank.frames)]
    return [*lines, ""]


def _traces(ranks: list[_Rank]) -> list[str]:
    lines = [f"The last {_SHOWN} collectives that each rank has called, and the last line that it has printed:", ""]
    for number, rank in enumerate(ranks):
        done = _done(rank)
        lines.append(f"  rank {number}")
        lines += [f"    {_shown(call, call.seq in done)}" for call in rank.calls[-_SHOWN:]]
        lines.append(f'    printed "{rank.printed}"')
    return [*lines, ""]


def _stack(rank: _Rank, number: int) -> str:
    head = f"Current thread 0x00007f00000000{number:02x} (most recent call first):"
    return "\n".join([head, *(f"  {frame}" for frame in rank.frames)]) + "\n"


def _done(rank: _Rank) -> frozenset[int]:
    return frozenset(call.seq for call in rank.calls[: len(rank.calls) - rank.waits])


def _shown(call: Collective, done: bool) -> str:
    line = call.place.line if call.place else 0
    return f"{call.seq:>5}  {call.op:<10}  {call.bytes:>9,} bytes  line {line:<4}  {'done' if done else 'waits'}"


def _excerpt(ranks: list[_Rank], program: _Program) -> list[str]:
    """Of the program only the lines that stand in the stacks."""
    frames = {frame for rank in ranks for frame in rank.frames}
    named = [at for at in _ORDER if any(f'"{program.path}", line {program.lines[at]} in ' in frame for frame in frames)]
    rows = [f"  {program.lines[at]:>4}  {_SOURCE[at].format_map(program.functions)}" for at in named]
    return [f"The lines of {program.path} that are named:", "", *rows, ""]
