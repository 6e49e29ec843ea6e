"""Checks of lab 5: a script on its way from one device to many, step by step and as a whole."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.learn.checking import Answer, Message, Wrong, learners, load_module, proves
from paceline.learn.inside import ScriptSeen
from paceline.observe.loaders import LoaderLedger
from paceline.parallel.partition import split
from paceline.tasks.task import Loss
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, state_of, train_alone

TOY = Path(__file__).with_name("toy.py")

material = load_module(Path(__file__).with_name("material.py"), "paceline_course_L5_material")

MESSAGES = {
    "device": Message(
        "the device does not follow from the rank on this machine", "the local rank, and what there is without a GPU"
    ),
    "backend": Message("gloo is for CPUs, nccl for GPUs", "the number of GPUs"),
    "no-group": Message("there is no process group afterwards", "dist.init_process_group"),
    "place": Message(
        "rank, local rank or world are others than torchrun says", "the names of the environment variables"
    ),
    "alone": Message(
        "started without torchrun it does not work as one process", "defaults for variables that are not set"
    ),
    "everybody-downloads": Message("several processes of one machine download", "a condition on the local rank"),
    "one-machine-only": Message("a machine has no data: only one process of all downloads", "the rank on each machine"),
    "too-early": Message("a process went on before the data were complete", "who waits for whom, and where: a barrier"),
    "everybody-sees-all": Message(
        "every process goes through all samples", "a DistributedSampler, given to the loader"
    ),
    "missing-samples": Message("samples are never seen", "what the sampler and the loader drop"),
    "overlap": Message(
        "processes share samples, because each shuffles in its own way", "the seed of the sampler: the same everywhere"
    ),
    "same-order": Message("every epoch has the same order", "set_epoch, before each epoch"),
    "not-shuffled": Message("samples come in the order of the data", "shuffle"),
    "batch-size": Message(
        "a process takes the whole global batch at once",
        "the batch of one process: the global one divided by the world",
    ),
    "ranks-differ": Message("processes no longer hold the same weights", "forward through the wrapped model"),
    "unequal": Message("the weights are not those of one process", "the loss, the gradients, the batch of a process"),
    "padded": Message(
        "samples are counted twice: a sampler fills up, so that all processes have equally many",
        "a partition that neither fills up nor drops",
    ),
    "dropped": Message("samples are not counted", "the last, smaller batch, and the last samples of the partition"),
    "own-part": Message("the numbers are those of one process's part", "a sum over processes, of both numbers"),
    "wrong-metric": Message("right answers are counted wrongly", "argmax over classes; eval mode; sums, no means"),
    "not-shared": Message("every process evaluates everything", "each process takes its own part"),
    "train-mode": Message("the model was evaluated in training mode", "model.eval(), and model.train() afterwards"),
    "several-logs": Message("more than one process writes the log", "a condition on the global rank"),
    "log": Message("the log is not what it should be", "a line an epoch, with the columns of the single-device script"),
    "module-prefix": Message(
        "names of the saved weights begin with module.", "the state of the model inside: ddp.module.state_dict()"
    ),
    "not-saved": Message("the weights were not saved, or cannot be read", "torch.save on one process, to --out"),
    "group-left": Message("the process group was not destroyed at the end", "dist.destroy_process_group()"),
    "two-machines": Message(
        "on two machines, one process of each writes",
        "who writes: the global rank decides that; the local one chooses only the device",
    ),
    "printed-twice": Message("every process prints its own line of an epoch", "print on one process"),
    "throughput": Message("the rate is not that of all processes together", "samples of all, time of the slowest"),
    "disagree": Message("processes decide differently", "one decision, made on numbers that are equal everywhere"),
    "decision": Message("the common decision is not the one that the task asks for", "any, or all"),
}


# --- L5.1 -----------------------------------------------------------------------------------------------------------


def devices(cases: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
    """Over there: device and backend for pretended machines."""
    return [(str(learners("device_for")(local, gpus)), str(learners("backend_for")(gpus))) for local, gpus in cases]


def placed(variables: dict[str, str | None]) -> tuple[Any, bool, str]:
    """Over there: what set_up gives, and whether there is a group."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    place = learners("set_up")()
    found = tuple(int(number) for number in place[:3])
    group = dist.is_initialized()
    total = torch.ones(1)
    if group:
        dist.all_reduce(total)
    return found, group and int(total) == dist.get_world_size(), str(place[3])


