"""What a parity run is asked to do and what it leaves behind: the files between `verify` and the ranks that it starts.

A recording run writes, below its folder, one folder a rank:

    task.json                            the ParityTask, beside the folders
    rank-00000/
      batches/<pass>-<batch>.pt              each training batch as the loop received it
      input-<forward>.pt                     what the first forward passes are given, where no loader gives it
      draws/<name>.pt                        random tensors, see `draw_file`
      loaders/<number>.json                  TrainingLoader, of the loader that was made as the number says
      start.safetensors                      parameters and buffers of all models before the first step
      evaluated.safetensors                  those at the beginning of the last evaluation
      step-000001/gradients-<optimizer>.safetensors   as the optimizer receives them
      step-000001/state.safetensors          parameters, buffers and optimizer state after it
      steps.jsonl                            one ParityStep for each step of each optimizer
      operations.jsonl                       Operation, of the first forward pass
      evaluations.jsonl, saved.jsonl         EvaluationSeen and SavedFile, in the order of time
      end.json                               the ParityEnd: without it, the rank did not come to its end

A replaying run writes the same, without batches and draws.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.place import Place
from paceline.records.schema import Finding
from paceline.records.standing import RankStanding

PARITY_VARIABLE = "PACELINE_PARITY"
"""Path of the task, set for ranks of parity runs."""


class ParityTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of the ranks of one run."""

    folder: str
    """Where they write."""
    steps: int
    """Optimizer steps that are compared."""
    double: bool
    """Compute in float64 as far as the script allows it."""
    world: int
    """Ranks of the recording run."""
    source: str = ""
    """Folder of the recording run whose batches are replayed; empty to record."""
    interleave: bool = False
    """Replay the micro-batches of all ranks one after the other, where one process takes N times as many."""
    draws_per_batch: int = 1
    """Random tensors that a rank draws outside of forward passes for each micro-batch; to interleave."""
    reverse: bool = False
    """Join batches in the opposite order of ranks: sums come out in another order."""
    keep_sizes: bool = False
    """Random numbers have the size of a rank's, where the script asks for that size in one process as well."""
    alone: int | None = None
    """Replay the part of this rank alone, to see what its gradient would be; padded as for all."""
    alone_from: int = 1
    """The first step of that."""


class TrainingLoader(msgspec.Struct, frozen=True, kw_only=True):
    """A loader over which the script trains."""

    batches: int
    """In a pass."""
    samples: int | None
    """In a pass; None where its sampler has no length."""
    drops_last: bool = False
    """It leaves out a last batch that is not full."""
    shuffles: bool | None
    """None for a sampler that does not say so."""
    place: Place | None = None
    """Where its first pass began."""


class ParityStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one optimizer."""

    step: int
    optimizer: int
    lr: list[float]
    """Of each parameter group, as the script set it."""
    backwards: int
    """Backward passes since the step before."""
    loss: float | None = None
    """Where the last of them began."""
    samples: int | None = None
    """Samples that this rank took from loaders for the step; None where batches come from elsewhere."""
    norm: float | None = None
    """Of the gradients after the last backward pass, before clipping."""
    early_clips: int = 0
    """Times that gradients were clipped before the last backward pass."""
    own_reductions: int = 0
    """Times that the script reduced gradients itself."""
    place: Place | None = None


class EvaluationSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation by one rank: all that it takes from loaders between two training batches."""

    step: int
    """Optimizer steps before it."""
    samples: int
    printed_from: int
    printed_to: int
    """Bytes of the rank's stdout, from its first batch until training goes on."""
    progress: list[tuple[int, int]] = []
    """Those between batches of a pass: what is printed there is of the rank's own samples so far."""
    random: bool = False
    """Random numbers were drawn meanwhile: what is printed may depend on them."""


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operation of the first forward pass."""

    name: str
    shape: list[int]
    """Of its result."""
    total: float
    """Sum of its result."""
    size: float
    """Sum of the magnitudes."""
    place: Place | None = None


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of `torch.save`."""

    step: int
    path: str
    names: list[str]
    """Of its tensors: keys of nested mappings, joined by "/"."""
    place: Place | None = None


class ParityEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a rank came to its end."""

    steps: int
    discarded: int = 0
    """Steps before the model was wrapped, which do not count."""
    evaluated: bool
    """An evaluation followed the last step."""
    closure: bool = False
    """An optimizer evaluates the loss within its step."""
    exit_code: int = 0
    error: str = ""
    """Traceback of what the script raised."""
    dtypes: list[str] = []
    """Of the trained parameters."""
    precision: list[str] = []
    """Types that autocast and the script ask for; "float32" where a GradScaler scales the loss."""
    notes: list[str] = []
    """What keeps the runs from being comparable."""
    nature: list[str] = []
    """Why the method itself gives another result on several ranks."""
    adjusted: list[str] = []
    """What the runs do in another way than the script, so that they can be compared."""


def rank_folder(folder: Path, rank: int) -> Path:
    """Where a rank writes."""
    return folder / f"rank-{rank:05d}"


def step_folder(folder: Path, rank: int, step: int) -> Path:
    """Where a rank writes what it has at one step."""
    return rank_folder(folder, rank) / f"step-{step:06d}"


def batch_file(folder: Path, rank: int, position: tuple[int, int]) -> Path:
    """A training batch: of a pass over a loader, the passes of a rank counted in order, by number."""
    number, batch = position
    return rank_folder(folder, rank) / "batches" / f"{number}-{batch}.pt"


def input_file(folder: Path, rank: int, number: int) -> Path:
    """Path of the input of a forward pass, by number."""
    return rank_folder(folder, rank) / f"input-{number}.pt"


def draw_file(folder: Path, rank: int, name: str) -> Path:
    """A random tensor: `<backward>-<number>` where a forward pass drew it, else its number."""
    return rank_folder(folder, rank) / "draws" / f"{name}.pt"


def read_steps(folder: Path, rank: int) -> list[ParityStep]:
    """Steps of a rank, in order."""
    path = rank_folder(folder, rank) / "steps.jsonl"
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=ParityStep) for line in path.read_bytes().splitlines()]


def read_end(folder: Path, rank: int) -> ParityEnd:
    """How a rank ended.

    Raises:
        OSError: it did not.
    """
    return msgspec.json.decode((rank_folder(folder, rank) / "end.json").read_bytes(), type=ParityEnd)


class Divergence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first state that differs."""

    step: int
    """Optimizer step; 0 is the start."""
    what: str
    """"start", "gradients" or "state"."""
    tensor: str
    relative: float
    """||ranks - reference|| / ||reference||."""
    rank: int
    against: str
    """"one process" or "rank 0"."""
    factor: float | None = None
    """The ranks' gradients are that many times those of one process."""
    path: str | None = None
    line: int | None = None
    """Of the optimizer's step."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison that a verdict rests on."""

    steps: int
    tensors: int
    """In the state after a step."""
    dtype: str
    tolerance: float
    floor: float
    """Relative difference of two runs of one process that add in another order; 0 where it was not needed."""
    worst: float
    """Largest relative difference of any tensor after any step."""


