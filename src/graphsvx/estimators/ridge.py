"""Ridge regression, for games with about as many players as pairs of coalitions.

Plain least squares would interpolate noise. Ridge regression of the zero-sum part shrinks credit
towards an equal share, with a penalty chosen by generalised cross-validation. Standard errors are
the posterior standard deviations of the equivalent Bayesian linear model.
"""

from __future__ import annotations

import numpy as np
import torch

from graphsvx.core.arrays import Floats
from graphsvx.masks.base import Masks

_GRID = np.logspace(-6, 1, 29)  # penalties, as multiples of the largest eigenvalue


def needs_ridge(masks: Masks) -> bool:
    """Whether there are too few drawn pairs for plain least squares."""
    players = masks.rows.shape[1]
    return masks.pair is not None and not masks.exact and len(masks.rows) < 4 * (players - 1)


def ridge(centred: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The zero-sum part of phi and its standard errors, [outputs, M] each.

    `centred` [pairs, M] are coalitions, one of each pair, and `target` [pairs, outputs] what is
    left to explain after equal shares; both are weighted.
    """
    rows, y = torch.from_numpy(centred), torch.from_numpy(target)
    players = rows.shape[1]
    count = len(rows)
    eigenvalues, vectors = torch.linalg.eigh(rows @ rows.t())
    eigenvalues = eigenvalues.clamp(min=0)
    along = vectors.t() @ y
    penalties = torch.from_numpy(_GRID) * eigenvalues[-1]
    residual_factors = penalties[:, None] / (eigenvalues + penalties[:, None])
    missed = torch.einsum("pk,ko->po", residual_factors**2, along**2)
    validated = missed / residual_factors.sum(1, keepdim=True).clamp(min=1e-9) ** 2
    penalty = penalties[validated.argmin(0)]
    weights = along / (eigenvalues[:, None] + penalty)
    sides = vectors.t() @ rows
    part = (sides.t() @ weights).t()
    spread = (along * weights).sum(0) / count
    explained = torch.stack(
        [(sides**2 / (eigenvalues + value)[:, None]).sum(0) for value in penalty]
    )
    left = (1 - 1 / players - explained).clamp(min=1e-9)
    return part.numpy(), (spread[:, None] * left).sqrt().numpy()
