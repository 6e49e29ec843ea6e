"""Python on macOS before 3.13 has no os.waitid."""

import os

del os.waitid
