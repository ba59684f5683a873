"""Explanations as objects of other libraries: pandas, networkx, PyG, shap, shapiq, captum."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explanation as PygExplanation
from torch_geometric.explain import HeteroExplanation

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results.credit import Interactions, PlayerKind
from graphsvx.results.details import GraphTypes, Groups
from graphsvx.results.ranking import Entry, Players, cell_name, listed
from graphsvx.utils.constraints import shown
from graphsvx.utils.imports import require_extra
from graphsvx.utils.printable import count, one_line

if TYPE_CHECKING:
    import networkx as nx

    from graphsvx.results.explanation import Explanation

# --- tables ------------------------------------------------------------------------------


def to_pandas(explanation: Explanation, players: Players | Literal["cells"] = "all") -> Any:
    """A `pandas.DataFrame` with a row per player: features, then nodes, then edges.

    Columns: `kind`, `id` (a node or column, of typed graphs with its node type; (u, v) for edges),
    `name`, `credit`, `error` (0 is exact, NaN unknown) and `hops` (distance to the explained node;
    NaN for features and edges).
    `players="cells"`: a row per cell, with `node`, `feature`, `name`, `credit` and `error`.
    """
    if players != "cells":
        return many_to_pandas([explanation], players).drop(columns=_EXPLAINED)
    rows = [
        (cell.node, cell.feature, cell_name(explanation, cell), cell.value, cell.error)
        for cell in explanation.top_cells(by="absolute")
    ]
    columns = ["node", "feature", "name", "credit", "error"]
    return require_extra("pandas", "data").DataFrame(rows, columns=columns)


_EXPLAINED = ["explanation", "query", "target", "prediction", "base"]


def many_to_pandas(explanations: Sequence[Explanation], players: Players = "all") -> Any:
    """One long `pandas.DataFrame`: the rows of `to_pandas`, with what they explain in front.

    `explanation` is the position, `query` the node, link, group or graph that is explained.
    """
    rows = []
    for position, e in enumerate(explanations):
        query: Any = e.graph_index if e.kind == "graph" else e.centres
        query = e.centres[0] if e.kind == "node" else query
        about, hops = (position, query, e.target, e.prediction, e.base), e.field.distances
        for entry in listed(e, players):
            hop = hops.get(entry.key[0], np.nan) if entry.kind == "node" else np.nan
            player = (entry.kind, _id(e, entry), entry.name, entry.credit, entry.error, hop)
            rows.append((*about, *player))
    columns = [*_EXPLAINED, "kind", "id", "name", "credit", "error", "hops"]
    return require_extra("pandas", "data").DataFrame(rows, columns=columns)


def _id(explanation: Explanation, entry: Entry) -> Any:
    """A node or column, of typed graphs with its node type; (u, v) for edges."""
    ids: tuple[Any, ...] = entry.key
    types = explanation.hetero
    if types is not None and min(ids) >= 0:  # a group is -1
        ids = tuple(map(types.column if entry.kind == "feature" else types.node, ids))
    return ids if entry.kind == "edge" else ids[0]


# --- graphs ------------------------------------------------------------------------------


def to_networkx(explanation: Explanation) -> nx.DiGraph:
    """The neighbourhood with `credit` and `error` on its nodes, and on its edges if they play.

    The explained nodes, which do not play, have credit 0. Where the two directions of an edge are
    one player, the credit is on the direction that the player is named by.
    """
    import networkx as nx  # noqa: PLC0415  (slow)

    field = explanation.field
    graph = nx.DiGraph(
        base=explanation.base, prediction=explanation.prediction, target=explanation.target
    )
    players = {entry.key[0]: (entry.credit, entry.error) for entry in listed(explanation, "nodes")}
    labels, types = explanation.node_labels, explanation.hetero
    for position, (node, hops) in enumerate(field.distances.items()):
        credit, error = players.get(node, (0.0, 0.0))
        about: dict[str, Any] = {"credit": credit, "error": error, "hops": hops}
        about["explained"] = node in explanation.centres
        if node in labels:
            about["name"] = labels[node]
        if types is not None:
            about["type"], about["id"] = types.node(node)
        elif field.classes is not None:
            about["label"] = int(field.classes[position])
        graph.add_node(node, **about)
    graph.add_edges_from(field.edge_index.t().tolist())
    for entry in listed(explanation, "edges"):
        graph.add_edge(*entry.key, credit=entry.credit, error=entry.error)
    return graph


# --- PyG and captum --------------------------------------------------------------------------

LEAST = 0.99
"""Smallest value of a mask where there is credit; the largest is 1.

