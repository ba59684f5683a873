"""Cells: which feature of which node, as the two-level Owen value of a game of nodes.

A node u takes part with all that it has: its edges ("presence") and its features. The credit phi_u
of the node is shared among these cells by the Shapley value of the game

    w_u(K) = phi_u - sum_S p(S) [v(S + u) - v(S + u with the features K only)]

where S are coalitions of the other nodes with their Shapley weights p. Without presence the node is
off, so presence is a veto player. A feature gets

    sum_K (k + 1)! (P - 1 - k)! / (P + 1)! [w_u(K + f) - w_u(K)]

over sets K of the P - 1 other features, and presence the rest of phi_u: what the node's edges alone
earn. Rows add up to the node's credit exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import beta
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, RowIds, as_tensor
from graphsvx.core.players import choose_features
from graphsvx.engine.choose import evaluate
from graphsvx.generators import GameSetup, Isolate
from graphsvx.masks.base import Masks, all_rows
from graphsvx.methods.increments import FIRST_CALLS
from graphsvx.methods.pipeline import Prediction
from graphsvx.methods.player_kinds import Cells
from graphsvx.methods.playing import Plan, PlayedGames
from graphsvx.results.credit import OTHER_FEATURES, PRESENCE, CellCredit
from graphsvx.results.explanation import Explanation


def with_cells(
    explanation: Explanation, plan: Plan, played: PlayedGames, choice: Cells
) -> Explanation:
    """The explanation with the cells of the nodes that have the most credit.

    As many calls again are made as the games were allowed.
    """
    credit, masks = explanation.node_credit, played.games[-1].masks
    sizes = credit.values[explanation.row].abs()
    order = sizes.argsort(descending=True, stable=True)[: choice.top_nodes].tolist()
    rng, setup = np.random.default_rng(plan.seed), played.games[-1].game.setup
    calls = (plan.budget.samples or FIRST_CALLS) // max(1, len(order))
    nodes, features = list[int](), list[int]()
    none = torch.zeros(len(explanation.outputs), 0, dtype=torch.float64)
    values, errors = [none], [none]
    for player in order:
        node = int(setup.players.node_members[player])
        game = _CellGame(played.prediction, setup, node, choice)
        cells, covariance = map(torch.from_numpy, game.play(masks, player, calls, rng))
        rest = credit.values[:, player] - cells.sum(1)
        variance = covariance.sum((1, 2)).clamp(min=0) + credit.errors[:, player] ** 2
        nodes += [int(credit.ids[player])] * (1 + len(game.labels))
        features += [PRESENCE, *game.labels]
        values.append(torch.cat([rest[:, None], cells], 1))
        deviations = covariance.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        errors.append(torch.cat([variance.sqrt()[:, None], deviations], 1))
    rows, bars = (torch.cat(parts, 1) for parts in (values, errors))
    return replace(explanation, cells=CellCredit(tuple(nodes), tuple(features), rows, bars))


@dataclass(eq=False)
class _CellGame:
    """Scores of coalitions of nodes in which one node keeps some of its features only."""

    prediction: Prediction
    setup: GameSetup
    node: int
    """Position in the field."""
    choice: Cells

    def __post_init__(self) -> None:
        """Choose the columns of each feature cell: those that stand out most, then all others.

        `labels`: the column of each, or `OTHER_FEATURES`.
        """
        setup, choice = self.setup, self.choice
        graph, node = setup.graph, setup.field.ids[[self.node]]
        reference = None if choice.reference is None else setup.reference
        columns = choose_features(graph, node, choice.features, reference)
        values = graph.x[int(node[0])].double().cpu().numpy()
        other = setup.reference.double().cpu().numpy()
        columns = columns[values[columns] != other[columns]]
        if graph.feature_columns is None:
            parts = list(columns[:, None])
        else:
            series = map(np.asarray, graph.feature_columns)
            parts = [part for part in series if np.isin(part, columns).any()]
        scale = graph.statistics.std.cpu().numpy()
        scale = np.where(scale > 0, scale, 1.0)
        deviations = [(np.abs(values - other)[part] / scale[part]).max() for part in parts]
        parts = [parts[i] for i in np.argsort(-np.asarray(deviations), kind="stable")]
        first, rest = parts[: choice.top_features], parts[choice.top_features :]
        self.columns: list[Ids] = first + ([np.concatenate(rest)] if rest else [])
        self.labels = [int(part[0]) for part in first] + [OTHER_FEATURES] * bool(rest)

    def play(
        self, masks: Masks, player: int, calls: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Values of the feature cells, [outputs, cells], and their covariance, 0 where exact.

        Exact where all coalitions fit the calls, sampled if not.
        """
        count, outputs = len(self.columns), len(self.prediction.outputs)
        if not count:
            return np.zeros((outputs, 0)), np.zeros((outputs, 0, 0))
        weighted = _weighted_coalitions(masks, player)
        if weighted is not None and len(weighted[0]) << count <= calls:
            return self._exact(*weighted), np.zeros((outputs, count, count))
        pairs = max(2, calls // (2 * (count + 2)))
        return self._sampled(masks.rows.shape[1], player, pairs, rng)

    def _scores(self, coalitions: Bools, features_on: Bools) -> Floats:
        """Scores [rows, outputs] of coalitions of nodes and feature cells that the node keeps."""
        setup, prediction = self.setup, self.prediction
        inverse, first = RowIds().add(np.concatenate([coalitions, features_on], 1))
        coalitions, features_on = coalitions[first], features_on[first]
        no_features = np.ones((len(coalitions), setup.players.features), dtype=bool)
        perturbations = Isolate()(setup, no_features, coalitions)
        cell, distinct = RowIds().add(features_on)
        table = perturbations.feature_table
        rows = table[self.node].repeat(len(distinct), 1)
        for position, part in enumerate(self.columns):
            at = as_tensor(part, table.device)
            off = as_tensor(np.flatnonzero(~features_on[distinct, position]), table.device)
            rows[off[:, None], at] = setup.reference[at].to(table.dtype)
        feature_row = perturbations.feature_rows().copy()
        feature_row[:, self.node] = len(table) + cell
        changed = replace(
            perturbations, feature_row=feature_row, feature_table=torch.cat([table, rows])
        )
        scores: Tensor = prediction.query.scores(evaluate(prediction.evaluator, changed)).cpu()
        values: Floats = scores[:, list(prediction.outputs)].double().numpy()[inverse]
        return values

    def _exact(self, coalitions: Bools, weights: Floats) -> Floats:
        """Feature cells from all weighted coalitions and all sets of features."""
        count, sets = len(self.columns), all_rows(len(self.columns))
        rows = np.repeat(coalitions, len(sets), 0)
        scores = self._scores(rows, np.tile(sets, (len(coalitions), 1)))
        # w_u(K) up to a constant: [sets, outputs].
        averages = np.einsum("r,rko->ko", weights, scores.reshape(len(coalitions), len(sets), -1))
        values = np.zeros((averages.shape[1], count))
        for feature in range(count):
            without = np.flatnonzero(~sets[:, feature])
            size = sets[without].sum(1)
            weight = beta(size + 2, count - size)  # (k + 1)! (P - 1 - k)! / (P + 1)!
            values[:, feature] = weight @ (averages[without + (1 << feature)] - averages[without])
        return values

    def _sampled(
        self, players: int, player: int, pairs: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Feature cells from random orders of nodes and cells, each with its reverse."""
        count = len(self.columns)
        rows, features_on, places = [], [], []
        for number in range(pairs):
            nodes, cells = rng.permutation(players), rng.permutation(count + 1)
            for node_order, cell_order in ((nodes, cells), (nodes[::-1], cells[::-1])):
                place, rank = np.argsort(node_order), np.argsort(cell_order)
                cell_rank, presence = rank[:count], rank[count]
                for cell in cell_order[presence + 1 :]:
                    rows += [place <= place[player]] * 2
                    features_on += [cell_rank <= rank[cell], cell_rank < rank[cell]]
                    places.append((number, cell))
        scores = self._scores(np.stack(rows), np.stack(features_on))
        gains = scores[0::2] - scores[1::2]
        sums = np.zeros((pairs, count, gains.shape[1]))
        np.add.at(sums, tuple(np.transpose(places)), gains / 2)
        centred = sums - sums.mean(0)
        covariance = np.einsum("pfo,pgo->ofg", centred, centred) / (pairs * (pairs - 1))
        return sums.mean(0).T, covariance


def _weighted_coalitions(masks: Masks, player: int) -> tuple[Bools, Floats] | None:
    """Coalitions with the player whose weighted values determine its credit; None: unknown."""
    if not masks.exact:
        return None
    if masks.credit is not None:
        members = masks.rows[:, player]
        return masks.rows[members], masks.credit[:, player].numpy()[members]
    players = masks.rows.shape[1]
    if len(masks.rows) + 2 < 1 << players:
        return None
    rows = all_rows(players)
    rows = rows[rows[:, player]]
    size = rows.sum(1)
    return rows, beta(size, players - size + 1)
