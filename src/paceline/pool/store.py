"""The store of a job's ranks, in a process of its own, so that it outlives whichever rank leaves first."""

from __future__ import annotations

import os
import signal
import socket

from paceline.pool.processes import Session

_SERVE = "paceline.pool.store:serve"


def start_store(session: Session, world: int) -> int:
    """Start a store on this machine.

    Args:
        session: with which it ends.
        world: number of ranks that will look for it.

    Returns:
        its port; ranks can connect at once.
    """
    with (
        socket.create_server(("127.0.0.1", 0), backlog=max(16, 2 * world)) as listening,
        open(os.devnull, "wb") as nowhere,  # noqa: PTH123
    ):
        # What the store prints of peers that have died is in no rank's log under torchrun either.
        session.start(_SERVE, handles=(listening.fileno(),), output=(nowhere.fileno(), nowhere.fileno()))
        return int(listening.getsockname()[1])


def serve(given: bytes, listening: int) -> int:
    """Serve the store on a socket that is bound already; ends by a signal."""
    del given
    import torch.distributed as dist

    with socket.socket(fileno=listening) as end:
        port = end.getsockname()[1]
        handle = end.detach()
    # Without the name it would be gone at once.
    store = dist.TCPStore(  # type: ignore[attr-defined]  # noqa: F841  # re-exported without saying so
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=handle
    )
    while True:
        signal.pause()
