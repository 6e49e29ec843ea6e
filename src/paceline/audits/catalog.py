"""All audits of observed runs, in the order of their codes: the class in each module `dp1xx_<slug>.py`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from paceline.audits.audit import Audit


def _audit_in(name: str) -> type[Audit]:
    module = import_module(f"paceline.audits.{name}")
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
    (audit,) = (value for value in own if issubclass(value, Audit))
    return audit


_MODULES = sorted(each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]))
AUDITS: tuple[type[Audit], ...] = tuple(_audit_in(name) for name in _MODULES if name.startswith("dp1"))
