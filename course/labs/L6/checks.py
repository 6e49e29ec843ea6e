"""Checks of lab 6: one battery of properties for twelve programs, and the name of what was wrong with each."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.tasks.task import Loss
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, train_alone
from paceline_course.answer_process import ScriptSeen
from paceline_course.checking import Answer, Message, Wrong, learners, load_module, proves

ZOO = Path(__file__).with_name("zoo.py")
EPOCHS, BATCH, TRAIN, EVAL, RATE = 3, 24, 250, 103, 0.1

CAUSES = {
    "sampler": "Without a sampler every process goes through all samples.",
    "set_epoch": "A sampler that is not told the epoch gives the same order in each.",
    "rank-0-collective": "A collective that only one process calls waits for the others for ever.",
    "early-stop": "Processes that decide on numbers of their own leave the loop at different times.",
    "uneven-batches": "A process with one batch more waits in its last step for others that have none.",
    "summed-loss": "A loss that is summed grows with the batch, and with it the gradient.",
    "clipping": "Clipping before the average clips each process's own gradient, not that of the batch.",
    "batch-norm": "Batch norm over a process's own few samples is another function than over the batch.",
    "augmentation-seed": "With the same seed every process draws the same noise for its samples.",
    "saved-by-all": "If all processes write the same file, they may tear it.",
    "unused-parameters": "DDP waits for a gradient of every parameter that it was given.",
    "rate-on-resume": "A checkpoint brings its own learning rate along.",
}
"""What can be wrong, by its name, with what it does."""
EXERCISES = dict(zip([f"L6.{number}" for number in range(1, 13)], [
    "set_epoch",
    "summed-loss",
    "rank-0-collective",
    "sampler",
    "batch-norm",
    "saved-by-all",
    "early-stop",
    "unused-parameters",
    "clipping",
    "uneven-batches",
    "augmentation-seed",
    "rate-on-resume",
], strict=True))  # fmt: skip

MESSAGES = {
    "shared": Message("processes do not share the samples of an epoch", "what each process's loader reads"),
    "same-order": Message("every epoch has the same order", "who tells whom which epoch it is"),
    "ranks-differ": Message("processes do not hold the same weights", "what each process does between two steps"),
    "unequal": Message("the weights are not those of one process with the same batches", "loss, gradients, layers"),
    "same-noise": Message("processes draw the same noise for their samples", "the seed of each process's generator"),
    "several-writers": Message("more than one process writes the weights", "who calls torch.save"),
    "metric": Message("the numbers in the log are not exact", "sums and counts over all processes"),
    "log": Message("there is no log, or it lacks epochs", "who writes it, and when the loop ends"),
    "rate": Message("the learning rate does not fit the global batch", "the order in which rate and state are set"),
    "decision": Message("it stops too early or too late", "on which numbers the decision is made, and of whom"),
    "no-cause": Message("the program is right now; its fault has no name yet", "CAUSE, in the first line"),
    "wrong-cause": Message("the program is right now; its fault had another name", "what each cause would have done"),
}


def cause_of() -> str:
    """Over there: what the learner wrote; the program itself does not run."""
    found: Any = learners("CAUSE")
    return str(found)


def battery(answer: Answer) -> None:
    """What every right program has, on two and three processes."""
    seed = int(answer.draw.integers(1, 1000))
    for world in (2, 3):
        seen, out = run(answer, world, seed)
        ran = f"{EPOCHS} epochs, global batch {BATCH}, {world} processes"
        passes = [[each.batches for each in rank.passes if each.samples in {TRAIN, None}] for rank in seen]
        judge_samples(passes, ran)
        judge_ranks(seen, ran)
        judge_noise(seen, passes, ran)
        judge_writers(seen, ran)
        judge_weights(answer, seen, passes, seed, out, ran)


def run(answer: Answer, world: int, seed: int, *more: str, batch: int = BATCH) -> tuple[list[ScriptSeen], Path]:
    """The learner's program on so many processes, and the folder of its results."""
    words = ("--epochs", str(EPOCHS), "--global-batch", str(batch), "--seed", str(seed), "--out", "result", *more)
    seen = answer.script(world, *words, timeout_s=10)
    assert answer.last is not None
    return seen, answer.last / "result"


