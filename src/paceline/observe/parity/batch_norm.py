"""Batch normalization in parity runs: over a rank's own samples it is not that of one process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def with_running_statistics(note: Callable[[str], None], adjust: Callable[[str], None]) -> Callable[..., Any]:
    """A function that takes the place of `batch_norm` and normalizes with the running statistics.

    Args:
        note: is told what keeps the runs from being comparable.
        adjust: is told what both runs do in another way than the script.
    """

    def batch_norm(original: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs)
        if given.arguments.get("training", False):
            if given.arguments["running_mean"] is None:
                note("batch normalization without running statistics depends on the samples of a rank")
            else:
                adjust("batch normalization uses its running statistics in both runs")
                given.arguments["training"] = False
        return original(*given.args, **given.kwargs)

    return batch_norm
