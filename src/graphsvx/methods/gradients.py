"""Gradients of the score in the features: saliency and integrated gradients, through captum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.errors import UnsupportedError
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import local_graph_of, model_restored, typed_scores
from graphsvx.methods.pipeline import Prediction
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Count
from graphsvx.utils.imports import require_extra

Features = tuple[Tensor, ...]
"""Features of nodes, a matrix [nodes, columns] for each node type that has any."""


class FeatureSpace:
    """The scores as a function of the features that the explained prediction depends on."""

    x: Features
    scores: Callable[[Features], Tensor]
    """Scores [outputs] at other features; differentiable."""

    def __init__(self, query: Query, seed: int) -> None:
        """`x`: a matrix for each node type, with `nodes`, the user's ids of its rows, ascending,
        and `columns`, those of the matrix among those of all node types.
        """
        graph, types = query.graph, query.graph.types
        if not graph.has_types:
            local = local_graph_of(query, seed)
            self.prediction, self.scores = local.prediction(), lambda x: local.scores(x[0])
            self.x, self.nodes = (local.x,), [local.ids]
            self.columns = [slice(0, graph.num_features)]
            return
        evaluator = choose_evaluator(query, None, seed)
        names = [name for name in types.features if types.width(name)]
        if not names:
            raise UnsupportedError("gradients need features of nodes, but no node type has any")
        inside = np.sort(evaluator.field.ids[: evaluator.field.size])
        kinds = types.node_type[inside]
        self.nodes = [inside[kinds == types.type_id(name)] for name in names]
        self.columns = [types.blocks[name] for name in names]
        tables = [types.features[name].detach() for name in names]
        rows = [
            torch.from_numpy(types.local(ids)).to(table.device)
            for ids, table in zip(self.nodes, tables, strict=True)
        ]

        def scores(x: Features) -> Tensor:
            parts = zip(names, tables, rows, x, strict=True)
            features = {name: table.index_copy(0, at, part) for name, table, at, part in parts}
            return typed_scores(replace(query, graph=graph.with_features(features)), evaluator)

        self.scores = scores
        self.x = tuple(table[at] for table, at in zip(tables, rows, strict=True))
        self.prediction = Prediction.of(query, evaluator, scores(self.x))

    def forward(self, *x: Tensor) -> Tensor:
        """The function that captum differentiates: features [steps, ...] to [steps, outputs]."""
        out = torch.stack([self.scores(step) for step in zip(*x, strict=True)])
        # The gradient of what is not used is 0, not missing.
        return out + sum(part[:, :0].sum() for part in x)


def attributions_to_credit(
    space: FeatureSpace, attributions: list[Features]
) -> tuple[Credit, Credit]:
    """EXPL: credit of features and nodes from attributions of all features, for each output.

    The rows of the explained nodes are feature credit; the sum of every other row is the credit of
    its node. A graph query has no explained node, so all credit is node credit.
    """
    query, field = space.prediction.query, space.prediction.evaluator.field
    columns, features = [torch.zeros(0, dtype=torch.long)], []
    for part, (ids, block) in enumerate(zip(space.nodes, space.columns, strict=True)):
        centres = np.searchsorted(ids, query.centres[np.isin(query.centres, ids)])
        if len(centres):
            columns.append(torch.arange(block.start, block.stop))
            features.append([matrices[part][centres].sum(0) for matrices in attributions])
    ids, others = np.concatenate(space.nodes), np.setdiff1d(field.ids[: field.size], query.centres)
    featured = np.isin(others, ids)
    nodes = torch.zeros(len(attributions), len(others), dtype=torch.float64)
    for credit, matrices in zip(nodes, attributions, strict=True):
        sums = torch.cat([matrix.sum(1).double().cpu() for matrix in matrices])
        credit[featured] = sums[np.searchsorted(ids, others[featured])]
    return mask_as_credit(
        torch.cat(columns),
        [torch.cat([part.double() for part in parts]) for parts in zip(*features, strict=True)]
        or [torch.zeros(0)] * len(nodes),
    ), mask_as_credit(torch.from_numpy(others), list(nodes))


def integrated_gradient(
    space: FeatureSpace, x: Features, output: int, start: Features, steps: int
) -> Features:
    """captum's integrated gradient along the line from `start` to `x`, [1, nodes, columns] each."""
    method = require_extra("captum.attr").IntegratedGradients(space.forward)
    line = x, tuple(part[None] for part in start)
    return method.attribute(*line, target=output, n_steps=steps, method="gausslegendre")


