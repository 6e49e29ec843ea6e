"""Which rules run on which files: `--select`, `--ignore`, and settings in pyproject.toml."""

from __future__ import annotations

import fnmatch
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from paceline.check.catalog import RULES
from paceline.check.rule import TOPICS, Rule
from paceline.records.errors import PacelineError, choices

FAILED = ("DP000", "rule-failed")
"""A rule that failed, reported as a finding."""
UNUSED = ("DP099", "unused-ignore")
"""A comment that accepts nothing."""
TABLE = "tool.paceline.check"
KEYS = ("select", "ignore", "exclude", "per-file-ignores")


@dataclass(frozen=True)
class Settings:
    """Settings of pyproject.toml or of flags.

    Attributes:
        select: codes, prefixes of codes, names or topics of the rules that run; None for all.
        ignore: likewise, of those that do not.
        exclude: patterns of files and folders that are left out.
        per_file_ignores: pattern of files to codes that are not reported there.
        folder: to which patterns are relative.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)


class Selection:
    """The rules that settings select.

    Raises:
        PacelineError: a word selects nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        chosen = _codes(settings.select) if settings.select is not None else set(_names())
        self._codes = (chosen | {FAILED[0]}) - _codes(settings.ignore)
        self._per_file = {pattern: _codes(words) for pattern, words in settings.per_file_ignores.items()}

    @cached_property
    def rules(self) -> list[type[Rule]]:
        """In the order of their codes."""
        return [rule for rule in RULES if rule.code in self._codes]

    def reports(self, code: str, path: str) -> bool:
        """True if findings with this code are reported in a file.

        Args:
            code: of a rule, or `DP000` or `DP099`.
            path: absolute.
        """
        if code not in self._codes:
            return False
        if not self._per_file:
            return True
        relative = os.path.relpath(path, self._settings.folder)
        return not any(code in codes for pattern, codes in self._per_file.items() if _matches(relative, pattern))


def code_of(word: str) -> str | None:
    """The code of a rule that is named by its code or its name."""
    names = _names()
    return word if word in names else next((code for code, name in names.items() if name == word), None)


def settings_for(paths: Sequence[Path]) -> Settings:
    """Settings of the nearest pyproject.toml above the paths; without one, nothing is set.

    Raises:
        PacelineError: the file cannot be read, or says what cannot be set.
    """
    at = Path(os.path.commonpath([path.absolute() for path in paths]))
    for folder in (at, *at.parents):
        if (file := folder / "pyproject.toml").is_file():
            return _read(file)
    return Settings()


def _read(file: Path) -> Settings:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PacelineError(f"cannot read {file}", why=str(error)) from error
    table: Any = document
    for part in TABLE.split("."):
        table = table.get(part, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        raise PacelineError(f"[{TABLE}] in {file} is no table", hint=f"legal keys: {choices(KEYS)}")
    if unknown := sorted(set(table) - set(KEYS)):
        raise PacelineError(f"unknown key {unknown[0]} in [{TABLE}] of {file}", hint=f"legal keys: {choices(KEYS)}")
    lists = {key: _words(table[key], key, file) for key in KEYS[:3] if key in table}
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise PacelineError(
            f"per-file-ignores in {file} is no table", hint='per-file-ignores = { "tests/*" = ["DP001"] }'
        )
    settings = Settings(
        select=lists.get("select"),
        ignore=lists.get("ignore", ()),
        exclude=lists.get("exclude", ()),
        per_file_ignores={str(key): _words(value, "per-file-ignores", file) for key, value in per_file.items()},
        folder=file.parent,
    )
    try:
        Selection(settings)
    except PacelineError as error:
        raise PacelineError(f"{error.what} in {file}", hint=error.hint) from error
    return settings


def _words(value: object, key: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise PacelineError(f"{key} in {file} is no list of strings", hint=f'{key} = ["..."]')
    return tuple(value)


def _names() -> dict[str, str]:
    """Names of all that can be reported, by code."""
    return dict([FAILED, *((rule.code, rule.name) for rule in RULES), UNUSED])


def _codes(words: Iterable[str]) -> set[str]:
    """Codes that words mean: codes, prefixes such as `DP0`, names, topics.

    Raises:
        PacelineError: a word means none.
    """
    topics = {rule.code: rule.topic for rule in RULES}
    found: set[str] = set()
    for word in words:
        meant = {
            code
            for code, name in _names().items()
            if (word.startswith("DP") and code.startswith(word)) or word in (name, topics.get(code))
        }
        if not meant:
            raise PacelineError(
                f"{word!r} selects no rule",
                hint=f"codes (DP001), prefixes (DP0), names (no-sampler) or topics ({choices(TOPICS)}); "
                f"codes: {choices(_names())}",
            )
        found |= meant
    return found


def _matches(path: str, pattern: str) -> bool:
    """True if a relative path, or a folder that it is in, matches a pattern."""
    parts = Path(path).parts
    folders = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    names = parts if "/" not in pattern else ()
    return any(fnmatch.fnmatch(each, pattern.rstrip("/")) for each in (*folders, *names))
