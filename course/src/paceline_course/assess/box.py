"""The box: a frozen submission is run on W ranks, in a folder of its own, and what was seen of it comes back.

Nothing of it is loaded here. Files that it wrote are opened as foreign ones: no links, no pipes, a limited length;
tensors with `weights_only`.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import time
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.audits.hang import Seen, card, diagnose
from paceline.pool.answers import RankUse
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks
from paceline.records.lines import JsonLines
from paceline.records.observed import Collective, CollectiveDone
from paceline.verify.oracle import State
from paceline_course.assess.kit import GIVEN, kit_folder
from paceline_course.assess.rubric import LimitNumbers
from paceline_course.assess.submission import Submission, read_rows
from paceline_course.assess.submission_process import SEEN, Start, run_program
from paceline_course.checking import Wrong
from paceline_course.sandbox.foreign_files import read_foreign
from paceline_course.sandbox.limits import Limits, free_user

OUT = "out"
_MOST_RECORD, _MOST_WEIGHTS, _MOST_LOG = 64 << 20, 8 << 20, 1 << 20
_MOST_NUMBERS = 4 << 20
_PRINTED_LINES = 10
_MOST_HANGS = 2


@dataclass(frozen=True)
class Block:
    """Samples that a rank read one after the other.

    Attributes:
        role: of the data: training, evaluation, or other.
        numbers: of the samples.
    """

    role: int
    numbers: NDArray[np.int64]


@dataclass(frozen=True)
class RankSeen:
    """What was noted on one rank.

    Attributes:
        blocks: readings, neighbours of one role joined.
        steps: digest of the weights after each optimizer step.
        writes: names of the files that it wrote, each once, in order.
        calls: the collectives that it issued.
        done: those that were complete, by number.
    """

    blocks: list[Block] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    calls: list[Collective] = field(default_factory=list)
    done: frozenset[int] = frozenset()

    def numbers(self, role: int) -> NDArray[np.int64]:
        """All samples of a role that it read, in order."""
        found = [block.numbers for block in self.blocks if block.role == role]
        return np.concatenate(found) if found else np.empty(0, np.int64)


@dataclass(frozen=True)
class Ran:
    """One run of a submission.

    Attributes:
        folder: where it worked; what it wrote is in `out`.
        command: as a person would write it.
        world: ranks.
        seconds: of all of it, seen from outside.
        ranks: what was noted on each.
        ends: what each rank sent at its end; None where the run did not end by itself.
        failure: a rank failed; the others were killed.
        late: time was up.
        use: processor time of each rank, seen from outside.
        printed: the end of what was printed.
    """

    folder: Path
    command: str
    world: int
    seconds: float
    ranks: list[RankSeen]
    ends: list[dict[str, Any]] | None
    failure: RankFailure | None = None
    late: RankTimeout | None = None
    use: list[RankUse] = field(default_factory=list)
    printed: str = ""

    @property
    def ended(self) -> bool:
        """Every rank came to its end."""
        return self.ends is not None

    def card(self) -> str:
        """Of a hang: which rank, at which line. Empty otherwise."""
        if self.late is None:
            return ""
        ranks = {
            number: Seen(
                self.late.stacks.get(number, ""), seen.calls or None, seen.done, number not in self.late.stacks
            )
            for number, seen in enumerate(self.ranks)
        }
        return card(diagnose(ranks), self.late.timeout_s, root=self.folder)

    def log(self) -> list[dict[str, str]]:
        """The lines of log.csv."""
        return read_rows(read_foreign(self.folder / OUT / "log.csv", _MOST_LOG))

    def weights(self, epoch: int) -> State | str:
        """The weights after an epoch, as float64 or whatever they are; in words why there are none."""
        return read_weights(self.folder / OUT / f"epoch-{epoch}.pt")

    def epochs(self) -> int:
        """How many epochs have saved weights, from 0 on without a gap."""
        count = 0
        while (self.folder / OUT / f"epoch-{count}.pt").exists():
            count += 1
        return count


class Box:
    """Runs one submission, again and again.

    Args:
        submission: frozen.
        scratch: a folder for all runs.
        limits: of the rubric.
        patience: factor on time limits.
    """

    def __init__(self, submission: Submission, scratch: Path, limits: LimitNumbers, patience: float = 1.0) -> None:
        self.submission = submission
        self._scratch, self._limits, self._patience = scratch, limits, patience
        self._runs = self._hangs = 0

    def run(self, world: int, start: Start, timeout_s: float | None = None, again_in: Path | None = None) -> Ran:
        """Run it.

        Args:
            world: ranks.
            start: how; `--out out` is added.
            timeout_s: for all of it; the rubric's by default.
            again_in: folder of an earlier run, to go on there.

        Raises:
            Wrong: two runs hung before. One says where it hangs, two that it is not that run; more cost time only.
        """
        if self._hangs >= _MOST_HANGS:
            told = command(world, start)
            raise Wrong("hung-before", ran=told, expected="an end", got=f"{self._hangs} runs before this one hung")
        folder = self._fresh() if again_in is None else _again(again_in)
        limits = Limits(
            folder,
            user=free_user(),
            memory_bytes=self._limits.memory_bytes,
            processes=self._limits.processes,
            reads=(kit_folder().parents[1],),
        )
        use: list[RankUse] = []
        ends: list[dict[str, Any]] | None = None
        failure: RankFailure | None = None
        late: RankTimeout | None = None
        began = time.monotonic()
        try:
            ends = run_ranks(
                run_program,
                world,
                replace(start, arguments=(*start.arguments, "--out", OUT)),
                timeout_s=(timeout_s or self._limits.run_s) * self._patience,
                env={"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                limits=limits,
                group=False,
                plain=True,
                usage=use,
            )
            _check_ends(ends)
        except RankFailure as error:
            ends, failure = None, error
        except RankTimeout as error:
            late, self._hangs = error, self._hangs + 1
        seconds = time.monotonic() - began
        return Ran(
            folder=folder,
            command=command(world, start),
            world=world,
            seconds=seconds,
            ranks=[read_seen(folder, rank) for rank in range(world)],
            ends=ends,
            failure=failure,
            late=late,
            use=use,
            printed=_printed(limits, world, failure),
        )

    def _fresh(self) -> Path:
        self._runs += 1
        folder = self._scratch / f"run-{self._runs}"
        folder.mkdir(parents=True)
        for name in self.submission.files:
            if name.endswith((".py", ".toml")):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.submission.folder / name, path)
        for name in GIVEN:
            shutil.copyfile(kit_folder() / name, folder / name)
        return folder

    def forget(self, ran: Ran) -> None:
        """Remove what a run left."""
        shutil.rmtree(ran.folder, ignore_errors=True)


def _again(folder: Path) -> Path:
    """Make a folder ready for one more run: what was noted before is put aside, where the program left it there."""
    number = 1
    with contextlib.suppress(OSError):
        while (aside := folder / f"{SEEN}-{number}").exists():
            number += 1
        (folder / SEEN).rename(aside)
    return folder


def _check_ends(ends: list[Any]) -> None:
    """What ranks sent has the form that `run_program` gives it; a program that attacks its process may send anything.

    Raises:
        RankFailure: it has not.
    """
    for rank, end in enumerate(ends):
        first = end.get("first", []) if isinstance(end, dict) else None
        if not isinstance(first, list) or not all(isinstance(text, str) for text in first):
            raise RankFailure(rank, "it sent no answer that can be read: it is not what the box sends", "")


def command(world: int, start: Start) -> str:
    """What a person would type."""
    words = " ".join(start.arguments)
    if start.alone:
        return f"python train.py {words}"
    return f"torchrun --standalone --nproc-per-node {world} train.py {words}"


def read_weights(path: Path) -> State | str:
    """A file of weights as arrays; in words why it cannot be used."""
    content = read_foreign(path, _MOST_WEIGHTS + 1)
    if content is None:
        return f"{path.name} is missing"
    if len(content) > _MOST_WEIGHTS:
        return f"{path.name} is larger than {_MOST_WEIGHTS:,} bytes"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a foreign file looks like, the words below say enough
            if _unpacked(content) > _MOST_WEIGHTS:
                return f"{path.name} is larger than {_MOST_WEIGHTS:,} bytes when it is unpacked"
            held = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            return _arrays(held, path.name)
    except Exception as error:  # noqa: BLE001  a foreign file may fail in any way
        return f"{path.name} cannot be read with weights_only=True: {type(error).__name__}"


def _unpacked(content: bytes) -> int:
    """How many bytes an archive has when it is unpacked; torch would do that first, and without a limit."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return 0
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(info.file_size for info in archive.infolist())


