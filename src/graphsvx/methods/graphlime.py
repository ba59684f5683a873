"""GraphLIME: which features do predictions follow in the neighbourhood of a node?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core.arrays import Floats, Ids
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import Baseline, build_explanation, game_report
from graphsvx.methods.local_graph import local_graph_of
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, NotNegative, Range

# EXPL of GraphLIME: HSIC Lasso, a non-negative regression of similarities on similarities.
#
#     min_{beta >= 0}  1/2 || L - sum_k beta_k K_k ||_F^2 + rho sum_k beta_k
#
# K_k and L are Gaussian kernels of feature k and of the predictions over the same nodes, centred
# (H K H, H = I - 11'/n) and scaled to Frobenius norm 1. Only inner products of kernels enter, so
# the n^2 x F design is never held at once.


def gaussian_kernel(values: Floats) -> Floats:
    """exp(-(a - b)^2 / (2 s^2)) for each column of `values` [n, k], s its standard deviation.

    Returns [k, n, n]; a constant column has a kernel of ones, which centring turns into zeros.
    """
    spread = values.std(0)
    scaled = values / np.where(spread > 0, spread, 1)
    difference = scaled.T[:, :, None] - scaled.T[:, None, :]
    kernel: Floats = np.exp(-(difference**2) / 2)
    return kernel


def centred(kernels: Floats) -> Floats:
    """H K H over its Frobenius norm, [k, n, n]; kernels without any variation become 0."""
    result: Floats = (
        kernels
        - kernels.mean(1, keepdims=True)
        - kernels.mean(2, keepdims=True)
        + kernels.mean((1, 2), keepdims=True)
    )
    norm = np.sqrt((result**2).sum((1, 2), keepdims=True))
    flat = norm <= 1e-9 * kernels.shape[1]
    scaled: Floats = np.where(flat, 0.0, result / np.where(flat, 1, norm))
    return scaled


@dataclass(frozen=True)
class HSICLasso(Checked):
    """Coefficients beta of features, sparse and not negative."""

    rho: NotNegative = 0.1
    """Weight of the L1 norm. Kernels have norm 1, so features with an HSIC below it get 0."""

    def __call__(self, features: Floats, scores: Floats, memory: int = 2**28) -> Floats:
        """`features` [n, F] and `scores` [n] to beta [F]."""
        count, width = features.shape
        beta = np.zeros(width)
        varies = np.flatnonzero(features.std(0) > 0)
        target = centred(gaussian_kernel(scores[:, None]))[0]
        if len(varies) == 0 or not target.any():
            return beta
        gram, link = products(features[:, varies], target, max(1, memory // (8 * 4 * count**2)))
        beta[varies] = nonnegative_lasso(gram, link, self.rho)
        return beta


def products(features: Floats, target: Floats, block: int) -> tuple[Floats, Floats]:
    """<K_k, K_l> [F, F] and <K_k, L> [F], a block of features at a time."""
    width = features.shape[1]
    parts = [slice(first, min(width, first + block)) for first in range(0, width, block)]
    gram, link = np.zeros((width, width)), np.zeros(width)
    for i, part in enumerate(parts):
        rows = centred(gaussian_kernel(features[:, part])).reshape(part.stop - part.start, -1)
        link[part] = rows @ target.ravel()
        gram[part, part] = rows @ rows.T
        for other in parts[i + 1 :]:
            columns = centred(gaussian_kernel(features[:, other]))
            gram[part, other] = rows @ columns.reshape(len(columns), -1).T
            gram[other, part] = gram[part, other].T
    return gram, link


def nonnegative_lasso(gram: Floats, link: Floats, rho: float) -> Floats:
    """argmin_{b >= 0} 1/2 b' G b - g' b + rho sum b, by scikit-learn's coordinate descent.

    G = R'R with R = sqrt(Lambda) V', so that the problem is an ordinary Lasso with F rows.
    """
    from sklearn.linear_model import Lasso  # noqa: PLC0415  (slow to import)

    values, vectors = np.linalg.eigh(gram)
    positive = values > 1e-12 * values.max(initial=1e-300)
    root = np.sqrt(values[positive])[:, None] * vectors[:, positive].T
    answer = (vectors[:, positive].T @ link) / np.sqrt(values[positive])
    if rho == 0:
        rho = 1e-12  # scikit-learn warns about a Lasso without a penalty; this one is the same
    lasso = Lasso(
        # scikit-learn divides the squares by the number of rows.
        alpha=rho / len(answer),
        positive=True,
        fit_intercept=False,
        tol=1e-10,
        max_iter=100_000,
        random_state=0,  # not used, but drawn from numpy's global state if left out
    )
    coefficients: Floats = lasso.fit(root, answer).coef_
    return coefficients


def neighbours(query: Query, hops: int | None, most: int, seed: int) -> Ids:
    """MASK: the node and its N-hop neighbours, one mask each; `most` drawn where there are more."""
    field = fields.in_neighbourhood(query.graph, query.centres, hops)
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

    def explain(self, query: Query, seed: int) -> Explanation:
        """Read the neighbours' predictions, then regress."""
        local_graph = local_graph_of(query, seed)
        prediction = local_graph.prediction()
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
            for output in prediction.outputs
        ]
        return build_explanation(
            self,
            seed,
            prediction,
            features=mask_as_credit(torch.arange(features.shape[1]), rows),
            meaning=(
                "HSIC Lasso coefficient, 0 or more: how far neighbours that are alike in this "
                "feature also get alike scores"
            ),
            game=game_report("neighbours", features.shape[1], 1, "neighbours"),
            neighbours=tuple(ids.tolist()),
        )
