"""All rules, in the order of their codes: the class in each module `rules/dp0xx_<slug>.py`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from paceline.check import rules
from paceline.check.rule import Rule


def _rule_in(name: str) -> type[Rule]:
    module = import_module(f"paceline.check.rules.{name}")
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
    (rule,) = (value for value in own if issubclass(value, Rule))
    return rule


RULES: tuple[type[Rule], ...] = tuple(
    _rule_in(each.name) for each in sorted(pkgutil.iter_modules(rules.__path__), key=lambda each: each.name)
)