def _arrays(held: Any, file: str) -> State | str:
    """What a file of weights held; whatever can be saved may have been, so that each call here may fail."""
    if not isinstance(held, dict) or not held:
        return f"{file} holds a {type(held).__name__}, not the weights by their names"
    found: State = {}
    numbers = 0
    for name, value in held.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            return f"{file} holds more than tensors by their names: {str(name)[:60]}"
        # A small file can say of one number that it is a tensor of terabytes.
        numbers += value.numel()
        if numbers > _MOST_NUMBERS:
            return f"{file} holds more than {_MOST_NUMBERS:,} numbers"
        if value.layout != torch.strided:  # indices of other layouts may lead anywhere
            return f"{file} holds a tensor that is not dense: {name[:60]}"
        if value.dtype == torch.bfloat16:
            value = value.float()
        found[name] = np.array(value.detach().cpu().numpy())
    return found


def read_seen(folder: Path, rank: int) -> RankSeen:
    """What was noted on a rank, as far as it can be read."""
    seen = folder / SEEN

    def lines(name: str) -> list[str]:
        content = read_foreign(seen / f"{name}-{rank}.txt", _MOST_RECORD) or b""
        return content.decode(errors="replace").split("\n")[:-1]

    calls, done = _trace(read_foreign(seen / f"trace-{rank}.jsonl", _MOST_RECORD) or b"")
    blocks = _blocks(read_foreign(seen / f"reads-{rank}.bin", _MOST_RECORD) or b"")
    return RankSeen(blocks, lines("steps"), list(dict.fromkeys(lines("writes"))), calls, done)


