"""Read a file from the network, with an end to every wait."""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from paceline.tasks.data.fetched_files import Readable, SourceError

TIMEOUT_S = 20.0
"""For the connection, and for each time that the server sends nothing."""

STALL_AFTER_S = 60.0
STALL_BYTES_PER_S = 1024.0
"""A server that after `STALL_AFTER_S` has sent less than this on average is given up."""


@contextlib.contextmanager
def open_url(address: str) -> Iterator[Readable]:
    """The content at `address` (http, https, file) as a stream.

    Raises:
        SourceError: no answer in time, or another one than the file.
    """
    name = address.rpartition("/")[2]
    request = urllib.request.Request(address, headers={"User-Agent": "paceline"})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceError(f"{name}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceError(f"{name}: {_cause(error)}") from error
    with response:
        yield _Guarded(response, name)


class _Guarded:
    """A response whose failures are SourceErrors, and which gives up on a server that only trickles."""

    def __init__(self, response: Any, name: str) -> None:
        self._response = response
        self._name = name
        self._start = time.monotonic()
        self._bytes = 0

    def read(self, size: int, /) -> bytes:
        # read1 returns what one packet brought: a trickle is noticed, not waited for until `size` is full.
        read = getattr(self._response, "read1", self._response.read)
        try:
            chunk: bytes = read(size)
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(f"{self._name}: {_cause(error)}") from error
        self._bytes += len(chunk)
        elapsed = time.monotonic() - self._start
        if chunk and elapsed > STALL_AFTER_S and self._bytes < STALL_BYTES_PER_S * elapsed:
            raise SourceError(f"{self._name}: too slow, {self._bytes:,} bytes in {elapsed:.0f} s")
        return chunk


def _cause(error: BaseException) -> str:
    """The reason in words; urllib wraps it in another error."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer for {TIMEOUT_S:.0f} s"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
