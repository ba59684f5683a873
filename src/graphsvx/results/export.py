"""Explanations as objects of other libraries: pandas, networkx, PyG, shap, shapiq, captum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results import pyg_record
from graphsvx.results.credit import Interactions
from graphsvx.results.details import GraphTypes
from graphsvx.results.ranking import Entry, Players, cell_name, listed
from graphsvx.results.record import ExplanationRecord
from graphsvx.utils.constraints import shown
from graphsvx.utils.extras import require_extra

if TYPE_CHECKING:
    import networkx as nx

# --- tables ------------------------------------------------------------------------------


def to_pandas(explanation: ExplanationRecord, players: Players | Literal["cells"] = "all") -> Any:
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


def _rows(explanation: ExplanationRecord, players: Players) -> list[dict[str, Any]]:
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


def _id(explanation: ExplanationRecord, kind: str, key: tuple[int, ...]) -> Any:
    types = explanation.types
    if types is None or types.flat or min(key) < 0:  # a group is -1
        return key if kind == "edge" else key[0]
    if kind == "feature":
        return types.column(key[0])
    return types.node(key[0]) if kind == "node" else tuple(types.node(end) for end in key)


def many_to_pandas(explanations: Sequence[ExplanationRecord], players: Players = "all") -> Any:
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


def _query(explanation: ExplanationRecord) -> Any:
    if explanation.kind == "graph":
        return explanation.graph_index
    return explanation.centres[0] if explanation.kind == "node" else explanation.centres


# --- graphs ------------------------------------------------------------------------------


def to_networkx(explanation: ExplanationRecord) -> nx.DiGraph:
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


def to_pyg(explanation: ExplanationRecord, data: Any = None) -> Any:
    """A `torch_geometric.explain.Explanation` with masks by the size of the credit.

    `node_mask` is [nodes, 1] over all nodes of the graph, `edge_mask` [edges] along `edge_index`:
    that of `data`, else of the neighbourhood. Both are in [0, 1]; explained nodes have 1. Signed
    credit is in `node_credit`, `edge_credit` and `feature_credit` [features]. The directions of an
    edge that are one player share its credit evenly. Where nodes play and edges do not
    (`edge_credit_from` is "nodes"), the credit of a node is on its edges to nodes that are nearer
    to what is explained. With `data`, `x` is in it too.
    """
    if explanation.types is not None and not explanation.types.flat:
        return _to_hetero(explanation, explanation.types, data)
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


def _to_hetero(explanation: ExplanationRecord, types: GraphTypes, data: Any) -> Any:
    """A `HeteroExplanation` with a node mask [nodes, 1] or an edge mask [edges] for each type.

    Masks are by the size of the credit, `node_credit`, `edge_credit` and `feature_credit` signed.
    With `data` it has x and edge_index too, and where nodes play, their credit on edges.
    """
    converted = pyg_record.CreditedHeteroExplanation()
    nodes = torch.zeros(types.node_starts[-1], dtype=torch.float64)
    edges = None
    if explanation.edge_credit.players:
        edges = edge_credit_by_type(explanation, types)
    else:
        nodes[explanation.node_ids] = explanation.node_values
        node_masks = pyg_record.mask(nodes).float()
        node_masks[list(explanation.centres)] = 1.0
        for at, node_type in enumerate(types.node_types):
            part = slice(*types.node_starts[at : at + 2])
            converted[node_type].node_mask = node_masks[part, None].clone()
            converted[node_type].node_credit = nodes[part, None].float()
            converted[node_type].num_nodes = int(part.stop - part.start)
    if data is not None:
        _must_be_explained(types, data)
        first = dict(zip(types.node_types, types.node_starts, strict=False))
        ends = [
            data[name].edge_index.cpu() + torch.tensor([[first[name[0]]], [first[name[2]]]])
            for name in types.edge_types
        ]
        if edges is None:
            edges = pyg_record.carried_credit(explanation, nodes, torch.cat(ends, 1))
        for name in types.edge_types:
            converted[name].edge_index = data[name].edge_index
        for node_type in types.node_types:
            if "x" in data[node_type]:
                converted[node_type].x = data[node_type].x
    if edges is not None:
        edge_masks = pyg_record.mask(edges).float()
        for at, name in enumerate(types.edge_types):
            part = slice(*types.edge_starts[at : at + 2])
            converted[name].edge_mask = edge_masks[part].clone()
            converted[name].edge_credit = edges[part].float()
    converted.edge_credit_from = "edges" if explanation.edge_credit.players else "nodes"
    for node_type, credit in explanation.features.items():
        at = types.node_types.index(node_type)
        row = torch.zeros(types.feature_starts[at + 1] - types.feature_starts[at])
        row[credit.ids] = credit.values.float()
        converted[node_type].feature_credit = row
    converted.target = torch.tensor([explanation.target])
    converted.prediction_score = explanation.prediction
    converted.base = explanation.base
    if data is not None and types.edge_types:
        converted = converted.to(data[types.edge_types[0]].edge_index.device)
    converted._graphsvx = explanation
    return converted


def _must_be_explained(types: GraphTypes, data: Any) -> None:
    if not {*types.edge_types} <= {*getattr(data, "edge_types", ())}:
        raise InputError(f"data must be the HeteroData that was explained, got {shown(data)}")


def edge_credit_by_type(explanation: ExplanationRecord, types: GraphTypes) -> Tensor:
    """Credit of each edge of the graph, [edges]; the edges of one player share it evenly."""
    shares = torch.bincount(types.edge_owners, minlength=explanation.edge_credit.players)
    spread = torch.zeros(types.edge_starts[-1])
    credit = (explanation.edge_values / shares.clamp(min=1)).float()
    return spread.index_add_(0, types.edge_members, credit[types.edge_owners])


def node_credit(explanation: ExplanationRecord) -> Tensor:
    """Credit of each node of the graph, [nodes]; 0 for those that do not play."""
    return _spread(explanation, "nodes", explanation.field.num_nodes)


def feature_credit(explanation: ExplanationRecord) -> Tensor:
    """Credit of each column of x, [features]; 0 for those that do not play."""
    return _spread(explanation, "features", explanation.field.num_features)


def _spread(explanation: ExplanationRecord, players: Players, size: int) -> Tensor:
    credit = torch.zeros(size, dtype=torch.float64)
    for entry in listed(explanation, players):
        _add(credit, members_of(explanation, entry), entry.credit)
    return credit


def edge_credit(explanation: ExplanationRecord, edge_index: Tensor) -> Tensor:
    """Credit of each column of `edge_index`, [edges]; the columns of one player share it evenly."""
    columns: dict[tuple[int, int], list[int]] = {}
    for column, (u, v) in enumerate(edge_index.t().tolist()):
        columns.setdefault((u, v), []).append(column)
    credit = torch.zeros(edge_index.shape[1], dtype=torch.float64)
    groups = {} if explanation.groups is None else explanation.groups.edges
    players = [
        (groups.get(entry.name, [(entry.key[0], entry.key[1])]), entry.credit)
        for entry in listed(explanation, "edges")
    ]
    played = {pair for pairs, _ in players for pair in pairs}
    apart = any(u != v and (v, u) in played for u, v in played)
    for pairs, value in players:
        positions: list[int] = []
        for u, v in pairs:
            positions += columns.get((u, v), [])
            if u != v and not apart:  # the two directions are one player
                positions += columns.get((v, u), [])
        _add(credit, positions, value)
    return credit


def _add(credit: Tensor, places: Sequence[int], value: float) -> None:
    """Share a player's credit evenly among its members."""
    if places:
        credit[list(places)] += value / len(places)