def _blocks(content: bytes) -> list[Block]:
    held = np.frombuffer(content[: len(content) // 4 * 4], dtype="<i4").astype(np.int64)
    found: list[tuple[int, list[NDArray[np.int64]]]] = []
    at = 0
    while at + 2 <= len(held):
        role, count = int(held[at]), int(held[at + 1])
        if count < 0:
            break
        numbers = held[at + 2 : at + 2 + count]
        at += 2 + count
        if found and found[-1][0] == role:
            found[-1][1].append(numbers)
        else:
            found.append((role, [numbers]))
    return [Block(role, np.concatenate(parts)) for role, parts in found]


def _trace(content: bytes) -> tuple[list[Collective], frozenset[int]]:
    lines: JsonLines[Collective | CollectiveDone] = JsonLines(Path("events"), Collective | CollectiveDone)
    calls, done = [], set()
    for line in content.split(b"\n"):
        event = lines.decode(line)
        if isinstance(event, Collective):
            calls.append(event)
        elif event is not None:
            done.add(event.seq)
    return calls, frozenset(done)


def _printed(limits: Limits, world: int, failure: RankFailure | None) -> str:
    """The end of what the rank in question printed, else of the first that printed anything."""
    order: Sequence[int] = range(world) if failure is None else [failure.rank, *range(world)]
    for rank in order:
        text = limits.printed(rank).strip()
        if text:
            return "\n".join(line[:200] for line in text.splitlines()[-_PRINTED_LINES:])
    return ""