Passes = Sequence[Sequence[Sequence[Sequence[int]]]]
"""By rank, epoch, batch: indices."""


def judge_samples(passes: Passes, ran: str) -> None:
    """Complete, shared, reshuffled."""
    world = len(passes)
    if any(len(rank) < EPOCHS for rank in passes):
        raise Wrong("log", ran=ran, expected=f"{EPOCHS} epochs", got=f"{min(len(rank) for rank in passes)}")
    for epoch in range(EPOCHS):
        every = [index for rank in passes for batch in rank[epoch] for index in batch]
        if set(every) != set(range(TRAIN)) or len(every) >= TRAIN + world:
            got = f"{len(set(every))} different ones among {len(every)}"
            raise Wrong("shared", ran=ran, expected=f"{TRAIN} samples in all", got=got)
    if passes[0][0] == passes[0][1]:
        raise Wrong(
            "same-order", ran=ran, expected="another order in the second epoch", got=f"{passes[0][1][0][:5]} ..."
        )


def judge_ranks(seen: Sequence[ScriptSeen], ran: str) -> None:
    """The same bits after each step."""
    for rank, other in enumerate(seen[1:], start=1):
        if other.digests != seen[0].digests or not seen[0].digests:
            raise Wrong(
                "ranks-differ", ran=ran, expected="the same weights after each step", got=f"rank {rank} differs"
            )


def judge_noise(seen: Sequence[ScriptSeen], passes: Passes, ran: str) -> None:
    """Noise is what was added to the samples that the ledger names."""
    points = data().points.numpy()
    noises = [rank.inputs[0] - points[list(batches[0][0])] for rank, batches in zip(seen, passes, strict=True)]
    if np.allclose(noises[0], 0):
        raise Wrong("same-noise", ran=ran, expected="noise on every sample", got="none")
    for rank, noise in enumerate(noises[1:], start=1):
        if noise.shape == noises[0].shape and np.allclose(noise, noises[0], atol=1e-9):
            raise Wrong("same-noise", ran=ran, expected="noise of its own on each", got=f"ranks 0 and {rank} agree")


def judge_weights(answer: Answer, seen: Sequence[ScriptSeen], passes: Passes, seed: int, out: Path, ran: str) -> None:
    """One process with the learner's own model, given what the processes really had, put together."""
    labels = data().labels
    flat = [[batch for epoch in rank for batch in epoch] for rank in passes]
    steps = range(min(len(rank.inputs) for rank in seen))
    inputs = [np.concatenate([rank.inputs[step] for rank in seen]) for step in steps]
    truths = [labels[[index for rank in flat for index in rank[step]]].numpy() for step in steps]
    try:
        state = (out / "state.pt").read_bytes()
    except OSError as error:
        raise Wrong("log", ran=ran, expected="state.pt", got=str(error)) from error
    answer.give("state.pt", state)
    reference, right = answer.call(alone, seed, inputs, truths)
    found = compare(seen[0].states[0], reference)
    if not found.equal():
        got = f"{found.worst[0] or found.missing} is off by {found.worst[1]:.1g}"
        raise Wrong("unequal", ran=ran, expected=f"within {TOLERANCE:g} of one process", got=got)
    judge_log(out, right, ran)


def alone(seed: int, inputs: Sequence[Any], truths: Sequence[Any]) -> tuple[State, int]:
    """Over there: what one process trains with the learner's Model, and what the saved weights get right."""
    torch.manual_seed(seed)
    made = learners("Model")()
    problem = Problem(
        model=lambda: made,
        loss=_loss,
        data=lambda step: (torch.from_numpy(inputs[step[0]]), torch.from_numpy(truths[step[0]])),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.9),
        clip=0.5,
    )
    reference = train_alone(problem, [[step] for step in range(len(inputs))])[-1]
    made.load_state_dict(torch.load("state.pt", weights_only=True)["model"])
    held = learners("Points")(EVAL, seed=2)
    with torch.no_grad():
        right = int((made.eval()(held.points).argmax(dim=1) == held.labels).sum())
    return reference, right


