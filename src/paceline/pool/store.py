"""The store through which ranks find each other: hosted by a process of its own, or by a rank that leaves last."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from paceline.pool.processes import Session

_SERVE = "paceline.pool.store:serve"


def listen(world: int) -> socket.socket:
    """A socket for the store of so many ranks on this machine: they can connect before anybody hosts it."""
    return socket.create_server(("127.0.0.1", 0), backlog=max(16, 2 * world))


def start_store(session: Session, world: int) -> int:
    """Host a store in a process of its own, so that it outlives whichever rank leaves first.

    Args:
        session: with which it ends.
        world: number of ranks that will look for it.

    Returns:
        its port.
    """
    with listen(world) as listening, open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        # What the store prints of peers that have died is in no rank's log under torchrun either.
        session.start(_SERVE, handles=(listening.fileno(),), output=(nowhere.fileno(), nowhere.fileno()))
        return int(listening.getsockname()[1])


def host(listening: int) -> Any:
    """Host the store on a listening socket, as long as the result is kept."""
    import torch.distributed as dist

    with socket.socket(fileno=listening) as end:
        port = end.getsockname()[1]
        handle = end.detach()
    return dist.TCPStore(  # type: ignore[attr-defined]  # re-exported without saying so
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=handle
    )


def serve(given: bytes, listening: int) -> int:
    """The process: it ends by a signal."""
    del given
    store = host(listening)
    while store is not None:
        signal.pause()
    return 0
