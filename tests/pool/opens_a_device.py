"""A module that opens a GPU's driver when it is imported; a file stands for it."""

import tempfile

from paceline.pool import fork_server

DEVICE = tempfile.NamedTemporaryFile(prefix="device-")  # noqa: SIM115  # as long as the process
fork_server.DEVICE_FILES = (DEVICE.name,)
