"""`graphsvx study`: reproduce the paper's experiments and compare with its figures."""

from __future__ import annotations

import shlex
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markdown import Markdown

from graphsvx.cli import app
from graphsvx.cli.names import BASELINES, check_extra
from graphsvx.cli.stopping import stopped_at_once, stopped_by_signals
from graphsvx.errors import DataError, InputError
from graphsvx.utils.console import message, simple_table, stdout_console

if TYPE_CHECKING:
    from graphsvx_lab.studies import Study, StudyContext

EXAMPLES = """
Examples:

    graphsvx study

    graphsvx study ground-truth

    graphsvx study masks --quick

    graphsvx study noisy-features --out results --workers 1

    graphsvx study --all

    graphsvx study masks --pages

An interrupted study resumes where it stopped: its explanations are stored in --runs.
"""


@app.command(epilog=EXAMPLES)
def study(
    name: Annotated[
        str | None, typer.Argument(help="Which study; see `graphsvx study`.", show_default=False)
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All of them, one after the other.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A small version that shows that everything works."),
    ] = False,
    pages: Annotated[
        bool,
        typer.Option("--pages", help="Make the page from the measurements that are there."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where tables and pages go: docs/results, or out/studies with --quick.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where explanations are kept: runs/studies, or runs/studies-quick with --quick.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one for each core.")
    ] = None,
) -> None:
    """Reproduce an experiment of the paper: tables with its figures and ours, plots, a page."""
    check_extra("pyarrow", "data")
    with stopped_at_once():
        from graphsvx_lab import studies

    if name is None and not everything:
        _list()
        return
    check_extra("matplotlib", "plot")
    if name is not None and everything:
        raise InputError("--all makes every study; leave out the name")
    selected = studies.names() if everything else (studies.get(str(name)).name,)
    folder = out or Path("out/studies" if quick else "docs/results")
    runs_folder = runs or Path("runs/studies-quick" if quick else "runs/studies")
    again = shlex.join(["graphsvx", *sys.argv[1:]])
    written: list[Path] = []
    left_out: dict[str, str] = {}
    with stopped_by_signals():
        try:
            contexts = {
                studies.get(study_name): studies.StudyContext(
                    folder,
                    runs_folder,
                    quick,
                    # Starting processes takes longer than the few explanations of a quick version.
                    workers or (1 if quick else None),
                    f"graphsvx study {study_name}" + (" --quick" if quick else ""),
                )
                for study_name in selected
            }
            if not pages:
                _check_packages(contexts)
            # Cells of all studies at once: those that share data and models are measured together.
            measured = {} if pages else studies.study.measure_in_processes(contexts)
            for declared, context in contexts.items():
                try:
                    written += (
                        declared.write_page(folder)
                        if pages
                        else declared.run(context, measured.get(declared.name, {}))
                    )
                except Exception as error:
                    if not everything:
                        raise
                    # Missing files, or an error in one study: hours of other work go on.
                    left_out[declared.name] = str(error)
                    if not isinstance(error, DataError):
                        left_out[declared.name] = traceback.format_exc()
        except KeyboardInterrupt:
            message(f"stopped; what is done is kept in {runs_folder}. To go on:")
            message(again)
            raise typer.Exit(130) from None
    # Written from all stored measurements, so that it agrees with the pages.
    written.append(
        studies.write_summary(folder, [studies.get(study_name) for study_name in studies.names()])
    )
    if len(selected) == 1:
        lines = (folder / f"{selected[0]}.md").read_text(encoding="utf-8").splitlines()
        # Images cannot be shown in a terminal; their captions follow as text.
        text = "\n".join(line for line in lines if not line.startswith("!["))
        stdout_console().print(Markdown(text.replace("<br>", "; ")))
    for file in written:
        message(f"wrote {file}")
    for study_name, reason in left_out.items():
        message(f"left out {study_name}: {reason}")
    if left_out:
        raise typer.Exit(2)


def _check_packages(contexts: dict[Study, StudyContext]) -> None:
    """Raise for an extra that a method of these studies needs, before hours of work."""
    from graphsvx.methods import registry

    methods = {
        type(setting.method)
        for declared, context in contexts.items()
        for grid in declared.used_grids(context)
        for dataset in grid.datasets
        for setting in grid.methods(dataset).values()
    }
    for name, package in BASELINES.items():
        if registry.method_class(name) in methods:
            check_extra(package, "baselines")


def _list() -> None:
    with stopped_at_once():
        from graphsvx_lab import studies

    table = simple_table()
    table.add_column("study", no_wrap=True)
    table.add_column("what it shows")
    for name in studies.names():
        table.add_row(name, studies.get(name).about)
    stdout_console().print(table)
    stdout_console().print("graphsvx study NAME, or graphsvx study --all")
