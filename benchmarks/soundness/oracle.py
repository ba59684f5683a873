"""One call of the user's model on the whole graph for every coalition, for all kinds of questions.

An explanation names its players; what a coalition of them means is said by the oracle of the
tests. Nothing of the library's engine, game, generators or players is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphsvx.testing import oracle

Decoder = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a model, in the words of `graphsvx.explain`."""

    kind: str
    """"node", "nodes", "graph" or "edge"."""
    centres: tuple[int, ...] = ()
    output: str = "raw"
    scale: str = "probability"
    target: int | None = None
    all_targets: bool = False
    decoder: Decoder | None = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `explain`."""
        subject: dict[str, Any] = {
            "node": {"node": self.centres[0] if self.centres else None},
            "nodes": {"nodes": list(self.centres)},
            "edge": {"edge": self.centres},
            "graph": {"graph": True},
        }[self.kind]
        named = {**subject, "output": self.output, "scale": self.scale, "target": self.target}
        if self.all_targets:
            named["targets"] = "all"
        if self.decoder is not None:
            named["decoder"] = self.decoder
        return named


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A perturbed graph (X', A'), and nodes that are removed with their rows."""

    graph: Data
    removed: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Oracle:
    """Scores of perturbed graphs by single calls of the model."""

    model: Callable[..., Any]
    data: Data
    question: Question

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            self.model.eval()
            for layer in self.model.modules():
                if getattr(layer, "cached", False) is True:  # it would answer for another graph
                    layer.cached = False

    def scores(self, perturbation: Perturbation) -> tuple[Tensor, Tensor]:
        """Scores [outputs] on the asked scale, and the size of the numbers behind each."""
        if len(perturbation.removed) == len(perturbation.graph.x):
            raw, size = self.raw(Perturbation(self.data))
            raw = torch.zeros_like(raw)
        else:
            raw, size = self.raw(perturbation)
        return self._scaled(raw.double()).mean(0), size.double().amax(0)

    def raw(self, perturbation: Perturbation) -> tuple[Tensor, Tensor]:
        """Raw outputs of the explained nodes, pair or graph, [rows, outputs], and their size.

        The score of a pair can be far smaller than what layers return, where its rounding errors
        come from.
        """
        question, graph = self.question, perturbation.graph
        forward = self.model.forward if isinstance(self.model, nn.Module) else self.model
        names = inspect.signature(forward).parameters
        named: dict[str, Any] = {}
        for name in ("edge_weight", "edge_attr"):
            if name in graph and name in names:
                named[name] = graph[name]
        scores_pairs = question.kind == "edge" and "edge_label_index" in names
        if question.kind == "graph":
            named["batch"] = torch.zeros(len(graph.x), dtype=torch.long)
        if scores_pairs and question.decoder is None:
            named["edge_label_index"] = torch.tensor(question.centres)[:, None]
        named |= {name: graph[name] for name in names if name.endswith("_edge_index")}
        x, edge_index, centres = graph.x, graph.edge_index, list(question.centres)
        if perturbation.removed:
            left = [node for node in range(len(x)) if node not in perturbation.removed]
            number = {node: at for at, node in enumerate(left)}
            x, centres = x[left], [number[node] for node in centres]
            edge_index = edge_index.clone().apply_(lambda node: number[node])
            if "batch" in named:
                named["batch"] = named["batch"][left]
        with torch.no_grad(), self._largest_inside() as largest:
            out = self.model(x, edge_index, **named)
            if question.kind == "graph" or "edge_label_index" in named:
                raw = out.reshape(1, -1)
            else:
                raw = (out[:, None] if out.dim() == 1 else out)[centres]
                if question.kind == "edge" and question.decoder is None:
                    raw = (raw[0] * raw[1]).sum().reshape(1, 1)
                elif question.decoder is not None:
                    raw = question.decoder(raw[:1], raw[1:]).reshape(1, -1)
        return raw, raw.abs() + max(largest, default=0.0)

    @contextmanager
    def _largest_inside(self) -> Iterator[list[float]]:
        """A list of the largest absolute value that each layer returns while this is open."""
        largest: list[float] = []

        def look(_module: nn.Module, _inputs: Any, out: Any) -> None:
            if isinstance(out, Tensor) and out.is_floating_point() and out.numel():
                largest.append(float(out.abs().max()))

        asked = self.question.kind == "edge" and isinstance(self.model, nn.Module)
        layers = self.model.modules() if asked else ()
        hooks = [layer.register_forward_hook(look) for layer in layers]
        try:
            yield largest
        finally:
            for hook in hooks:
                hook.remove()

    def _scaled(self, raw: Tensor) -> Tensor:
        """Raw outputs on the asked scale, one row at a time."""
        if self.question.scale == "value":
            return raw
        return torch.stack([self._scaled_row(row.tolist()) for row in raw])

    def _scaled_row(self, row: list[float]) -> Tensor:
        output, scale = self.question.output, self.question.scale
        values = torch.tensor(row, dtype=torch.float64)
        logs = values.log() if output == "probs" else values
        if len(row) == 1:  # the second of two classes
            if output == "raw":
                first = -logs[0] if scale == "logit" else torch.zeros_like(logs[0])
                logs = torch.stack([first, logs[0]])
            else:
                logs = torch.stack([torch.log1p(-logs[0].exp()), logs[0]])
        if scale == "probability":
            exponents = (logs - logs.max()).exp()
            return exponents / exponents.sum()
        if scale == "logit":
            return logs
        others = [
            torch.logsumexp(torch.cat([logs[:k], logs[k + 1 :]]), 0) for k in range(len(logs))
        ]
        return logs - torch.stack(others)


