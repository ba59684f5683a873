"""GNNExplainer: learned edge and feature masks that keep the prediction (mutual information)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from graphsvx.core.query import Query
from graphsvx.errors import InputError
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import SoftEdges
from graphsvx.masks.learned import Learned, SoftMasks
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import Baseline, build_explanation, game_report
from graphsvx.methods.local_graph import (
    LocalGraph,
    local_graph_of,
    message_passing_module,
    model_restored,
)
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Count, Rate


@dataclass(frozen=True)
class GNNExplainer(Baseline):
    """PyG's GNNExplainer on the receptive field of the question.

    For a group of nodes one mask is learned for all of them together.
    """

    epochs: Count = 100
    lr: Rate = 0.01
    edges: bool = True
    """Learn M_E; needs a model of PyG layers."""
    features: bool = True
    """Learn M_F, one entry a column of X, for all nodes of the field together."""
    edge_size: float = 0.005
    edge_entropy: float = 1.0
    feature_size: float = 1.0
    feature_entropy: float = 0.1

    blocks: ClassVar[Blocks] = Blocks(
        title="GNNExplainer",
        mask=Block(
            "M_E, M_F continuous, learned through f to maximise mutual information", Learned
        ),
        gen=Block("A' = A * sigma(M_E), X' = X * sigma(M_F)", SoftEdges),
        expl=Block("the masks themselves", mask_as_credit),
        explains=("edges", "features"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(general=True, selective=True),
        source="Ying et al. 2019",
        package="torch_geometric",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.edges and not self.features:
            raise InputError("at least one of edges and features must be learned, got neither")

    @property
    def mask(self) -> Learned:
        """MASK with these settings."""
        return Learned(
            self.epochs,
            self.lr,
            self.edges,
            self.features,
            (
                ("edge_size", self.edge_size),
                ("edge_ent", self.edge_entropy),
                ("node_feat_size", self.feature_size),
                ("node_feat_ent", self.feature_entropy),
            ),
        )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Learn masks for each explained output."""
        if self.edges:
            message_passing_module(query, self)
        local_graph = local_graph_of(query, seed)
        prediction = local_graph.prediction()
        outputs = prediction.outputs
        with model_restored(query.model.call):
            learned = [self._learn(local_graph, output, seed) for output in outputs]
        columns = torch.arange(local_graph.x.shape[1] if self.features else 0)
        inner = local_graph.inner_edges if self.edges else torch.zeros(0, dtype=torch.long)
        none = local_graph.x.new_zeros(0)
        masked_scores = tuple(
            self._score_of_kept_edges(local_graph, masks, output)
            for masks, output in zip(learned, outputs, strict=True)
        )
        calls = self.epochs * len(outputs)
        return build_explanation(
            self,
            seed,
            prediction,
            edges=mask_as_credit(
                local_graph.edge_ids()[:, : len(inner)],
                [none if m.edges is None else m.edges.cpu()[inner] for m in learned],
            ),
            features=mask_as_credit(
                columns, [none if m.features is None else m.features for m in learned]
            ),
            meaning=(
                "weight of a learned mask between 0 and 1: how much of the edge's messages, or "
                "of the feature, is needed to keep the prediction"
            ),
            game=game_report("masks", len(inner) + len(columns), calls, "Learned"),
            masked_scores=masked_scores,
        )

    def _learn(self, local_graph: LocalGraph, output: int, seed: int) -> SoftMasks:
        reader, config, target = local_graph.for_pyg(output, centres_only=True)
        return self.mask(
            reader, config, local_graph.x, local_graph.edge_index, target=target, seed=seed
        )

    def _score_of_kept_edges(self, local_graph: LocalGraph, masks: SoftMasks, output: int) -> float:
        """The score that the masked graph still has: what the masks are worth."""
        x = local_graph.x if masks.features is None else local_graph.x * masks.features
        module = local_graph.query.model.call
        if masks.edges is None or not isinstance(module, torch.nn.Module):
            return float(local_graph.scores(x)[output])
        with model_restored(module), torch.no_grad():
            SoftEdges()(module, local_graph.edge_index, masks.edges)
            return float(local_graph.scores(x)[output])
