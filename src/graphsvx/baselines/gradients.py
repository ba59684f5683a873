"""The gradient family, through captum: what most users try first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.stage import (
    Stage,
    borrowed,
    prepare,
    record,
    refuse_unless,
    report,
)
from graphsvx.constraints import Checked, Count
from graphsvx.explain.direct import direct
from graphsvx.explanation import Credit, Explanation
from graphsvx.extras import package
from graphsvx.generators.replace import Unchanged
from graphsvx.query import Query

_SHARED = {
    "explains": ("nodes", "features"),
    "tasks": ("node", "nodes", "graph"),
    "package": "captum",
}


def shared_out(stage: Stage, attributions: list[Tensor]) -> tuple[Credit, Credit]:
    """EXPL: attributions [N, F] an output to credit of features and nodes, nothing twice.

    The explained nodes' rows are credit of features, the sum of each other row is credit of
    its node. A graph has no explained node, so all credit is the nodes'.
    """
    others = stage.others
    columns = torch.arange(stage.x.shape[1] if len(stage.centres) else 0)
    features = [matrix[stage.centres][:, columns].sum(0) for matrix in attributions]
    nodes = [matrix.sum(1)[others.to(matrix.device)] for matrix in attributions]
    return direct(columns, features), direct(torch.from_numpy(stage.ids)[others], nodes)


def _forward(stage: Stage, output: int) -> Any:
    """What captum differentiates: batches [steps, N, F] of features to scores [steps]."""

    def scores(batch: Tensor) -> Tensor:
        return torch.stack([stage.scores(x)[output] for x in batch])

    return scores


@dataclass(frozen=True)
class Saliency(Checked):
    """|df / dX|: how fast the score moves with each number of X."""

    blocks: ClassVar[Blocks] = Blocks(
        title="Saliency",
        mask=Block("none", Unchanged),
        gen=Block("unchanged", Unchanged),
        expl=Block("absolute gradient of the score in X, summed over each node", shared_out),
        properties=Properties(
            decomposable=False,
            general=True,
            robust=True,
            meaningful=True,
            selective=True,
            contrastive=False,
        ),
        **_SHARED,  # type: ignore[arg-type]  # one dict for two classes; its values are tuples
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """One backward pass an output."""
        refuse_unless(query, self, "node", "nodes", "graph")
        attr = package("captum.attr")
        stage = prepare(query, seed)
        predictions = stage.scores()
        outputs, target = query.choose(predictions)
        found = []
        with borrowed(query.model.call):
            for output in outputs:
                x = stage.x[None].clone().requires_grad_()
                found.append(attr.Saliency(_forward(stage, output)).attribute(x)[0].detach())
        features, nodes = shared_out(stage, found)
        return record(
            query, stage.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            features=features,
            nodes=nodes,
            meaning=(
                "absolute gradient: how much the score would move if the number moved by 1, to "
                "first order; summed over the features of a node"
            ),
            games=(report("gradient", len(stage.ids), len(outputs), "none"),),
        )  # fmt: skip


def along_the_line(stage: Stage, output: int, start: Tensor, steps: int) -> Tensor:
    """captum's integral of the gradient from `start` to X, [N, F]."""
    method = package("captum.attr").IntegratedGradients(_forward(stage, output))
    found: Tensor = method.attribute(
        stage.x[None], start[None], n_steps=steps, method="gausslegendre"
    )
    return found[0].detach()


@dataclass(frozen=True)
class IntegratedGradients(Checked):
    """Gradients integrated along the straight line from a baseline to X; edges stay."""

    steps: Count = 50
    baseline: Literal["mean", "zero"] = "mean"

    blocks: ClassVar[Blocks] = Blocks(
        title="Integrated gradients",
        mask=Block("M_F = t, the same share of every feature, for t in (0, 1)", along_the_line),
        gen=Block("X' = t X + (1 - t) mu", along_the_line),
        expl=Block("the gradient's integral, summed over each node", shared_out),
        properties=Properties(
            decomposable=False,
            general=True,
            robust=True,
            meaningful=True,
            selective=True,
            contrastive=True,
        ),
        notes="decomposable in the limit: the residual falls with `steps`",
        **_SHARED,  # type: ignore[arg-type]  # one dict for two classes; its values are tuples
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """`steps` backward passes an output."""
        refuse_unless(query, self, "node", "nodes", "graph")
        package("captum.attr")
        stage = prepare(query, seed)
        predictions = stage.scores()
        outputs, target = query.choose(predictions)
        start = torch.zeros_like(stage.x)
        if self.baseline == "mean":
            start = start + query.graph.statistics.mean.to(start)
        bases = stage.scores(start)[list(outputs)]
        with borrowed(query.model.call):
            found = [along_the_line(stage, output, start, self.steps) for output in outputs]
        features, nodes = shared_out(stage, found)
        return record(
            query, stage.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=bases,
            features=features,
            nodes=nodes,
            meaning=(
                "share of the way from the score of the baseline graph (all features at "
                f"their {self.baseline}) to the prediction, along a straight line"
            ),
            games=(report("path", len(stage.ids), self.steps * len(outputs), "along_the_line"),),
        )  # fmt: skip
