"""Evidence of a line for the page: JSON values of any shape as facts and small tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.report import words
from paceline.report.page.figures import Table
from paceline_course.assess.text import visible

_FACTS = 40
_ROWS = 40
_COLUMNS = 10
_ITEMS = 24
_TEXT = 300


@dataclass
class Evidence:
    """What the page shows of it.

    Attributes:
        facts: names with values in words.
        tables: of lists of objects.
    """

    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.facts or self.tables)


def shown(evidence: Mapping[str, Any]) -> Evidence:
    """The evidence, cut where there is more than a reader would look at; what is left out is said."""
    found = Evidence()
    for name, value in evidence.items():
        _add(found, _named(name), value)
    left = len(found.facts) - _FACTS
    if left > 0:
        found.facts[_FACTS:] = [("and", f"{words.plural(left, 'more value')} in grade.json")]
    return found


def value_text(value: Any) -> str:
    """A JSON value in few characters."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        # A number of thousands of digits is no number that anybody reads.
        return f"{value:,}" if abs(value) < 10**30 else "an integer of more than 30 digits"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return visible(value, _TEXT) or "(empty)"
    if isinstance(value, list | tuple) and all(_plain(one) for one in value):
        return _items(value)
    return visible(json.dumps(value, ensure_ascii=False, default=str), _TEXT)


def _add(found: Evidence, name: str, value: Any) -> None:
    if isinstance(value, Mapping) and value and all(_plain(one) or _flat(one) for one in value.values()):
        found.facts += [(f"{name}: {_named(key)}", value_text(one)) for key, one in value.items()]
    elif _is_table(value):
        found.tables.append(_table(name, value))
    else:
        found.facts.append((name, value_text(value)))


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) and row for row in value)


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    all_columns = list(dict.fromkeys(key for row in rows[:_ROWS] for key in row))
    kept = all_columns[:_COLUMNS]
    cells = [[value_text(row[key]) if key in row else "" for key in kept] for row in rows[:_ROWS]]
    left = [words.plural(len(rows) - _ROWS, "more row")] if len(rows) > _ROWS else []
    left += [words.plural(len(all_columns) - _COLUMNS, "more column")] if len(all_columns) > _COLUMNS else []
    caption = f"{name} ({' and '.join(left)} in grade.json)" if left else name
    return Table(caption, [_named(key) for key in kept], cells)


def _items(values: Sequence[Any]) -> str:
    if not values:
        return "none"
    said = ", ".join(visible(one, 80) if isinstance(one, str) else value_text(one) for one in values[:_ITEMS])
    return said if len(values) <= _ITEMS else f"{said} … and {len(values) - _ITEMS:,} more"


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _flat(value: Any) -> bool:
    return isinstance(value, list) and all(_plain(one) for one in value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return "not a finite number"
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if 1000 <= abs(value) < 1e15 else f"{value:.6g}"


def _named(name: Any) -> str:
    return visible(str(name), 60, single=True).replace("_", " ") or "(no name)"
