"""A rank of a zoo script in a process of the fork server: what `paceline run` starts, without the start."""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def run(given: bytes) -> int:
    """Run a script as `__main__` under observation. Returns its exit code."""
    from paceline.observe.attach import attach_to_rank

    job = json.loads(given)
    os.chdir(job["directory"])
    sys.argv = [job["script"], *job["args"]]
    sys.path[0:0] = [str(Path(job["script"]).parent)]
    attached = attach_to_rank() if job["observe"] else None
    code = 0
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    if attached is not None:
        attached.script_ends()
    sys.stdout.flush()
    sys.stderr.flush()
    return code
