"""The model as a function of the explained node's features, for LIME and SHAP.

X_v is replaced, everything else is unchanged, and the score of v is returned. The columns are the
feature players of GraphSVX.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core import players as choosing
from graphsvx.core.players import FeatureChoice
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import OwnFeatures
from graphsvx.methods.local_graph import (
    perturbed_scores,
)

Floats = NDArray[np.float64]


@dataclass(eq=False)
class FeatureFunction:
    """f as a function of the chosen features of the explained node: [rows, B] -> [rows, outputs].

    Rows are evaluated once and cached.
    """

    query: Query
    evaluator: Evaluator
    setup: GameSetup
    columns: Tensor
    calls: int = 0
    _cache: dict[bytes, Floats] = field(default_factory=dict)

    def __call__(self, rows: Floats) -> Floats:
        """Scores [rows, outputs] of perturbed feature rows."""
        rows = np.ascontiguousarray(np.atleast_2d(rows), dtype=np.float64)
        keys = [row.tobytes() for row in rows]
        new = {key: i for i, key in enumerate(keys) if key not in self._cache}
        if new:
            positions = list(new.values())
            step = max(1, self.query.memory // (8 * 4 * max(1, self.query.graph.num_features)))
            for first in range(0, len(positions), step):
                part = positions[first : first + step]
                scores = self._evaluate(rows[part])
                self._cache.update(zip([keys[i] for i in part], scores, strict=True))
            self.calls += len(new)
        return np.stack([self._cache[key] for key in keys])

    def _evaluate(self, rows: Floats) -> Floats:
        row = self.setup.feature_table[:1]
        vectors = row.repeat(len(rows), 1)
        vectors[:, self.columns.to(row.device)] = torch.from_numpy(rows).to(row)
        perturbations = OwnFeatures()(self.setup, vectors)
        scores: Floats = perturbed_scores(self.query, self.evaluator, perturbations).numpy()
        return scores

    @property
    def values(self) -> Floats:
        """The values of `columns` at the explained node, [B]."""
        row = self.setup.feature_table[0, self.columns.to(self.setup.graph.x.device)]
        values: Floats = row.double().cpu().numpy()
        return values

    @property
    def mean(self) -> Floats:
        """mu: the mean of `columns` over all nodes, [B]."""
        values: Floats = self.setup.graph.statistics.mean.cpu()[self.columns].numpy()
        return values


def feature_function(query: Query, features: FeatureChoice, seed: int) -> FeatureFunction:
    """The score as a function of the chosen features of the explained node."""
    evaluator = choose_evaluator(query, None, seed)
    players = choosing.find_players(query.graph, evaluator.field, None, features, "features")
    setup = GameSetup(query.graph, evaluator.field, players, query.graph.statistics.mean)
    return FeatureFunction(query, evaluator, setup, torch.from_numpy(players.feature_members))
