"""Everything that can be typed behind `paceline`, as one static table.

Help of the program and of groups is made from this table alone. The module of a command, and typer with it, is
imported only when that command is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence


class Command:
    """A command: where it is carried out, and what the lists of commands show of it.

    Attributes:
        target: `module:function`; the module stands in `paceline.cli`.
        summary: one sentence, which is also the first of its help.
        examples: commands as they are typed.
        own_parser: the function takes the words as they are and returns the exit code; else typer reads them.
    """

    def __init__(self, target: str, summary: str, *examples: str, own_parser: bool = False) -> None:
        self.target = target
        self.summary = summary
        self.examples = examples
        self.own_parser = own_parser

    def load(self) -> Callable[..., object]:
        """Import what carries it out."""
        import importlib

        module, _, function = self.target.partition(":")
        run: Callable[..., object] = getattr(importlib.import_module(f"paceline.cli.{module}"), function)
        return run


class Group:
    """Commands with a word in front.

    Attributes:
        summary: one sentence.
        example: a command as it is typed.
        commands: by the word that calls them.
        itself: what the group does without a command; None shows its help.
    """

    def __init__(
        self, summary: str, example: str, commands: Mapping[str, Command | Group], itself: Command | None = None
    ) -> None:
        self.summary = summary
        self.example = example
        self.commands = commands
        self.itself = itself


_PLAN = Group(
    "Predict batch size, speed, data and cost before you pay, each with an interval and its evidence.",
    "paceline plan speed runs/speed-* --probe",
    {
        "batch": Command(
            "plan_batch:COMMAND",
            "Recommend a batch size, a number of workers and a learning rate.",
            "paceline plan batch runs/2026-01-31_12-00-00_fashion-mnist",
            "paceline plan batch fashion-mnist --target accuracy=0.90 --batches 32,128,512,2048",
            "paceline plan batch RUN --confirm --batches 128,512,2048",
        ),
        "speed": Command(
            "plan_speed:COMMAND",
            "Predict the speed of other numbers of workers from a few short runs.",
            "paceline plan speed runs/speed-* --probe --workers 1,2,4,8,16",
            "paceline plan speed runs/speed-* --bandwidth 12.5 --latency 20 --workers 64,256",
        ),
        "data": Command(
            "plan_data:COMMAND",
            "Predict how much more data and computing a target needs.",
            "paceline plan data fashion-mnist --target accuracy=0.95",
            "paceline plan data my_task.py --fractions 0.05,0.1,0.2,0.4,0.8 --seeds 5 --metric loss",
            "paceline plan data fashion-mnist --target accuracy=0.95 --peak 40 --utilisation 0.3 --price 1.5",
        ),
        "cost": Command(
            "plan_trends:COST",
            "Compute what a training costs in FLOP, PF/s-days, hours and money.",
            "paceline plan cost --parameters 70B --tokens 1.4T",
            "paceline plan cost --forward 8.2 --samples 115M --peak 989 --precision bf16 --utilisation 25% --price 2.5",
            "paceline plan cost --parameters 70B --tokens 1.4T --peak 989 --precision bf16 --utilisation 40% "
            "--devices 2048 --efficiency 85%",
        ),
        "trends": Command(
            "plan_trends:run_trends",
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
            "data:fetch",
            "Find a data set or fetch it, and check its sizes and checksums.",
            "paceline data fetch fashion-mnist --data-dir data",
        ),
        "list": Command(
            "data:list_data",
            "List the data sets with samples, size and location, without fetching anything.",
            "paceline data list",
        ),
    },
)

_SLIDES = Group(
    "Build the course's slides from text, with figures and numbers from recorded runs.",
    "paceline learn slides build D6 --format html",
    {
        "list": Command("learn_slides:list_decks", "List all decks with their topics.", "paceline learn slides list"),
        "build": Command(
            "learn_slides:build",
            "Build decks as HTML, editable PPTX, or PDF where a Chromium is installed.",
            "paceline learn slides build D3 D6 --format pptx",
        ),
    },
)

_ASSESS = Group(
    "Take the assessment: make a single-device training data-parallel and have it graded.",
    "paceline learn assess --practice",
    {
        "start": Command(
            "learn_assess:start",
            "Make the folder of the assessment: the task, the single-device training and its results.",
            "paceline learn assess start",
        ),
    },
    itself=Command(
        "learn_assess:grade",
        "Grade the submission in the folder.",
        "paceline learn assess --practice",
        "paceline learn assess --practice --all",
    ),
)

_CERTIFICATE = Group(
    "Make, check and show certificates of the final assessment, without a network.",
    "paceline learn certificate verify Ada-Lovelace.json --key institute.pub",
    {
        "issue": Command(
            "learn_certificate:issue",
            "Make a certificate from a grade: JSON, HTML, and PDF where a Chromium is installed.",
            "paceline learn certificate issue grade.json --name 'Ada Lovelace'",
        ),
        "verify": Command(
            "learn_certificate:verify",
            "Check a certificate and report what it proves.",
            "paceline learn certificate verify Ada-Lovelace.json --key institute.pub",
        ),
        "show": Command(
            "learn_certificate:show",
            "Write the page of a certificate again, and its PDF where a Chromium is installed.",
            "paceline learn certificate show Ada-Lovelace.json --out pages",
        ),
        "key": Command(
            "learn_certificate:key",
            "Make an instructor's pair of keys: a private file to keep and a public file to publish.",
            "paceline learn certificate key 'Institute of Parallel Things' --out keys",
        ),
        "revoke": Command(
            "learn_certificate:revoke",
            "Add a certificate to the issuer's revocation list and sign the list again.",
            "paceline learn certificate revoke revoked.json --id urn:uuid:... --reason error --key our.key",
        ),
    },
)

_SURVEY = Group(
    "Ask the class: a form that saves a file, and a summary of such files, without a server or names.",
    "paceline learn instructor survey form --out survey",
    {
        "form": Command(
            "learn_survey:form",
            "Write the form as a page that saves an answer file, and as a text file.",
            "paceline learn instructor survey form --out survey --class ./class",
        ),
        "summary": Command(
            "learn_survey:summary",
            "Summarize the answers: counts, medians, changes from before to after, and texts without names.",
            "paceline learn instructor survey summary survey/",
        ),
    },
)

_INSTRUCTOR = Group(
    "Teach the course: plan the day, follow the class, collect and grade. Nothing leaves the class folder.",
    "paceline learn instructor schedule --track one-day --start 9:00",
    {
        "survey": _SURVEY,
        "schedule": Command(
            "learn_instructor:schedule",
            "Plan the day: times, labs, breaks, slides, and what to leave out if it does not fit.",
            "paceline learn instructor schedule --date 2027-03-01 --ics day.ics",
        ),
        "roster": Command(
            "learn_instructor:roster",
            "Show who is in the class, or import people from a CSV file.",
            "paceline learn instructor roster ./class import people.csv",
        ),
        "handout": Command(
            "learn_instructor:handout",
            "Make a zip for learners with notebooks, texts and starters, without solutions.",
            "paceline learn instructor handout --track one-day --out course.zip",
        ),
        "collect": Command(
            "learn_instructor:collect",
            "Add what learners handed in to the class folder.",
            "paceline learn instructor collect ./class ~/Downloads/hand-ins",
        ),
        "overview": Command(
            "learn_instructor:overview",
            "Show the class: progress, who is stuck and why, predictions, assessments.",
            "paceline learn instructor overview ./class --track one-day --open",
        ),
        "grade": Command(
            "learn_instructor:grade",
            "Grade every collected assessment, one after the other.",
            "paceline learn instructor grade ./class --attest --key institute.key",
        ),
        "similarity": Command(
            "learn_instructor:similarity",
            "List similar assessments and identical logs, as a hint where to look.",
            "paceline learn instructor similarity ./class --threshold 0.7",
        ),
        "room": Command(
            "learn_instructor:room",
            "Check that every machine of the class is ready.",
            "paceline learn instructor room ./checked",
        ),
    },
)

_LEARN = Group(
    "Take the course: labs that run anywhere, with exercises that are checked by running them.",
    "paceline learn start L1",
    {
        "start": Command(
            "learn_folder:start",
            "Make the course folder: notebooks, and one plain file per exercise.",
            "paceline learn start L1 --jupyter",
        ),
        "workshop": Command(
            "learn_folder:workshop",
            "Lay out the original workshop's notebooks and decks under their own names.",
            "paceline learn workshop ./workshop",
        ),
        "list": Command(
            "learn_folder:list_labs",
            "List all labs and exercises, and which are solved.",
            "paceline learn list --track one-day",
        ),
        "next": Command(
            "learn_folder:next_one", "Show the first unsolved exercise: its task and its file.", "paceline learn next"
        ),
        "reset": Command(
            "learn_folder:reset",
            "Restore the starter of an exercise and keep a copy of yours.",
            "paceline learn reset L4.2",
        ),
        "status": Command("learn_folder:status", "Show your progress.", "paceline learn status --track one-day"),
        "check": Command(
            "learn_answer:check",
            "Run your answer on fresh random numbers and report what is right and wrong.",
            "paceline learn check L4.2",
        ),
        "watch": Command(
            "learn_answer:watch", "Check an exercise whenever its file is saved.", "paceline learn watch L4.2"
        ),
        "run": Command(
            "learn_answer:run_file",
            "Run your file as a program, without checking it.",
            "paceline learn run L5.3 --workers 2 -- --epochs 1",
        ),
        "hint": Command("learn_answer:hint", "Show the next of three hints.", "paceline learn hint L4.2"),
        "solution": Command(
            "learn_answer:solution",
            "Show our answer, once yours has passed or you have seen all hints.",
            "paceline learn solution L4.2",
        ),
        "quiz": Command("learn_answer:quiz", "Answer five questions with computed answers.", "paceline learn quiz L4"),
        "hand-in": Command(
            "learn_hand_in:hand_in",
            "Pack progress, answers and the assessment into one zip for your teacher.",
            "paceline learn hand-in --name p07",
        ),
        "doctor": Command(
            "learn_doctor:doctor", "Check this machine for everything that the course needs.", "paceline learn doctor"
        ),
        "slides": _SLIDES,
        "assess": _ASSESS,
        "certificate": _CERTIFICATE,
        "instructor": _INSTRUCTOR,
    },
)

PROGRAM = Group(
    "Take PyTorch training from one device to many, and prove that nothing was lost.",
    "paceline train digits",
    {
        "train": Command(
            "train:COMMAND",
            "Train a task on every device of this machine and show the result.",
            "paceline train digits",
            "paceline train fashion-mnist --target accuracy=0.90 --patience 2",
            "paceline train my_task.py --workers 2 --global-batch 256 --lr 0.1 --warmup 1ep",
            "paceline train --resume runs/2026-01-31_12-00-00_digits",
        ),
        "run": Command(
            "run:run_command",
            "Launch a script on many workers with torchrun's flags, and name the rank that failed first.",
            "paceline run --nproc-per-node 2 train.py",
            own_parser=True,
        ),
        "landscape": Command(
            "landscape:COMMAND",
            "Measure the loss around trained weights: surface, eigenvalues, trace, sharpness.",
            "paceline landscape runs/2026-01-31_12-00-00_fashion-mnist",
            "paceline landscape RUN --measure surface,trajectory --plane pca",
            "paceline landscape RUN --with RUN2",
            "paceline landscape digits --measure eigenvalues,trace --precision fp64",
            "paceline landscape --resume runs/2026-01-31_12-30-00_landscape-fashion-mnist",
        ),
        "report": Command(
            "report:report",
            "Show what happened in a run, or compare several: a card here and one HTML page.",
            "paceline report runs/2026-03-01_09-30-00_digits",
        ),
        "plan": _PLAN,
        "data": _DATA,
        "learn": _LEARN,
    },
)
"""The root: `paceline`."""


def find(words: Sequence[str], group: Group = PROGRAM) -> tuple[list[str], Command | Group]:
    """The command or group that leading words name, with these words; a group where no further word names a command."""
    path: list[str] = []
    found: Command | Group = group
    for word in words:
        if isinstance(found, Command) or word not in found.commands:
            break
        path.append(word)
        found = found.commands[word]
    return path, found


def every(group: Group = PROGRAM, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command | Group]]:
    """All groups and commands with the words that name them, the group itself first."""
    yield path, group
    for word, each in group.commands.items():
        if isinstance(each, Group):
            yield from every(each, (*path, word))
        else:
            yield (*path, word), each