def gradient(space: FeatureSpace, x: Features, output: int) -> Features:
    """captum's absolute gradient at `x`, [1, nodes, columns] each."""
    inputs = tuple(part.clone().requires_grad_() for part in x)
    return require_extra("captum.attr").Saliency(space.forward).attribute(inputs, target=output)


@dataclass(frozen=True)
class _Gradients(Baseline):
    """An explainer by gradients of the score in the features."""

    explains_typed_graphs: ClassVar[bool] = True

    def attributed(
        self,
        seed: int,
        space: FeatureSpace,
        attribute: Callable[[FeatureSpace, Features, int], Features],
        game: tuple[str, str],
        steps: int = 1,
        **details: Any,
    ) -> Explanation:
        """The explanation by attributions of each output; `game`: its name and that of its mask."""
        prediction, x = space.prediction, tuple(part[None] for part in space.x)
        with model_restored(prediction.query.model.call):
            attributions = [
                tuple(part[0].detach() for part in attribute(space, x, output))
                for output in prediction.outputs
            ]
        features, nodes = attributions_to_credit(space, attributions)
        rows, calls = sum(map(len, space.nodes)), steps * len(attributions)
        report = game_report(game[0], rows, calls, game[1])
        return self.record(seed, prediction, features=features, nodes=nodes, game=report, **details)


@dataclass(frozen=True)
class Saliency(_Gradients):
    """|df / dX|: the absolute gradient of the score in the features."""

    blocks: ClassVar[Blocks] = Blocks(
        title="Saliency",
        mask=Block("none", Unchanged),
        gen=Block("unchanged", Unchanged),
        expl=Block(
            "absolute gradient of the score in X, summed over each node", attributions_to_credit
        ),
        explains=("nodes", "features"),
        meaning="absolute gradient: how much the score would move if the number moved by 1, to "
        "first order; summed over the features of a node",
        properties=Properties(general=True, robust=True, meaningful=True, selective=True),
        package="captum",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """One backward pass per output."""
        return self.attributed(seed, FeatureSpace(query, seed), gradient, ("gradient", "none"))


@dataclass(frozen=True)
class IntegratedGradients(_Gradients):
    """Gradients integrated along the straight line from a baseline to X; edges are unchanged."""

    steps: Count = 50
    baseline: Literal["mean", "zero"] = "mean"

    blocks: ClassVar[Blocks] = Blocks(
        title="Integrated gradients",
        mask=Block(
            "M_F = t, the same share of every feature, for t in (0, 1)", integrated_gradient
        ),
        gen=Block("X' = t X + (1 - t) mu", integrated_gradient),
        expl=Block("the gradient's integral, summed over each node", attributions_to_credit),
        explains=("nodes", "features"),
        meaning="share of the way from the score of the baseline graph (all features at their "
        "{baseline}) to the prediction, along a straight line",
        properties=Properties(
            general=True, robust=True, meaningful=True, selective=True, contrastive=True
        ),
        notes="decomposable in the limit: the residual falls with `steps`",
        package="captum",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """`steps` backward passes per output."""
        space = FeatureSpace(query, seed)
        start = tuple(map(torch.zeros_like, space.x))
        if self.baseline == "mean":
            mean = query.graph.statistics.mean
            start = tuple(
                x + mean[block].to(x) for x, block in zip(start, space.columns, strict=True)
            )
        return self.attributed(
            seed,
            space,
            partial(integrated_gradient, start=start, steps=self.steps),
            ("path", "along_the_line"),
            self.steps,
            bases=space.scores(start)[list(space.prediction.outputs)],
        )
