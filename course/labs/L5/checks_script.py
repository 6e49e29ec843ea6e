"""Checks of exercise L5.6: the whole script."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.pool.warm_ranks import RankFailure, RankTimeout
from paceline.records.observed import Collective
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, train_alone
from paceline_course.answer_process import Program, ScriptSeen, run_script
from paceline_course.checking import Answer, Wrong, load_module, proves

common = load_module(Path(__file__).with_name("common.py"), "paceline_course_L5_common")
material = load_module(Path(__file__).with_name("material.py"), "paceline_course_L5_material")


# --- L5.6 -----------------------------------------------------------------------------------------------------------

BATCH, EPOCHS, TRAIN, EVAL, LR = 60, 2, 1000, 1003, 0.1


def watched_script(program: Program) -> tuple[ScriptSeen, bool]:
    """Over there: run the learner's script; what it was seen to do, and whether it opened the log to write."""
    written: list[str] = []

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike) and isinstance(args[2], int):
            written.extend([Path(args[0]).name] if args[2] & (os.O_WRONLY | os.O_RDWR) else [])

    sys.addaudithook(note)
    return run_script(program), "log.csv" in written


def _script(answer: Answer, world: int, seed: int, machines: int = 1) -> tuple[list[ScriptSeen], list[int], Path]:
    """Run the learner's script; what its ranks were seen to do, who wrote a log, and the folder of its results."""
    words = ("--epochs", str(EPOCHS), "--global-batch", str(BATCH), "--seed", str(seed), "--out", "result")
    program = Program(words, machines, trace=False)  # the collectives of this call are traced already
    try:
        got = answer.ranks(watched_script, world, program, timeout_s=40, group=False)
    except (RankFailure, RankTimeout) as failure:
        if apart := _apart([answer.calls(rank) for rank in range(world)]):
            ran = f"{EPOCHS} epochs on {common.processes(world)}"
            raise Wrong("some-alone", ran=ran, expected="the same collectives on all", got=apart) from failure
        raise
    assert answer.last is not None
    writers = [rank for rank, (_, wrote) in enumerate(got) if wrote]
    return [seen for seen, _ in got], writers, answer.last / "result"


def _apart(calls: Sequence[Sequence[Collective]]) -> str:
    """The first collective of rank 0 for which another rank has another one; empty where they agree."""
    for rank, others in enumerate(calls[1:], start=1):
        for number, (here, there) in enumerate(zip(calls[0], others, strict=False), start=1):
            if here.op != there.op or (here.op == "all_reduce" and here.bytes != there.bytes):
                return f"collective {number}: rank 0 {_called(here)}, rank {rank} {_called(there)}"
    return ""


def _called(call: Collective) -> str:
    place = call.place
    where = " in backward" if call.by_backward else f" at {Path(place.path).name}:{place.line}" if place else ""
    return f"calls {call.op} of {call.bytes} bytes{where}"


def _training_passes(seen: Sequence[ScriptSeen]) -> list[list[list[list[int]]]]:
    """Of each rank the passes over the training set."""
    return [[each.batches for each in rank.passes if each.samples == TRAIN] for rank in seen]


@proves("L5.6", "two and three processes share the samples of each epoch, and agree after every step")
def shared(answer: Answer) -> None:
    """From the ledger of the loaders and the digests of the weights."""
    for world in (2, 3):
        seen, _, _ = _script(answer, world, int(answer.draw.integers(1, 1000)))
        common.judge_epochs(_training_passes(seen), TRAIN, BATCH)
        ran = f"{EPOCHS} epochs on {world} processes"
        for rank, other in enumerate(seen[1:], start=1):
            if other.digests != seen[0].digests:
                pairs = zip(seen[0].digests, other.digests, strict=False)
                step = next((n for n, (a, b) in enumerate(pairs, start=1) if a != b), min(len(seen[0].digests), 1))
                got = f"rank {rank} differs from rank 0 after step {step}"
                raise Wrong("ranks-differ", ran=ran, expected="the same weights after each step", got=got)


@proves("L5.6", "the weights are those that one process gets from the same batches")
def same_as_one(answer: Answer) -> None:
    """Whatever the order: the batches that the ranks really had, put together, through the oracle."""
    for world in (1, 2, 4):
        seed = int(answer.draw.integers(1, 1000))
        seen, _, out = _script(answer, world, seed)
        ran = f"{EPOCHS} epochs, global batch {BATCH}, {common.processes(world)}"
        saved = _saved(out, ran)
        if other := [rate for rate in seen[0].rates if abs(rate - LR) > 1e-12]:
            raise Wrong("rate", ran=ran, expected=f"{LR:g}, as the option has it", got=f"{other[0]:g}")
        passes = _training_passes(seen)
        batches = [
            [index for rank in passes for index in rank[epoch][step]]
            for epoch in range(EPOCHS)
            for step in range(min(len(rank[epoch]) for rank in passes))
        ]
        data = common.toy().Rings(TRAIN, seed=1)
        problem = Problem(
            model=lambda seed=seed: _seeded(seed),
            loss=common.cross_entropy,
            data=lambda rows, data=data: (data.points[list(rows)], data.labels[list(rows)]),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        )
        found = compare(saved, train_alone(problem, batches)[-1])
        if not found.equal():
            got = f"{found.worst[0] or found.missing} is off by {found.worst[1]:.1g}"
            raise Wrong("unequal", ran=ran, expected=f"within {TOLERANCE:g} of one process", got=got)


