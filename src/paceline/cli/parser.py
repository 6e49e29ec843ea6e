"""A command's options as typer reads them, and its help in groups. The only place where typer is driven."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand

from paceline.cli.help_text import Row, help_text
from paceline.cli.verbs import Command, Group
from paceline.records.errors import Exit, render

HELP = ("-h", "--help")
_OTHER = "Options"


class _Stopped(BaseException):
    """A signal, on its way past typer, which would make an exit code of it and forget which signal it was."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        super().__init__(stop)
        self.stop = stop


@contextlib.contextmanager
def _past_typer() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        raise _Stopped(stop) from None


def click_command(command: Command, run: Callable[..., object], group: Group | None = None) -> Any:
    """The parser of one command.

    Args:
        command: its row in the table.
        run: a function that typer can read the options from.
        group: of which it is the command without a word, if it is one.
    """

    class Verb(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            # Help needs nothing but the declaration: typer would build a validator for each option first.
            flags = args[: args.index("--")] if "--" in args else args
            if any(word in HELP for word in flags):
                sys.stdout.write(self.get_help(ctx))
                raise typer.Exit
            # --json is an alias for one release.
            words = [word for each in args for word in (("--format", "json") if each == "--json" else (each,))]
            return super().parse_args(ctx, words)

        def get_help(self, ctx: Any) -> str:
            return _page(self, ctx, command, run, group)

        def make_context(self, *arguments: Any, **settings: Any) -> Any:
            with _past_typer():
                return super().make_context(*arguments, **settings)

        def invoke(self, ctx: Any) -> Any:
            with _past_typer():
                return super().invoke(ctx)

    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(cls=Verb, context_settings={"help_option_names": list(HELP)})(run)
    return typer.main.get_command(app)


def parse_and_run(
    name: str, command: Command, run: Callable[..., object], words: list[str], group: Group | None
) -> int:
    """Read `words`, carry the command out, and return its exit code."""
    parser = click_command(command, run, group)
    try:
        code = parser(words, standalone_mode=False, prog_name=name)
    except _Stopped as stopped:
        raise stopped.stop from None
    except Exception as error:
        if type(error).__name__ == "Abort":  # typer's word for the end of a terminal's input, and for Ctrl-C
            raise (error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else KeyboardInterrupt) from None
        if not hasattr(error, "format_message"):
            raise
        # A usage error of the option parser; it has no public base class in every version of typer.
        message = error.format_message().rstrip(".").replace("Value error, ", "", 1)  # pydantic's prefix
        sys.stderr.write(render(message, hint=f"{name} --help") + "\n")
        return int(Exit.USAGE)
    return code if isinstance(code, int) else int(Exit.OK)


def _page(parser: Any, ctx: Any, command: Command, run: Callable[..., object], group: Group | None) -> str:
    commands = [(word, each.summary) for word, each in group.commands.items()] if group is not None else []
    usage = [ctx.command_path, "[OPTIONS]", *(_typed(each) for each in parser.params if _is_argument(each))]
    return help_text(
        " ".join(usage) + (f"\n{ctx.command_path} COMMAND ..." if commands else ""),
        inspect.cleandoc(run.__doc__ or ""),
        command.examples,
        [("Commands", commands), *_sections(parser, ctx)],
    )


def _sections(parser: Any, ctx: Any) -> list[tuple[str, list[Row]]]:
    """Arguments, then options by their group (`rich_help_panel`), groups in the order of their first option."""
    arguments: list[Row] = []
    groups: dict[str, list[Row]] = {}
    for parameter in parser.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is None:
            continue
        if parameter.param_type_name == "option" and parameter.secondary_opts:
            row = (f"--[no-]{parameter.opts[0].removeprefix('--')}", row[1])
        if _is_argument(parameter):
            arguments.append((_typed(parameter).strip("[]"), row[1].removesuffix("[required]").strip()))
        else:
            groups.setdefault(getattr(parameter, "rich_help_panel", None) or _OTHER, []).append(row)
    last = groups.pop(_OTHER, [])
    return [("Arguments", arguments), *groups.items(), (_OTHER if not groups else "Other", last)]


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _typed(parameter: Any) -> str:
    """An argument as usage shows it: `NAME`, `[NAME]` if it may be left out, `NAME...` if it may be repeated."""
    name = (parameter.metavar or parameter.name.upper()).strip("[].").removesuffix("...").rstrip("]")
    name += "..." if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"
