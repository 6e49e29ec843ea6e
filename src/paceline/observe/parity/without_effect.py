"""Notes uses of torch.compile and autocast, which have no effect in a parity run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from paceline.observe.session import Probe, Session


def watch_without_effect(session: Session, probe: Probe, adjust: Callable[[str], None], *, double: bool) -> None:
    """Note compilation and autocast.

    Args:
        session: of the probe.
        probe: on whose behalf torch is patched.
        adjust: is told what both runs do in another way than the script.
        double: the run computes in float64.
    """
    eager = "torch.compile has no effect: both runs compute eagerly"  # compilation stops at a dispatch mode
    session.patch(probe, torch, "compile", before=lambda *_: adjust(eager))
    if double:
        session.patch(
            probe,
            torch.autocast,
            "__enter__",
            before=lambda args, _: adjust("autocast has no effect on float64") if args[0]._enabled else None,
        )