@proves("L5.1", "device and backend follow from the local rank and the number of GPUs")
def device_and_backend(answer: Answer) -> None:
    """No GPU is needed to test what would be done with eight."""
    cases = [(0, 0), (3, 0), (0, 1), (int(answer.draw.integers(1, 8)), 8)]
    for (local, gpus), (device, backend) in zip(cases, answer.call(devices, cases), strict=True):
        ran = f"local rank {local} on a machine with {gpus} GPUs"
        should = f"cuda:{local}" if gpus else "cpu"
        if device != should:
            raise Wrong("device", ran=ran, expected=should, got=device)
        if backend != ("nccl" if gpus else "gloo"):
            raise Wrong("backend", ran=ran, expected="nccl" if gpus else "gloo", got=backend)


@proves("L5.1", "it finds its place among one, two and three processes, and makes the group")
def place(answer: Answer) -> None:
    """The environment is torchrun's; on two machines the local rank is another one than the rank."""
    for world in (1, 2, 3):
        got = answer.ranks(placed, world, {}, group=False)
        ran = f"{world} processes on one machine"
        for rank, (found, grouped, device) in enumerate(got):
            if found != (rank, rank, world):
                raise Wrong("place", ran=ran, expected=(rank, rank, world), got=found)
            if not grouped:
                raise Wrong("no-group", ran=ran, expected="a group of all", got="none, or another")
            if torch.cuda.device_count() == 0 and device != "cpu":
                raise Wrong("device", ran=ran, expected="cpu", got=device)
    got = answer.ranks(placed, 2, {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, group=False)
    if got[1][0] != (1, 0, 2):
        raise Wrong("place", ran="two machines with one process each", expected=(1, 0, 2), got=got[1][0])


@proves("L5.1", "started without torchrun it works as one process")
def without_torchrun(answer: Answer) -> None:
    """`python train.py`: one is no special case further on."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    variables: dict[str, str | None] = dict.fromkeys(names)
    variables["TORCHELASTIC_USE_AGENT_STORE"] = None
    (found, grouped, _), *_ = answer.ranks(placed, 1, variables, group=False)
    if found != (0, 0, 1) or not grouped:
        raise Wrong("alone", ran="no variable of torchrun", expected="(0, 0, 1), and a group of one", got=found)


# --- L5.2 -----------------------------------------------------------------------------------------------------------


def prepared(a_machine: int, slow_s: float) -> tuple[bool, bool]:
    """Over there: whether this process downloaded, and whether the data were complete when it went on."""
    rank = dist.get_rank()
    machine = rank // a_machine
    os.environ["LOCAL_RANK"] = str(rank % a_machine)
    os.environ["LOCAL_WORLD_SIZE"] = str(a_machine)
    done = Path(f"machine-{machine}.complete")
    downloaded = []

    def download() -> None:
        downloaded.append(rank)
        time.sleep(slow_s)
        done.touch()

    learners("prepare_once")(download)
    return bool(downloaded), done.exists()


@proves("L5.2", "one process of each machine downloads, and nobody goes on before it is done")
def download(answer: Answer) -> None:
    """One machine with three processes, two machines with two each."""
    for world, a_machine in ((3, 3), (4, 2), (1, 1)):
        got = answer.ranks(prepared, world, a_machine, 0.4, timeout_s=10)
        machines = world // a_machine
        ran = f"machines: {machines}, processes on each: {a_machine}"
        for machine in range(machines):
            here = got[machine * a_machine : (machine + 1) * a_machine]
            count = sum(downloaded for downloaded, _ in here)
            if count > 1:
                raise Wrong("everybody-downloads", ran=ran, expected="1 download a machine", got=count)
            if count == 0:
                raise Wrong(
                    "one-machine-only", ran=ran, expected="1 download a machine", got=f"none on machine {machine}"
                )
        early = [rank for rank, (_, complete) in enumerate(got) if not complete]
        if early:
            raise Wrong("too-early", ran=ran, expected="complete data everywhere", got=f"not yet on ranks {early}")


# --- L5.3 -----------------------------------------------------------------------------------------------------------


def epochs(samples: int, global_batch: int, seed: int, count: int) -> list[list[list[int]]]:
    """Over there: the batches of some epochs, as the loop received them."""
    dist.get_rank()
    torch.manual_seed(1000 + dist.get_rank())  # each process has a state of its own, as after some steps
    loader, sampler = learners("make_loader")(material.Numbers(samples), global_batch, seed)
    with LoaderLedger() as ledger:
        for epoch in range(count):
            for _ in learners("epoch_of")(loader, sampler, epoch):
                pass
    return [each.batches for each in ledger.passes]


@proves("L5.3", "together the processes see every sample once an epoch, in a new order each time")
def partition(answer: Answer) -> None:
    """A whole number of batches, and one that is not; a sampler may fill up by less than a process."""
    draw = answer.draw
    for world in (2, 3, 1):
        samples = world * int(draw.integers(30, 60)) + int(draw.integers(0, world))
        batch = world * int(draw.integers(4, 9))
        _judge_epochs(answer.ranks(epochs, world, samples, batch, int(draw.integers(1000)), 3), samples, batch)


def _judge_epochs(ranks: Sequence[Sequence[Sequence[Sequence[int]]]], samples: int, global_batch: int) -> None:
    """What holds for the ledgers of all ranks, epoch by epoch."""
    world = len(ranks)
    ran = f"{samples} samples, global batch {global_batch}, {world} process{'es' if world > 1 else ''}"
    if any(len(rank) != len(ranks[0]) or not rank for rank in ranks):
        raise Wrong("missing-samples", ran=ran, expected="a pass over a loader in each epoch", got="none")
    orders = []
    for epoch in range(len(ranks[0])):
        seen = [[index for batch in rank[epoch] for index in batch] for rank in ranks]
        every = [index for each in seen for index in each]
        largest = max(len(batch) for rank in ranks for batch in rank[epoch])
        if world > 1 and all(len(set(each)) == samples for each in seen):
            got = f"{samples} samples in each of {world} processes"
            raise Wrong("everybody-sees-all", ran=ran, expected=f"{samples} in all", got=got)
        if set(every) != set(range(samples)):
            message = "overlap" if len(every) >= samples else "missing-samples"
            got = f"{len(set(every))} different ones among {len(every)}"
            raise Wrong(message, ran=ran, expected=f"{samples} different samples", got=got)
        if len(every) > samples + world - 1:
            raise Wrong("overlap", ran=ran, expected=f"{samples}, filled up by less than {world}", got=len(every))
        if largest > -(-global_batch // world):
            raise Wrong("batch-size", ran=ran, expected=f"{global_batch // world} a process", got=largest)
        orders.append(seen[0])
    if orders[0] == sorted(orders[0]):
        raise Wrong("not-shuffled", ran=ran, expected="a random order", got=f"{orders[0][:6]} ...")
    if len(orders) > 1 and orders[0] == orders[1]:
        raise Wrong("same-order", ran=ran, expected="another order in each epoch", got=f"{orders[0][:5]} ... twice")


# --- L5.4 -----------------------------------------------------------------------------------------------------------

STEPS, SHARE = 6, 4


def trained(seed: int) -> list[State]:
    """Over there: the learner's wrap and train_step on this process's part of each batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = material.small(seed + 1000 * rank)  # each process begins with weights of its own: wrapping makes them equal
    ddp = learners("wrap")(model, torch.device("cpu"))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = material.classified(seed, STEPS * SHARE * world)
    states = [state_of(model)]
    for step in range(STEPS):
        start = (step * world + rank) * SHARE
        learners("train_step")(ddp, optimizer, inputs[start : start + SHARE], labels[start : start + SHARE])
        states.append(state_of(model))
    return states


@proves("L5.4", "two and three processes train what one trains, and hold the same bits")
def parity(answer: Answer) -> None:
    """Against the oracle, in float64."""
    for world in (2, 3):
        seed = int(answer.draw.integers(1, 1000))
        ranks = answer.ranks(trained, world, seed)
        inputs, labels = material.classified(seed, STEPS * SHARE * world)
        reference = train_alone(
            Problem(
                model=lambda seed=seed: material.small(seed),
                loss=_cross_entropy,
                data=lambda rows, inputs=inputs, labels=labels: (inputs[list(rows)], labels[list(rows)]),
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            ),
            [range(step * SHARE * world, (step + 1) * SHARE * world) for step in range(STEPS)],
        )
        _judge_states(ranks, reference, f"{STEPS} steps in float64 on {world} processes")


def _cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    return Loss(nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1]))


