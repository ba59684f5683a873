"""`graphsvx serve`: the explorer, a page on which predictions are explained and changed."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphsvx.cli import app, options
from graphsvx.cli.options import ModelChoice, check_extra, examples
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
    weights: options.Weights = None,
    checkpoint: options.Checkpoint = None,
    model_seed: options.ModelSeed = 0,
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
    start_page = source is None and not (model or weights or checkpoint)
    source = source or "digits"
    folder = Path(source)
    is_run = source not in CATALOGUE and (folder / "run.json").is_file()
    names: list[str | None] = [*model] if model else [None]
    choices = [ModelChoice(name, weights, checkpoint, model_seed) for name in names]
    if is_run and (model or weights or checkpoint):
        raise InputError("a run has its model; leave out --model, --weights and --checkpoint")
    if len(choices) > 1 and (weights or checkpoint):
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
        name: OfferedSet(entry.about, partial(_of_data, name, [ModelChoice(None, None, None, 0)]))
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
        return workspace_of(models, datasets.load(source, choices[0].seed), run)
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
    if words[1:2] != ["run"] or len(words) < 3 or words[2] not in CATALOGUE:
        return None
    options: dict[str, str | None] = {"--model": None, "--model-seed": "0"}
    for name, value in pairwise(words):
        if name in options:
            options[name] = value
    if "--checkpoint" in words or ":" in (options["--model"] or ""):
        return None
    seed = str(options["--model-seed"])
    if not re.fullmatch(r"[0-9]{1,18}", seed):
        return None
    return words[2], [ModelChoice(options["--model"], seed=int(seed))]
