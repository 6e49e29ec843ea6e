"""`paceline`: the verbs, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import paceline
from paceline.cli import data, landscape, learn, plan, report, run, train
from paceline.records.errors import Exit, PacelineError, render


def build_app() -> typer.Typer:
    """The command line. Building it loads no torch: `--help` has to be quick."""
    app = typer.Typer(
        name="paceline",
        help="Take PyTorch training from one device to many, and prove that nothing was lost.",
        epilog="Example: paceline train digits",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
        ] = False,
    ) -> None:
        del version  # eager: its callback has done all, before a missing verb is complained about

    train.register(app)
    run.register(app)
    landscape.register(app)
    report.register(app)
    app.add_typer(plan.plan_app)
    app.add_typer(data.data_app)
    app.add_typer(learn.learn_app)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(paceline.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; every way out has a documented exit code (docs/reference/exit-codes.md)."""
    sys.exit(call(sys.argv[1:]))


def call(arguments: list[str]) -> int:
    """Run with `arguments` and return the exit code."""
    try:
        code = build_app()(arguments, standalone_mode=False, prog_name="paceline")
        return code if isinstance(code, int) else int(Exit.OK)
    except PacelineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe has gone: that is its right. Keep Python from complaining at exit.
        sys.stderr.close()
        return int(Exit.FAILED)
    except Exception as error:
        if type(error).__name__ == "Abort":
            sys.stderr.write("\ninterrupted\n")
            return int(Exit.INTERRUPTED)
        if not hasattr(error, "format_message"):
            raise
        # A usage error of the option parser; it has no public base class in every version of typer.
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "paceline")
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
            return int(Exit.USAGE)
        sys.stderr.write(render(error.format_message().rstrip("."), hint=f"{command} --help") + "\n")
        return int(Exit.USAGE)
