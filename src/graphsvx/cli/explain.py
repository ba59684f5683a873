"""`graphsvx explain`: one prediction, explained in the terminal, in a picture, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import nn
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphsvx import data, registry, zoo
from graphsvx.api import explain as explain_one
from graphsvx.cli import app
from graphsvx.cli.train import training_bar
from graphsvx.errors import DataError, InputError
from graphsvx.explanation import Explanation

EXAMPLES = """
Examples:

    graphsvx explain ba-shapes --node 400

    graphsvx explain ba-shapes --node 400 --samples 4000 --picture why.png --html why.html

    graphsvx explain cora --model gat --node 7 --target 3 --json why.json

    graphsvx explain ba-2motifs --graph 12

    graphsvx explain my-data.pt --checkpoint my-model.safetensors --node 0
"""


@app.command(epilog=EXAMPLES)
def explain(
    dataset: Annotated[
        str, typer.Argument(help="A data set (see `graphsvx datasets`) or a saved PyG Data (.pt).")
    ],
    *,
    node: Annotated[int | None, typer.Option(help="The node to explain.")] = None,
    graph: Annotated[
        int | None, typer.Option(help="The graph to explain, in a set of many graphs.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The zoo's model: gcn, gat, ...")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A checkpoint of the zoo (.safetensors).")
    ] = None,
    target: Annotated[
        int | None, typer.Option(help="The class to explain; by default the predicted one.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="The explainer: " + ", ".join(registry.names()) + ".")
    ] = "graphsvx",
    samples: Annotated[
        int | None, typer.Option(help="Model calls that the explainer may make.")
    ] = None,
    hops: Annotated[int | None, typer.Option(help="How far away nodes play.")] = None,
    scale: Annotated[
        str, typer.Option(help="What is explained: probability, logit, log_odds or value.")
    ] = "probability",
    top: Annotated[int, typer.Option(min=1, help="How many players to print.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the explainer.")] = 0,
    model_seed: Annotated[int, typer.Option(help="Of the data set and its model.")] = 0,
    describe: Annotated[bool, typer.Option(help="Add the explanation in words.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the whole record as JSON.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that opens offline.")
    ] = None,
) -> None:
    """Explain one prediction of a trained model."""
    settings = {
        name: value for name, value in (("samples", samples), ("hops", hops)) if value is not None
    }
    chosen = registry.method(method, **settings)
    net, graphs, names = _model_and_graphs(dataset, model, checkpoint, model_seed)
    question: dict[str, Any]
    if isinstance(graphs, Data):
        if graph is not None:
            raise InputError(
                f"{dataset} is one graph: choose a node of it with --node, not --graph"
            )
        if node is None:
            raise InputError(
                f"say which node of {dataset} to explain: --node 0..{len(graphs.x) - 1}"
            )
        about, question = graphs, {"node": node}
    else:
        if node is not None:
            raise InputError(f"{dataset} has many graphs: choose one with --graph, not --node")
        if graph is None or not 0 <= graph < len(graphs):
            raise InputError(
                f"say which graph to explain: --graph 0..{len(graphs) - 1}, got {graph}"
            )
        about, question = graphs[graph], {"graph": True}
    found = explain_one(
        net, about, method=chosen, target=target, seed=seed, scale=scale,  # type: ignore[arg-type]  # checked there
        class_names=names, **question,
    )  # fmt: skip
    _print(found, top, describe)
    _write(found, about, json, picture, html)


def _model_and_graphs(
    dataset: str, model: str | None, checkpoint: Path | None, seed: int
) -> tuple[nn.Module, Data | tuple[Data, ...], tuple[str, ...] | None]:
    if dataset in data.names():
        if checkpoint is not None:
            trained = zoo.load(checkpoint)
            if trained.dataset.name != dataset:
                raise DataError(
                    f"{checkpoint} was trained on {trained.dataset.name!r}, not on {dataset!r}"
                )
        elif zoo.checkpoint_path(dataset, model, seed).exists():
            trained = zoo.load(dataset, model, seed)
        else:
            with training_bar(f"training {dataset}, once") as progress:
                trained = zoo.ensure(dataset, model, seed, progress)
        known = trained.dataset
        graphs: Data | tuple[Data, ...] = known.graph if known.task == "node" else known.graphs
        return trained.model, graphs, known.class_names
    path = Path(dataset)
    if not path.exists():
        raise DataError(
            f"{dataset!r} is neither a data set nor a file; data sets: {', '.join(data.names())}"
        )
    if checkpoint is None:
        raise InputError(f"a saved graph needs a model: --checkpoint FILE for {dataset}")
    net, card = zoo.read(checkpoint)
    loaded = _saved_graph(path)
    if card.task == "graph":
        return net, (loaded,), None
    return net, loaded, None


def _saved_graph(path: Path) -> Data:
    """A PyG `Data` written by torch.save, read without running any code from the file."""
    try:
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            loaded = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for damaged files
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} cannot be read as a PyG Data saved by torch.save(data, path): {reason}"
        ) from error
    if not isinstance(loaded, Data):
        raise DataError(f"{path} must hold a PyG Data, got {type(loaded).__name__}")
    return loaded


def _print(found: Explanation, top: int, describe: bool) -> None:
    console = Console(highlight=False)
    console.print(found.table(top))
    if describe:
        console.print(found.describe(), markup=False)


def _write(
    found: Explanation, about: Data, json: Path | None, picture: Path | None, html: Path | None
) -> None:
    written = []
    try:
        if json is not None:
            found.save(json)
            written.append(json)
        if picture is not None:
            from graphsvx import plot  # noqa: PLC0415  (needs matplotlib, an extra)

            plot.save(found, picture)
            written.append(picture)
        if html is not None:
            found.to_html(html, about)
            written.append(html)
    except OSError as error:
        raise DataError(f"cannot write: {error}; choose another file") from error
    for path in written:
        Console(stderr=True, highlight=False).print(f"wrote {path}", soft_wrap=True, markup=False)
