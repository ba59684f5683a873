"""Integrated gradients from a baseline to the features, through captum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from graphsvx.core.query import Query
from graphsvx.methods import typed_baselines
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.gradients import attributions_to_credit, score_function
from graphsvx.methods.local_graph import (
    LocalGraph,
    build_explanation,
    game_report,
    local_graph_of,
    model_restored,
    refuse_unless,
)
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, Count
from graphsvx.utils.extras import require_extra


def integrated_gradient(local_graph: LocalGraph, output: int, start: Tensor, steps: int) -> Tensor:
    """captum's integrated gradient along the line from `start` to X, [N, F]."""
    method = require_extra("captum.attr").IntegratedGradients(score_function(local_graph, output))
    attributions: Tensor = method.attribute(
        local_graph.x[None], start[None], n_steps=steps, method="gausslegendre"
    )
    return attributions[0].detach()


@dataclass(frozen=True)
class IntegratedGradients(Checked):
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

    def __call__(self, query: Query, seed: int) -> Explanation:
        """`steps` backward passes per output."""
        if query.graph.has_types:
            return self._on_typed_graph(query, seed)
        refuse_unless(query, self, "node", "nodes", "graph")
        require_extra("captum.attr")
        local_graph = local_graph_of(query, seed)
        predictions = local_graph.scores()
        outputs, target = query.choose_outputs(predictions)
        start = torch.zeros_like(local_graph.x)
        if self.baseline == "mean":
            start = start + query.graph.statistics.mean.to(start)
        bases = local_graph.scores(start)[list(outputs)]
        with model_restored(query.model.call):
            attributions = [
                integrated_gradient(local_graph, output, start, self.steps) for output in outputs
            ]
        features, nodes = attributions_to_credit(local_graph, attributions)
        return build_explanation(
            query,
            local_graph.evaluator,
            self,
            seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=bases,
            features=features,
            nodes=nodes,
            meaning=self._meaning(),
            games=(
                game_report(
                    "path", len(local_graph.ids), self.steps * len(outputs), "along_the_line"
                ),
            ),
        )

    def _meaning(self) -> str:
        return (
            "share of the way from the score of the baseline graph (all features at "
            f"their {self.baseline}) to the prediction, along a straight line"
        )

    def _on_typed_graph(self, query: Query, seed: int) -> Explanation:
        graph = query.graph
        start = {
            name: torch.zeros_like(x) for name, x in typed_baselines.float_features(graph).items()
        }
        if self.baseline == "mean":
            mean = graph.statistics.mean
            start = {name: x + mean[graph.types.blocks[name]].to(x) for name, x in start.items()}
        return typed_baselines.explain_by_gradients(
            query, self, seed, typed_baselines.integrated_gradient(start, self.steps),
            lambda players, outputs: game_report(
                "path", players, self.steps * outputs, "along_the_line"
            ),
            self._meaning(),
            bases=lambda field: typed_baselines.typed_scores(query, field, start),
        )  # fmt: skip
