"""How every rank of ours leaves: one function, so that no rank aborts after it has succeeded.

gloo sometimes calls `std::terminate` while the interpreter takes itself apart ("terminate called without an active
exception"), also after `destroy_process_group`; leaving through `os._exit` once everything is flushed never did.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process with `code`: process groups destroyed, output flushed, no interpreter teardown.

    Nothing that stands in `atexit` runs, so files must be closed before. A torn group (a peer died) is no reason
    to wait: what fails here is passed over, the exit code is what was asked for.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and code == 0 and distributed.is_available() and distributed.is_initialized():
        # After a failure the peers may be gone, and destroying a NCCL group would wait for them.
        with contextlib.suppress(Exception):
            distributed.destroy_process_group()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        logging.shutdown()
    os._exit(code)


def die_with_parent(expected_parent: int | None = None, *, still: bool = True) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens).

    A rank leads a session of its own, so that a kill of the launcher's group misses it.

    Args:
        expected_parent: the launcher's process id, to notice when it died before this call.
        still: False asks the kernel to leave this process alone from now on.
    """
    if sys.platform != "linux":
        return
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL if still else 0, 0, 0, 0)
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)