def _loss(network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> Loss:
    return Loss(nn.functional.cross_entropy(network(batch[0]), batch[1], reduction="sum"), len(batch[1]))


def judge_writers(seen: Sequence[ScriptSeen], ran: str) -> None:
    """One process saves."""
    writers = [rank for rank, each in enumerate(seen) if each.saved]
    if len(writers) != 1:
        raise Wrong("several-writers", ran=ran, expected="one process saves", got=f"{len(writers)} do")


def judge_log(out: Path, right: int, ran: str) -> None:
    """A line an epoch, and the last one exact."""
    try:
        with (out / "log.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Wrong("log", ran=ran, expected="log.csv", got=str(error)) from error
    if len(rows) != EPOCHS:
        raise Wrong("log", ran=ran, expected=f"{EPOCHS} lines", got=f"{len(rows)}")
    said = f"{rows[-1].get('right')} of {rows[-1].get('counted')}"
    if said != f"{right} of {EVAL}":
        raise Wrong("metric", ran=ran, expected=f"{right} of {EVAL}", got=said)


def judge_stop(answer: Answer) -> None:
    """Limits that all processes meet, that none does, and that one meets and another does not."""
    seed = int(answer.draw.integers(1, 1000))
    _, out = run(answer, 2, seed)
    with (out / "log.csv").open(newline="") as file:
        first = float(next(csv.DictReader(file))["loss"])
    # The log has one process's loss: the other's lies on one side of it.
    for enough, epochs in ((10 * first, 1), (first / 1000, EPOCHS), (first * 1.0001, None), (first * 0.9999, None)):
        seen, _ = run(answer, 2, seed, "--good-enough", repr(enough))
        done = [sum(each.samples in {TRAIN, None} for each in rank.passes) for rank in seen]
        ran = f"--good-enough {enough:.5g}, where process 0 has {first:.5g} after its first epoch"
        if len(set(done)) > 1 or (epochs is not None and done[0] != epochs):
            raise Wrong("decision", ran=ran, expected=epochs or "the same number of epochs", got=done)


def judge_resume(answer: Answer) -> None:
    """From a global batch of 24 to one of 48: the rate is in proportion."""
    seed = int(answer.draw.integers(1, 1000))
    _, out = run(answer, 2, seed)
    answer.give("state.pt", (out / "state.pt").read_bytes())
    seen, _ = run(answer, 2, seed, "--resume", "state.pt", batch=2 * BATCH)
    rates = sorted(set(seen[0].rates))
    if not np.allclose(rates, 2 * RATE):
        ran = "trained with a global batch of 24, resumed with 48"
        raise Wrong("rate", ran=ran, expected=f"a rate of {2 * RATE}", got=f"{rates}")


def data() -> Any:
    """The training set."""
    return zoo().Points(TRAIN, seed=1)


def zoo() -> Any:
    """The program without a fault."""
    return load_module(ZOO, "paceline_course_L6_zoo")


def named(exercise: str) -> Callable[[Answer], None]:
    """The test of the cause."""

    def test(answer: Answer) -> None:
        said = re.sub(r"\s+", "-", answer.call(cause_of).strip().lower())
        right = EXERCISES[exercise]
        if not said:
            raise Wrong("no-cause", expected=f"one of {', '.join(CAUSES)}", got="nothing")
        if said != right:
            got = f"{said}: {CAUSES[said]}" if said in CAUSES else f"{said}, which is not in the list"
            raise Wrong("wrong-cause", ran="this program", expected="the name of its fault", got=got)

    return test


ALSO = {"L6.7": ("and stops when all processes have met the limit", judge_stop)}
ALSO["L6.12"] = ("and resumes with the rate that fits the global batch", judge_resume)
"""What a program has besides, of those whose fault is there."""

for _name in EXERCISES:
    _number = _name.partition(".")[2]
    globals()[f"whole_{_number}"] = proves(
        _name, "the program shares its samples, agrees, equals one process, writes once, and logs exact numbers"
    )(lambda answer: battery(answer))
    if _name in ALSO:
        _statement, _test = ALSO[_name]
        globals()[f"also_{_number}"] = proves(_name, _statement)(lambda answer, test=_test: test(answer))
    globals()[f"cause_{_number}"] = proves(_name, "and its fault has its name")(named(_name))
