"""GNNExplainer: learned edge and feature masks that keep the prediction (mutual information)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.stage import (
    Stage,
    borrowed,
    layers_with_edges,
    prepare,
    record,
    refuse_unless,
    report,
)
from graphsvx.constraints import Checked, Count, Rate
from graphsvx.errors import InputError
from graphsvx.explain.direct import direct
from graphsvx.explanation import Explanation
from graphsvx.generators.replace import SoftEdges
from graphsvx.masks.learned import Learned, Reader, SoftMasks, model_config
from graphsvx.query import Query


@dataclass(frozen=True)
class GNNExplainer(Checked):
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
        expl=Block("the masks themselves", direct),
        explains=("edges", "features"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(
            decomposable=False,
            general=True,
            robust=False,
            meaningful=False,
            selective=True,
            contrastive=False,
        ),
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

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Learn masks for each explained output."""
        refuse_unless(query, self, "node", "nodes", "graph")
        if self.edges:
            layers_with_edges(query, self)
        stage = prepare(query, seed)
        predictions = stage.scores()
        outputs, target = query.choose(predictions)
        with borrowed(query.model.call):
            learned = [self._learn(stage, output, seed) for output in outputs]
        columns = torch.arange(stage.x.shape[1] if self.features else 0)
        inner = stage.inner if self.edges else torch.zeros(0, dtype=torch.long)
        none = stage.x.new_zeros(0)
        kept = [self._kept(stage, masks, output)
                for masks, output in zip(learned, outputs, strict=True)]  # fmt: skip
        made = self.epochs * len(outputs)
        return record(
            query, stage.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            edges=direct(
                stage.edge_ids()[:, : len(inner)],
                [none if m.edges is None else m.edges.cpu()[inner] for m in learned],
            ),
            features=direct(columns, [none if m.features is None else m.features for m in learned]),
            meaning=(
                "weight of a learned mask between 0 and 1: how much of the edge's messages, or "
                "of the feature, is needed to keep the prediction"
            ),
            games=(report("masks", len(inner) + len(columns), made, "Learned"),),
            extra={"masked_scores": kept},
        )  # fmt: skip

    def _learn(self, stage: Stage, output: int, seed: int) -> SoftMasks:
        query = stage.query
        regression = query.model.scale == "value"

        def call(x: Tensor, edge_index: Tensor) -> Tensor:
            out = query.model(x, edge_index, stage.edge_weight, stage.edge_attr, stage.batch)
            return stage.explained(out)

        reader = Reader(query.model.call, call, query.model.output, output if regression else None)
        wanted: Any
        with torch.no_grad():
            out = reader(stage.x, stage.edge_index)
        wanted = out if regression else torch.full((len(out),), output, device=out.device)
        config = model_config(query.model.output, regression, query.kind == "graph")
        return self.mask(reader, config, stage.x, stage.edge_index, target=wanted, seed=seed)

    def _kept(self, stage: Stage, masks: SoftMasks, output: int) -> float:
        """The score that the masked graph still has: what the masks are worth."""
        x = stage.x if masks.features is None else stage.x * masks.features
        module = stage.query.model.call
        if masks.edges is None or not isinstance(module, torch.nn.Module):
            return float(stage.scores(x)[output])
        with borrowed(module), torch.no_grad():
            SoftEdges()(module, stage.edge_index, masks.edges)
            return float(stage.scores(x)[output])
