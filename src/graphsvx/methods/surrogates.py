"""LIME, SHAP and GraphLIME: simple models of the score over features of the explained node.

LIME, SHAP    X_v is replaced, everything else is unchanged; through the packages lime and shap.
              The columns are the feature players of GraphSVX
GraphLIME     features and predictions of the neighbours are read as they are (HSIC Lasso)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from graphsvx.core.arrays import Floats, Ids, RowIds, as_tensor
from graphsvx.core.field import Perturbations, in_neighbourhood
from graphsvx.core.players import FeatureChoice, Samples
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import OwnFeatures, Unchanged
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import local_graph_of, played_field, scores_in_parts
from graphsvx.methods.pipeline import Prediction
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import NotNegative, Range
from graphsvx.utils.imports import require_extra

# --- LIME and SHAP ----------------------------------------------------------------------------


class FeatureFunction:
    """f as a function of the explained node's features that play: [rows, B] -> [rows, outputs].

    Rows are evaluated once and cached: lime asks for the same ones for each output.
    """

    def __init__(self, query: Query, seed: int, features: FeatureChoice) -> None:
        """The features that play, and their values at the explained node."""
        self.evaluator, self.setup = played_field(query, seed, "features", features)
        self.columns = torch.from_numpy(self.setup.players.feature_members)
        self.row = self.setup.feature_table[:1]
        self._at = self.columns.to(self.row.device)
        self.values: Floats = self.row[0, self._at].double().cpu().numpy()
        self._rows, self._scores = RowIds(), list[Floats]()
        scores = torch.from_numpy(self(self.values)[0])
        self.prediction = Prediction.of(query, self.evaluator, scores)

    def __call__(self, rows: Floats) -> Floats:
        """Scores [rows, outputs] of perturbed feature rows."""
        rows = np.atleast_2d(rows).astype(np.float64)
        ids, new = self._rows.add(rows)
        if len(new):
            values = torch.from_numpy(rows[new]).to(self.row)

            def perturb(part: slice) -> Perturbations:
                vectors = self.row.repeat(len(values[part]), 1)
                vectors[:, self._at] = values[part]
                return OwnFeatures()(self.setup, vectors)

            scores = scores_in_parts(self.evaluator, perturb, values, 32 * self.row.shape[1])
            self._scores.append(scores.numpy())
        return np.concatenate(self._scores)[ids]

    def report(self, mask: str, budget: int, **details: Any) -> Any:
        """The entry of the game in the certificate."""
        players, calls = len(self.columns), len(self._rows)
        return game_report("features", players, calls, mask, budget=budget, **details)


def local_surrogate(
    function: FeatureFunction, data: Floats, output: int, samples: int, seed: int
) -> Any:
    """lime's tabular explainer in regression mode, without discretisation or feature selection."""
    explainer = require_extra("lime.lime_tabular").LimeTabularExplainer(
        data,
        mode="regression",
        discretize_continuous=False,
        feature_selection="none",
        random_state=seed % 2**32,
    )
    return explainer.explain_instance(
        function.values,
        lambda rows: function(rows)[:, output],
        num_features=len(function.columns),
        num_samples=samples,
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
        meaning="coefficient of the feature in a linear model of the score around this node: "
        "change of the score for one standard deviation of the feature",
        properties=Properties(robust=True, meaningful=True, contrastive=True),
        source="Ribeiro et al. 2016",
        package="lime",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Run lime once per output, on the same perturbed feature rows."""
        function = FeatureFunction(query, seed, self.features)
        prediction, columns, x = function.prediction, function.columns, query.graph.x
        outputs = prediction.outputs
        values = torch.zeros(len(outputs), len(columns), dtype=torch.float64)
        bases, r2 = prediction.scores[list(outputs)].clone(), 0.0
        data = x[:, columns.to(x.device)].double().cpu().numpy()
        for i, output in enumerate(outputs if len(columns) else ()):
            surrogate = local_surrogate(function, data, output, self.samples, seed)
            for column, value in surrogate.local_exp[1]:
                values[i, column] = value
            bases[i] = surrogate.intercept[1]
            if output == prediction.target:
                r2 = float(surrogate.score)
        credit = mask_as_credit(columns, list(values))
        report = function.report("lime", self.samples, r2=r2)
        return self.record(seed, prediction, bases=bases, features=credit, game=report)


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global random state, which shap uses, and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)


def kernel_shap(function: FeatureFunction, samples: int, seed: int) -> tuple[Floats, Floats]:
    """shap's KernelExplainer with mu as the background, no feature selection."""
    mean = function.setup.graph.statistics.mean.cpu()[function.columns].numpy()
    with numpy_seeded(seed):
        explainer = require_extra("shap").KernelExplainer(function, mean[None], keep_index=False)
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
        meaning="Shapley value of the feature, all nodes on: its fair share of the difference "
        "between the prediction and the score with the node's features at their mean",
        properties=Properties(
            decomposable=True, robust=True, meaningful=True, selective=True, contrastive=True
        ),
        source="Lundberg and Lee 2017",
        package="shap",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Run shap's KernelExplainer for all outputs at once."""
        function = FeatureFunction(query, seed, self.features)
        prediction, players = function.prediction, len(function.columns)
        values, base = np.zeros((0, len(prediction.scores))), prediction.scores.numpy()
        if players:
            values, base = kernel_shap(function, self.samples, seed)
        outputs = list(prediction.outputs)
        credit = torch.from_numpy(values).t()[outputs].contiguous()
        exact = players < 30 and 2**players - 2 <= self.samples
        errors = torch.full_like(credit, 0.0 if exact else torch.nan)
        bases, features = torch.from_numpy(base)[outputs], Credit(function.columns, credit, errors)
        report = function.report("shap", self.samples, exact=exact)
        return self.record(seed, prediction, bases=bases, features=features, game=report)


# --- GraphLIME: HSIC Lasso, a non-negative regression of similarities on similarities ---------
#
#     min_{beta >= 0}  1/2 || L - sum_k beta_k K_k ||_F^2 + rho sum_k beta_k
#
# K_k and L are Gaussian kernels of feature k and of the predictions over the same nodes, centred
# (H K H, H = I - 11'/n) and scaled to Frobenius norm 1. Only inner products of kernels enter, so
# the n^2 x F design is never held: one row of all kernels is made at a time.


def kernel_products(values: Floats) -> Floats:
    """<K_k, K_l> [k, k] of kernels exp(-(a - b)^2 / (2 s^2)) of the columns of `values` [n, k].

    s is the deviation of the column. Kernels are centred and of norm 1; products with that of a
    constant column are 0.
    """
    spread, count = values.std(0), len(values)
    scaled = (values / np.where(spread > 0, spread, 1)).T

    def kernels_at(node: int) -> Floats:
        return np.exp(-((scaled - scaled[:, [node]]) ** 2) / 2)

    means = np.stack([kernels_at(node).mean(1) for node in range(count)], 1)
    products = np.zeros((len(scaled), len(scaled)))
    for node in range(count):
        centred = kernels_at(node) - means - means[:, [node]] + means.mean(1, keepdims=True)
        products += centred @ centred.T
    norms = np.sqrt(products.diagonal())
    norms = np.where(norms > 1e-9 * count, norms, np.inf)
    return products / np.outer(norms, norms)


def hsic_lasso(features: Floats, scores: Floats, rho: float) -> Floats:
    """Coefficients beta [F], sparse and not negative, of `features` [n, F] for `scores` [n].

    By scikit-learn's coordinate descent: the Gram matrix of the kernels is R'R with
    R = sqrt(Lambda) V', so that the problem is an ordinary Lasso with F rows.
    """
    from sklearn.linear_model import Lasso  # noqa: PLC0415  (slow to import)

    beta = np.zeros(features.shape[1])
    varies = np.flatnonzero(features.std(0) > 0)
    products = kernel_products(np.column_stack([features[:, varies], scores]))
    gram, link = products[:-1, :-1], products[:-1, -1]
    if not link.any():
        return beta
    values, vectors = np.linalg.eigh(gram)
    positive = values > 1e-12 * values.max(initial=1e-300)
    root = np.sqrt(values[positive])[:, None] * vectors[:, positive].T
    answer = (vectors[:, positive].T @ link) / np.sqrt(values[positive])
    lasso = Lasso(
        # scikit-learn divides the squares by the number of rows, and warns about a Lasso without a
        # penalty; one of 1e-12 is the same.
        alpha=(rho or 1e-12) / len(answer),
        positive=True,
        fit_intercept=False,
        tol=1e-10,
        max_iter=100_000,
        random_state=0,  # not used, but drawn from numpy's global state if left out
    )
    beta[varies] = lasso.fit(root, answer).coef_
    return beta


def neighbours(query: Query, hops: int | None, most: int, seed: int) -> Ids:
    """MASK: the node and its N-hop neighbours, one mask each; `most` drawn where there are more."""
    field = in_neighbourhood(query.graph, query.centres, hops)
    ids = field.ids[: field.size]
    if len(ids) <= most:
        return ids
    others = np.random.default_rng(seed).choice(ids[1:], most - 1, replace=False)
    return np.concatenate([ids[:1], np.sort(others)])


@dataclass(frozen=True)
class GraphLIME(Baseline):
    """HSIC Lasso of the explained score on features, over the node's N-hop neighbourhood."""

    hops: Annotated[int | None, Range(1)] = None
    """N; None: as far as the model looks."""
    rho: NotNegative = 0.1
    """Weight of the L1 norm. Kernels have norm 1, so features with an HSIC below it get 0."""
    most: Annotated[int, Range(2, 100_000)] = 300
    """At most so many neighbours; kernels grow with their square."""

    blocks: ClassVar[Blocks] = Blocks(
        title="GraphLIME",
        mask=Block("M_N picks one neighbour of v at a time", neighbours),
        gen=Block("unchanged: the original features and prediction are read", Unchanged),
        expl=Block("HSIC Lasso of predictions on features, non-negative", hsic_lasso),
        explains=("features",),
        tasks=("node",),
        meaning="HSIC Lasso coefficient, 0 or more: how far neighbours that are alike in this "
        "feature also get alike scores",
        properties=Properties(robust=True, selective=True),
        source="Huang et al. 2020",
        notes="deterministic here: it samples only above `most` neighbours",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Read the neighbours' predictions, then regress."""
        local_graph = local_graph_of(query, seed)
        prediction, x = local_graph.prediction(), query.graph.x
        hops = local_graph.evaluator.depth if self.hops is None else self.hops
        ids = neighbours(query, hops, self.most, seed)
        # Their predictions need their own receptive fields.
        around = local_graph_of(replace(query, kind="nodes", centres=ids), seed)
        scores = query.model.scores(around.explained(around.outputs())).cpu().numpy()
        features = x[as_tensor(ids, x.device)].double().cpu().numpy()
        rows = [
            torch.from_numpy(hsic_lasso(features, scores[:, output], self.rho))
            for output in prediction.outputs
        ]
        credit, read = mask_as_credit(torch.arange(features.shape[1]), rows), tuple(ids.tolist())
        report = game_report("neighbours", features.shape[1], 1, "neighbours")
        return self.record(seed, prediction, features=credit, game=report, neighbours=read)