PyG multiplies features and messages by a mask, so that values near 1 leave a player as it is, and
what a mask is below 1 only carries the order by size.
"""
_NEGLIGIBLE = 1e-6
"""Credit below this share of the largest is none."""


def mask(credit: Tensor, largest: float | None = None) -> Tensor:
    """Signed credit as a mask by its size: 0 where there is none, else from 0.99 to 1."""
    sizes = credit.abs()
    largest = _largest([credit]) if largest is None else largest
    on = sizes > _NEGLIGIBLE * largest
    return torch.where(on, LEAST + (1 - LEAST) * sizes / largest, torch.zeros_like(sizes))


def _largest(credits: Iterable[Tensor]) -> float:
    return max((float(credit.abs().max()) for credit in credits if credit.numel()), default=0.0)


def stores_of(
    converted: Any, types: GraphTypes | None, kind: PlayerKind, only: Container[Any] | None = None
) -> list[tuple[Any, slice]]:
    """Where PyG keeps the values of each type, and which these are among those of all types."""
    if types is None:
        return [(converted, slice(None))]
    names, starts = {
        "node": (types.node_types, types.node_starts),
        "feature": (types.node_types, types.feature_starts),
        "edge": (types.edge_types, types.edge_starts),
    }[kind]
    return [
        (converted[name], slice(*ends))
        for name, ends in zip(names, pairwise(starts), strict=True)
        if only is None or name in only
    ]


def set_masks(
    converted: Any, types: GraphTypes | None, kind: PlayerKind, explained: Iterable[int] = ()
) -> None:
    """Masks of all types on one scale, by the size of their credit; 1 for `explained` nodes."""
    name = f"{kind}_credit"
    credited = [place for place in stores_of(converted, types, kind) if name in place[0]]
    largest = _largest(store[name] for store, _ in credited)
    for store, place in credited:
        store[f"{kind}_mask"] = mask(store[name], largest)
        nodes = range(len(store[name]))
        numbers = (node - (place.start or 0) for node in explained)
        store[f"{kind}_mask"][[number for number in numbers if number in nodes]] = 1.0


def _with_sizes(explanation: Any) -> Any:
    """A copy for drawings: what masks keep has its credit's size as a share of the largest."""
    picture = copy.copy(explanation)
    for side, stores in (("node", picture.node_stores), ("edge", picture.edge_stores)):
        mask, credit = f"{side}_mask", f"{side}_credit"
        credited = [store for store in stores if credit in store and mask in store]
        largest = _largest(store[credit] for store in credited) or 1.0
        for store in credited:
            size = store[credit].abs()
            shares = torch.where(size > 0, size / largest, 1.0)  # explained nodes have no credit
            store[mask] = torch.where(store[mask] > 0, shares, 0.0)
    return picture


