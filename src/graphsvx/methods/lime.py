"""LIME: a local linear surrogate over the features of the explained node, through lime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from graphsvx.core.players import FeatureChoice, Samples
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import OwnFeatures
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    refuse_unless,
)
from graphsvx.methods.tabular import FeatureFunction, Floats, feature_function
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked
from graphsvx.utils.extras import require_extra


def local_surrogate(
    function: FeatureFunction,
    data: Floats,
    score: Callable[[Floats], Floats],
    samples: int,
    seed: int,
) -> Any:
    """lime's tabular explainer in regression mode, without discretisation or feature selection."""
    lime = require_extra("lime.lime_tabular")
    explainer = lime.LimeTabularExplainer(
        data,
        mode="regression",
        discretize_continuous=False,
        feature_selection="none",
        random_state=seed % 2**32,
    )
    return explainer.explain_instance(
        function.values, score, num_features=len(function.columns), num_samples=samples
    )


@dataclass(frozen=True)
class LIME(Checked):
    """A local linear surrogate over the explained node's features; the rest is unchanged."""

    samples: Samples = 1000
    features: FeatureChoice = 0.25

    blocks: ClassVar[Blocks] = Blocks(
        title="LIME",
        mask=Block(
            "vectors around the data's mean, weighed by distance, lime's own", local_surrogate
        ),
        gen=Block("X'_v = the vector, A' = A", OwnFeatures),
        expl=Block("weighted ridge regression, lime's own", local_surrogate),
        explains=("features",),
        tasks=("node",),
        properties=Properties(robust=True, meaningful=True, contrastive=True),
        source="Ribeiro et al. 2016",
        package="lime",
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Run lime once per output, on the same perturbed feature rows."""
        refuse_unless(query, self, "node")
        require_extra("lime.lime_tabular")
        function = feature_function(query, self.features, seed)
        predictions = torch.from_numpy(function(function.values[None])[0])
        outputs, target = query.choose_outputs(predictions)
        players = len(function.columns)
        values = torch.zeros(len(outputs), players, dtype=torch.float64)
        bases, r2 = predictions[list(outputs)].clone(), 0.0
        data = query.graph.x[:, function.columns.to(query.graph.x.device)].double().cpu().numpy()
        for i, output in enumerate(outputs if players else ()):

            def score(rows: Floats, output: int = output) -> Floats:
                return function(rows)[:, output]

            surrogate = local_surrogate(function, data, score, self.samples, seed)
            for column, value in surrogate.local_exp[1]:
                values[i, column] = value
            bases[i] = surrogate.intercept[1]
            if output == target:
                r2 = float(surrogate.score)
        return build_explanation(
            query,
            function.evaluator,
            self,
            seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=bases,
            features=mask_as_credit(function.columns, list(values)),
            meaning=(
                "coefficient of the feature in a linear model of the score around this node: "
                "change of the score for one standard deviation of the feature"
            ),
            games=(
                game_report(
                    "features", players, function.calls, "lime", budget=self.samples, r2=r2
                ),
            ),
        )
