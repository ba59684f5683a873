"""The front door: explain() for one question, explain_many() for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from graphsvx.constraints import Seed, checked
from graphsvx.engine.exclusive import exclusive
from graphsvx.explanation import Explanation
from graphsvx.methods import GraphSVX, Method, MethodSetting
from graphsvx.model import Output, Scale, left_as_found, modules
from graphsvx.query import Decoder, ask

_DEFAULT = GraphSVX()


def explain(
    model: Callable[..., Any],
    data: Any,
    *,
    node: int | None = None,
    nodes: Sequence[int] | Tensor | None = None,
    graph: bool = False,
    edge: tuple[int, int] | None = None,
    decoder: Decoder | None = None,
    method: Method | None = None,
    target: int | None = None,
    targets: Literal["all"] | None = None,
    output: Output = "raw",
    scale: Scale = "probability",
    class_names: Sequence[str] | None = None,
    seed: int = 0,
    memory: int = 512 * 2**20,
) -> Explanation:
    """Explain one prediction of a trained model.

    Args:
        model: a module or callable of (x, edge_index), with edge_weight and edge_attr by name
            if it takes them (and `batch` for whole graphs).
        data: a PyG `Data`, or anything with `x` and `edge_index`.
        node: the node whose prediction is explained.
        nodes: a group of nodes whose average score is explained.
        graph: explain the prediction for the whole graph.
        edge: explain the score of a link (u, v), which need not be in the graph. The model
            returns embeddings of nodes, or takes `edge_label_index` and returns a row a pair.
        decoder: a function (or module) of the embeddings of u and of v, [pairs, width] each,
            that returns the link's score; their inner product, a logit, by default.
        method: the explainer, `GraphSVX()` by default.
        target: the class or output to explain; the predicted class by default.
        targets: "all" explains every output from the same model calls.
        output: what the model returns: raw scores, probabilities or log-probabilities.
        scale: what is explained: probability, logit, log_odds, or value (regression).
        class_names: names of the outputs, for tables and plots.
        seed: the same seed and settings give the same bits.
        memory: bytes that a batch of perturbed graphs may take.

    Returns:
        A frozen record; for GraphSVX `base + total == prediction`.

    """
    seed = checked(seed, Seed, "seed")
    method = checked(_DEFAULT if method is None else method, MethodSetting, "method")
    with exclusive():
        query = ask(
            model, data, node=node, nodes=nodes, graph=graph, edge=edge, decoder=decoder,
            target=target, targets=targets, output=output, scale=scale, class_names=class_names,
            memory=memory,
        )  # fmt: skip
        with left_as_found([*query.model.parts, *modules(decoder)]):
            return method(query, seed)
