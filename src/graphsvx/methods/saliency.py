"""Saliency: absolute gradients of the score, through captum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphsvx.core.query import Query
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.gradients import attributions_to_credit, score_function
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    local_graph_of,
    model_restored,
    refuse_unless,
)
from graphsvx.methods.typed_baselines import absolute_gradient, explain_by_gradients
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked
from graphsvx.utils.extras import require_extra

MEANING = (
    "absolute gradient: how much the score would move if the number moved by 1, to first order; "
    "summed over the features of a node"
)


@dataclass(frozen=True)
class Saliency(Checked):
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

    def __call__(self, query: Query, seed: int) -> Explanation:
        """One backward pass per output."""
        if query.graph.has_types:
            return explain_by_gradients(
                query, self, seed, absolute_gradient,
                lambda players, outputs: game_report("gradient", players, outputs, "none"),
                MEANING,
            )  # fmt: skip
        refuse_unless(query, self, "node", "nodes", "graph")
        attr = require_extra("captum.attr")
        local_graph = local_graph_of(query, seed)
        predictions = local_graph.scores()
        outputs, target = query.choose_outputs(predictions)
        attributions = []
        with model_restored(query.model.call):
            for output in outputs:
                x = local_graph.x[None].clone().requires_grad_()
                attributions.append(
                    attr.Saliency(score_function(local_graph, output)).attribute(x)[0].detach()
                )
        features, nodes = attributions_to_credit(local_graph, attributions)
        return build_explanation(
            query, local_graph.evaluator, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            features=features,
            nodes=nodes,
            meaning=MEANING,
            games=(game_report("gradient", len(local_graph.ids), len(outputs), "none"),),
        )  # fmt: skip
