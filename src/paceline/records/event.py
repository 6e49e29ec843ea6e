"""What all events have in common."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events; one JSON object a line, tagged with `type`."""

    attempt: int | msgspec.UnsetType = msgspec.UNSET
    """Which start of a restarted job wrote this, 1 for the first; left out where a job is not restarted."""
