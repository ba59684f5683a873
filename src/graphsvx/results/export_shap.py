"""Explanations as objects of shap and shapiq, and interactions from shapiq."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results.base import BaseExplanation
from graphsvx.results.export import members_of
from graphsvx.results.interactions import Interactions
from graphsvx.results.ranking import Entry, Players, listed
from graphsvx.utils.extras import require_extra

E = TypeVar("E", bound=BaseExplanation)


def to_shap(explanation: BaseExplanation, data: Any = None, players: Players = "all") -> Any:
    """A `shap.Explanation`: features, nodes and edges, with names that say which.

    It has the values of the features, which shap prints and colours by, if the model is at hand
    (`explanation.question`) or with `data`, the graph that was explained; nodes have their
    distance in `display_data`.
    """
    many = many_to_shap([explanation], data, players)
    return many[0]


def many_to_shap(
    explanations: Sequence[BaseExplanation], data: Any = None, players: Players = "all"
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


def feature_inputs(explanations: Sequence[BaseExplanation], data: Any) -> NDArray[np.float64]:
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


def to_shapiq(explanation: BaseExplanation) -> Any:
    """A `shapiq.InteractionValues` of the target; Shapley values where there are no interactions.

    Players are features, then nodes, then edges (`Explanation.player_names`).
    """
    shapiq = require_extra("shapiq", quiet=(Warning,))
    record = explanation.interactions
    row = explanation.outputs.index(explanation.target)
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


def to_shapiq_game(explanation: BaseExplanation) -> Any:
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
    return GraphGame(n_players=players, normalize=True, normalization_value=float(empty),
                     player_names=names)  # fmt: skip


def from_shapiq(explanation: E, values: Any) -> E:
    """The explanation with interactions that shapiq computed for the same players.

    Their standard errors are unknown (NaN) unless shapiq says that they are exact.
    """
    players = len(explanation.player_names)
    if values.n_players != players:
        raise InputError(
            f"the values are of {values.n_players} players, the explanation has {players}"
        )
    order = int(values.max_order)
    sets = [members for members in values.interaction_lookup if members]
    interactions = torch.tensor([[float(values[members]) for members in sets]], dtype=torch.float64)
    rows = [list(members) + [-1] * (order - len(members)) for members in sets]
    single = explanation if len(explanation.outputs) == 1 else _single_output(explanation)
    return replace(
        single,
        interactions=Interactions(
            index=str(values.index),
            order=order,
            members=torch.tensor(rows, dtype=torch.long).reshape(-1, order).t().contiguous(),
            values=interactions,
            errors=torch.full_like(interactions, torch.nan if values.estimated else 0.0),
        ),
    )


def _single_output(explanation: E) -> E:
    """Only the target's row of every array."""
    row = explanation.outputs.index(explanation.target)
    part = slice(row, row + 1)
    return replace(
        explanation,
        outputs=(explanation.target,),
        bases=explanation.bases[part],
        predictions=explanation.predictions[part],
        **{
            name: getattr(explanation, name).map(lambda values: values[part])
            for name in ("node_credit", "feature_credit", "edge_credit")
        },
    )
