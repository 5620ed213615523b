"""The command ``assay``: finds the command's file, and turns every error into one line and a status.

Exit status: 0 all went well, 1 some trial failed or a claim did not hold, 2 the question or the
data cannot be used, 3 an error inside assay, 130 interrupted.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click

from assay import __version__
from assay.core.errors import AssayError

#: name of the command -> the file in this folder that holds a function of the same name
_COMMANDS = (
    *("compare", "fit", "predict", "check", "show", "serve", "certify", "monitor"),
    *("methods", "datasets", "verify", "runs", "report"),
)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of a first visit."""
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or an error that names the nearest one."""
        near = difflib.get_close_matches(args[0], _COMMANDS, 1)
        if near and args[0] not in _COMMANDS:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"assay.cli.{cmd_name}"), cmd_name)
        return command


@dataclass
class State:
    """What every command can see: how it was called, and whether errors come with their traceback."""

    argv: tuple[str, ...] = ()
    debug: bool = False


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="assay")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.pass_obj
def cli(state: State, debug: bool) -> None:
    """Does the method of that paper work on my data, against good baselines?

    \b
    A first look:
      assay compare diamonds                    built-in real data, no file needed
      assay compare housing.csv --target price  your own table
      assay methods                             what there is to compare
    """
    state.debug = debug


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status; errors become one line on stderr."""
    state = State(argv=tuple(argv))
    try:
        with cli.make_context("assay", list(argv), obj=state) as context:
            status = cli.invoke(context)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        # the reader of the output has gone (`assay methods | head`); nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except click.ClickException as error:
        return _complain(
            error.format_message(), state, error.ctx if isinstance(error, click.UsageError) else None
        )
    except (AssayError, OSError) as error:
        return _complain(str(error), state)
    except Exception as error:
        if not state.debug:
            text = f"{type(error).__name__}: {error}"
            click.echo(f"error inside assay: {_one_line(text)}; --debug shows where", err=True)
        else:
            traceback.print_exc()
        return 3


def _complain(message: str, state: State, ctx: click.Context | None = None) -> int:
    """One line for an error of the user's question or data, status 2."""
    if state.debug:
        traceback.print_exc()
    help_hint = f" (see: {ctx.command_path} --help)" if ctx is not None else ""
    click.echo(f"error: {_one_line(message)}{help_hint}", err=True)
    return 2


def _one_line(text: str) -> str:
    from assay.cli.text import plain

    return " ".join(plain(text).split())


def main() -> None:
    """Entry point of the console script."""
    if sys.stdout is None:  # closed by the shell: `assay ... >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a console that cannot show a sign gets a question mark, not an error after hours of work
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))
