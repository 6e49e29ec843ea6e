"""What is seen from inside a training process without changing it: collectives, consumed samples, fingerprints.

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
    """Of the tensors that this rank hands in; of a receive those that it waits for."""
    dtype: str = ""
    """Of the first tensor."""
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
    issued_s: float = 0.0
    """On this machine's monotonic clock."""


class CollectiveDone(Event, frozen=True, kw_only=True, tag="collective_done"):
    """A collective of this rank is complete."""

    seq: int
    done_s: float
    """On this machine's monotonic clock."""


class LoaderPass(Event, frozen=True, kw_only=True, tag="loader_pass"):
    """One pass of this rank over a data loader, as far as it went."""

    loader: int
    """0 for the loader that was first iterated over in this process."""
    number: int
    """Of the pass over that loader, 0 for the first."""
    samples: int | None
    """In the whole data set; None when it has no length."""
    batches: list[list[int]]
    """Indices into the data set of each batch that the loop received, in order."""
    unseen: str = ""
    """Why nothing could be seen; empty when `batches` is all there was."""


class Fingerprint(Event, frozen=True, kw_only=True, tag="fingerprint"):
    """A digest of each tensor of this rank's state: equal digests are equal bits."""

    rank: int
    step: int
    """Optimizer steps done."""
    digests: dict[str, str]
    """By name: `parameter:<name>`, `buffer:<name>`, `optimizer:<parameter>:<key>`, `random:<generator>`."""
