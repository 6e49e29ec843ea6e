"""observation.json of a run directory: findings, what was watched and what was not observed in the ranks of a job.

It is also the document that `--format json` of `paceline run` and `paceline audit` prints.
"""

from __future__ import annotations

import msgspec

from paceline.records.rundir import RunDir, decode_record, write_atomic
from paceline.records.schema import SCHEMA, Finding


class Unseen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was not observed, and why."""

    what: str
    why: str
    by_launcher: bool = False
    """Only the launcher knows: judging the records again cannot find it."""


class WatchedRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of the job."""

    observed: list[int]
    world: int
    """Ranks that were started; 0 where none was observed."""


class ObservedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its judge saw it."""

    exit_code: int
    """Of the command that wrote it."""
    run: str
    ranks: WatchedRanks
    steps: int
    """Optimizer steps of the rank that took most."""
    steps_per_s: float | None = None
    """From the first step that the launcher saw to the last one."""
    samples_per_s: float | None = None
    """Likewise, that the training loops of all ranks received."""
    findings: list[Finding] = []
    """Errors first."""
    watched: dict[str, list[str]] = {}
    """What was compared or counted, by topic; a topic without data has an empty list."""
    not_observed: list[Unseen] = []


def encode_observation(observed: ObservedRun) -> bytes:
    """Encode an observation as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(observed), indent=2) + b"\n"


def write_observation(run: RunDir, observed: ObservedRun) -> None:
    """Write observation.json.

    Raises:
        PacelineError: it cannot be written; an older one is untouched.
    """
    write_atomic(run.observation, encode_observation(observed))


def read_observation(run: RunDir) -> ObservedRun | None:
    """Read observation.json; None where there is none.

    Raises:
        PacelineError: it is damaged.
    """
    try:
        raw = run.observation.read_bytes()
    except OSError:
        return None
    return decode_record(
        run.observation, raw, ObservedRun, schema=SCHEMA, hint=f"paceline audit {run.path} makes it again"
    )
