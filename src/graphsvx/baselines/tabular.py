"""LIME and SHAP over the explained node's features, through their own packages.

Both see the model as a function of one row: X_v is replaced, everything else stays, and the score
of v is read. They perturb the same columns that GraphSVX lets play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx import players as choosing
from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.stage import play, record, refuse_unless, report
from graphsvx.constraints import Checked
from graphsvx.engine.survey import Survey, survey
from graphsvx.explain.direct import direct
from graphsvx.explanation import Credit, Explanation
from graphsvx.extras import package
from graphsvx.generators import Scene
from graphsvx.generators.replace import OwnFeatures
from graphsvx.players import FeatureChoice, Samples
from graphsvx.query import Query

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Row:
    """f as a function of the chosen features of the explained node: [rows, B] -> [rows, outputs].

    Rows that come again are not played again.
    """

    query: Query
    found: Survey
    scene: Scene
    columns: Tensor
    calls: int = 0
    _known: dict[bytes, Floats] = field(default_factory=dict)

    def __call__(self, rows: Floats) -> Floats:
        """Scores of perturbed rows."""
        rows = np.ascontiguousarray(np.atleast_2d(rows), dtype=np.float64)
        keys = [row.tobytes() for row in rows]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            where = list(new.values())
            step = max(1, self.query.memory // (8 * 4 * max(1, self.query.graph.num_features)))
            for first in range(0, len(where), step):
                part = where[first : first + step]
                scores = self._play(rows[part])
                self._known.update(zip([keys[i] for i in part], scores, strict=True))
            self.calls += len(new)
        return np.stack([self._known[key] for key in keys])

    def _play(self, rows: Floats) -> Floats:
        own = self.scene.table[:1]
        vectors = own.repeat(len(rows), 1)
        vectors[:, self.columns.to(own.device)] = torch.from_numpy(rows).to(own)
        states = OwnFeatures()(self.scene, vectors)
        scores: Floats = play(self.query, self.found, states).numpy()
        return scores

    @property
    def here(self) -> Floats:
        """The chosen features as they are."""
        own = self.scene.table[0, self.columns.to(self.scene.graph.x.device)]
        values: Floats = own.double().cpu().numpy()
        return values

    @property
    def mean(self) -> Floats:
        """mu of the chosen features."""
        values: Floats = self.scene.graph.statistics.mean.cpu()[self.columns].numpy()
        return values


def row_of(query: Query, features: FeatureChoice, seed: int) -> Row:
    """Survey the question and let the chosen features of its node vary."""
    found = survey(query, None, seed)
    here = choosing.find(query.graph, found.field, None, features, "features")
    scene = Scene(query.graph, found.field, here, query.graph.statistics.mean)
    return Row(query, found, scene, torch.from_numpy(here.feature_members))


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """shap draws from numpy's global state: seed it, and give it back as it was."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)


def kernel_shap(row: Row, samples: int, seed: int) -> Any:
    """shap's KernelExplainer with mu as the background, no feature selection."""
    # shap's own: a colour map that it makes with a function that matplotlib will drop.
    shap = package("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    with numpy_seeded(seed):
        explainer = shap.KernelExplainer(row, row.mean[None], keep_index=False)
        values = explainer.shap_values(row.here[None], nsamples=samples, l1_reg=0, silent=True)
    return np.asarray(values)[0], np.asarray(explainer.expected_value)


@dataclass(frozen=True)
class SHAP(Checked):
    """Kernel SHAP of the node's features, the rest of the graph switched on."""

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
            decomposable=True,
            general=False,
            robust=True,
            meaningful=True,
            selective=True,
            contrastive=True,
        ),
        source="Lundberg and Lee 2017",
        package="shap",
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Ask shap."""
        refuse_unless(query, self, "node")
        package("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
        row = row_of(query, self.features, seed)
        predictions = torch.from_numpy(row(row.here[None])[0])
        outputs, target = query.choose(predictions)
        players = len(row.columns)
        if players:
            values, base = kernel_shap(row, self.samples, seed)
        else:
            values, base = np.zeros((0, len(predictions))), predictions.numpy()
        found = torch.from_numpy(values).t()[list(outputs)].contiguous()
        exact = players < 30 and 2**players - 2 <= self.samples
        errors = torch.zeros_like(found) if exact else torch.full_like(found, torch.nan)
        return record(
            query, row.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=torch.from_numpy(base)[list(outputs)],
            features=Credit(row.columns, found, errors),
            meaning=(
                "Shapley value of the feature, all nodes on: its fair share of the difference "
                "between the prediction and the score with the node's features at their mean"
            ),
            games=(
                report("features", players, row.calls, "shap", asked=self.samples, exact=exact),
            ),
        )  # fmt: skip


def local_surrogate(
    row: Row, data: Floats, score: Callable[[Floats], Floats], samples: int, seed: int
) -> Any:
    """lime's tabular explainer without bins and without feature selection, as a regression."""
    lime = package("lime.lime_tabular")
    explainer = lime.LimeTabularExplainer(
        data,
        mode="regression",
        discretize_continuous=False,
        feature_selection="none",
        random_state=seed % 2**32,
    )
    return explainer.explain_instance(
        row.here, score, num_features=len(row.columns), num_samples=samples
    )


@dataclass(frozen=True)
class LIME(Checked):
    """A local linear surrogate over the node's features, the rest of the graph as it is."""

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
        properties=Properties(
            decomposable=False,
            general=False,
            robust=True,
            meaningful=True,
            selective=False,
            contrastive=True,
        ),
        source="Ribeiro et al. 2016",
        package="lime",
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Ask lime, once an output, on the same perturbed rows."""
        refuse_unless(query, self, "node")
        package("lime.lime_tabular")
        row = row_of(query, self.features, seed)
        predictions = torch.from_numpy(row(row.here[None])[0])
        outputs, target = query.choose(predictions)
        players = len(row.columns)
        values = torch.zeros(len(outputs), players, dtype=torch.float64)
        bases, r2 = predictions[list(outputs)].clone(), 0.0
        data = query.graph.x[:, row.columns.to(query.graph.x.device)].double().cpu().numpy()
        for i, output in enumerate(outputs if players else ()):

            def score(rows: Floats, output: int = output) -> Floats:
                return row(rows)[:, output]

            found = local_surrogate(row, data, score, self.samples, seed)
            for column, value in found.local_exp[1]:
                values[i, column] = value
            bases[i] = found.intercept[1]
            if output == target:
                r2 = float(found.score)
        return record(
            query, row.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            bases=bases,
            features=direct(row.columns, list(values)),
            meaning=(
                "coefficient of the feature in a linear model of the score around this node: "
                "change of the score for one standard deviation of the feature"
            ),
            games=(report("features", players, row.calls, "lime", asked=self.samples, r2=r2),),
        )  # fmt: skip