def members_of(explanation: ExplanationRecord, entry: Entry) -> Sequence[int]:
    """Nodes or columns that a player stands for."""
    groups = explanation.groups
    if groups is not None:
        named = groups.nodes if entry.kind == "node" else groups.features
        if entry.name in named:
            return named[entry.name]
    return entry.key


def _edge_index(data: Any) -> Tensor:
    edge_index = getattr(data, "edge_index", None)
    if not isinstance(edge_index, Tensor):
        raise InputError("data must be the graph that was explained, with its edge_index")
    return edge_index


def to_captum(explanation: ExplanationRecord, data: Any) -> tuple[Tensor, Tensor]:
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


# --- shap and shapiq -----------------------------------------------------------------------

E = TypeVar("E", bound=ExplanationRecord)


def to_shap(explanation: ExplanationRecord, data: Any = None, players: Players = "all") -> Any:
    """A `shap.Explanation`: features, nodes and edges, with names that say which.

    It has the values of the features, which shap prints and colours by, if the model is at hand
    (`explanation.question`) or with `data`, the graph that was explained; nodes have their
    distance in `display_data`.
    """
    many = many_to_shap([explanation], data, players)
    return many[0]


def many_to_shap(
    explanations: Sequence[ExplanationRecord], data: Any = None, players: Players = "all"
) -> Any:
    """A `shap.Explanation` of many predictions, for shap's beeswarm, heatmap, bar, ...

    Columns are all players of any of them; who does not play in an explanation has value 0 there.
    `data` is the graph that was explained, or the list of graphs; it is not needed where the
    explanations were made in this process.
    """
    shap = require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    if not explanations:
        raise InputError("expected at least one explanation, got none")
    columns: dict[tuple[str, tuple[int, ...], str], int] = {}
    cells: list[tuple[int, int, Entry]] = []
    for row, explanation in enumerate(explanations):
        for entry in listed(explanation, players):
            # A named group of players goes by its name; its id is another in each explanation.
            key = (entry.kind, entry.key if entry.key[0] >= 0 else (-1,), entry.name)
            cells.append((row, columns.setdefault(key, len(columns)), entry))
    shape = (len(explanations), len(columns))
    values, inputs = np.zeros(shape), np.full(shape, np.nan)
    display = np.full(shape, "", dtype=object)
    table = None if data is None else feature_inputs(explanations, data)
    if data is None and all(e.question is not None and e.types is None for e in explanations):
        graphs = [e.question.query.graph for e in explanations]
        table = np.concatenate(
            [feature_inputs([e], graph) for e, graph in zip(explanations, graphs, strict=True)]
        )
    if table is not None:  # a feature has a value where it does not play, too
        for (kind, ids, _), column in columns.items():
            if kind == "feature" and ids[0] >= 0:
                inputs[:, column] = table[:, ids[0]]
    distances = [explanation.field.distances for explanation in explanations]
    for row, column, entry in cells:
        values[row, column] = entry.credit
        if entry.kind == "feature" and table is not None:
            inside = list(members_of(explanations[row], entry))
            inputs[row, column] = table[row, inside].mean()
            display[row, column] = round(float(inputs[row, column]), 3)
        elif entry.kind == "node":
            hops = distances[row].get(entry.key[0])
            display[row, column] = "" if hops is None else f"{hops} hop" + "s" * (hops != 1)
    return shap.Explanation(
        values=values,
        base_values=np.array([explanation.base for explanation in explanations]),
        data=None if table is None else inputs,
        display_data=None if table is None else display,
        feature_names=[name for _, _, name in columns],
    )


