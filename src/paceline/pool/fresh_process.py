"""A process of the fork server as a fresh interpreter: `python -m paceline.pool.fresh_process FILE HANDLE ...`."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
import types
from typing import NoReturn

from paceline.parallel.exit import leave
from paceline.pool.fork_server import call


def main() -> NoReturn:
    """Call the target that stands in the open file whose number is the first argument."""
    told, *handles = (int(argument) for argument in sys.argv[1:])
    with os.fdopen(told, "rb") as file:
        start = pickle.load(file)
    sys.argv[:] = start.argv
    if start.path is not None:
        sys.path[:] = start.path
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        call(start, handles)
    except BaseException:  # noqa: BLE001  # it goes where the output goes, and the exit code says that it failed
        traceback.print_exc()
        leave(1)


if __name__ == "__main__":
    main()
