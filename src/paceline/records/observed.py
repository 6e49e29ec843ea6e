"""Events that probes record inside a training process: collectives, timings, fingerprints.

Probes (`paceline.observe`) write these, judges read them; neither knows the other.
"""

from __future__ import annotations

from paceline.records.event import Event
from paceline.records.place import Place


class Collective(Event, frozen=True, kw_only=True, tag="collective"):
    """One collective operation, or one send or receive, as this rank issued it."""

    seq: int
    """1 for the first that this process issued, over all groups."""
    op: str
    """all_reduce, broadcast, all_gather, reduce_scatter, send, ..."""
    bytes: int
    """Size of the tensors that this rank passes in; for a receive, of those that it waits for."""
    dtype: str = ""
    """Data type of the first tensor."""
    group: str = ""
    """Name of the process group."""
    size: int = 0
    """Ranks in it."""
    root: int | None = None
    """Where one rank is special: the source of a broadcast, the other end of a send or receive."""
    place: Place | None = None
    """The line of the user's code that led to it; None when there is none on the stack."""
    by_backward: bool = False
    """Issued from within a backward pass, as DDP does with its buckets."""
    on: str = ""
    """What the tensors are where that was looked at: `gradients`, `parameters` or `other`."""
    number: int | None = None
    """1 for the first that this rank called on this group from Python; None where that is not known."""
    equal_bytes: int | None = None
    """Size of the tensors that have the same size on every rank of the group; None where sizes may differ."""
    before: int | None = None
    """Collectives of this group that this rank had issued before, DDP's own included; None where they are not counted,
    or where sends and receives count as well."""
    step: int | None = None
    """Optimizer steps done, where they were counted."""
    issued_s: float = 0.0
    """On this machine's monotonic clock."""


class CollectivesCounted(Event, frozen=True, kw_only=True, tag="collectives_counted"):
    """How many collectives of a group a rank called until its script ended without an exception."""

    group: str
    size: int
    """Ranks in it."""
    calls: int
    """From Python."""
    issued: int | None = None
    """With those of DDP; None where they are not counted, or where sends and receives count as well."""


class CollectiveDone(Event, frozen=True, kw_only=True, tag="collective_done"):
    """A collective of this rank is complete."""

    seq: int
    done_s: float
    """On this machine's monotonic clock."""


class NotObserved(Event, frozen=True, kw_only=True, tag="not_observed"):
    """Something that a probe should have seen, and did not."""

    what: str
    """A quantity in the words of a report: `samples`, `loss`, `sample indices`."""
    why: str


class StepTiming(Event, frozen=True, kw_only=True, tag="step_timing"):
    """Duration of an optimizer step, as observed in a script; None for phases that were not observed."""

    step: int | None = None
    """Optimizer steps of this process, 1 for the first."""
    samples: int | None = None
    """Used by all ranks up to and with this step."""
    elapsed_s: float | None = None
    """Since the first step began."""
    duration_s: float | None = None
    """The whole step, from the end of the one before."""
    data_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    update_s: float | None = None
    source: str = ""
    """What timed it, as `hooks` or `profiler`."""
    sampled: bool = False
    """Only some steps are timed like this one."""


class Fingerprint(Event, frozen=True, kw_only=True, tag="fingerprint"):
    """A digest of each tensor of this rank's state: equal digests are equal bits."""

    rank: int
    step: int
    """Optimizer steps done."""
    digests: dict[str, str]
    """By name: `parameter:<name>`, `buffer:<name>`, `gradient:<name>`, `optimizer:<parameter>:<key>`,
    `random:<generator>`."""
    moment: str = ""
    """`start` (before the first step), `gradients` (as the optimizer takes them), `state` (before the next batch),
    `evaluation` (before its first batch), `end`; empty where none was given."""
