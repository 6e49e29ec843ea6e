"""A module that writes a file at the end of the interpreter."""

import atexit
import os
from pathlib import Path

atexit.register(lambda: Path(os.environ["MARK"], str(os.getpid())).touch())