def feature_inputs(explanations: Sequence[ExplanationRecord], data: Any) -> NDArray[np.float64]:
    """Values of the features of what each explanation explains, [explanations, features].

    Of a node its own, of several nodes or a link their mean, of a graph the mean of its nodes.
    """
    rows = []
    for explanation in explanations:
        graph = data
        if explanation.graph_index is not None and not isinstance(getattr(data, "x", None), Tensor):
            graph = data[explanation.graph_index]
        x = getattr(graph, "x", None)
        if not isinstance(x, Tensor) or x.shape[0] != explanation.field.num_nodes:
            raise InputError(
                "data must be the graph that was explained, or the list of graphs, with x of "
                f"{explanation.field.num_nodes} nodes for {explanation.title}"
            )
        centres = list(explanation.centres) or list(range(x.shape[0]))
        rows.append(x.detach().reshape(x.shape[0], -1)[centres].double().mean(0).cpu().numpy())
    return np.stack(rows)


def to_shapiq(explanation: ExplanationRecord) -> Any:
    """A `shapiq.InteractionValues` of the target; Shapley values where there are no interactions.

    Players are features, then nodes, then edges (`Explanation.player_names`).
    """
    shapiq = require_extra("shapiq", quiet=(Warning,))
    record = explanation.interactions
    row = explanation.row
    players = len(explanation.player_names)
    scores: dict[tuple[int, ...], float] = {(): explanation.base}
    if record is None:
        credit = torch.cat(
            [explanation.feature_values, explanation.node_values, explanation.edge_values]
        )
        scores |= {(player,): value for player, value in enumerate(credit.tolist())}
    else:
        for members, value in zip(
            record.members.t().tolist(), record.values[row].tolist(), strict=True
        ):
            scores[tuple(player for player in members if player >= 0)] = value
    return shapiq.InteractionValues(
        values=torch.tensor([*scores.values()], dtype=torch.float64).numpy(),
        index="SV" if record is None else record.index,
        max_order=1 if record is None else record.order,
        min_order=0,
        n_players=players,
        interaction_lookup={members: at for at, members in enumerate(scores)},
        estimated=explanation.certificate.status == "estimated",
        estimation_budget=explanation.certificate.calls,
        baseline_value=explanation.base,
    )


