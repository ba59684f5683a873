"""Weighted least squares that treat the empty and the full coalition (the ends) in other ways.

For comparisons with `WLS`, which meets both ends exactly: `NoEnds` leaves them out of the fit,
`WithEnds` counts them in R².
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import r2_score
from torch import Tensor

from graphsvx.estimators.least_squares import WLS, Fit, surrogate
from graphsvx.masks import Masks


@dataclass(frozen=True)
class NoEnds:
    """Weighted least squares with a free constant, and neither the empty nor the full row.

    So neither g(0) nor g(1) is tied to the model: efficiency holds by luck only.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Least squares of least norm; a single player has no other rows, and keeps its own."""
        count = len(masks.rows)
        if count == 0 or masks.credit is not None:
            return WLS()(masks, values, empty, full)
        z = torch.from_numpy(masks.rows).double()
        design = torch.cat([torch.ones(count, 1, dtype=torch.float64), z], 1)
        root = torch.from_numpy(masks.weights).sqrt()[:, None]
        fit = torch.linalg.lstsq(design * root, values * root, driver="gelsd").solution
        phi = fit[1:].t().contiguous()
        return surrogate(masks, values, fit[0], phi, torch.full_like(phi, torch.nan))


@dataclass(frozen=True)
class WithEnds:
    """WLS whose R² counts the empty and the full row too.

    With the weight of 1,000 that the authors' code gives them in place of infinity; the kernel of
    the paper weighs coalitions of one player 1 / M, which `Masks` scales to 1.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """The same credit, another R²."""
        fit, players = WLS()(masks, values, empty, full), masks.rows.shape[1]
        ends = np.stack([np.zeros(players, bool), np.ones(players, bool)])
        rows = torch.from_numpy(np.concatenate([masks.rows, ends])).double()
        weights = np.append(masks.weights, [1000.0 * players] * 2)
        played, fitted = torch.cat([values, empty[None], full[None]]), rows @ fit.values.t()
        r2 = r2_score(played, fit.base + fitted, sample_weight=weights, multioutput="raw_values")
        return replace(fit, r2=torch.from_numpy(np.asarray(r2)))
