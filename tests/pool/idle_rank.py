"""A rank without torch: it says that it listens, writes down that it was asked to save, and ends when it is told to."""

import os
import signal
import time
from pathlib import Path


def main(given: bytes) -> int:
    """The whole life of a rank."""
    here, rank = Path(os.environ["IDLE_FOLDER"]), os.environ["RANK"]
    time.sleep(float(os.environ.get("IDLE_BEFORE_S", "0")))
    signal.signal(signal.SIGUSR1, lambda *_: (here / f"saved-{rank}").touch())
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    (here / f"ready-{rank}").touch()
    time.sleep(float(os.environ.get("IDLE_FOR_S", "20")))
    return int(os.environ.get(f"IDLE_CODE_{rank}", "0"))