class PrintedNumber(msgspec.Struct, frozen=True, kw_only=True):
    """A number that rank 0 and one process print differently during an evaluation."""

    line: str
    """As rank 0 prints it."""
    ranks: float
    one: float


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How evaluations of the same weights compare."""

    samples_of_ranks: list[int]
    """By rank, in the last evaluation that both came to."""
    samples_of_one: int
    count: int
    """Evaluations that both came to."""
    equal_numbers: int = 0
    """Numbers that both print."""
    differing: list[PrintedNumber] = []
    random: bool = False
    """Random numbers were drawn meanwhile: results are not compared."""
    apart: str = ""
    """A tensor that ranks hold in different ways though they began with the same: of a model that is evaluated."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that NEW does in another way than OLD."""

    verdict: str
    """"fail"; "inconclusive" where it may be meant."""
    text: str
    what: str = ""
    """"states" where parameters, buffers or optimizer state differ."""
    faults: list[str] = []
    place: Place | None = None


class Before(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How OLD on one device compares with NEW on N ranks."""

    command: list[str]
    script_sha256: str
    compared: Compared | None = None
    """States of NEW's ranks with those of OLD, which was given NEW's batches."""
    samples_per_step: list[int] = []
    """Of OLD and of NEW, all ranks together."""
    learning_rates: list[float] = []
    """Of OLD on its own batches."""
    evaluation: Evaluation | None = None
    changes: list[Change] = []


class OwnPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """A short run in the precision that the script asks for: some faults vanish in float64."""

    dtype: str
    steps: int
    ranks: float
    """Largest relative difference of any tensor among ranks."""
    gradients: float
    """Relative difference to one process of all gradients of the first step."""
    tolerance: float
    """Of that difference."""


class ParityResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """parity.json: what `paceline verify` found."""

    verdict: str
    """"pass", "fail" or "inconclusive"."""
    reason: str
    command: list[str]
    world: int
    faults: list[str] = []
    first_divergence: Divergence | None = None
    first_operation: Operation | None = None
    """Of the first forward pass, whose results ranks do not have in parts; None where all agree."""
    compared: Compared | None = None
    own_precision: OwnPrecision | None = None
    """Where the script uses autocast, a GradScaler or half precision."""
    tensors: dict[str, float] = {}
    """Largest relative difference of each tensor of the state, over steps and ranks."""
    adjusted: list[str] = []
    """What both runs do in another way than the script."""
    not_compared: list[str] = []
    learning_rates: list[float] = []
    """Of the ranks at each step, first parameter group."""
    learning_rates_of_one: list[float] = []
    """Which one process would have used."""
    evaluation: Evaluation | None = None
    """None where one of the runs came to none."""
    before: Before | None = None
    """None where no OLD was given."""
    hang: list[RankStanding] = []
    """Each rank, where not all ranks came to their end."""
    findings: list[Finding] = []
    """Of the audits, from the run of the ranks."""
    script_sha256: str = ""
    versions: dict[str, str] = {}
    seconds: float = 0.0


RESULT_FILE = "parity.json"


def encode_parity(result: ParityResult) -> bytes:
    """Encode a result as one JSON document, in which an infinite difference is null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def parity_file(path: Path) -> Path | None:
    """The result that a path means: the file itself, or parity.json in a directory; None where there is none."""
    if path.is_dir():
        path = path / RESULT_FILE
        return path if path.is_file() and not (path.parent / "run.json").exists() else None
    return path if path.suffix == ".json" and path.is_file() else None


def read_parity(path: Path) -> ParityResult:
    """Read a result.

    Raises:
        PacelineError: it cannot be read, or is no result of `paceline verify`.
    """
    try:
        found = msgspec.json.decode(path.read_bytes())
        for owner, name in (
            *((found.get("tensors", {}), each) for each in found.get("tensors", {})),
            (found.get("compared"), "worst"),
            (found.get("first_divergence"), "relative"),
        ):
            if owner is not None and owner.get(name) is None:
                owner[name] = math.inf
        return msgspec.convert(found, ParityResult)
    except (OSError, AttributeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PacelineError(f"{path} is no result of paceline verify", why=str(error)) from error
