"""Explanations as objects of other libraries: pandas, networkx, PyG, shap, shapiq, captum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results import pyg_record
from graphsvx.results.base import BaseExplanation
from graphsvx.results.ranking import Entry, Players, cell_name, listed
from graphsvx.results.typed_export import to_hetero
from graphsvx.utils.extras import require_extra

if TYPE_CHECKING:
    import networkx as nx

# --- tables ------------------------------------------------------------------------------


def to_pandas(explanation: BaseExplanation, players: Players | Literal["cells"] = "all") -> Any:
    """A `pandas.DataFrame` with a row per player: features, then nodes, then edges.

    Columns: `kind`, `id` (a node or column, of typed graphs with its node type; (u, v) for edges),
    `name`, `credit`, `error` (0 is exact, NaN unknown) and `hops` (distance to the explained node;
    NaN for features and edges).
    `players="cells"`: a row per cell, with `node`, `feature`, `name`, `credit` and `error`.
    """
    pandas = require_extra("pandas", "data")
    if players == "cells":
        cells = explanation.top_cells(by="absolute")
        rows = [
            (cell.node, cell.feature, cell_name(explanation, cell), cell.value, cell.error)
            for cell in cells
        ]
        return pandas.DataFrame(rows, columns=["node", "feature", "name", "credit", "error"])
    return pandas.DataFrame(_rows(explanation, players), columns=_COLUMNS)


_COLUMNS = ["kind", "id", "name", "credit", "error", "hops"]


def _rows(explanation: BaseExplanation, players: Players) -> list[dict[str, Any]]:
    hops = explanation.field.distances
    return [
        {
            "kind": entry.kind,
            "id": _id(explanation, entry.kind, entry.key),
            "name": entry.name,
            "credit": entry.credit,
            "error": entry.error,
            "hops": hops.get(entry.key[0], np.nan) if entry.kind == "node" else np.nan,
        }
        for entry in listed(explanation, players)
    ]


def _id(explanation: BaseExplanation, kind: str, key: tuple[int, ...]) -> Any:
    types = explanation.types
    if types is None or types.flat or min(key) < 0:  # a group is -1
        return key if kind == "edge" else key[0]
    if kind == "feature":
        return types.column(key[0])
    return types.node(key[0]) if kind == "node" else tuple(types.node(end) for end in key)


def many_to_pandas(explanations: Sequence[BaseExplanation], players: Players = "all") -> Any:
    """One long `pandas.DataFrame`: the rows of `to_pandas`, with what they explain in front.

    `explanation` is the position, `query` the node, link, group or graph that is explained.
    """
    pandas = require_extra("pandas", "data")
    rows = []
    for position, explanation in enumerate(explanations):
        about = {
            "explanation": position,
            "query": _query(explanation),
            "target": explanation.target,
            "prediction": explanation.prediction,
            "base": explanation.base,
        }
        rows += [{**about, **row} for row in _rows(explanation, players)]
    columns = ["explanation", "query", "target", "prediction", "base", *_COLUMNS]
    return pandas.DataFrame(rows, columns=columns)


def _query(explanation: BaseExplanation) -> Any:
    if explanation.kind == "graph":
        return explanation.graph_index
    return explanation.centres[0] if explanation.kind == "node" else explanation.centres


# --- graphs ------------------------------------------------------------------------------


def to_networkx(explanation: BaseExplanation) -> nx.DiGraph:
    """The neighbourhood with `credit` and `error` on its nodes, and on its edges if they play.

    The explained nodes, which do not play, have credit 0. Where the two directions of an edge are
    one player, the credit is on the direction that the player is named by.
    """
    import networkx as nx  # noqa: PLC0415  (slow)

    field = explanation.field
    graph = nx.DiGraph(
        base=explanation.base, prediction=explanation.prediction, target=explanation.target
    )
    ids = explanation.node_ids.tolist()
    credit = dict(zip(ids, explanation.node_values.tolist(), strict=True))
    errors = dict(zip(ids, explanation.node_errors.tolist(), strict=True))
    for position, (node, hops) in enumerate(field.distances.items()):
        about: dict[str, Any] = {
            "credit": credit.get(node, 0.0),
            "error": errors.get(node, 0.0),
            "hops": hops,
            "explained": node in explanation.centres,
        }
        if field.names is not None:
            about["name"] = field.names[position]
        elif explanation.types is not None:
            about["name"] = explanation.types.labels[position]
        if explanation.types is not None and not explanation.types.flat:
            about["type"], about["id"] = explanation.types.node(node)
        elif field.classes is not None:
            about["label"] = int(field.classes[position])
        graph.add_node(node, **about)
    graph.add_edges_from(field.edge_index.t().tolist())
    for entry in listed(explanation, "edges"):
        graph.add_edge(*entry.key, credit=entry.credit, error=entry.error)
    return graph


def to_pyg(explanation: BaseExplanation, data: Any = None) -> Any:
    """A `torch_geometric.explain.Explanation` with masks by the size of the credit.

    `node_mask` is [nodes, 1] over all nodes of the graph, `edge_mask` [edges] along `edge_index`:
    that of `data`, else of the neighbourhood. Both are in [0, 1]; explained nodes have 1. Signed
    credit is in `node_credit`, `edge_credit` and `feature_credit` [features]. The directions of an
    edge that are one player share its credit evenly. Where nodes play and edges do not
    (`edge_credit_from` is "nodes"), the credit of a node is on its edges to nodes that are nearer
    to what is explained. With `data`, `x` is in it too.
    """
    if explanation.types is not None and not explanation.types.flat:
        return to_hetero(explanation, explanation.types, data)
    field = explanation.field
    edge_index = field.edge_index if data is None else _edge_index(data)
    nodes = node_credit(explanation)
    edges_play = explanation.edge_credit.players > 0
    edges = (
        edge_credit(explanation, edge_index)
        if edges_play
        else pyg_record.carried_credit(explanation, nodes, edge_index)
    )
    converted = pyg_record.CreditedExplanation(
        node_mask=pyg_record.mask(nodes)[:, None].float(),
        node_credit=nodes[:, None].float(),
        feature_credit=feature_credit(explanation).float(),
        edge_index=edge_index,
        edge_mask=pyg_record.mask(edges).float(),
        edge_credit=edges.float(),
        edge_credit_from="edges" if edges_play else "nodes",
        target=torch.tensor([explanation.target]),
        prediction_score=explanation.prediction,
        base=explanation.base,
        num_nodes=field.num_nodes,
    )
    converted.node_mask[list(explanation.centres)] = 1.0
    converted = converted.to(edge_index.device)
    converted._graphsvx = explanation
    if data is not None:
        converted.x = data.x
    return converted


def node_credit(explanation: BaseExplanation) -> Tensor:
    """Credit of each node of the graph, [nodes]; 0 for those that do not play."""
    credit = torch.zeros(explanation.field.num_nodes, dtype=torch.float64)
    for entry in listed(explanation, "nodes"):
        _add(credit, members_of(explanation, entry), entry.credit)
    return credit


def feature_credit(explanation: BaseExplanation) -> Tensor:
    """Credit of each column of x, [features]; 0 for those that do not play."""
    credit = torch.zeros(explanation.field.num_features, dtype=torch.float64)
    for entry in listed(explanation, "features"):
        _add(credit, members_of(explanation, entry), entry.credit)
    return credit


def edge_credit(explanation: BaseExplanation, edge_index: Tensor) -> Tensor:
    """Credit of each column of `edge_index`, [edges]; the columns of one player share it evenly."""
    columns: dict[tuple[int, int], list[int]] = {}
    for column, (u, v) in enumerate(edge_index.t().tolist()):
        columns.setdefault((u, v), []).append(column)
    credit = torch.zeros(edge_index.shape[1], dtype=torch.float64)
    played = {pair for entry in listed(explanation, "edges") for pair in _pairs(explanation, entry)}
    apart = any(u != v and (v, u) in played for u, v in played)
    for entry in listed(explanation, "edges"):
        positions: list[int] = []
        for u, v in _pairs(explanation, entry):
            positions += columns.get((u, v), [])
            if u != v and not apart:  # the two directions are one player
                positions += columns.get((v, u), [])
        _add(credit, positions, entry.credit)
    return credit


def _add(credit: Tensor, places: Sequence[int], value: float) -> None:
    """Share a player's credit evenly among its members."""
    if places:
        credit[list(places)] += value / len(places)


