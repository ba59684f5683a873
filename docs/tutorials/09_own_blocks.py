"""
A mask, a generator and an estimator of one's own
=================================================

GraphSVX is three blocks: MASK chooses coalitions, GEN turns them into graphs, EXPL turns the
model's answers into credit. Each can be replaced by a class of a few lines, and checked by the
laws that it must obey.
"""

# %%
# **A mask**: leave one player out at a time.

from dataclasses import dataclass

import numpy as np
import torch

import graphsvx
from graphsvx import GraphSVX, generators
from graphsvx.estimators import WLS
from graphsvx.masks import Masks
from graphsvx.masks.base import shapley_kernel
from graphsvx.testing import check_estimator, check_mask
from graphsvx_lab import datasets, zoo


@dataclass(frozen=True)
class LeaveOneOut:
    """Coalitions without one player, as many as the budget allows."""

    separate = True

    def __call__(self, game, budget, rng):
        rows = ~np.eye(game.players, dtype=bool)
        chosen = torch.randperm(game.players, generator=rng)[: max(0, budget - 2)]
        rows = rows[chosen.numpy()] if game.players > 1 else rows[:0]
        return Masks(rows, game.states(rows), shapley_kernel(rows.sum(1), game.players))


check_mask(LeaveOneOut())

# %%
# **An estimator**: least squares with credit that is too small set to zero.


@dataclass(frozen=True)
class Thresholded:
    """Weighted least squares; what is within two standard errors of 0 becomes 0."""

    def __call__(self, masks, values, empty, full):
        fit = WLS()(masks, values, empty, full)
        small = fit.values.abs() < 2 * fit.errors
        return graphsvx.estimators.Fit(
            torch.where(small, 0.0, fit.values), fit.errors, fit.base, fit.r2
        )


try:
    check_estimator(Thresholded())
except AssertionError as law:
    print("a law that it breaks:", law)

# %%
# **A generator** that comes with the library: features of a switched-off node are replaced, its
# edges stay.

dataset = datasets.load("ba-community")
model = zoo.ensure("ba-community").model
for generator in (generators.Isolate(), generators.ReplaceRows()):
    method = GraphSVX(mask=LeaveOneOut(), generator=generator, players="nodes", samples=400)
    explanation = graphsvx.explain(model, dataset.graph, node=400, method=method)
    names = [player.id for player in explanation.top_nodes(3)]
    print(f"{type(generator).__name__}: base {explanation.base:.3f}, first nodes {names}")

# %%
# With a name, a block can be used from the command line too: ``graphsvx.register("mask",
# "leave-one-out")``. More in :doc:`/blocks`.
