"""`paceline run`: launch a script as torchrun does."""

from __future__ import annotations

import signal

from paceline.launch.flags import flags_before_script, help_text
from paceline.records.wrap import columns


def run_command(argv: list[str]) -> int:
    """Run a script on workers; every flag of torchrun is accepted.

    Args:
        argv: what follows `paceline run` on the command line.

    Returns:
        The exit code.
    """
    if not argv or any(flag in ("-h", "--help") for flag in flags_before_script(argv)):
        print(help_text(min(columns(), 100)))
        return 0
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # as under torchrun; --signals-to-handle says otherwise
    from paceline.launch.torchrun import launch  # needs torch, which takes seconds: --help does not

    return launch(argv)