def _judge_states(ranks: Sequence[Sequence[State]], reference: Sequence[State], ran: str) -> None:
    for rank, states in enumerate(ranks[1:], start=1):
        if any(states[-1][name].tobytes() != ranks[0][-1][name].tobytes() for name in states[-1]):
            raise Wrong(
                "ranks-differ", ran=ran, expected="the same bits on all", got=f"rank {rank} differs from rank 0"
            )
    last = compare(ranks[0][-1], reference[-1])
    if last.equal():
        return
    factor = compare(ranks[0][1], reference[1], reference[0]).factor
    got = f"{last.worst[0]} is off by {last.worst[1]:.1g}"
    if factor is not None and abs(factor - 1) > 0.01:
        got += f"; the first step is {factor:.3g} times as long as it should be"
    raise Wrong("unequal", ran=ran, expected=f"the weights of one process, within {TOLERANCE:g}", got=got)


# --- L5.5 -----------------------------------------------------------------------------------------------------------


def evaluated(seed: int, samples: int) -> tuple[int, int, list[int], bool]:
    """Over there: right and counted, how often each sample was asked for here, and whether it trains on afterwards."""
    model = material.Gated(material.small(seed))
    data = material.Labelled(*material.classified(seed, samples))
    right, counted = learners("evaluate")(model, data, 50)
    return int(right), int(counted), data.asked.tolist(), model.training


