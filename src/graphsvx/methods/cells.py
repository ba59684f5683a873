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
from scipy.special import gammaln
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, as_tensor
from graphsvx.core.players import choose_features
from graphsvx.core.query import Query
from graphsvx.core.row_ids import RowIds
from graphsvx.engine.choose import evaluate
from graphsvx.engine.evaluator import Evaluator
from graphsvx.generators import GameSetup, Isolate
from graphsvx.masks.base import Masks, all_rows
from graphsvx.methods.increments import FIRST_CALLS
from graphsvx.methods.player_kinds import Cells
from graphsvx.methods.playing import Plan, PlayedGames
from graphsvx.results.credit import OTHER_FEATURES, PRESENCE, CellCredit
from graphsvx.results.explanation import Explanation


@dataclass(frozen=True, eq=False)
class _Row:
    """The cells of one node."""

    labels: list[int]
    """The column of each feature cell, or `OTHER_FEATURES`."""
    values: Floats
    """[outputs, feature cells]."""
    covariance: Floats
    """[outputs, feature cells, feature cells] of the values; zeros: exact."""


def with_cells(
    explanation: Explanation, plan: Plan, played: PlayedGames, choice: Cells
) -> Explanation:
    """The explanation with the cells of the nodes that have the most credit.

    As many calls again are made as the games were allowed.
    """
    credit, outputs = explanation.node_credit, list(explanation.outputs)
    row = explanation.outputs.index(explanation.target)
    most = choice.top_nodes
    order = credit.values[row].abs().argsort(descending=True, stable=True)[:most].tolist()
    rng, setup = np.random.default_rng(plan.seed), played.setup
    members = setup.players.node_members
    calls = (plan.budget.samples or FIRST_CALLS) // max(1, len(order))
    nodes: list[int] = []
    features: list[int] = []
    values: list[Tensor] = []
    errors: list[Tensor] = []
    for player in order:
        game = _CellGame(plan.query, played.evaluator, setup, int(members[player]), outputs)
        cells = game.play(played.games[-1].masks, player, choice, calls, rng)
        cell_values, exact = torch.from_numpy(cells.values), torch.from_numpy(cells.covariance)
        rest = credit.values[:, player] - cell_values.sum(1)
        variance = exact.sum((1, 2)).clamp(min=0) + credit.errors[:, player] ** 2
        nodes += [int(credit.ids[player])] * (1 + len(cells.labels))
        features += [PRESENCE, *cells.labels]
        values.append(torch.cat([rest[:, None], cell_values], 1))
        deviations = exact.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        errors.append(torch.cat([variance.sqrt()[:, None], deviations], 1))
    none = torch.zeros(len(outputs), 0, dtype=torch.float64)
    return replace(
        explanation,
        cells=CellCredit(
            tuple(nodes),
            tuple(features),
            torch.cat([none, *values], 1),
            torch.cat([none, *errors], 1),
        ),
    )


