"""Gradients of the score in the features: saliency and integrated gradients, through captum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.errors import UnsupportedError
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import Baseline, Prediction, build_explanation, game_report
from graphsvx.methods.local_graph import local_graph_of, model_restored, typed_scores
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Count
from graphsvx.utils.extras import require_extra

Features = tuple[Tensor, ...]
"""Features of nodes, a matrix [nodes, columns] for each node type that has any."""


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The scores as a function of the features of the nodes in the receptive field."""

    prediction: Prediction
    x: Features
    mean: Features
    """mu of the columns of each matrix."""
    nodes: tuple[Ids, ...]
    """The user's ids of the rows of each matrix, ascending."""
    first_columns: tuple[int, ...]
    """The number of each matrix's first column among those of all node types."""
    scores: Callable[[Features], Tensor]
    """Scores [outputs] at other features; differentiable."""

    def score(self, output: int) -> Callable[..., Tensor]:
        """The function that captum differentiates: features [steps, ...] to scores [steps]."""

        def scores(*x: Tensor) -> Tensor:
            out = torch.stack([self.scores(step)[output] for step in zip(*x, strict=True)])
            for part in x:  # the gradient of what is not used is 0, not missing
                out = out + part[:, :0].sum()
            return out

        return scores


def feature_space(query: Query, seed: int) -> FeatureSpace:
    """The features that the explained prediction depends on."""
    if query.graph.has_types:
        return _typed_feature_space(query, seed)
    local = local_graph_of(query, seed)
    return FeatureSpace(
        local.prediction(),
        (local.x,),
        (query.graph.statistics.mean,),
        (local.ids,),
        (0,),
        lambda x: local.scores(x[0]),
    )


def _typed_feature_space(query: Query, seed: int) -> FeatureSpace:
    evaluator, graph = choose_evaluator(query, None, seed), query.graph
    field, types, mean = evaluator.field, graph.types, graph.statistics.mean
    names = [name for name in types.features if types.width(name)]
    if not names:
        raise UnsupportedError("gradients need features of nodes, but no node type has any")
    inside = np.sort(field.ids[: field.size])
    nodes = [inside[types.node_type[inside] == types.type_id(name)] for name in names]
    rows = [
        torch.from_numpy(types.local(ids)).to(types.features[name].device)
        for name, ids in zip(names, nodes, strict=True)
    ]

    def scores(x: Features) -> Tensor:
        features = {
            name: types.features[name].detach().index_copy(0, at, part)
            for name, at, part in zip(names, rows, x, strict=True)
        }
        return typed_scores(replace(query, graph=graph.with_features(features)), field)

    x = tuple(types.features[name].detach()[at] for name, at in zip(names, rows, strict=True))
    return FeatureSpace(
        Prediction.of(query, evaluator, scores(x)),
        x,
        tuple(mean[types.blocks[name]] for name in names),
        tuple(nodes),
        tuple(types.blocks[name].start for name in names),
        scores,
    )


def attributions_to_credit(
    space: FeatureSpace, attributions: list[Features]
) -> tuple[Credit, Credit]:
    """EXPL: credit of features and nodes from attributions of all features, for each output.

    The rows of the explained nodes are feature credit; the sum of every other row is the credit of
    its node. A graph query has no explained node, so all credit is node credit.
    """
    query, field = space.prediction.query, space.prediction.evaluator.field
    columns, features = [], []
    for part, (ids, first) in enumerate(zip(space.nodes, space.first_columns, strict=True)):
        centres = np.searchsorted(ids, query.centres[np.isin(query.centres, ids)])
        if len(centres):
            columns.append(first + torch.arange(space.x[part].shape[1]))
            features.append([matrices[part][centres].sum(0) for matrices in attributions])
    ids, everyone = np.concatenate(space.nodes), field.ids[: field.size]
    others = np.setdiff1d(everyone, query.centres)
    featured = np.isin(others, ids)
    nodes = []
    for matrices in attributions:
        credit = torch.zeros(len(others), dtype=torch.float64)
        sums = torch.cat([matrix.sum(1).double().cpu() for matrix in matrices])
        credit[featured] = sums[np.searchsorted(ids, others[featured])]
        nodes.append(credit)
    return mask_as_credit(
        torch.cat([*columns, torch.zeros(0, dtype=torch.long)]),
        [torch.cat([part.double() for part in parts]) for parts in zip(*features, strict=True)]
        or [torch.zeros(0)] * len(nodes),
    ), mask_as_credit(torch.from_numpy(others), nodes)


