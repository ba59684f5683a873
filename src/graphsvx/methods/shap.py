"""SHAP: Kernel SHAP over the features of the explained node, through the shap package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from graphsvx.core.players import FeatureChoice, Samples
from graphsvx.core.query import Query
from graphsvx.generators.replace import OwnFeatures
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    refuse_unless,
)
from graphsvx.methods.tabular import FeatureFunction, feature_function
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked
from graphsvx.utils.extras import require_extra


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
class SHAP(Checked):
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

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Run shap's KernelExplainer for all outputs at once."""
        refuse_unless(query, self, "node")
        require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
        function = feature_function(query, self.features, seed)
        predictions = torch.from_numpy(function(function.values[None])[0])
        outputs, target = query.choose_outputs(predictions)
        players = len(function.columns)
        if players:
            values, base = kernel_shap(function, self.samples, seed)
        else:
            values, base = np.zeros((0, len(predictions))), predictions.numpy()
        credit = torch.from_numpy(values).t()[list(outputs)].contiguous()
        exact = players < 30 and 2**players - 2 <= self.samples
        errors = torch.zeros_like(credit) if exact else torch.full_like(credit, torch.nan)
        return build_explanation(
            query,
            function.evaluator,
            self,
            seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=torch.from_numpy(base)[list(outputs)],
            features=Credit(function.columns, credit, errors),
            meaning=(
                "Shapley value of the feature, all nodes on: its fair share of the difference "
                "between the prediction and the score with the node's features at their mean"
            ),
            games=(
                game_report(
                    "features", players, function.calls, "shap", budget=self.samples, exact=exact
                ),
            ),
        )
