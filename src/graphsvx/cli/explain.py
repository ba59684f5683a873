"""`graphsvx explain`: explain a prediction, as a table, a picture, JSON or HTML."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphsvx.cli import app, options
from graphsvx.cli.options import (
    Asked,
    MethodChoice,
    ModelChoice,
    examples,
    parse_nodes,
    types_of_nodes,
    with_records,
)
from graphsvx.cli.stopping import stopped_at_once
from graphsvx.errors import InputError
from graphsvx.utils.console import message, stdout_console
from graphsvx.utils.printable import did_you_mean

if TYPE_CHECKING:
    from graphsvx.cli.loading import Loaded

EXAMPLES = examples("""
    graphsvx explain karate --node "member 9"
    graphsvx explain molecules-carbonyl --graph aspirin --set erase=true
    graphsvx explain southern-women --node "woman:Ruth DeSand"
    graphsvx explain ba-shapes --node 400 --samples 4000 --picture why.png --html why.html
    graphsvx explain cora --node 7 --tolerance 0.002
    graphsvx explain cora --model gat --node 7 --target 3 --json why.json
    graphsvx explain ba-2motifs --graph 12 --set players=edges
    graphsvx explain mutag --graph 7 --order 2 --sufficient 0.9 --flip --describe
    graphsvx explain ba-shapes --nodes 401,402,403 --few 3
    graphsvx explain cora --node 7 --set players=subgraph_features --contrast 3,2
    graphsvx explain ba-community --node 400 --set reference=class:2 --set balance=0.5
    graphsvx explain acm --node paper:42 --set players=relations
    graphsvx explain fb15k-237 --edge 6180,2861 --relation 148 --set players=edges
    graphsvx explain my-data.pt --model my_module:build --weights w.safetensors --node 0
    graphsvx explain ba-shapes --node 400 --json - | jq .predictions
""")


@dataclass(frozen=True)
class LimitedMethod(MethodChoice):
    """An explainer whose budget may follow the errors or the clock."""

    tolerance: Annotated[
        float | None,
        typer.Option(help="Go on until every standard error is below this; progress on stderr."),
    ] = None
    seconds: Annotated[
        float | None, typer.Option(help="A limit of time; another run may then differ.")
    ] = None


@app.command(epilog=EXAMPLES)
@with_records
def explain(
    dataset: Annotated[str, options.DATASET],
    *,
    node: Annotated[
        str | None,
        typer.Option(help="The node to explain by number or name; paper:42 of a typed graph."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="A group of nodes: its mean score.")
    ] = None,
    edge: Annotated[
        str | None,
        typer.Option(metavar="U,V", help="A link: its ends as for --node, or by name."),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="The graph to explain, in a set of many: its number or its name."),
    ] = None,
    model_choice: ModelChoice,
    explainer: LimitedMethod,
    request: Asked,
    contrast: Annotated[
        str | None, typer.Option(metavar="A,B", help="Why class A rather than class B.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many players to print.")] = 10,
    describe: Annotated[bool, typer.Option(help="Add the explanation in words.")] = False,
    json: Annotated[
        Path | None, options.a_file("Write the explanation as JSON; - is standard output.")
    ] = None,
    picture: Annotated[Path | None, options.a_file("Draw it: .png, .svg or .pdf.")] = None,
    html: Annotated[Path | None, options.a_file("Write an HTML page that works offline.")] = None,
) -> None:
    """Explain one prediction of a trained model."""
    model_choice.check(dataset)
    explainer.check(model_choice)
    request.check("--edge U,V", edge)
    if picture is not None:
        if picture.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise InputError(f"--picture draws .png, .svg or .pdf, got {str(picture)!r}")
        options.check_extra("matplotlib", "plot")
    class_pair = None
    if contrast is not None:
        class_pair = options.parse_numbers(contrast, "--contrast", 1_000_000, 2)
    if class_pair and request.target is not None:
        raise InputError("--contrast A,B explains both classes; leave --target out")

    with stopped_at_once():
        from graphsvx.api import explain as explain_one
        from graphsvx.cli import loading
        from graphsvx.results import serialize

    loaded = loading.load(dataset, model_choice, as_graphs=graph is not None)
    method = explainer.build()
    data, query = _query(loaded, node=node, nodes=nodes, edge=edge, graph=graph)
    query |= loaded.options(request, of_links=edge is not None)
    with nullcontext() if explainer.tolerance is None else _progress():
        explanation = explain_one(
            loaded.model, data, method=method, targets="all" if class_pair else None, **query
        )
    answers = [] if request.sufficient is None else [explanation.sufficient(request.sufficient)]
    answers += [explanation.flip()] if request.flip else []
    explanation = replace(explanation, answers=tuple(answers))
    if class_pair:
        explanation = explanation.contrast(*class_pair)
    if str(json) == "-":
        sys.stdout.write(serialize.to_json(explanation) + "\n")
        json = None
    else:
        stdout_console().print(explanation.table(top))
        if describe:
            stdout_console().print(explanation.describe(), markup=False)
    if json is not None:
        explanation.save(json)
    if picture is not None:
        from graphsvx.views import plot

        plot.save(explanation, picture)
    if html is not None:
        explanation.to_html(html, data)
    for path in filter(None, (json, picture, html)):
        message(f"wrote {path}")


@contextmanager
def _progress() -> Iterator[None]:
    """Rounds of calls, a line each on stderr."""
    logger, handler = logging.getLogger("graphsvx"), logging.StreamHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _query(
    loaded: Loaded, *, graph: str | None, **selectors: str | None
) -> tuple[Any, dict[str, Any]]:
    """The graph to explain, and the keyword of `graphsvx.explain` that names the query."""
    named = {name: text for name, text in selectors.items() if text is not None}
    if loaded.many:
        for kind in named:
            raise InputError(
                f"{loaded.name} has many graphs: choose one with --graph, not --{kind}"
            )
        return loaded.graphs[_graph_number(loaded.graphs, graph)], {"graph": True}
    data = loaded.data
    if graph is not None:
        raise InputError(
            f"{loaded.name} is one graph: choose a node of it with --node, not --graph"
        )
    if not named:
        types = types_of_nodes(data)
        example = f"{types[0]}:0" if types else f"0..{data.num_nodes - 1}"
        raise InputError(f"say which node of {loaded.name} to explain: --node {example}")
    if len(named) > 1:
        raise InputError(
            f"one question at a time, got {' and '.join(f'--{name}' for name in named)}"
        )
    ((kind, text),) = named.items()
    listed = parse_nodes(data, text, f"--{kind}", {"node": 1, "edge": 2}.get(kind))
    nodes_by_kind = {"node": listed[0], "nodes": listed, "edge": tuple(listed)}
    return data, {kind: nodes_by_kind[kind]}


def _graph_number(graphs: tuple[Any, ...], text: str | None) -> int:
    """The position of a graph that is given by its number or its name."""
    names = [graph.get("name", "") for graph in graphs]
    if text and text in names:
        return names.index(text)
    if text is None or not text.isdecimal() or int(text) >= len(graphs):
        raise InputError(
            f"say which graph to explain: --graph 0..{len(graphs) - 1}, or by name, got {text}; "
            f"{did_you_mean(str(text), filter(None, names))}".rstrip("; ")
        )
    return int(text)
