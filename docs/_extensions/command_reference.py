"""Directive `command-reference`: every command of the command line with its arguments."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from graphsvx.cli import app


def commands() -> dict[str, click.Command]:
    """The commands of `graphsvx` by name."""
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="graphsvx")
    return {
        name: command
        for name in group.list_commands(context)
        if (command := group.get_command(context, name)) is not None
    }


def _parameter(parameter: click.Parameter) -> Iterator[str]:
    if isinstance(parameter, click.Argument):
        names = (parameter.name or "").upper()
    else:
        names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    help_text = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.default
    shown = default not in (None, False, (), []) and not callable(default)
    suffix = f" Default: `{default}`." if shown else ""
    yield f"`{names}`"
    yield f": {help_text}{suffix}" if help_text or suffix else ": (see above)"
    yield ""


def as_markdown() -> Iterator[str]:
    """A section per command: usage, help, arguments."""
    for name, command in commands().items():
        context = click.Context(command, info_name=f"graphsvx {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        yield from (f"## graphsvx {name}", "", "```console", f"$ graphsvx {name} {usage}", "```")
        yield from ("", *(command.help or "").replace("\b", "").splitlines(), "")
        for parameter in command.get_params(context):
            if not getattr(parameter, "hidden", False):
                yield from _parameter(parameter)


class CommandReference(SphinxDirective):
    """Sections made from the commands themselves, so that they cannot differ."""

    def run(self) -> list[nodes.Node]:
        """Parse the sections as if they stood in the page."""
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(list(as_markdown()), "graphsvx.cli")
        self.state.nested_parse(lines, 0, container, match_titles=True)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
