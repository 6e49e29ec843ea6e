"""Distinguish a failure that another rank caused from one of the rank itself.

When a rank ends, the ranks that wait for it fail too: gloo, NCCL and torch's store report a closed connection at once,
or a timeout later. Those reports name no cause. The wordings below are those of torch 2.1 to 2.14.

Only what torch's communication raises counts: RuntimeError and torch.distributed's own errors. Python's
ConnectionResetError or BrokenPipeError come from the script's own sockets and pipes, and are failures of that rank.
"""

from __future__ import annotations

import re
from typing import Literal

from paceline.audits.tracebacks import Raised

Consequence = Literal["lost", "waited"]
"""The connection to a peer was closed, or a wait for it ran into a timeout."""

_LOST = re.compile(
    r"closed by (remote )?peer|reset by peer|connection was likely closed|Broken pipe|Socket closed|"
    r"remote process exit|ncclRemoteError|pair closure|communicator was aborted|got 0 bytes|"
    r"(send|recv)\w* failed on SocketImpl|connectFullMesh failed|waiting for send/recv from rank|"
    r"peer.{0,40}(gone|died|unreachable)|Connection refused",
    re.IGNORECASE,
)
_WAITED = re.compile(
    r"timed out waiting|timed out after \d+|wait timeout|socket timeout|collective operation timeout|"
    r"waiting for clients|failed to pass monitoredBarrier|operations have failed or timed out|"
    r"client socket has timed out|connect timeout",
    re.IGNORECASE,
)
_COMMUNICATION = re.compile(
    r"^(RuntimeError|(torch\.)?([\w.]*\.)?Dist\w*Error|gloo::\w+|c10::\w+|c10d::\w+|TimeoutError)\b"
)
_CPP_WHAT = re.compile(r"^\s*what\(\):\s*(?P<text>.*)$", re.MULTILINE)
_CPP_LINES = 4
"""A C++ exception's text may go on for some lines: NCCL puts its own error name on the second."""


def consequence_of(raised: Raised | None) -> Consequence | None:
    """Name the failure of a peer that caused an exception or one of its chain; None for a failure of its own."""
    if raised is None:
        return None
    for text in (f"{raised.summary}\n{raised.detail}", *raised.earlier):
        if _COMMUNICATION.match(text) and (found := _match(text)):
            return found
    return None


def consequence_of_abort(stderr: str) -> Consequence | None:
    """The same for a process that an uncaught C++ exception aborted, from the end of its stderr."""
    found = list(_CPP_WHAT.finditer(stderr))
    if not found:
        return None
    lines = stderr[found[-1].start() :].splitlines()[:_CPP_LINES]
    return _match("\n".join(lines))


def mentioned_in(lines: str) -> Consequence | None:
    """The same for a rank that handled the exception and chose an exit code, from its last lines on stderr."""
    communication = [line for line in lines.splitlines() if re.search(r"gloo|nccl|c10d|Store|\.cc:\d+|\.cpp:\d+", line)]
    return _match("\n".join(communication))


def timed_out(text: str) -> bool:
    """Return True if a message reports a wait for another rank that ran into a timeout."""
    return _match(text) == "waited"


def _match(text: str) -> Consequence | None:
    if _WAITED.search(text):
        return "waited"
    return "lost" if _LOST.search(text) else None