@dataclass(frozen=True, eq=False)
class Players:
    """Who plays, and what switching a player off does: members of each player."""

    features: tuple[tuple[int, ...], ...] = ()
    """Columns of each feature player."""
    nodes: tuple[tuple[int, ...], ...] = ()
    """Node ids of each node player."""
    edges: tuple[tuple[int, ...], ...] = ()
    """Positions in edge_index of each edge player."""
    feature_nodes: tuple[int, ...] = ()
    """Nodes whose features are switched off."""
    reference: Tensor | None = None
    """What a switched-off feature becomes."""
    off_features: Tensor | None = None
    """Features of each node when it is switched off, [nodes, features]; None: its own."""
    keeps_edges: bool = False
    """Whether a switched-off node keeps its edges."""
    removed: bool = False
    """Whether a switched-off node is removed, with its row."""
    paths: Mapping[int, tuple[int, ...]] | None = None
    """Indirect effect: the path from each node to a centre, both ends included."""
    passing: Tensor | None = None
    """Indirect effect: features of switched-off nodes on a path."""


def perturb(
    data: Data, players: Players, centres: Sequence[int], features_off: Iterable[int] = (),
    nodes_off: Iterable[int] = (), edges_off: Iterable[int] = (),
) -> Perturbation:  # fmt: skip
    """The perturbed graph of a coalition; players are named by their position."""
    columns = {column for player in features_off for column in players.features[player]}
    off = {node for player in nodes_off for node in players.nodes[player]}
    cut = {position for player in edges_off for position in players.edges[player]}
    graph = oracle.replace_features(data, players.feature_nodes, columns, players.reference)
    if players.off_features is not None:
        for node in off:
            values = players.off_features[node]
            graph = oracle.replace_features(graph, [node], range(len(values)), values)
    if players.paths is None:
        graph = oracle.cut(graph, () if players.keeps_edges else off, cut)
    else:
        on = {node for members in players.nodes for node in members} - off
        graph = oracle.indirect_effect(graph, on, off, centres, players.paths, players.passing)
    return Perturbation(graph, frozenset(off if players.removed else ()))
