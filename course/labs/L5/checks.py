"""Checks of lab 5: a script on its way from one device to many, step by step and as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.data_loaders import DataLoaders
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.parallel.partition import split
from paceline.pool.warm_ranks import RankTimeout
from paceline_course.answer_process import passes_in
from paceline_course.checking import Answer, Message, Wrong, learners, load_module, proves

common = load_module(Path(__file__).with_name("common.py"), "paceline_course_L5_common")
material = load_module(Path(__file__).with_name("material.py"), "paceline_course_L5_material")

MESSAGES = {
    "device": Message(
        "the device does not follow from the rank on this machine", "the local rank, and what there is without a GPU"
    ),
    "device-text": Message(
        "the device is no torch.device: a text has no .type and no .index, which later steps use", "torch.device(...)"
    ),
    "backend": Message("gloo is for CPUs, nccl for GPUs", "the number of GPUs"),
    "no-group": Message("there is no process group afterwards", "dist.init_process_group"),
    "own-group": Message(
        "every process makes a group of its own", "with torchrun, init_process_group(backend) needs nothing else"
    ),
    "waits": Message(
        "it stands in init_process_group and waits for the others: a HashStore is for one process, no other sees it",
        "with torchrun, init_process_group(backend) finds the others by itself",
    ),
    "text": Message(
        'rank, local rank or world is a text: os.environ holds text, and "0" == 0 is False', "int(os.environ[...])"
    ),
    "no-int": Message("rank, local rank or world is no int", "what is returned, and in which order"),
    "place": Message(
        "rank, local rank or world are others than torchrun says", "the names of the environment variables"
    ),
    "rank-as-local": Message(
        "the rank stands in the place of the local rank: on a second machine they differ", "LOCAL_RANK"
    ),
    "not-set": Message(
        "a variable of torchrun is not set, which is the case of `python train.py`",
        '"RANK" in os.environ tells whether torchrun started it; without, a group of one',
    ),
    "alone": Message("started without torchrun it is not process 0 of 1", "what it takes for variables that are unset"),
    "everybody-downloads": Message("several processes of one machine download", "a condition on the local rank"),
    "nobody-downloads": Message(
        'no process downloads; os.environ holds text, so that LOCAL_RANK is "0", and "0" == 0 is False',
        "the condition, and int()",
    ),
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
    "seed-ignored": Message("the seed has no effect: two seeds give the same order", "DistributedSampler, its seed"),
    "batch-size": Message(
        "a process takes more than its share of the global batch at once",
        "the batch of one process: the global one divided by the world",
    ),
    "small-batch": Message(
        "a process takes less than its share of the global batch at once",
        "the batch of one process: the global one divided by the world, once",
    ),
    "float-batch": Message("the batch of a process is no int: / gives a float", "//, which divides whole numbers"),
    "device-ids": Message("device_ids is for GPUs; on a CPU it has to be None", "device.type tells a GPU from a CPU"),
    "not-wrapped": Message(
        "processes begin with different weights: wrapping is what makes them equal",
        "what wrap returns: DistributedDataParallel(model)",
    ),
    "ranks-differ": Message("processes no longer hold the same weights", "forward through the wrapped model"),
    "nothing-moves": Message(
        "the first step changes no weight", "zero_grad before backward, and the optimizer's step after it"
    ),
    "summed-loss": Message(
        "the first step is as many times too long as a process has samples: the loss is their sum",
        "the mean over samples, which cross_entropy takes unless it is told otherwise",
    ),
    "times-world": Message(
        "the first step is as many times too long as there are processes",
        "what is multiplied by their number: the wrapper has already averaged",
    ),
    "gradients-add-up": Message(
        "the first step is right, later ones are not: gradients of all steps add up", "optimizer.zero_grad(), each step"
    ),
    "later-steps": Message("the first step is right, later ones are not", "what is kept from one step to the next"),
    "unequal": Message(
        "the weights are not those of one process", "the loss, the gradients, the learning rate, the batch of a process"
    ),
    "loss-tensor": Message(
        "the loss is returned as a tensor and not as a number; one with its graph keeps the memory of a whole step",
        "loss.item()",
    ),
    "loss-type": Message("the loss is not returned as a number", "what train_step returns"),
    "loss-value": Message(
        "the number returned is not the mean loss of this process's samples",
        "which loss is returned, and from before or after the step",
    ),
    "rate": Message("the learning rate is not the one of --lr", "what the optimizer is given"),
    "padded": Message(
        "samples are counted twice: a sampler fills up, so that all processes have equally many",
        "a partition that neither fills up nor drops",
    ),
    "parts-overlap": Message(
        "samples are evaluated by several processes", "where the part of a process begins and ends"
    ),
    "dropped": Message("samples are not counted", "the last, smaller batch, and the last samples of the partition"),
    "batch-counted": Message(
        "the last batch of a process counts as if it were full", "len(labels), not the batch size of the loader"
    ),
    "reduced-often": Message(
        "each sample is evaluated once, but the sums over processes are taken more than once",
        "all_reduce once, after the loop",
    ),
    "own-part": Message("the numbers are those of one process's part", "a sum over processes, of both numbers"),
    "only-rank-0": Message(
        "only rank 0 has the result", "all_reduce, whose result all processes get, and not reduce to one of them"
    ),
    "tensors": Message("tensors are returned, and not whole numbers", ".item()"),
    "rate-not-count": Message("a fraction is returned, and not how many are right", "divide by nothing"),
    "floats": Message("the numbers are floats, and not whole numbers", "dtype=torch.int64 for what is summed"),
    "wrong-metric": Message("right answers are counted wrongly", "argmax over classes; eval mode; sums, no means"),
    "not-shared": Message(
        "every process counts the whole set", "each process takes its own part, and counts are summed"
    ),
    "unequal-parts": Message(
        "the work is not shared equally: one process evaluates more than its part", "the part of each process"
    ),
    "train-mode": Message("the model was evaluated in training mode", "model.eval(), before the first forward"),
    "left-eval": Message("the model is left in eval mode", "model.train(), after the last forward"),
    "several-logs": Message("more than one process writes the log", "a condition on the global rank"),
    "several-saves": Message("more than one process saves the weights", "a condition on the global rank"),
    "log": Message("the log is not what it should be", "a line an epoch, with the columns of the single-device script"),
    "module-prefix": Message(
        "names of the saved weights begin with module.", "the state of the model inside: ddp.module.state_dict()"
    ),
    "not-saved": Message("the weights were not saved, or cannot be read", "torch.save on one process, to --out"),
    "group-left": Message("the process group was not destroyed at the end", "dist.destroy_process_group()"),
    "some-alone": Message(
        "a process calls a collective that others do not call at that point",
        "what stands under `if rank == 0:`; evaluate, and every sum over processes, are for all",
    ),
    "two-machines": Message(
        "on two machines, one process of each writes",
        "who writes: the global rank decides that; the local one chooses only the device",
    ),
    "printed-twice": Message("every process prints its own line of an epoch", "print on one process"),
    "sum-of-rates": Message(
        "it is the sum of the processes' own rates, as if none had to wait for another",
        "samples of all, time of the slowest",
    ),
    "summed-time": Message(
        "the times are added up, as if one process came after the other", "they run side by side: the largest time"
    ),
    "own-rate": Message("a process returns its own rate", "a sum over processes, and a maximum"),
    "own-times-world": Message(
        "a process returns its own rate, times the processes", "shares differ: a sum over processes, and a maximum"
    ),
    "own-time": Message(
        "the samples of all are divided by this process's own time", "the time of the slowest: a maximum"
    ),
    "own-samples": Message(
        "this process's own samples are divided by the time of the slowest", "the samples of all: a sum"
    ),
    "throughput": Message("the rate is not that of all processes together", "samples of all, time of the slowest"),
    "disagree": Message("processes decide differently", "one decision, made on numbers that are equal everywhere"),
    "own-wish": Message("every process just follows its own wish", "a collective, whose result all get"),
    "some-call": Message(
        "a collective that only some processes call: it joins with a later one, or waits for ever",
        "no `if wish:` around it, and no return before it",
    ),
    "rank-0-decides": Message("it is always rank 0's wish", "any process may ask for the end: no broadcast"),
    "all-must-wish": Message("it stops only when all wish it", "any of them: the largest of zeros and ones"),
    "decision": Message("the common decision is not the one that the task asks for", "any, or all"),
}


# --- L5.1 -----------------------------------------------------------------------------------------------------------


def devices(cases: Sequence[tuple[int, int]]) -> list[tuple[bool, str, str]]:
    """Over there: for pretended machines, whether the device is one, its name, and the backend."""
    found = []
    for local, gpus in cases:
        device = learners("device_for")(local, gpus)
        found.append((isinstance(device, torch.device), str(device), str(learners("backend_for")(gpus))))
    return found


def placed(variables: dict[str, str | None]) -> tuple[tuple[tuple[str, str], ...], int, tuple[bool, str]]:
    """Over there: what set_up gives (type and text of three numbers), how large its group is, and the device."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    rank, local_rank, world, device = learners("set_up")()
    size = 0
    if dist.is_initialized():
        total = torch.ones(1, device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(total)
        size = int(total)
    found = tuple((type(each).__name__, str(each)) for each in (rank, local_rank, world))
    return found, size, (isinstance(device, torch.device), str(device))


def _judge_place(found: Sequence[tuple[str, str]], expected: tuple[int, int, int], ran: str, message: str) -> None:
    """Three ints, and the right ones."""
    for name, (kind, text) in zip(("rank", "local rank", "world"), found, strict=True):
        if kind != "int":
            article = "a text" if kind == "str" else f"of type {kind}"
            shown = repr(text) if kind == "str" else text
            key = "text" if kind == "str" else "no-int"
            raise Wrong(key, ran=ran, expected="three ints and a torch.device", got=f"{name} is {shown}, {article}")
    got = tuple(int(text) for _, text in found)
    if got != expected:
        raise Wrong(message, ran=ran, expected=expected, got=got)


@proves("L5.1", "device and backend follow from the local rank and the number of GPUs")
def device_and_backend(answer: Answer) -> None:
    """No GPU is needed to test what would be done with eight."""
    cases = [(0, 0), (3, 0), (0, 1), (int(answer.draw.integers(1, 8)), 8)]
    for (local, gpus), (real, device, backend) in zip(cases, answer.call(devices, cases), strict=True):
        ran = f"local rank {local} on a machine with {gpus} GPUs"
        should = f"cuda:{local}" if gpus else "cpu"
        if device != should:
            raise Wrong("device", ran=ran, expected=f"the device {should}", got=device)
        if not real:
            raise Wrong("device-text", ran=ran, expected=f"torch.device({should!r})", got=f"{device!r}, a text")
        if backend != ("nccl" if gpus else "gloo"):
            raise Wrong("backend", ran=ran, expected="nccl" if gpus else "gloo", got=backend)


@proves("L5.1", "it finds its place among one, two and three processes, and makes the group")
def place(answer: Answer) -> None:
    """The environment is torchrun's; on two machines the local rank is another one than the rank."""
    for world in (1, 2, 3):
        ran = f"{common.processes(world)} on one machine"
        try:
            got = answer.ranks(placed, world, {}, group=False, timeout_s=10)
        except RankTimeout as late:
            if any("in init_process_group" in stack for stack in late.stacks.values()):
                raise Wrong("waits", ran=ran, expected=f"a group of {world}", got="no group within 10 s") from late
            raise
        for rank, (found, size, (real, device)) in enumerate(got):
            _judge_place(found, (rank, rank, world), ran, "place")
            if size != world:
                kind = "own-group" if size == 1 else "no-group"
                raise Wrong(kind, ran=ran, expected=f"a group of {world}", got=f"a group of {size}" if size else "none")
            if torch.cuda.device_count() == 0 and device != "cpu":
                raise Wrong("device", ran=ran, expected="cpu", got=device)
            if not real:
                raise Wrong("device-text", ran=ran, expected="a torch.device from set_up", got=f"{device!r}")
    got = answer.ranks(placed, 2, {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, group=False)
    as_rank = [text for _, text in got[1][0]] == ["1", "1", "2"]
    ran = "two machines with one process each"
    _judge_place(got[1][0], (1, 0, 2), ran, "rank-as-local" if as_rank else "place")


@proves("L5.1", "started without torchrun it works as one process")
def without_torchrun(answer: Answer) -> None:
    """`python train.py`: one is no special case further on."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    variables: dict[str, str | None] = dict.fromkeys(names)
    variables["TORCHELASTIC_USE_AGENT_STORE"] = None
    ran = "no variable of torchrun"
    expected = "(0, 0, 1), and a group of one"
    with common.naming(answer, ran, expected, {"KeyError": "not-set", "expected, but not set": "not-set"}):
        (found, size, _), *_ = answer.ranks(placed, 1, variables, group=False)
    _judge_place(found, (0, 0, 1), ran, "alone")
    if size != 1:
        raise Wrong("no-group", ran=ran, expected=expected, got=f"a group of {size}" if size else "none")


# --- L5.2 -----------------------------------------------------------------------------------------------------------


def prepared(a_machine: int, slow_s: float) -> tuple[bool, list[int]]:
    """Over there: whether this process downloaded, and which machines had no data yet when it went on."""
    rank = dist.get_rank()
    machine, machines = rank // a_machine, dist.get_world_size() // a_machine
    os.environ["LOCAL_RANK"] = str(rank % a_machine)
    os.environ["LOCAL_WORLD_SIZE"] = str(a_machine)
    done = [Path(f"machine-{number}.complete") for number in range(machines)]
    downloaded = []

    def download() -> None:
        downloaded.append(rank)
        time.sleep(slow_s * (1 + machine))  # the second machine is slower
        done[machine].touch()

    learners("prepare_once")(download)
    return bool(downloaded), [number for number, path in enumerate(done) if not path.exists()]


@proves("L5.2", "one process of each machine downloads, and nobody goes on before it is done")
def download(answer: Answer) -> None:
    """One machine with three processes, two machines with two each."""
    for world, a_machine in ((3, 3), (4, 2), (1, 1)):
        got = answer.ranks(prepared, world, a_machine, 0.4, timeout_s=10)
        machines = world // a_machine
        ran = f"machines: {machines}, processes on each: {a_machine}"
        if not any(downloaded for downloaded, _ in got):
            raise Wrong("nobody-downloads", ran=ran, expected="1 download a machine", got="none at all")
        for machine in range(machines):
            here = got[machine * a_machine : (machine + 1) * a_machine]
            count = sum(downloaded for downloaded, _ in here)
            if count > 1:
                raise Wrong("everybody-downloads", ran=ran, expected="1 download a machine", got=count)
            if count == 0:
                raise Wrong(
                    "one-machine-only", ran=ran, expected="1 download a machine", got=f"none on machine {machine}"
                )
        early = [rank for rank, (_, open_ones) in enumerate(got) if open_ones]
        if early:
            raise Wrong("too-early", ran=ran, expected="complete data everywhere", got=f"not yet for ranks {early}")


# --- L5.3 -----------------------------------------------------------------------------------------------------------


def epochs(samples: int, global_batch: int, seed: int, count: int) -> list[list[list[int]]]:
    """Over there: the batches of some epochs, as the loop received them."""
    dist.get_rank()
    torch.manual_seed(1000 + dist.get_rank())  # each process has a state of its own, as after some steps
    loader, sampler = learners("make_loader")(material.Numbers(samples), global_batch, seed)
    sink = MemorySink()
    with Session(sink, [DataLoaders(ModelRegistry(), every_pass=True)]):
        for epoch in range(count):
            for _ in learners("epoch_of")(loader, sampler, epoch):
                pass
    return [each.batches for each in passes_in(sink)]


@proves("L5.3", "together the processes see every sample once an epoch, in a new order each time")
def partition(answer: Answer) -> None:
    """A whole number of batches, and one that is not; a sampler may fill up by less than a process."""
    draw = answer.draw
    for world in (2, 3, 1):
        share = int(draw.integers(4, 9))
        # Three processes never divide the samples, nor a share its part of them: whoever drops either is seen.
        samples = world * int(draw.integers(30, 60)) + int(draw.integers(1 if world == 3 else 0, world))
        if world == 3 and -(-samples // world) % share == 0:
            samples += world
        batch = world * share
        ran = f"{samples} samples, global batch {batch}, {common.processes(world)}"
        causes = {"batch_size should be a positive": "float-batch"}
        with common.naming(answer, ran, f"batches of {batch // world}", causes):
            got = answer.ranks(epochs, world, samples, batch, int(draw.integers(1000)), 3)
        common.judge_epochs(got, samples, batch)


def orders(samples: int, seeds: Sequence[int]) -> list[list[int]]:
    """Over there: the order of one epoch, with several seeds."""
    return [[index for batch in epochs(samples, 8, seed, 1)[0] for index in batch] for seed in seeds]


@proves("L5.3", "another seed gives another order")
def seeds_matter(answer: Answer) -> None:
    """Three seeds, one process."""
    draw = answer.draw
    samples = int(draw.integers(60, 90))
    seeds = [int(seed) for seed in draw.choice(1000, 3, replace=False)]
    got = answer.ranks(orders, 1, samples, seeds)[0]
    if any(order == got[0] for order in got[1:]):
        ran = f"one epoch of {samples} samples with the seeds {seeds}"
        raise Wrong("seed-ignored", ran=ran, expected="three orders", got=f"{got[0][:6]} ... again and again")


# --- L5.5 -----------------------------------------------------------------------------------------------------------

EVAL_BATCH = 50


def evaluated(seed: int, samples: int) -> tuple[list[tuple[str, str]], list[int], bool]:
    """Over there: right and counted as they came, how often each sample was asked for, whether it trains on."""
    model = material.Gated(material.small(seed))
    data = material.Labelled(*material.classified(seed, samples))
    right, counted = learners("evaluate")(model, data, EVAL_BATCH)
    came = [(type(each).__name__, str(each)) for each in (right, counted)]
    return came, data.asked.tolist(), model.training


def _whole(came: Sequence[tuple[str, str]], ran: str, rank: int) -> tuple[int, int]:
    """The two numbers, which have to be whole ones."""
    said = f"rank {rank}: {' of '.join(text for _, text in came)}"
    for kind, text in came:
        if kind == "int":
            continue
        fraction = kind.startswith("float") and not float(text).is_integer()
        message = "tensors" if kind == "Tensor" else "rate-not-count" if fraction else "floats"
        if message == "floats" and not kind.startswith("float"):
            raise Wrong("unusable", ran=ran, expected="two whole numbers", got=f"{said} ({kind})")
        raise Wrong(message, ran=ran, expected="two whole numbers", got=said)
    return int(came[0][1]), int(came[1][1])


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
        ran = f"{samples} samples on {common.processes(world)}"
        expected = f"{right} of {samples}"
        counts = [_whole(came, ran, rank) for rank, (came, _, _) in enumerate(got)]
        asked = np.array([each for _, each, _ in got])
        if world > 1:
            _judge_sharing(asked, counts, right, ran)
        for rank, (hits, counted) in enumerate(counts):
            said = f"rank {rank}: {hits} of {counted}"
            if counted > samples:
                raise Wrong(_counted_more(asked, counted), ran=ran, expected=expected, got=said)
            if counted < samples:
                part = world > 1 and counted in {len(split(samples, world, each)) for each in range(world)}
                part = part or (world > 1 and counted == sum(asked[rank]))
                raise Wrong("own-part" if part else "dropped", ran=ran, expected=expected, got=said)
            if (asked.sum(axis=0) == 0).any():
                missed = int((asked.sum(axis=0) == 0).sum())
                raise Wrong("dropped", ran=ran, expected="every sample", got=f"{missed} samples are never read")
            if hits == first_class != right:
                raise Wrong("train-mode", ran=ran, expected=expected, got=said)
            if hits != right:
                raise Wrong("wrong-metric", ran=ran, expected=expected, got=said)
            if not got[rank][2]:
                raise Wrong("left-eval", ran=ran, expected="training mode afterwards", got="eval mode")


def _judge_sharing(asked: Any, counts: Sequence[tuple[int, int]], right: int, ran: str) -> None:
    """Each process its own part, and the total on each."""
    world, samples = asked.shape
    if (asked > 0).all():
        said = f"{samples} on each; counted {counts[0][1]}"
        raise Wrong("not-shared", ran=ran, expected=f"some {samples // world} samples a process", got=said)
    if counts[0] == (right, samples) and any(counted != samples for _, counted in counts[1:]):
        rank = next(number for number, (_, counted) in enumerate(counts) if counted != samples)
        said = f"rank 0: {right} of {samples}, rank {rank}: {counts[rank][0]} of {counts[rank][1]}"
        raise Wrong("only-rank-0", ran=ran, expected=f"{right} of {samples} on all", got=said)
    most = int(asked.sum(axis=1).max())
    if most > -(-samples // world) + world:
        said = f"{most} on rank {int(asked.sum(axis=1).argmax())}"
        raise Wrong("unequal-parts", ran=ran, expected=f"some {samples // world} samples a process", got=said)


def _counted_more(asked: Any, counted: int) -> str:
    """Why more are counted than there are."""
    world, samples = asked.shape
    total = int(asked.sum())
    if total > samples:
        return "padded" if total == -(-samples // world) * world else "parts-overlap"
    full = sum(-(-int(each.sum()) // EVAL_BATCH) * EVAL_BATCH for each in asked)
    return "batch-counted" if counted == full else "reduced-often"
