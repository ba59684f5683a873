"""`graphsvx serve`: the explorer, a page on which predictions are explained and changed."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphsvx.cli import app
from graphsvx.cli.options import (
    ModelChoice,
    StoredModel,
    check_extra,
    examples,
    with_records,
)
from graphsvx.cli.stopping import stopped_at_once, stopped_by_signals
from graphsvx.errors import GraphSVXError, InputError
from graphsvx.utils.console import message
from graphsvx_lab.datasets.catalogue import CATALOGUE, PAPER_STATISTICS

if TYPE_CHECKING:
    from graphsvx.explorer.app import OfferedSet
    from graphsvx.explorer.workspace import Workspace
    from graphsvx.runs import Run

EXAMPLES = examples("""
    graphsvx serve
    graphsvx serve digits --model gcn --model gat
    graphsvx serve southern-women
    graphsvx serve my-data.pt --model my_module:build --weights w.safetensors
    graphsvx serve runs/digits --no-browser --port 8000
""")


@app.command(epilog=EXAMPLES)
@with_records
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A data set, a saved PyG Data (.pt), or the folder of a run. Without it, a page "
            "lists the data sets that need no download."
        ),
    ] = None,
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The zoo's model: gcn, gat, ...; or your own, as my_module:build. Several can be "
            "compared.",
        ),
    ] = None,
    stored: StoredModel,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0: a free one.")
    ] = 0,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. Others than 127.0.0.1 let other machines in."),
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Explore predictions in the browser: explain, change, compare. Ctrl-C stops it."""
    has_file = stored.weights is not None or stored.checkpoint is not None
    start_page = source is None and not model and not has_file
    source = source or "digits"
    folder = Path(source)
    is_run = source not in CATALOGUE and (folder / "run.json").is_file()
    names: list[str | None] = [*model] if model else [None]
    choices = [ModelChoice(model=name, **vars(stored)) for name in names]
    if is_run and (model or has_file):
        raise InputError("a run has its model; leave out --model, --weights and --checkpoint")
    if len(choices) > 1 and has_file:
        raise InputError("--weights and --checkpoint go with one --model")
    if not is_run:
        for choice in choices:
            choice.check(source)
    for package in ("starlette", "uvicorn"):
        check_extra(package, "serve")
    with stopped_at_once():
        from graphsvx.explorer.server import LOOPBACK, start

    served = _offered() if start_page else _of_run(folder) if is_run else _of_data(source, choices)
    if host not in LOOPBACK:
        message(
            f"anyone who can reach {host} and has the token can use this server", style="yellow"
        )
    with stopped_by_signals():
        server = start(served, host=host, port=port, browser=browser, announce=True)
        server.wait()


def _offered() -> dict[str, OfferedSet]:
    """The data sets of the start page: those that can be read here, real ones first."""
    from graphsvx.explorer.app import OfferedSet

    has_rdkit = find_spec("rdkit") is not None
    return {
        name: OfferedSet(entry.about, partial(_of_data, name, [ModelChoice()]))
        for name, entry in sorted(CATALOGUE.items(), key=lambda item: item[0] in PAPER_STATISTICS)
        if entry.folder is None and (has_rdkit or entry.extra != "molecules")
    }


def _of_data(source: str, choices: list[ModelChoice], run: Run | None = None) -> Workspace:
    from graphsvx.cli.loading import load
    from graphsvx.explorer.workspace import make_workspace, workspace_of
    from graphsvx_lab import datasets

    loaded = [load(source, choice) for choice in choices]
    models = {
        choice.model or (source if len(choices) == 1 else "default"): entry.model
        for choice, entry in zip(choices, loaded, strict=True)
    }
    if source in CATALOGUE:
        return workspace_of(models, datasets.load(source, choices[0].model_seed), run)
    return make_workspace(models, loaded[0].data, title=Path(source).stem, run=run)


def _of_run(folder: Path) -> Workspace:
    """The run with the model and data of the zoo that its command names, if they are its own."""
    from graphsvx import runs
    from graphsvx.explorer.workspace import workspace_of_run
    from graphsvx.runs import identity

    run = runs.open(folder)
    choice = _zoo_choice(run.status().command)
    reason = "it is not one of the zoo, or has changed"
    if choice is not None:
        try:
            workspace = _of_data(*choice, run=run)
            stored = run.manifest["identity"]
            inputs = identity.of_inputs(next(iter(workspace.models.values())), workspace.graphs)
            # TypeError or KeyError: the manifest is not one of ours.
            with suppress(TypeError, KeyError):
                if all(
                    stored[name][key] == inputs[name][key]
                    for name, key in (("graph", "sha256"), ("model", "weights"))
                ):
                    return workspace
        except GraphSVXError as error:
            reason = str(error)
    message(f"shown without its model: {reason}", style="yellow")
    return workspace_of_run(run)


def _zoo_choice(command: str | None) -> tuple[str, list[ModelChoice]] | None:
    """Data set and model of a recorded `graphsvx run`; None if they are not the zoo's own.

    A folder may come from anybody, so nothing is imported or read that its command names.
    """
    try:
        words = shlex.split(command or "")
    except ValueError:  # quotes that are not closed
        return None
    commands: Any = typer.main.get_command(app)
    run = commands.commands["run"]
    # What cannot be read is None then.
    params = run.make_context("run", words[2:], resilient_parsing=True).params
    seed, choice = params["model_seed"], ModelChoice(model=params["model"])
    is_known = words[1:2] == ["run"] and params["dataset"] in CATALOGUE and not choice.is_own
    if not is_known or params["checkpoint"] is not None or seed is None or not 0 <= seed < 2**63:
        return None
    return params["dataset"], [replace(choice, model_seed=seed)]
