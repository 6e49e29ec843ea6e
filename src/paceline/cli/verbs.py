"""Everything that can be typed behind `paceline`, as one static table.

Help of the program and of groups is made from this table alone. The module of a command, and typer with it, is
imported only when that command is asked for. Verbs of other distributions arrive through the entry-point group
`paceline.verbs`; their entry point is looked up only when the verb is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from paceline.records.errors import PacelineError

TYPE_CHECKING = False  # typing itself would cost a tenth of the time that help may take
if TYPE_CHECKING:
    from typing import Any

ENTRY_POINTS = "paceline.verbs"


class Command:
    """A command: where it is carried out, and what the lists of commands show of it.

    Attributes:
        target: `module:function`, as entry points name it.
        summary: one sentence, which is also the first of its help.
        examples: commands as they are typed.
        own_parser: the function takes the words as they are and returns the exit code; else typer reads them.
        ranks: `module:name` of the modules that its ranks need; the fork server loads them while the command is read.
    """

    def __init__(self, target: str, summary: str, *examples: str, own_parser: bool = False, ranks: str = "") -> None:
        self.target = target
        self.summary = summary
        self.examples = examples
        self.own_parser = own_parser
        self.ranks = ranks

    def load(self) -> Callable[..., object]:
        """Import what carries it out."""
        run: Callable[..., object] = _named(self.target)
        return run

    def start_server(self) -> None:
        """Have the fork server begin to load what ranks need, if the command starts any."""
        if self.ranks:
            from paceline.launch.local_machine import job_server

            job_server(_named(self.ranks))


def _named(name: str) -> Any:
    import importlib

    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Group:
    """Commands with a word in front.

    Attributes:
        summary: one sentence.
        example: a command as it is typed.
        commands: by the word that calls them.
        itself: what the group does without a command; None shows its help.
    """

    def __init__(self, summary: str, example: str, commands: Mapping[str, Verb], itself: Command | None = None) -> None:
        self.summary = summary
        self.example = example
        self.commands = commands
        self.itself = itself


class External:
    """A verb of another distribution, which need not be installed.

    Attributes:
        summary: one sentence, shown whether or not the distribution is installed.
        entry_point: its name in the entry-point group `paceline.verbs`; it refers to a `Command` or a `Group`.
        title: what the distribution is, for the message that it is missing.
        install: how to install it.
    """

    def __init__(self, summary: str, *, entry_point: str, title: str, install: str) -> None:
        self.summary = summary
        self.entry_point = entry_point
        self.title = title
        self.install = install

    def load(self) -> Command | Group:
        """Import the verb.

        Raises:
            PacelineError: the distribution is not installed.
        """
        from importlib.metadata import entry_points

        for found in entry_points(group=ENTRY_POINTS, name=self.entry_point):
            verb: Command | Group = found.load()
            return verb
        raise PacelineError(f"{self.title} is not installed", why="it is a distribution of its own", hint=self.install)


Verb = Command | Group | External


_PLAN = Group(
    "Predict batch size, speed, data and cost before you pay, each with an interval and its evidence.",
    "paceline plan speed runs/speed-* --probe",
    {
        "batch": Command(
            "paceline.cli.plan_batch:COMMAND",
            "Recommend a batch size, a number of workers and a learning rate.",
            "paceline plan batch runs/2026-01-31_12-00-00_fashion-mnist",
            "paceline plan batch fashion-mnist --target accuracy=0.90 --batches 32,128,512,2048",
            "paceline plan batch RUN --confirm --batches 128,512,2048",
        ),
        "speed": Command(
            "paceline.cli.plan_speed:COMMAND",
            "Predict the speed of other numbers of workers from a few short runs.",
            "paceline plan speed runs/speed-* --probe --workers 1,2,4,8,16",
            "paceline plan speed runs/speed-* --bandwidth 12.5 --latency 20 --workers 64,256",
        ),
        "data": Command(
            "paceline.cli.plan_data:COMMAND",
            "Predict how much more data and computing a target needs.",
            "paceline plan data fashion-mnist --target accuracy=0.95",
            "paceline plan data my_task.py --fractions 0.05,0.1,0.2,0.4,0.8 --seeds 5 --metric loss",
            "paceline plan data fashion-mnist --target accuracy=0.95 --peak 40 --utilisation 0.3 --price 1.5",
        ),
        "cost": Command(
            "paceline.cli.plan_trends:COST",
            "Compute what a training costs in FLOP, PF/s-days, hours and money.",
            "paceline plan cost --parameters 70B --tokens 1.4T",
            "paceline plan cost --forward 8.2 --samples 115M --peak 989 --precision bf16 --utilisation 25% --price 2.5",
            "paceline plan cost --parameters 70B --tokens 1.4T --peak 989 --precision bf16 --utilisation 40% "
            "--devices 2048 --efficiency 85%",
        ),
        "trends": Command(
            "paceline.cli.plan_trends:run_trends",
            "Show published training times of ResNet-50 on ImageNet and how they scale.",
            "paceline plan trends",
            "paceline plan trends --format json",
        ),
    },
)

_DATA = Group(
    "Get data sets in the layout that torchvision expects, and check every byte.",
    "paceline data fetch fashion-mnist",
    {
        "fetch": Command(
            "paceline.cli.data:fetch",
            "Find a data set or fetch it, and check its sizes and checksums.",
            "paceline data fetch fashion-mnist --data-dir data",
        ),
        "list": Command(
            "paceline.cli.data:list_data",
            "List the data sets with samples, size and location, without fetching anything.",
            "paceline data list",
        ),
    },
)

PROGRAM = Group(
    "Take PyTorch training from one device to many, and prove that nothing was lost.",
    "paceline train digits",
    {
        "train": Command(
            "paceline.cli.train:COMMAND",
            "Train a task on every device of this machine and show the result.",
            "paceline train digits",
            "paceline train fashion-mnist --target accuracy=0.90 --patience 2",
            "paceline train my_task.py --workers 2 --global-batch 256 --lr 0.1 --warmup 1ep",
            "paceline train --resume runs/2026-01-31_12-00-00_digits",
            ranks="paceline.train.handover:RANK_MODULES",
        ),
        "run": Command(
            "paceline.cli.run:run_command",
            "Launch a script as torchrun does, and report silent faults with rank, step, line and repair.",
            "paceline run --nproc-per-node 2 train.py",
            "paceline run --nproc-per-node 2 --fail-on warning --format json train.py --epochs 1",
            own_parser=True,
        ),
        "audit": Command(
            "paceline.cli.audit:audit",
            "Judge a saved run of paceline run again: faults of its ranks, and what was not observed.",
            "paceline audit runs/2026-01-31_12-00-00_train",
            "paceline audit RUN --fail-on warning --format json",
        ),
        "check": Command(
            "paceline.cli.check:check",
            "Read scripts and notebooks and report faults of their data parallelism, without running them.",
            "paceline check train.py",
            "paceline check src notebooks --format sarif",
            "paceline check --select data,DP081 --diff train.py",
            "paceline check --explain DP001",
        ),
        "verify": Command(
            "paceline.cli.verify:verify_command",
            "Prove that N ranks train what one process would, without changing the script.",
            "paceline verify --nproc-per-node 2 train.py",
            "paceline verify --nproc-per-node 4 --steps 10 --format json train.py --epochs 1",
            "paceline verify --nproc-per-node 3 --task digits",
            own_parser=True,
        ),
        "landscape": Command(
            "paceline.cli.landscape:COMMAND",
            "Measure the loss around trained weights: surface, eigenvalues, trace, sharpness.",
            "paceline landscape runs/2026-01-31_12-00-00_fashion-mnist",
            "paceline landscape RUN --measure surface,trajectory --plane pca",
            "paceline landscape RUN --with RUN2",
            "paceline landscape digits --measure eigenvalues,trace --precision fp64",
            "paceline landscape --resume runs/2026-01-31_12-30-00_landscape-fashion-mnist",
            ranks="paceline.landscape.choices:RANK_MODULES",
        ),
        "report": Command(
            "paceline.cli.report:report",
            "Show what happened in a run, or compare several: a card here and one HTML page.",
            "paceline report runs/2026-03-01_09-30-00_digits",
        ),
        "plan": _PLAN,
        "data": _DATA,
        "learn": External(
            "Take the course: labs that run anywhere, with exercises that are checked by running them.",
            entry_point="learn",
            title="the course",
            install="pip install ./course (in a checkout of Paceline)",
        ),
    },
)
"""The root: `paceline`."""


def find(words: Sequence[str], group: Group = PROGRAM) -> tuple[list[str], Command | Group]:
    """The command or group that leading words name, with these words; a group where no further word names a command.

    Raises:
        PacelineError: the words name a verb of a distribution that is not installed.
    """
    path: list[str] = []
    found: Command | Group = group
    for word in words:
        if isinstance(found, Command) or word not in found.commands:
            break
        path.append(word)
        next_one = found.commands[word]
        found = next_one.load() if isinstance(next_one, External) else next_one
    return path, found


def every(group: Group = PROGRAM, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command | Group]]:
    """All groups and commands with the words that name them, the group itself first; without external verbs."""
    yield path, group
    for word, each in group.commands.items():
        if isinstance(each, Group):
            yield from every(each, (*path, word))
        elif isinstance(each, Command):
            yield (*path, word), each
