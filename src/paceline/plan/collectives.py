"""How long an all-reduce takes: alpha-beta models of the usual algorithms.

Notation: k ranks, S bytes, alpha the latency of one message, beta the bandwidth of a link in bytes a second.

    ring    2 (k - 1) alpha + 2 (k - 1) / k  S / beta     as fast as links allow, but each of 2 (k - 1) rounds waits
    tree    2 ceil(log2 k) alpha + 2 S / beta             few rounds, for small messages and many ranks

(Thakur, Rabenseifner and Gropp 2005; Patarasu and Yuan 2009.) On several machines with g ranks each, a library that
knows of machines (NCCL, which has trees as well) goes in layers: a reduce-scatter within each, a ring or a tree between
them over S / g, and a gather within. One that does not (gloo) sends one ring through all ranks, and each round waits
for the slowest link.

**Ranks that share a machine share its memory**: all of them together move 2 (k - 1) S bytes, so with many ranks on few
cores the machine is the bottleneck, and not any link. `Link.shared` is what it moves in all. **And its cores**: a round
ends when every rank has had its turn, so with more ranks than the cores serve, `Link.processors`, each takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Link:
    """What connects ranks.

    Attributes:
        latency_s: alpha, of one message.
        bandwidth: beta, bytes a second.
        shared: bytes a second that the ranks of one machine move together; infinite where each has a link of its own.
        processors: ranks that the cores of their machine serve at once: with more, messages take turns; infinite where
            devices send.
    """

    latency_s: float
    bandwidth: float
    shared: float = math.inf
    processors: float = math.inf

    def faster(self, times: float) -> Link:
        """A link that needs 1 / `times` for everything."""
        return replace(
            self, latency_s=self.latency_s / times, bandwidth=self.bandwidth * times, shared=self.shared * times
        )

    def latency_of(self, ranks: int) -> float:
        """Seconds of a message of each of `ranks`, at the same time."""
        return self.latency_s * max(1.0, ranks / self.processors)


def ring(ranks: int, size_bytes: float, link: Link) -> float:
    """Seconds of an all-reduce over a ring; 0 for one rank."""
    if ranks < 2:
        return 0.0
    own = 2 * (ranks - 1) / ranks * size_bytes / link.bandwidth
    together = 2 * (ranks - 1) * size_bytes / link.shared
    return 2 * (ranks - 1) * link.latency_of(ranks) + max(own, together)


def tree(ranks: int, size_bytes: float, link: Link) -> float:
    """Seconds of an all-reduce up and down a binary tree; 0 for one rank."""
    if ranks < 2:
        return 0.0
    together = 2 * (ranks - 1) * size_bytes / link.shared
    return 2 * math.ceil(math.log2(ranks)) * link.latency_of(ranks) + max(2 * size_bytes / link.bandwidth, together)


@dataclass(frozen=True)
class Network:
    """Links of a cluster.

    Attributes:
        link: between ranks of one machine.
        per_node: ranks on one machine; None when all are on one.
        outer: between machines; needed with `per_node`.
        tree: whether the library has trees and layers, and takes what is fastest (NCCL has, gloo has not).
    """

    link: Link
    per_node: int | None = None
    outer: Link | None = None
    tree: bool = False

    def faster(self, times: float) -> Network:
        """All links faster so many times."""
        return replace(self, link=self.link.faster(times), outer=self.outer.faster(times) if self.outer else None)

    def all_reduce(self, ranks: int, size_bytes: float) -> float:
        """Seconds of an all-reduce over `ranks`, in the fastest way that the library has."""
        if ranks < 2:
            return 0.0
        if self.per_node is None or self.outer is None or ranks <= self.per_node:
            flat = ring(ranks, size_bytes, self.link)
            return min(flat, tree(ranks, size_bytes, self.link)) if self.tree else flat
        nodes = math.ceil(ranks / self.per_node)
        if not self.tree:
            slowest = Link(
                max(self.link.latency_s, self.outer.latency_s),
                min(self.link.bandwidth, self.outer.bandwidth),
                nodes * self.link.shared,  # each machine carries and serves its own ranks
                nodes * self.link.processors,
            )
            return ring(ranks, size_bytes, slowest)
        # A scatter before and a gather after take what an all-reduce within each machine takes.
        within, share = ring(self.per_node, size_bytes, self.link), size_bytes / self.per_node
        return within + min(ring(nodes, share, self.outer), tree(nodes, share, self.outer))
