"""`paceline run`: launch a script as torchrun does."""

from __future__ import annotations

import sys

import typer

from paceline.launch.flags import help_text
from paceline.records.errors import PacelineError


def run_command(argv: list[str]) -> int:
    """Run a script on workers; every flag of torchrun is accepted.

    Args:
        argv: what follows `paceline run` on the command line.

    Returns:
        The exit code.
    """
    if _asks_for_help(argv):
        print(help_text())
        return 0
    try:
        from paceline.launch.torchrun import launch  # needs torch, which takes seconds: --help does not

        return launch(argv)
    except PacelineError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def register(app: typer.Typer) -> None:
    """Add the verb; all of its arguments are left to torch's own parser."""

    @app.command(
        "run",
        add_help_option=False,
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
            "help_option_names": [],
        },
        help="Launch a script on many workers, as torchrun does; every flag of torchrun works.",
    )
    def run(context: typer.Context) -> None:
        raise typer.Exit(run_command(list(context.args)))


def _asks_for_help(argv: list[str]) -> bool:
    """Whether -h or --help stands among our flags, before the script. Without any argument help is meant, too."""
    if not argv:
        return True
    from paceline.launch.flags import all_flags

    takes_value = {name for flag in all_flags() if flag.value for name in flag.names}
    words = iter(argv)
    for word in words:
        if word in ("-h", "--help"):
            return True
        if word == "--" or not word.startswith("-"):
            return False
        if word.replace("_", "-") in takes_value:
            next(words, None)
    return False