@dataclass(frozen=True, eq=False)
class _CellGame:
    """Scores of coalitions of nodes in which one node keeps some of its features only."""

    query: Query
    evaluator: Evaluator
    setup: GameSetup
    node: int
    """Position in the field."""
    outputs: list[int]

    def play(
        self, masks: Masks, player: int, choice: Cells, calls: int, rng: np.random.Generator
    ) -> _Row:
        """Feature cells of the node: exact where all coalitions fit the calls, sampled if not."""
        columns, labels = self._feature_cells(choice)
        count = len(columns)
        if not count:
            empty = np.zeros((len(self.outputs), 0))
            return _Row([], empty, np.zeros((len(self.outputs), 0, 0)))
        weighted = _weighted_coalitions(masks, player)
        if weighted is not None and len(weighted[0]) << count <= calls:
            values = self._exact(*weighted, columns)
            return _Row(labels, values, np.zeros((len(values), count, count)))
        players = masks.rows.shape[1]
        pairs = max(2, calls // (2 * (count + 2)))
        return _Row(labels, *self._sampled(players, player, columns, pairs, rng))

    def _feature_cells(self, choice: Cells) -> tuple[list[Ids], list[int]]:
        """Columns of the feature cells: the features that stand out most, then all others."""
        graph, field, reference = self.setup.graph, self.setup.field, self.setup.reference
        node = field.ids[[self.node]]
        standing_out = choose_features(
            graph, node, choice.features, None if choice.reference is None else reference
        )
        node_features = graph.x[int(node[0])].double().cpu().numpy()
        other = reference.double().cpu().numpy()
        standing_out = standing_out[node_features[standing_out] != other[standing_out]]
        series = graph.feature_columns
        if series is not None:
            parts = [np.asarray(part) for part in series if np.isin(part, standing_out).any()]
            labels = [int(part[0]) for part in parts]
        else:
            parts = [standing_out[i : i + 1] for i in range(len(standing_out))]
            labels = standing_out.tolist()
        scale = graph.statistics.std.cpu().numpy()
        scale = np.where(scale > 0, scale, 1.0)
        deviations = [
            float(np.abs((node_features - other)[part] / scale[part]).max()) for part in parts
        ]
        order = np.argsort(-np.asarray(deviations), kind="stable").tolist()
        first, rest = order[: choice.top_features], order[choice.top_features :]
        columns, column_labels = [parts[i] for i in first], [labels[i] for i in first]
        if rest:
            columns.append(np.concatenate([parts[i] for i in rest]))
            column_labels.append(OTHER_FEATURES)
        return columns, column_labels

    def _scores(self, coalitions: Bools, features_on: Bools, columns: list[Ids]) -> Floats:
        """Scores [rows, outputs] of coalitions of nodes and feature cells that the node keeps."""
        combined = np.concatenate([coalitions, features_on], 1)
        inverse, first = RowIds().add(combined)
        coalitions, features_on = coalitions[first], features_on[first]
        no_features = np.ones((len(coalitions), self.setup.players.features), dtype=bool)
        perturbations = Isolate()(self.setup, no_features, coalitions)
        cell, distinct = RowIds().add(features_on)
        table = perturbations.feature_table
        rows = table[self.node].repeat(len(distinct), 1)
        for position, part in enumerate(columns):
            at = as_tensor(part, table.device)
            off = as_tensor(np.flatnonzero(~features_on[distinct, position]), table.device)
            rows[off[:, None], at] = self.setup.reference[at].to(table.dtype)
        feature_row = perturbations.feature_rows().copy()
        feature_row[:, self.node] = len(table) + cell
        changed = replace(
            perturbations, feature_row=feature_row, feature_table=torch.cat([table, rows])
        )
        scores = self.query.scores(evaluate(self.evaluator, changed)).cpu()
        values: Floats = scores[:, self.outputs].double().numpy()[inverse]
        return values

    def _exact(self, coalitions: Bools, weights: Floats, columns: list[Ids]) -> Floats:
        """Feature cells from all weighted coalitions and all sets of features."""
        count, sets = len(columns), all_rows(len(columns))
        rows = np.repeat(coalitions, len(sets), 0)
        scores = self._scores(rows, np.tile(sets, (len(coalitions), 1)), columns)
        # w_u(K) up to a constant: [sets, outputs].
        averages = np.einsum("r,rko->ko", weights, scores.reshape(len(coalitions), len(sets), -1))
        values = np.zeros((averages.shape[1], count))
        sizes = sets.sum(1)
        logs = gammaln(np.arange(1.0, count + 3))  # of factorials
        for feature in range(count):
            without = np.flatnonzero(~sets[:, feature])
            k = sizes[without]
            weight = np.exp(logs[k + 1] + logs[count - 1 - k] - logs[count + 1])
            values[:, feature] = weight @ (averages[without + (1 << feature)] - averages[without])
        return values

    def _sampled(
        self, players: int, player: int, columns: list[Ids], pairs: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Feature cells from random orders of nodes and cells, each with its reverse."""
        count = len(columns)
        rows, features_on, feature, draw = [], [], [], []
        for number in range(pairs):
            nodes, cells = rng.permutation(players), rng.permutation(count + 1)
            for node_order, cell_order in ((nodes, cells), (nodes[::-1], cells[::-1])):
                coalition = np.zeros(players, dtype=bool)
                coalition[node_order[: int(np.flatnonzero(node_order == player)[0]) + 1]] = True
                present = int(np.flatnonzero(cell_order == count)[0])
                has = np.zeros(count, dtype=bool)
                has[cell_order[:present]] = True
                for cell in cell_order[present + 1 :]:
                    for on in (True, False):
                        has[cell] = on
                        rows.append(coalition)
                        features_on.append(has.copy())
                    has[cell] = True
                    feature.append(int(cell))
                    draw.append(number)
        scores = self._scores(np.stack(rows), np.stack(features_on), columns)
        gains = scores[0::2] - scores[1::2]
        sums = np.zeros((pairs, count, gains.shape[1]))
        np.add.at(sums, (np.asarray(draw), np.asarray(feature)), gains / 2)
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
    logs, size = gammaln(np.arange(1.0, players + 2)), rows.sum(1)
    return rows, np.exp(logs[size - 1] + logs[players - size] - logs[players])
