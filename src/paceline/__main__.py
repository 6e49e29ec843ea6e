"""`paceline` and `python -m paceline`; also what `torchrun -m paceline train ...` starts.

Signals are taken over before anything else is imported, so that Ctrl-C at any moment is one line and 130.
"""

from __future__ import annotations

# Built into the interpreter: nothing is read from disk before Ctrl-C is quiet.
import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, in the background
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from paceline.cli import signals

TYPE_CHECKING = False  # typing itself would cost a tenth of the time that help may take
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    signals.take_over()
    from paceline.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
