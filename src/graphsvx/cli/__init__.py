"""The command line: `graphsvx --help`.

One module per command. A `GraphSVXError` prints one line and exits with 2, Ctrl-C with 130,
SIGTERM with 143.
Commands import torch and whatever needs it inside their functions, so that help, the version and
a typo are answered at once.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Annotated

import typer

from graphsvx import __version__
from graphsvx.cli.stopping import Terminated
from graphsvx.errors import GraphSVXError
from graphsvx.utils.console import message

app = typer.Typer(
    name="graphsvx",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"graphsvx {__version__}")
        raise typer.Exit


@app.callback()
def common(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="The version."),
    ] = False,
) -> None:
    """Shapley value explanations for graph neural networks."""


def main() -> None:
    """Run the command line; a `GraphSVXError` is printed as one line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of any encoding, such as ASCII in a pipe
            stream.reconfigure(errors="replace")
    try:
        app()
    except (GraphSVXError, OSError) as error:  # OSError: of a terminal, a disk, an odd name
        message(f"error: {error}", style="red")
        sys.exit(2)
    except KeyboardInterrupt as signal:
        message("stopped")
        sys.exit(143 if isinstance(signal, Terminated) else 130)


# Each module registers its commands on `app`, so `app` has to exist first.
for _commands in ("explain", "run", "serve", "experiments"):
    import_module(f"graphsvx.cli.{_commands}")