def members_of(explanation: BaseExplanation, entry: Entry) -> Sequence[int]:
    """Nodes or columns that a player stands for."""
    groups = explanation.groups
    if groups is not None:
        named = groups.nodes if entry.kind == "node" else groups.features
        if entry.name in named:
            return named[entry.name]
    return entry.key


def _pairs(explanation: BaseExplanation, entry: Entry) -> Sequence[tuple[int, int]]:
    """Edges that a player stands for."""
    groups = explanation.groups
    if groups is not None and entry.name in groups.edges:
        return groups.edges[entry.name]
    return [(entry.key[0], entry.key[1])]


def _edge_index(data: Any) -> Tensor:
    edge_index = getattr(data, "edge_index", None)
    if not isinstance(edge_index, Tensor):
        raise InputError("data must be the graph that was explained, with its edge_index")
    return edge_index


def to_captum(explanation: BaseExplanation, data: Any) -> tuple[Tensor, Tensor]:
    """Attributions in captum's shapes: of the node features [1, nodes, features], of edges [1, E].

    The row of an explained node holds the credit of its own features; a node that played as one
    has its credit spread evenly over its row, so that sums over features are the credit of nodes.
    """
    field = explanation.field
    rows = node_credit(explanation)[:, None] / max(1, field.num_features)
    attributions = rows.repeat(1, field.num_features)
    features = feature_credit(explanation)
    centres = list(explanation.centres) or list(range(field.num_nodes))
    attributions[centres] += features / len(centres)
    edge_index = _edge_index(data)
    edges, device = edge_credit(explanation, edge_index), edge_index.device
    return attributions[None].float().to(device), edges[None].float().to(device)