@proves("L5.5", "1,003 samples: each is counted once, by one process, and all processes get the same numbers")
def exact(answer: Answer) -> None:
    """1 to 4 processes; the reference is plain PyTorch."""
    samples = 1003
    for world in (3, 4, 2, 1):
        seed = int(answer.draw.integers(1, 1000))
        inputs, labels = material.classified(seed, samples)
        with torch.no_grad():
            right = int((material.small(seed)(inputs).argmax(dim=1) == labels).sum())
            first_class = int((labels == 0).sum())
        got = answer.ranks(evaluated, world, seed, samples)
        ran = f"{samples} samples on {world} process{'es' if world > 1 else ''}"
        expected = f"{right} of {samples}"
        for rank, (hits, counted, asked, training) in enumerate(got):
            said = f"rank {rank}: {hits} of {counted}"
            if counted > samples:
                raise Wrong("padded", ran=ran, expected=expected, got=said)
            if counted < samples:
                part = world > 1 and counted in {len(split(samples, world, each)) for each in range(world)}
                part = part or (world > 1 and counted == sum(asked))
                raise Wrong("own-part" if part else "dropped", ran=ran, expected=expected, got=said)
            if world > 1 and sum(asked) > -(-samples // world) + world:
                raise Wrong("not-shared", ran=ran, expected=f"{samples // world} samples a process", got=sum(asked))
            if hits == first_class != right:
                raise Wrong("train-mode", ran=ran, expected=expected, got=said)
            if hits != right:
                raise Wrong("wrong-metric", ran=ran, expected=expected, got=said)
            if not training:
                raise Wrong("train-mode", ran=ran, expected="model.train() afterwards", got="still in eval mode")


# --- L5.6 -----------------------------------------------------------------------------------------------------------

BATCH, EPOCHS, TRAIN, EVAL = 60, 2, 1000, 1003


def _toy() -> Any:
    return load_module(TOY, "paceline_course_L5_toy")


def _script(answer: Answer, world: int, seed: int, machines: int = 1) -> tuple[list[ScriptSeen], Path]:
    """Run the learner's script; what its ranks were seen to do, and the folder of its results."""
    words = ("--epochs", str(EPOCHS), "--global-batch", str(BATCH), "--seed", str(seed), "--out", "result")
    seen = answer.script(world, *words, machines=machines, timeout_s=40)
    assert answer.last is not None
    return seen, answer.last / "result"


def _training_passes(seen: Sequence[ScriptSeen]) -> list[list[list[list[int]]]]:
    """Of each rank the passes over the training set."""
    return [[each.batches for each in rank.passes if each.samples == TRAIN] for rank in seen]


@proves("L5.6", "two and three processes share the samples of each epoch, and agree after every step")
def shared(answer: Answer) -> None:
    """From the ledger of the loaders and the digests of the weights."""
    for world in (2, 3):
        seen, _ = _script(answer, world, int(answer.draw.integers(1, 1000)))
        _judge_epochs(_training_passes(seen), TRAIN, BATCH)
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
        seen, out = _script(answer, world, seed)
        ran = f"{EPOCHS} epochs, global batch {BATCH}, {world} process{'es' if world > 1 else ''}"
        saved = _saved(out, ran)
        passes = _training_passes(seen)
        batches = [
            [index for rank in passes for index in rank[epoch][step]]
            for epoch in range(EPOCHS)
            for step in range(min(len(rank[epoch]) for rank in passes))
        ]
        data = _toy().Rings(TRAIN, seed=1)
        problem = Problem(
            model=lambda seed=seed: _seeded(seed),
            loss=_cross_entropy,
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
    made: nn.Module = _toy().make_model()
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
    seen, out = _script(answer, world, int(answer.draw.integers(1, 1000)))
    ran = f"{EPOCHS} epochs on {world} processes"
    try:
        with (out / "log.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Wrong("log", ran=ran, expected="log.csv in --out", got=str(error)) from error
    if len(rows) != EPOCHS or [row.get("epoch") for row in rows] != [str(epoch) for epoch in range(EPOCHS)]:
        several = len(rows) > EPOCHS
        raise Wrong("several-logs" if several else "log", ran=ran, expected=f"{EPOCHS} lines", got=f"{len(rows)} lines")
    model = _toy().make_model()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in _saved(out, ran).items()})
    data = _toy().Rings(EVAL, seed=2)
    right, counted = _toy().evaluate(model, data)
    said = f"{rows[-1].get('right')} of {rows[-1].get('counted')}"
    if said != f"{right} of {counted}":
        more = int(rows[-1].get("counted") or 0) - counted
        message = "padded" if more > 0 else "own-part" if more < 0 else "wrong-metric"
        raise Wrong(message, ran=ran, expected=f"{right} of {counted}", got=said)
    lines = sum(answer.printed(rank).count("epoch 0") for rank in range(world))
    if lines > 1:
        raise Wrong("printed-twice", ran=ran, expected="one line an epoch", got=f"{lines} lines for epoch 0")
    if not all(each.left_group for each in seen):
        raise Wrong("group-left", ran=ran, expected="no group at the end", got="the group is still there")


@proves("L5.6", "on two machines it is still one training, with one process that writes")
def two_machines(answer: Answer) -> None:
    """Two processes, each of which is the first one of its machine."""
    seen, _ = _script(answer, 2, int(answer.draw.integers(1, 1000)), machines=2)
    _judge_epochs(_training_passes(seen), TRAIN, BATCH)
    saving = sum(bool(rank.saved) for rank in seen)
    printing = sum("epoch 0" in answer.printed(rank) for rank in range(2))
    if max(saving, printing) > 1:
        got = f"{saving} processes save, {printing} print"
        raise Wrong("two-machines", ran="two machines with one process each", expected="one of both writes", got=got)


# --- L5.7 -----------------------------------------------------------------------------------------------------------


def rates(samples: Sequence[int], seconds: Sequence[float]) -> float:
    """Over there: the learner's throughput."""
    rank = dist.get_rank()
    return float(learners("throughput")(samples[rank], seconds[rank]))


@proves("L5.7", "the rate is the samples of all processes over the time of the slowest")
def throughput(answer: Answer) -> None:
    """Unequal shares, one slow process."""
    draw = answer.draw
    for world in (2, 3):
        samples = [int(value) for value in draw.integers(100, 900, world)]
        seconds = [float(value) for value in draw.uniform(0.5, 3.0, world)]
        got = answer.ranks(rates, world, samples, seconds)
        expected = sum(samples) / max(seconds)
        ran = f"{samples} samples in {', '.join(f'{value:.2f}' for value in seconds)} s"
        for value in got:
            if not np.isclose(value, expected, rtol=1e-4):
                raise Wrong("throughput", ran=ran, expected=f"{expected:.1f} on every process", got=f"{value:.1f}")


def decisions(mine: Sequence[Sequence[bool]]) -> list[bool]:
    """Over there: the learner's common decision, several times."""
    return [bool(learners("agree_to_stop")(each[dist.get_rank()])) for each in mine]


@proves("L5.7", "all processes stop as soon as one of them wants to, and only then")
def stopping(answer: Answer) -> None:
    """Every pattern of wishes for two and three processes."""
    for world in (2, 3):
        wishes = [[bool(number >> rank & 1) for rank in range(world)] for number in range(2**world)]
        got = answer.ranks(decisions, world, wishes, timeout_s=10)
        for number, each in enumerate(wishes):
            said = [rank[number] for rank in got]
            ran = f"wishes {each}"
            if len(set(said)) > 1:
                raise Wrong("disagree", ran=ran, expected="one decision", got=said)
            if said[0] != any(each):
                raise Wrong("decision", ran=ran, expected=any(each), got=said[0])
