"""LIME and SHAP: surrogates over the features of the explained node, through lime and shap.

X_v is replaced, everything else is unchanged, and the score of v is returned. The columns are the
feature players of GraphSVX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.core.players import FeatureChoice, Samples
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import OwnFeatures
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import (
    Baseline,
    Prediction,
    baseline_setup,
    build_explanation,
    game_report,
    perturbed_scores,
)
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.extras import require_extra


@dataclass(eq=False)
class FeatureFunction:
    """f as a function of the chosen features of the explained node: [rows, B] -> [rows, outputs].

    Rows are evaluated once and cached.
    """

    query: Query
    evaluator: Evaluator
    setup: GameSetup
    columns: Tensor
    calls: int = 0
    _cache: dict[bytes, Floats] = field(default_factory=dict)

    def __call__(self, rows: Floats) -> Floats:
        """Scores [rows, outputs] of perturbed feature rows."""
        rows = np.ascontiguousarray(np.atleast_2d(rows), dtype=np.float64)
        keys = [row.tobytes() for row in rows]
        new = {key: i for i, key in enumerate(keys) if key not in self._cache}
        if new:
            positions = list(new.values())
            step = max(1, self.query.memory // (8 * 4 * max(1, self.query.graph.num_features)))
            for first in range(0, len(positions), step):
                part = positions[first : first + step]
                scores = self._evaluate(rows[part])
                self._cache.update(zip([keys[i] for i in part], scores, strict=True))
            self.calls += len(new)
        return np.stack([self._cache[key] for key in keys])

    def _evaluate(self, rows: Floats) -> Floats:
        row = self.setup.feature_table[:1]
        vectors = row.repeat(len(rows), 1)
        vectors[:, self.columns.to(row.device)] = torch.from_numpy(rows).to(row)
        perturbations = OwnFeatures()(self.setup, vectors)
        scores: Floats = perturbed_scores(self.query, self.evaluator, perturbations).numpy()
        return scores

    @property
    def values(self) -> Floats:
        """The values of `columns` at the explained node, [B]."""
        row = self.setup.feature_table[0, self.columns.to(self.setup.graph.x.device)]
        values: Floats = row.double().cpu().numpy()
        return values

    @property
    def mean(self) -> Floats:
        """mu: the mean of `columns` over all nodes, [B]."""
        values: Floats = self.setup.graph.statistics.mean.cpu()[self.columns].numpy()
        return values

    def prediction(self) -> Prediction:
        """The scores of the node as it is."""
        return Prediction.of(self.query, self.evaluator, torch.from_numpy(self(self.values)[0]))


def feature_function(query: Query, features: FeatureChoice, seed: int) -> FeatureFunction:
    """The score as a function of the chosen features of the explained node."""
    evaluator = choose_evaluator(query, None, seed)
    setup = baseline_setup(query, evaluator, "features", features)
    return FeatureFunction(query, evaluator, setup, torch.from_numpy(setup.players.feature_members))


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
class LIME(Baseline):
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

    def explain(self, query: Query, seed: int) -> Explanation:
        """Run lime once per output, on the same perturbed feature rows."""
        require_extra("lime.lime_tabular")
        function = feature_function(query, self.features, seed)
        prediction, players = function.prediction(), len(function.columns)
        outputs = prediction.outputs
        values = torch.zeros(len(outputs), players, dtype=torch.float64)
        bases, r2 = prediction.scores[list(outputs)].clone(), 0.0
        data = query.graph.x[:, function.columns.to(query.graph.x.device)].double().cpu().numpy()
        for i, output in enumerate(outputs if players else ()):

            def score(rows: Floats, output: int = output) -> Floats:
                return function(rows)[:, output]

            surrogate = local_surrogate(function, data, score, self.samples, seed)
            for column, value in surrogate.local_exp[1]:
                values[i, column] = value
            bases[i] = surrogate.intercept[1]
            if output == prediction.target:
                r2 = float(surrogate.score)
        calls, budget = function.calls, self.samples
        return build_explanation(
            self,
            seed,
            prediction,
            bases=bases,
            features=mask_as_credit(function.columns, list(values)),
            meaning=(
                "coefficient of the feature in a linear model of the score around this node: "
                "change of the score for one standard deviation of the feature"
            ),
            game=game_report("features", players, calls, "lime", budget=budget, r2=r2),
        )


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global random state, which shap uses, and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)


def kernel_shap(function: FeatureFunction, samples: int, seed: int) -> Any:
    """shap's KernelExplainer with mu as the background, no feature selection."""
    # shap builds a colour map with a deprecated matplotlib function at import.
    shap = require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    with numpy_seeded(seed):
        explainer = shap.KernelExplainer(function, function.mean[None], keep_index=False)
        values = explainer.shap_values(
            function.values[None], nsamples=samples, l1_reg=0, silent=True
        )
    return np.asarray(values)[0], np.asarray(explainer.expected_value)


@dataclass(frozen=True)
class SHAP(Baseline):
    """Kernel SHAP of the explained node's features, with all nodes on."""

    samples: Samples = 2048
    features: FeatureChoice = 0.25

    blocks: ClassVar[Blocks] = Blocks(
        title="SHAP",
        mask=Block("M_F drawn by coalition size, shap's own", kernel_shap),
        gen=Block("X'_v = M_F X_v + (1 - M_F) mu, A' = A", OwnFeatures),
        expl=Block("weighted linear regression with the Shapley kernel, shap's own", kernel_shap),
        explains=("features",),
        tasks=("node",),
        properties=Properties(
            decomposable=True, robust=True, meaningful=True, selective=True, contrastive=True
        ),
        source="Lundberg and Lee 2017",
        package="shap",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Run shap's KernelExplainer for all outputs at once."""
        require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
        function = feature_function(query, self.features, seed)
        prediction, players = function.prediction(), len(function.columns)
        values, base = np.zeros((0, len(prediction.scores))), prediction.scores.numpy()
        if players:
            values, base = kernel_shap(function, self.samples, seed)
        outputs = list(prediction.outputs)
        credit = torch.from_numpy(values).t()[outputs].contiguous()
        exact = players < 30 and 2**players - 2 <= self.samples
        errors = torch.zeros_like(credit) if exact else torch.full_like(credit, torch.nan)
        calls, budget = function.calls, self.samples
        return build_explanation(
            self,
            seed,
            prediction,
            bases=torch.from_numpy(base)[outputs],
            features=Credit(function.columns, credit, errors),
            meaning=(
                "Shapley value of the feature, all nodes on: its fair share of the difference "
                "between the prediction and the score with the node's features at their mean"
            ),
            game=game_report("features", players, calls, "shap", budget=budget, exact=exact),
        )