def integrated_gradient(
    score: Callable[..., Tensor], x: Features, start: Features, steps: int
) -> Features:
    """captum's integrated gradient along the line from `start` to `x`, [nodes, columns] each."""
    method = require_extra("captum.attr").IntegratedGradients(score)
    attributions: Features = method.attribute(
        tuple(part[None] for part in x),
        tuple(part[None] for part in start),
        n_steps=steps,
        method="gausslegendre",
    )
    return tuple(part[0].detach() for part in attributions)


@dataclass(frozen=True)
class Saliency(Baseline):
    """|df / dX|: the absolute gradient of the score in the features."""

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Saliency",
        mask=Block("none", Unchanged),
        gen=Block("unchanged", Unchanged),
        expl=Block(
            "absolute gradient of the score in X, summed over each node", attributions_to_credit
        ),
        explains=("nodes", "features"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(general=True, robust=True, meaningful=True, selective=True),
        package="captum",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """One backward pass per output."""
        captum, space = require_extra("captum.attr"), feature_space(query, seed)
        outputs, attributions = space.prediction.outputs, []
        with model_restored(query.model.call):
            for output in outputs:
                x = tuple(part[None].clone().requires_grad_() for part in space.x)
                gradients = captum.Saliency(space.score(output)).attribute(x)
                attributions.append(tuple(part[0].detach() for part in gradients))
        features, nodes = attributions_to_credit(space, attributions)
        return build_explanation(
            self,
            seed,
            space.prediction,
            features=features,
            nodes=nodes,
            meaning=(
                "absolute gradient: how much the score would move if the number moved by 1, to "
                "first order; summed over the features of a node"
            ),
            game=game_report("gradient", sum(map(len, space.nodes)), len(outputs), "none"),
        )


@dataclass(frozen=True)
class IntegratedGradients(Baseline):
    """Gradients integrated along the straight line from a baseline to X; edges are unchanged."""

    steps: Count = 50
    baseline: Literal["mean", "zero"] = "mean"

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Integrated gradients",
        mask=Block(
            "M_F = t, the same share of every feature, for t in (0, 1)", integrated_gradient
        ),
        gen=Block("X' = t X + (1 - t) mu", integrated_gradient),
        expl=Block("the gradient's integral, summed over each node", attributions_to_credit),
        explains=("nodes", "features"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(
            general=True, robust=True, meaningful=True, selective=True, contrastive=True
        ),
        notes="decomposable in the limit: the residual falls with `steps`",
        package="captum",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """`steps` backward passes per output."""
        require_extra("captum.attr")
        space = feature_space(query, seed)
        outputs, start = space.prediction.outputs, tuple(map(torch.zeros_like, space.x))
        if self.baseline == "mean":
            start = tuple(x + mean.to(x) for x, mean in zip(start, space.mean, strict=True))
        bases = space.scores(start)[list(outputs)]
        with model_restored(query.model.call):
            attributions = [
                integrated_gradient(space.score(output), space.x, start, self.steps)
                for output in outputs
            ]
        features, nodes = attributions_to_credit(space, attributions)
        calls = self.steps * len(outputs)
        return build_explanation(
            self,
            seed,
            space.prediction,
            bases=bases,
            features=features,
            nodes=nodes,
            meaning=(
                "share of the way from the score of the baseline graph (all features at "
                f"their {self.baseline}) to the prediction, along a straight line"
            ),
            game=game_report("path", sum(map(len, space.nodes)), calls, "along_the_line"),
        )