def _seeded(seed: int) -> nn.Module:
    """The model as the script makes it on rank 0."""
    torch.manual_seed(seed)
    made: nn.Module = common.toy().make_model()
    return made


def _saved(out: Path, ran: str) -> State:
    path = out / "model.pt"
    try:
        found = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError) as error:
        raise Wrong("not-saved", ran=ran, expected=f"{path.name} in --out", got=str(error).splitlines()[0]) from error
    if any(name.startswith("module.") for name in found):
        raise Wrong("module-prefix", ran=ran, expected="0.weight, 0.bias, ...", got=", ".join(found))
    return {name: np.array(tensor.numpy()) for name, tensor in found.items()}


@proves("L5.6", "one process writes one log, whose numbers are exact, and all leave cleanly")
def log_and_exit(answer: Answer) -> None:
    """The grader computes the last line itself, from the saved weights."""
    world = 3
    seen, writers, out = _script(answer, world, int(answer.draw.integers(1, 1000)))
    ran = f"{EPOCHS} epochs on {world} processes"
    if len(writers) > 1:
        raise Wrong("several-logs", ran=ran, expected="one process", got=f"ranks {writers} open log.csv to write")
    saving = [rank for rank, each in enumerate(seen) if "model.pt" in each.saved]
    if len(saving) > 1:
        raise Wrong("several-saves", ran=ran, expected="one process", got=f"ranks {saving} save model.pt")
    try:
        with (out / "log.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Wrong("log", ran=ran, expected="log.csv in --out", got=str(error)) from error
    numbered = [row.get("epoch") for row in rows]
    if numbered != [str(epoch) for epoch in range(EPOCHS)]:
        got = f"{len(rows)} lines, of the epochs {', '.join(map(str, numbered))}"
        raise Wrong("log", ran=ran, expected=f"a line for each of {EPOCHS} epochs, from 0 on", got=got)
    model = common.toy().make_model()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in _saved(out, ran).items()})
    data = common.toy().Rings(EVAL, seed=2)
    right, counted = common.toy().evaluate(model, data)
    if not all(_is_number(row.get(column)) for row in rows for column in ("loss", "right", "counted")):
        raise Wrong("log", ran=ran, expected="numbers as loss, right and counted", got=rows[-1])
    if not all(row[column].isdigit() for row in rows for column in ("right", "counted")):
        got = f"{rows[-1]['right']} of {rows[-1]['counted']}"
        raise Wrong("floats", ran=ran, expected=f"{right} of {counted}", got=got)
    said = f"{rows[-1].get('right')} of {rows[-1].get('counted')}"
    if said != f"{right} of {counted}":
        more = float(rows[-1].get("counted") or 0) - counted
        message = "padded" if more > 0 else "own-part" if more < 0 else "wrong-metric"
        raise Wrong(message, ran=ran, expected=f"{right} of {counted}", got=said)
    lines = sum(answer.printed(rank).count("epoch 0") for rank in range(world))
    if lines > 1:
        raise Wrong("printed-twice", ran=ran, expected="one line an epoch", got=f"{lines} lines for epoch 0")
    if not all(each.left_group for each in seen):
        raise Wrong("group-left", ran=ran, expected="no group at the end", got="the group is still there")


def _is_number(text: str | None) -> bool:
    try:
        return bool(np.isfinite(float(text or "nan")))
    except ValueError:
        return False


@proves("L5.6", "on two machines it is still one training, with one process that writes")
def two_machines(answer: Answer) -> None:
    """Two processes, each of which is the first one of its machine."""
    seen, writers, _ = _script(answer, 2, int(answer.draw.integers(1, 1000)), machines=2)
    common.judge_epochs(_training_passes(seen), TRAIN, BATCH)
    saving = sum(bool(rank.saved) for rank in seen)
    printing = sum("epoch 0" in answer.printed(rank) for rank in range(2))
    if max(saving, printing, len(writers)) > 1:
        got = f"processes that save: {saving}, that write the log: {len(writers)}, that print: {printing}"
        raise Wrong("two-machines", ran="two machines with one process each", expected="one of both writes", got=got)
