"""Masks, estimators and games that only the studies compare with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score
from torch import Tensor

from graphsvx.core.data import check_graph
from graphsvx.core.players import choose_features
from graphsvx.estimators import WLS
from graphsvx.estimators.least_squares import Fit, surrogate
from graphsvx.games.base import Game
from graphsvx.masks import Auto, Mask, Masks
from graphsvx.methods import GraphSVX
from graphsvx_lab.datasets.base import DataSet
from graphsvx_lab.studies.context import Setting

REFERENCE, LAMBDA = 20, 0.25
"""Times the model calls that others make; and of the rule that leaves features out."""


@dataclass(frozen=True)
class OtherRandomNumbers:
    """A mask with another stream of random numbers: a reference that shares no luck with others.

    `separate=False` plays one joint game of features and nodes, as the paper's first masks do.
    """

    inner: Mask = field(default_factory=Auto)
    separate: bool = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """As `inner`."""
        fresh = int(torch.randint(2**62, (1,), generator=rng))
        return self.inner(game, budget, torch.Generator().manual_seed(fresh))


@dataclass(frozen=True)
class NoEnds:
    """Weighted least squares with a free constant, and neither the empty nor the full row.

    So neither g(0) nor g(1) is tied to the model: efficiency holds by luck only.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Least squares of least norm; a single player has no other rows, and keeps its own."""
        count = len(masks.rows)
        if count == 0 or masks.credit is not None:
            return WLS()(masks, values, empty, full)
        z = torch.from_numpy(masks.rows).double()
        design = torch.cat([torch.ones(count, 1, dtype=torch.float64), z], 1)
        root = torch.from_numpy(masks.weights).sqrt()[:, None]
        fit = torch.linalg.lstsq(design * root, values * root, driver="gelsd").solution
        phi = fit[1:].t().contiguous()
        return surrogate(masks, values, fit[0], phi, torch.full_like(phi, torch.nan))


@dataclass(frozen=True)
class WithEnds:
    """WLS whose R² counts the empty and the full row too.

    With the weight of 1,000 that the authors' code gives them in place of infinity; the kernel of
    the paper weighs coalitions of one player 1 / M, which `Masks` scales to 1.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """The same credit, another R²."""
        fit, players = WLS()(masks, values, empty, full), masks.rows.shape[1]
        ends = np.stack([np.zeros(players, bool), np.ones(players, bool)])
        rows = torch.from_numpy(np.concatenate([masks.rows, ends])).double()
        weights = np.append(masks.weights, [1000.0 * players] * 2)
        played, fitted = torch.cat([values, empty[None], full[None]]), rows @ fit.values.t()
        r2 = r2_score(played, fit.base + fitted, sample_weight=weights, multioutput="raw_values")
        return replace(fit, r2=torch.from_numpy(np.asarray(r2)))


def paper_game(dataset: str, **changes: Any) -> GraphSVX:
    """The paper's coalitions and budget, without the indirect effect: more values are exact."""
    return GraphSVX.paper(dataset, **{"indirect": False, **changes})


def reference(method: GraphSVX, separate: bool = True) -> Setting:
    """The same game: exact where `REFERENCE` times the calls allow it, our estimator elsewhere."""
    mask, calls = OtherRandomNumbers(separate=separate), method.budget.samples or 1000
    return Setting(method.with_settings(mask=mask, samples=REFERENCE * calls))


def dropped_features(data: DataSet, node: int) -> list[int]:
    """Columns in which the node lies inside mu +- lambda sigma."""
    graph = check_graph(data.graph)
    players_columns = choose_features(graph, torch.tensor([node]).numpy(), LAMBDA)
    return sorted(set(range(graph.num_features)) - set(players_columns.tolist()))
