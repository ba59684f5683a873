"""`graphsvx explain`: explain a prediction, as a table, a picture, JSON or HTML."""

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

from graphsvx import datasets, zoo
from graphsvx.api import explain as explain_one
from graphsvx.cli import app
from graphsvx.core.graph import check_graph
from graphsvx.errors import DataError, InputError, first_line
from graphsvx.estimators import Lasso
from graphsvx.methods import registry
from graphsvx.methods.base import Method
from graphsvx.results.explanation import Explanation
from graphsvx.utils.console import message
from graphsvx.zoo.progress import training_bar

EXAMPLES = """
Examples:

    graphsvx explain ba-shapes --node 400

    graphsvx explain ba-shapes --node 400 --samples 4000 --picture why.png --html why.html

    graphsvx explain cora --model gat --node 7 --target 3 --json why.json

    graphsvx explain ba-2motifs --graph 12 --set players=edges

    graphsvx explain ba-shapes --nodes 401,402,403 --few 3

    graphsvx explain cora --node 7 --set players=subgraph_features --contrast 3,2

    graphsvx explain ba-community --node 400 --set reference=class:2 --set balance=0.5

    graphsvx explain my-data.pt --checkpoint my-model.safetensors --node 0
"""


@app.command(epilog=EXAMPLES)
def explain(
    dataset: Annotated[
        str, typer.Argument(help="A data set (see `graphsvx datasets`) or a saved PyG Data (.pt).")
    ],
    *,
    node: Annotated[int | None, typer.Option(help="The node to explain.")] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="A group of nodes: its mean score.")
    ] = None,
    edge: Annotated[
        str | None,
        typer.Option(metavar="U,V", help="A link: the inner product of its ends' outputs."),
    ] = None,
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
        str,
        typer.Option(
            help="The explainer: " + ", ".join(registry.names()) + ", or a registered one."
        ),
    ] = "graphsvx",
    contrast: Annotated[
        str | None, typer.Option(metavar="A,B", help="Why class A rather than class B.")
    ] = None,
    few: Annotated[
        int | None, typer.Option(metavar="K", help="Selective: credit for at most K players.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of the explainer: players=edges, reference=class:2, balance=0.5, "
            "players=subgraph_features, indirect=mean, mask='Paired(stretch=8)', "
            "groups='{\"house\": [400, 401]}', ...",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Model calls that the explainer may make.")
    ] = None,
    hops: Annotated[int | None, typer.Option(help="Nodes up to this distance are players.")] = None,
    scale: Annotated[
        str, typer.Option(help="What is explained: probability, logit, log_odds or value.")
    ] = "probability",
    top: Annotated[int, typer.Option(min=1, help="How many players to print.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the explainer.")] = 0,
    model_seed: Annotated[int, typer.Option(help="Seed of the data set and its model.")] = 0,
    describe: Annotated[bool, typer.Option(help="Add the explanation in words.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the explanation as JSON.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page that works offline.")
    ] = None,
) -> None:
    """Explain one prediction of a trained model."""
    if picture is not None and picture.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--picture draws .png, .svg or .pdf, got {str(picture)!r}")
    explainer = chosen_method(method, samples, hops, few, setting or [])
    class_pair = None if contrast is None else _numbers(contrast, "--contrast", 2)
    if class_pair and target is not None:
        raise InputError("--contrast A,B explains both classes; leave --target out")
    net, graphs, names = model_and_graphs(dataset, model, checkpoint, model_seed)
    data, query = _query(dataset, graphs, node=node, nodes=nodes, edge=edge, graph=graph)
    explanation = explain_one(
        net, data, method=explainer, target=target, seed=seed, scale=scale,  # type: ignore[arg-type]  # checked there
        class_names=names if edge is None else None,  # the names are those of node classes
        targets="all" if class_pair else None, **query,
    )  # fmt: skip
    if class_pair:
        explanation = explanation.contrast(*class_pair)
    _print(explanation, top, describe)
    _write(explanation, data, json, picture, html)


