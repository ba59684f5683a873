"""Ridge regression, for games with about as many players as pairs of coalitions.

Plain least squares would interpolate noise. Ridge regression of the zero-sum part shrinks credit
towards an equal share, with a penalty chosen by generalised cross-validation. Standard errors are
the posterior standard deviations of the equivalent Bayesian linear model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from graphsvx.core.arrays import Floats
from graphsvx.masks.base import Masks

_GRID = np.logspace(-6, 1, 29)  # penalties, as multiples of the largest eigenvalue


def needs_ridge(masks: Masks) -> bool:
    """Whether there are too few drawn pairs for plain least squares."""
    players = masks.rows.shape[1]
    return masks.pair is not None and not masks.exact and len(masks.rows) < 4 * (players - 1)


def ridge(
    centred: Callable[[slice], Floats], blocks: Sequence[slice], target: Floats
) -> tuple[Floats, Floats]:
    """The zero-sum part of phi and its standard errors, [outputs, M] each.

    `centred` gives [pairs, players] of a block of players: coalitions, one of each pair, and
    `target` [pairs, outputs] is what is left to explain after equal shares; both are weighted.
    """
    y = torch.from_numpy(target)
    players, count = blocks[-1].stop, len(y)
    gram = torch.zeros(count, count, dtype=torch.float64)
    for block in blocks:
        rows = torch.from_numpy(centred(block))
        gram += rows @ rows.t()
    eigenvalues, vectors = torch.linalg.eigh(gram)
    eigenvalues = eigenvalues.clamp(min=0)
    projected = vectors.t() @ y
    penalties = torch.from_numpy(_GRID) * eigenvalues[-1]
    residual_factors = penalties[:, None] / (eigenvalues + penalties[:, None])
    missed = torch.einsum("pk,ko->po", residual_factors**2, projected**2)
    validated = missed / residual_factors.sum(1, keepdim=True).clamp(min=1e-9) ** 2
    penalty = penalties[validated.argmin(0)]
    weights = projected / (eigenvalues[:, None] + penalty)
    spread = (projected * weights).sum(0) / count
    parts, errors = [], []
    for block in blocks:
        sides = vectors.t() @ torch.from_numpy(centred(block))
        parts.append((sides.t() @ weights).t())
        squares = sides**2
        explained = torch.stack(
            [(squares / (eigenvalues + value)[:, None]).sum(0) for value in penalty]
        )
        left = (1 - 1 / players - explained).clamp(min=1e-9)
        errors.append((spread[:, None] * left).sqrt())
    return torch.cat(parts, 1).numpy(), torch.cat(errors, 1).numpy()
