"""What all events have in common."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events; one JSON object a line, tagged with `type`."""