def _query(
    dataset: str,
    graphs: Data | tuple[Data, ...],
    *,
    node: int | None,
    nodes: str | None,
    edge: str | None,
    graph: int | None,
) -> tuple[Data, dict[str, Any]]:
    """The graph to explain, and the keyword of `graphsvx.explain` that names the query."""
    options = [name for name, value in (("--node", node), ("--nodes", nodes), ("--edge", edge))
             if value is not None]  # fmt: skip
    if not isinstance(graphs, Data):
        if options:
            raise InputError(
                f"{dataset} has many graphs: choose one with --graph, not {options[0]}"
            )
        if graph is None or not 0 <= graph < len(graphs):
            raise InputError(
                f"say which graph to explain: --graph 0..{len(graphs) - 1}, got {graph}"
            )
        return graphs[graph], {"graph": True}
    if graph is not None:
        raise InputError(f"{dataset} is one graph: choose a node of it with --node, not --graph")
    if not options:
        raise InputError(f"say which node of {dataset} to explain: --node 0..{len(graphs.x) - 1}")
    if len(options) > 1:
        raise InputError(f"one question at a time, got {' and '.join(options)}")
    if nodes is not None:
        return graphs, {"nodes": _numbers(nodes, "--nodes")}
    if edge is not None:
        return graphs, {"edge": tuple(_numbers(edge, "--edge", 2))}
    return graphs, {"node": node}


def _numbers(text: str, option: str, count: int | None = None) -> list[int]:
    """Parse integers separated by commas, `count` of them if it is given."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (count is not None and len(numbers) != count):
        expected = "numbers" if count is None else f"{count} numbers"
        raise InputError(f"{option} takes {expected} separated by commas, got {text!r}")
    return numbers


def chosen_method(
    name: str, samples: int | None, hops: int | None, few: int | None, pairs: list[str]
) -> Method:
    """The explainer called `name` with the settings of the command line."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes NAME=VALUE, got {pair!r}")
        settings[key.strip()] = registry.parse_setting(text.strip())
    for key, value in (("samples", samples), ("hops", hops)):
        if value is not None:
            settings[key] = value
    if few is not None:
        settings["estimator"] = Lasso(k=few)
    return registry.method(name, **settings)


def model_and_graphs(
    dataset: str, model: str | None, checkpoint: Path | None, seed: int
) -> tuple[nn.Module, Data | tuple[Data, ...], tuple[str, ...] | None]:
    """A trained model, the graph or graphs of the data set, and the class names."""
    if dataset in datasets.names():
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
        source = trained.dataset
        graphs: Data | tuple[Data, ...] = source.graph if source.task == "node" else source.graphs
        return trained.model, graphs, source.class_names
    path = Path(dataset)
    if not path.exists():
        raise DataError(
            f"{dataset!r} is neither a data set nor a file; "
            f"data sets: {', '.join(datasets.names())}"
        )
    if checkpoint is None:
        raise InputError(f"a saved graph needs a model: --checkpoint FILE for {dataset}")
    net, card = zoo.read(checkpoint)
    loaded = _saved_graph(path)
    if card.task == "graph":
        return net, (loaded,), None
    return net, loaded, None


def _saved_graph(path: Path) -> Data:
    """Read a PyG `Data` written by torch.save with `weights_only`, so no code in it is run."""
    try:
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            loaded = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for damaged files
        raise DataError(
            f"{path} cannot be read as a PyG Data saved by torch.save(data, path): "
            f"{first_line(error)}"
        ) from error
    if not isinstance(loaded, Data):
        raise DataError(f"{path} must hold a PyG Data, got {type(loaded).__name__}")
    check_graph(loaded)
    return loaded


def _print(explanation: Explanation, top: int, describe: bool) -> None:
    console = Console(highlight=False)
    console.print(explanation.table(top))
    if describe:
        console.print(explanation.describe(), markup=False)


def _write(
    explanation: Explanation,
    data: Data,
    json: Path | None,
    picture: Path | None,
    html: Path | None,
) -> None:
    written = []
    if json is not None:
        explanation.save(json)
        written.append(json)
    if picture is not None:
        from graphsvx.views import plot  # noqa: PLC0415  (needs matplotlib, an extra)

        plot.save(explanation, picture)
        written.append(picture)
    if html is not None:
        explanation.to_html(html, data)
        written.append(html)
    for path in written:
        message(f"wrote {path}")
