"""GraphLIME: which features do predictions follow in the neighbourhood of a node?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core.arrays import Ids
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.estimators.hsic import HSICLasso
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    local_graph_of,
    refuse_unless,
)
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, NotNegative, Range


def neighbours(query: Query, hops: int | None, most: int, seed: int) -> Ids:
    """MASK: the node and its N-hop neighbours, one mask each; `most` drawn where there are more."""
    field = fields.in_neighbourhood(query.graph, query.centres, hops)
    ids = field.ids[: field.size]
    if len(ids) <= most:
        return ids
    others = np.random.default_rng(seed).choice(ids[1:], most - 1, replace=False)
    return np.concatenate([ids[:1], np.sort(others)])


@dataclass(frozen=True)
class GraphLIME(Checked):
    """HSIC Lasso of the explained score on features, over the node's N-hop neighbourhood."""

    hops: Annotated[int | None, Range(1)] = None
    """N; None: as far as the model looks."""
    rho: NotNegative = 0.1
    most: Annotated[int, Range(2, 100_000)] = 300
    """At most so many neighbours; kernels grow with their square."""

    blocks: ClassVar[Blocks] = Blocks(
        title="GraphLIME",
        mask=Block("M_N picks one neighbour of v at a time", neighbours),
        gen=Block("unchanged: the original features and prediction are read", Unchanged),
        expl=Block("HSIC Lasso of predictions on features, non-negative", HSICLasso),
        explains=("features",),
        tasks=("node",),
        properties=Properties(robust=True, selective=True),
        source="Huang et al. 2020",
        notes="deterministic here: it samples only above `most` neighbours",
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Read the neighbours' predictions, then regress."""
        refuse_unless(query, self, "node")
        local_graph = local_graph_of(query, seed)
        predictions = local_graph.scores()
        outputs, target = query.choose_outputs(predictions)
        hops = local_graph.evaluator.depth if self.hops is None else self.hops
        ids = neighbours(query, hops, self.most, seed)
        # Their predictions need their own receptive fields.
        around = local_graph_of(replace(query, kind="nodes", centres=ids), seed)
        scores = query.model.scores(around.explained(around.outputs())).cpu().numpy()
        device = query.graph.x.device
        features = query.graph.x[arrays.as_tensor(ids, device)].double().cpu().numpy()
        regress = HSICLasso(self.rho)
        rows = [
            torch.from_numpy(regress(features, scores[:, output], query.memory))
            for output in outputs
        ]
        explanation = build_explanation(
            query, local_graph.evaluator, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            features=mask_as_credit(torch.arange(features.shape[1]), rows),
            meaning=(
                "HSIC Lasso coefficient, 0 or more: how far neighbours that are alike in this "
                "feature also get alike scores"
            ),
            games=(game_report("neighbours", features.shape[1], 1, "neighbours", rows=len(ids)),),
        )  # fmt: skip
        return replace(explanation, neighbours=tuple(ids.tolist()))