class CreditedExplanation(PygExplanation):
    """PyG's explanation with the record(s) of graphsvx that its masks were made from."""

    @property
    def graphsvx(self) -> Any:
        """The record, or the list of records where there are several."""
        return self._graphsvx

    def visualize_graph(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG; the opacity of an edge is the size of its credit."""
        return PygExplanation.visualize_graph(_with_sizes(self), *args, **kwargs)

    def visualize_feature_importance(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG, of the size of the credit; of `feature_credit` where nodes have one value."""
        picture, credit = _with_sizes(self), self.get("feature_credit")
        mask = picture.get("node_mask")
        if credit is not None and mask is not None and mask.size(1) == 1:
            picture.node_mask = credit.abs()[None]
        return PygExplanation.visualize_feature_importance(picture, *args, **kwargs)


class CreditedHeteroExplanation(HeteroExplanation):
    """The same of a typed graph."""

    graphsvx = CreditedExplanation.graphsvx

    def visualize_graph(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG; sizes and opacities are by the size of the credit."""
        return HeteroExplanation.visualize_graph(_with_sizes(self), *args, **kwargs)

    def visualize_feature_importance(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG, of the size of the credit; of `feature_credit` where there is some."""
        credit = self.collect("feature_credit", allow_empty=True)
        picture = HeteroExplanation() if credit else _with_sizes(self)
        for node_type, values in credit.items():
            picture[node_type].node_mask = values.abs()[None]
        return HeteroExplanation.visualize_feature_importance(picture, *args, **kwargs)


def carried_credit(explanation: Explanation, nodes: Tensor, edge_index: Tensor) -> Tensor:
    """The credit of nodes on the edges that carry it, [edges].

    A node's credit is shared evenly among its edges to nodes that are nearer to what is explained;
    among all of its edges to others where none is.
    """
    source, target = edge_index.cpu()
    hops = nodes.new_full(nodes.shape, float("inf"))
    hops[explanation.field.ids] = explanation.field.hops.to(hops)
    nearer = (hops[target] < hops[source]).to(nodes)
    has_nearer = nodes.new_zeros(nodes.shape).index_add_(0, source, nearer) > 0
    carries = nearer.where(has_nearer[source], (source != target).to(nodes))
    shares = nodes.new_zeros(nodes.shape).index_add_(0, source, carries)
    return carries * (nodes / shares.clamp(min=1))[source]


def to_pyg(explanation: Explanation, data: Any = None) -> Any:
    """A `torch_geometric.explain.Explanation` with masks over nodes and edges, for PyG's plots.

    `node_mask` is [nodes, 1] over all nodes of the graph, `edge_mask` [edges] along `edge_index`:
    that of `data` (the graph that was explained), else of the neighbourhood. Both are in [0, 1], by
    the size of the credit; explained nodes have 1. Signed credit is in `node_credit`, `edge_credit`
    and `feature_credit` [features]. The directions of an edge that are one player share its credit
    evenly. Where nodes play and edges do not (`edge_credit_from` is "nodes"), the credit of a node
    is on its edges to nodes that are nearer to what is explained. With `data`, `x` is in it too.

    Of a typed graph it is a `HeteroExplanation`: masks of nodes, or of edges where these play, for
    each type, and with `data` edges too.
    """
    types, edges_play = explanation.hetero, explanation.edge_credit.players > 0
    converted, edge_index = _graph(explanation, data)
    nodes, credits = node_credit(explanation), dict[PlayerKind, Tensor]()
    if types is None or not edges_play:
        credits["node"] = nodes[:, None]
    if edges_play:
        credits["edge"] = edge_credit(explanation, edge_index)
    elif edge_index is not None:
        credits["edge"] = carried_credit(explanation, nodes, edge_index)
    for kind, credit in credits.items():
        for store, part in stores_of(converted, types, kind):
            store[f"{kind}_credit"] = credit[part]
            if kind == "node":
                store.num_nodes = len(credit[part])
        set_masks(converted, types, kind, explanation.centres if kind == "node" else ())
        converted.apply(Tensor.float, f"{kind}_credit", f"{kind}_mask")
    features = feature_credit(explanation).float()
    for store, part in stores_of(converted, types, "feature", explanation.features):
        store.feature_credit = features[part]
    converted.edge_credit_from = "edges" if edges_play else "nodes"
    converted.target = torch.tensor([explanation.target])
    converted.prediction_score, converted.base = explanation.prediction, explanation.base
    if data is not None:
        with_edges = data if types is None else data[types.edge_types[0]]
        converted = converted.to(with_edges.edge_index.device)
    converted._graphsvx = explanation
    return converted


def _graph(explanation: Explanation, data: Any) -> tuple[Any, Tensor | None]:
    """PyG's explanation with edges, and with `data` features; and the edges among all nodes."""
    types = explanation.hetero
    if types is None:
        converted: Any = CreditedExplanation(edge_index=explanation.field.edge_index)
        if data is not None:
            converted.x, converted.edge_index = data.x, _edge_index(data)
        return converted, converted.edge_index
    converted = CreditedHeteroExplanation()
    if data is None:
        return converted, None
    if not isinstance(data, HeteroData) or not {*types.edge_types} <= {*data.edge_types}:
        raise InputError(f"data must be the HeteroData that was explained, got {shown(data)}")
    first = dict(zip(types.node_types, types.node_starts, strict=False))
    ends = []
    for name in types.edge_types:
        converted[name].edge_index = data[name].edge_index
        numbers = torch.tensor([[first[name[0]]], [first[name[2]]]])
        ends.append(data[name].edge_index.cpu() + numbers)
    for node_type in types.node_types:
        if "x" in data[node_type]:
            converted[node_type].x = data[node_type].x
    return converted, torch.cat(ends, 1)


def node_credit(explanation: Explanation) -> Tensor:
    """Credit of each node of the graph, [nodes]; 0 for those that do not play."""
    return _spread(explanation, "nodes", explanation.field.num_nodes)


def feature_credit(explanation: Explanation) -> Tensor:
    """Credit of each column of x, [features]; 0 for those that do not play."""
    return _spread(explanation, "features", explanation.field.num_features)


def _spread(explanation: Explanation, players: Players, size: int) -> Tensor:
    credit = torch.zeros(size, dtype=torch.float64)
    for entry in listed(explanation, players):
        _add(credit, members_of(explanation, entry), entry.credit)
    return credit


def edge_credit(explanation: Explanation, edge_index: Tensor | None = None) -> Tensor:
    """Credit of each column of `edge_index`, [edges]; the columns of one player share it evenly.

    By default of the edges of the receptive field; with node types always of all edges.
    """
    types = explanation.hetero
    if types is not None:
        shares = torch.bincount(types.edge_owners, minlength=explanation.edge_credit.players)
        credit = (explanation.edge_values / shares.clamp(min=1)).float()
        spread = torch.zeros(types.edge_starts[-1])
        return spread.index_add_(0, types.edge_members, credit[types.edge_owners])
    edge_index = explanation.field.edge_index if edge_index is None else edge_index
    columns: dict[tuple[int, int], list[int]] = defaultdict(list)
    for column, (u, v) in enumerate(edge_index.t().tolist()):
        columns[u, v].append(column)
    players = [(entry, members_of(explanation, entry)) for entry in listed(explanation, "edges")]
    played = {pair for _, pairs in players for pair in pairs}
    apart = any(u != v and (v, u) in played for u, v in played)
    credit = torch.zeros(edge_index.shape[1], dtype=torch.float64)
    for entry, pairs in players:  # the two directions are one player unless they play apart
        reverse = [] if apart else [(v, u) for u, v in pairs if u != v]
        places = [column for u, v in (*pairs, *reverse) for column in columns[u, v]]
        _add(credit, places, entry.credit)
    return credit


def _add(credit: Tensor, places: Sequence[int], value: float) -> None:
    """Share a player's credit evenly among its members."""
    if places:
        credit[list(places)] += value / len(places)


def members_of(explanation: Explanation, entry: Entry) -> Sequence[Any]:
    """Nodes, columns or edges that a player stands for."""
    groups = explanation.groups or Groups()
    named = {"node": groups.nodes, "feature": groups.features, "edge": groups.edges}[entry.kind]
    if entry.name in named:
        return named[entry.name]
    alone: Sequence[Any] = [entry.key] if entry.kind == "edge" else entry.key
    # The name of an entry is in one line.
    return next((named[name] for name in named if (one_line(name) or "–") == entry.name), alone)


def tensor_of(graph: Any, name: str) -> Tensor | None:
    """An attribute of a graph; None if there is no tensor of this name."""
    value = getattr(graph, name, None)
    return value if isinstance(value, Tensor) else None


def _edge_index(data: Any) -> Tensor:
    edge_index = tensor_of(data, "edge_index")
    if edge_index is None:
        raise InputError("data must be the graph that was explained, with its edge_index")
    return edge_index


def to_captum(explanation: Explanation, data: Any) -> tuple[Tensor, Tensor]:
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


def to_shap(explanation: Explanation, data: Any = None, players: Players = "all") -> Any:
    """A `shap.Explanation`: features, nodes and edges, with names that say which.

    It has the values of the features, which shap prints and colours by, if the model is at hand
    (`explanation.question`) or with `data`, the graph that was explained; nodes have their
    distance in `display_data`.

    Raises:
        InputError: there are no such players.

    """
    if not listed(explanation, players):
        raise InputError(
            f"shap needs credit to show, but {explanation.title} has none (players={players!r})"
        )
    return many_to_shap([explanation], data, players)[0]


def many_to_shap(
    explanations: Sequence[Explanation], data: Any = None, players: Players = "all"
) -> Any:
    """A `shap.Explanation` of many predictions, for shap's beeswarm, heatmap and bar plots.

    Columns are all players of any of them; who does not play in an explanation has value 0 there.
    `data` is the graph that was explained, or the list of graphs; it is not needed where the
    explanations were made in this process.

    Raises:
        InputError: there are no explanations.

    """
    shap = require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    if not explanations:
        raise InputError("expected at least one explanation, got none")
    entries = [listed(explanation, players) for explanation in explanations]
    by_player = dict.fromkeys(entry.player for row in entries for entry in row)
    columns = {player: column for column, player in enumerate(by_player)}
    shape = (len(explanations), len(columns))
    values, inputs = np.zeros(shape), np.full(shape, np.nan)
    display = np.full(shape, "", dtype=object)
    table = feature_inputs(explanations, data)
    if table is not None:  # a feature has a value where it does not play, too
        for (kind, ids, _), column in columns.items():
            if kind == "feature" and ids[0] >= 0:
                inputs[:, column] = table[:, ids[0]]
    for row, explanation in enumerate(explanations):
        distances = explanation.field.distances
        for entry in entries[row]:
            column = columns[entry.player]
            values[row, column] = entry.credit
            if entry.kind == "feature" and table is not None:
                inputs[row, column] = table[row, list(members_of(explanation, entry))].mean()
                display[row, column] = round(float(inputs[row, column]), 3)
            elif entry.kind == "node":
                hops = distances.get(entry.key[0])
                display[row, column] = "" if hops is None else count(hops, "hop")
    return shap.Explanation(
        values=values,
        base_values=np.array([explanation.base for explanation in explanations]),
        data=None if table is None else inputs,
        display_data=None if table is None else display,
        feature_names=[name for _, _, name in columns],
    )


def feature_inputs(explanations: Sequence[Explanation], data: Any = None) -> Floats | None:
    """Values of the features of what each explanation explains, [explanations, features].

    Of a node its own, of several nodes or a link their mean, of a graph the mean of its nodes.
    `data` is the graph or the list of graphs; by default it is what the explanations have at hand,
    and None is returned where some have none.
    """
    if data is None and any(e.question is None or e.types is not None for e in explanations):
        return None
    rows = []
    for explanation in explanations:
        graph = explanation.question.query.graph if data is None else data
        if explanation.graph_index is not None and tensor_of(graph, "x") is None:
            graph = data[explanation.graph_index]
        x = tensor_of(graph, "x")
        if x is None or x.shape[0] != explanation.field.num_nodes:
            raise InputError(
                "data must be the graph that was explained, or the list of graphs, with x of "
                f"{explanation.field.num_nodes} nodes for {explanation.title}"
            )
        centres = list(explanation.centres) or list(range(x.shape[0]))
        rows.append(x.detach().reshape(x.shape[0], -1)[centres].double().mean(0).cpu().numpy())
    return np.stack(rows)


def to_shapiq(explanation: Explanation) -> Any:
    """A `shapiq.InteractionValues` of the target; Shapley values where there are no interactions.

    Players are features, then nodes, then edges (`Explanation.player_names`).
    """
    shapiq = require_extra("shapiq", quiet=(Warning,))
    record, row = explanation.interactions, explanation.row
    credit = explanation.values
    members, values = torch.arange(len(credit))[:, None], credit
    if record is not None:
        members, values = record.members.t(), record.values[row]
    sets = [tuple(player for player in players if player >= 0) for players in members.tolist()]
    scores = {(): explanation.base, **dict(zip(sets, values.tolist(), strict=True))}
    return shapiq.InteractionValues(
        values=torch.tensor([*scores.values()], dtype=torch.float64).numpy(),
        index="SV" if record is None else record.index,
        max_order=1 if record is None else record.order,
        min_order=0,
        n_players=len(credit),
        interaction_lookup={members: at for at, members in enumerate(scores)},
        estimated=explanation.certificate.status == "estimated",
        estimation_budget=explanation.certificate.calls,
        baseline_value=explanation.base,
    )


def to_shapiq_game(explanation: Explanation) -> Any:
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


def from_shapiq(explanation: Explanation, values: Any) -> Explanation:
    """The explanation with interactions that shapiq computed for the same players.

    Their standard errors are unknown (NaN) unless shapiq says that they are exact.

    Args:
        explanation: whose players they are of.
        values: `shapiq.InteractionValues`.

    Raises:
        InputError: they are none, or of another number of players.

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
