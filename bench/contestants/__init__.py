"""The loops that are compared, one a file; `TABLE` names them. Nothing heavy is imported here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from contestants.base import Contestant


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    Attributes:
        module: below `contestants`.
        cls: the class in it.
        title: for the table.
        settings: keyword arguments of the class.
        needs: a package that may be missing.
    """

    module: str
    cls: str
    title: str
    settings: tuple[tuple[str, object], ...] = ()
    needs: str | None = None


TABLE: dict[str, Entry] = {
    "limit": Entry("limit", "Limit", "(1) limit: one resident batch, with sync", (("synchronise", True),)),
    "limit-no-sync": Entry("limit", "Limit", "(1) the same without sync", (("synchronise", False),)),
    "paceline": Entry("paceline_loop", "PacelineLoop", "(2) paceline train"),
    "hand": Entry("hand_loop", "HandLoop", "(3) hand-written DDP loop, tuned"),
    "tutorial-0": Entry(
        "tutorial", "Tutorial", "(4) tutorial loop, 0 loader workers", (("loader_workers", 0),), "torchvision"
    ),
    "tutorial-2": Entry(
        "tutorial", "Tutorial", "(4) tutorial loop, 2 loader workers", (("loader_workers", 2),), "torchvision"
    ),
    "fabric": Entry("fabric_loop", "FabricLoop", "(5) Lightning Fabric", needs="lightning_fabric"),
    "accelerate": Entry("accelerate_loop", "AccelerateLoop", "(6) Accelerate", needs="accelerate"),
}


def missing(names: Iterable[str]) -> dict[str, str]:
    """Of these rows, those that cannot run here: name -> the package that is not installed."""
    needed = {name: TABLE[name].needs for name in names}
    return {name: package for name, package in needed.items() if package and importlib.util.find_spec(package) is None}


def make(name: str, overrides: dict[str, object] | None = None) -> Contestant:
    """A contestant by the name of its row; `overrides` replace its settings (for tuning studies)."""
    entry = TABLE[name]
    cls = getattr(importlib.import_module(f"contestants.{entry.module}"), entry.cls)
    contestant: Contestant = cls(**(dict(entry.settings) | (overrides or {})))
    return contestant