def to_shapiq_game(explanation: ExplanationRecord) -> Any:
    """The explained game as a `shapiq.Game`: coalitions of nodes (or edges, or features)."""
    shapiq = require_extra("shapiq", quiet=(Warning,))
    question = explanation.require_question()

    class GraphGame(shapiq.Game):  # type: ignore[name-defined]  # an optional package
        """Scores of perturbed graphs, relative to the empty coalition."""

        def value_function(self, coalitions: Any) -> Any:
            """Scores, [coalitions]."""
            return question.scores(np.asarray(coalitions, dtype=bool), explanation.target)

    players = question.players(explanation)
    names = explanation.player_names[-players:] if players else []
    empty = question.scores(np.zeros((1, players), dtype=bool), explanation.target)[0]
    return GraphGame(
        n_players=players, normalize=True, normalization_value=float(empty), player_names=names
    )


def from_shapiq(explanation: E, values: Any) -> E:
    """The explanation with interactions that shapiq computed for the same players.

    Their standard errors are unknown (NaN) unless shapiq says that they are exact.
    """
    players = len(explanation.player_names)
    if not isinstance(values, require_extra("shapiq").InteractionValues):
        raise InputError(f"values must be shapiq.InteractionValues, got {shown(values)}")
    if values.n_players != players:
        raise InputError(
            f"the values are of {values.n_players} players, the explanation has {players}"
        )
    order = int(values.max_order)
    sets = [members for members in values.interaction_lookup if members]
    interactions = torch.tensor([[float(values[members]) for members in sets]], dtype=torch.float64)
    rows = [list(members) + [-1] * (order - len(members)) for members in sets]
    return replace(
        explanation.only_target(),
        interactions=Interactions(
            index=str(values.index),
            order=order,
            members=torch.tensor(rows, dtype=torch.long).reshape(-1, order).t().contiguous(),
            values=interactions,
            errors=torch.full_like(interactions, torch.nan if values.estimated else 0.0),
        ),
    )
