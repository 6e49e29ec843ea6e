"""Declare the settings of a verb: one frozen dataclass, a field a flag.

    @dataclass(frozen=True)
    class Config(VerbSettings):
        noun = "measurement"

        target: str = argument("A run directory.")

        points: int = setting(25, "Points along each direction.", Range(2), group="Slices")
        plane: str = setting("random", "Plane of the surface: {legal}.", PLANES)

        run_dir: str | None = run_dir_setting("landscape-<name>", group="Output")
        format: str = format_setting()

A field without a default is the verb's argument. The other fields are flags, `--points` of `points`; those without a
group belong to the group of the field before them. What depends on several settings is left to the verb's own `check`.
Nothing here imports torch or typer.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from paceline.records.errors import PacelineError, choices
from paceline.settings.legal import SHARE, Range, one_of

FORMATS = ("text", "json")
"""What `--format` takes."""


Legal = Range | Collection[str] | Callable[[str, str], object]
"""What a setting takes: numbers, names, or what a function of value and flag does not refuse with a PacelineError."""


def setting(
    default: Any,
    text: str,
    legal: Legal | None = None,
    *,
    value: str = "",
    group: str = "",
    flag: str = "",
    share: bool = False,
    recipe: bool = True,
) -> Any:
    """A field with a flag. It decides the result: a resumed run must have the same.

    Args:
        default: None where the verb finds one, which the text then describes.
        text: help; `{legal}` in it becomes the list of legal names.
        legal: what it takes; None takes anything.
        value: what help calls the value; "" for N (int), X (float), NAME (of legal names) and TEXT.
        group: where help lists the flag and those after it.
        flag: its name, where that is not the field's (`with` is a word of Python's).
        share: a float above 0 and up to 1 that may be typed as a percentage.
        recipe: False of a `control`.
    """
    names = legal if isinstance(legal, Collection) else ()
    metadata = {"help": text.replace("{legal}", choices(names)), "value": value or ("NAME" if names else "")}
    kept = {"legal": SHARE if share else legal, "group": group, "flag": flag, "share": share, "recipe": recipe}
    return dataclasses.field(default=default, metadata=metadata | kept)


def control(default: Any, text: str, legal: Legal | None = None, **more: Any) -> Any:
    """A field with a flag that decides how a run is carried out: it may change when a run is resumed."""
    return setting(default, text, legal, recipe=False, **more)


def argument(text: str) -> Any:
    """The field that is typed without a flag; it decides the result."""
    return dataclasses.field(metadata={"help": text, "recipe": True, "argument": True})


def is_argument(field: dataclasses.Field[Any]) -> bool:
    """Whether a field is typed without a flag."""
    return "argument" in field.metadata


def required_of(kind: type[VerbSettings], name: str) -> Any:
    """The field of a verb's settings without its default, for a subclass in which it is always known."""
    return dataclasses.field(metadata=kind.__dataclass_fields__[name].metadata)


def format_setting(group: str = "") -> Any:
    """The field `format`."""
    return control("text", "text, or json for one JSON object at the end.", FORMATS, group=group)


def run_dir_setting(name: str, group: str = "") -> Any:
    """The field `run_dir` of a verb whose run directories are called <date>_<time>_`name`."""
    text = f"Use exactly this directory instead of runs/<date>_<time>_{name}."
    return control(None, text, value="DIR", group=group)


@dataclass(frozen=True)
class VerbSettings:
    """Base of a verb's settings."""

    noun: ClassVar[str] = "run"
    """What the verb makes, for messages."""

    @classmethod
    def flag(cls, name: str) -> str:
        """How a setting is typed: `--global-batch`, or `TASK` for the argument."""
        field = cls.__dataclass_fields__[name]
        if is_argument(field):
            return name.upper()
        return "--" + (field.metadata["flag"] or name).replace("_", "-")

    @classmethod
    def groups(cls) -> dict[str, list[str]]:
        """The names of the settings in each group of help."""
        found: dict[str, list[str]] = {}
        group = ""
        for field in fields(cls):
            if not is_argument(field):
                group = field.metadata["group"] or group
                found.setdefault(group, []).append(field.name)
        return found

    @classmethod
    def plain_types(cls) -> dict[str, Any]:
        """The type of each field, `int` of `int | None`."""
        hints = typing.get_type_hints(cls)
        return {field.name: _plain(hints[field.name]) for field in fields(cls)}

    @classmethod
    def typed(cls, name: str, value: Any) -> str:
        """A setting with its value as people type it: `--lr 0.1`, `--no-confirm`, `TASK digits`."""
        flag = cls.flag(name)
        if isinstance(value, bool):
            return flag if value else flag.replace("--", "--no-", 1)
        if value is None:
            return f"no {flag}"
        return f"{flag} {' '.join(value) if isinstance(value, list) else value}"

    def check_fields(self) -> None:
        """Refuse a value that its field does not take.

        Raises:
            PacelineError: naming the flag, the value and the legal values.
        """
        for field in fields(self):
            value, flag = getattr(self, field.name), self.flag(field.name)
            if value is None or is_argument(field):
                continue
            legal = field.metadata["legal"]
            if isinstance(legal, Range):
                legal.check(flag, value)
            elif isinstance(legal, Collection):
                one_of(flag, value, legal)
            elif legal is not None:
                legal(value, flag)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From run.json. Settings that this version does not know are refused: they may have decided the result.

        Raises:
            PacelineError: settings that are unknown or of another type, or no argument.
        """
        import msgspec  # help does without

        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in values]
        try:
            if unknown:
                raise msgspec.ValidationError(f"unknown to this version: {', '.join(unknown)}")
            if missing:
                raise msgspec.ValidationError(f"no {missing[0]} is named")
            return msgspec.convert(dict(values), cls)
        except msgspec.ValidationError as error:
            raise PacelineError(
                f"the {cls.noun}'s settings cannot be read",
                why=str(error),
                hint="use the version of Paceline that wrote them (see versions in its run.json), or start a new "
                f"{cls.noun}",
            ) from error

    def resumed_with(self, given: Mapping[str, Any], free: Collection[str] = ()) -> Self:
        """These settings of a stopped run, with what the user gave anew.

        Args:
            given: by field name, only what was given.
            free: settings that may change although they decide the result.

        Raises:
            PacelineError: a setting that decides the result was changed.
        """
        for field in fields(self):
            name, stored = field.name, getattr(self, field.name)
            if name not in given or not field.metadata["recipe"] or name in free or given[name] == stored:
                continue
            raise PacelineError(
                f"the {self.noun} to be resumed has {self.typed(name, stored)}, not {self.typed(name, given[name])}",
                why=f"a resumed {self.noun} goes on with the settings that decide its result",
                hint=f"leave {self.flag(name)} out, or start a new {self.noun} with another --run-dir",
            )
        return dataclasses.replace(self, **given)


def _plain(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    return hint
